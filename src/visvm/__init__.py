"""Visual Incremental SVM: learn to recognise images class by class, exactly and without forgetting.

Reading order: ``errors`` (what can go wrong), ``encoders`` (images → layer features) and ``head`` (layer features → scores),
whose own docstrings go on from there, ``remote`` and ``labelled`` (folders → files and labels), ``results`` (what people get),
``model_file`` and ``head_state`` (one file holds a model), ``sites`` (or the sums of one site), ``journal`` (or half a session),
``learning`` (files → sums, piece by piece), ``ray_engine`` (the same on many machines), ``image_predictor`` (images in, answers
out), ``image_classifier`` (and learning), ``bench`` (the benchmark, with its own reading order), then what people see:
``figures``, ``terminal``, ``reporting``, ``doctor``, ``digits``, ``demo``, ``service`` (HTTP and the web page, its own reading
order), ``cli_shared``, ``cli_upkeep``, ``cli_sites``, ``cli_bench``, ``cli``.

Names are imported when they are first used, so that ``visvm --help`` does not wait for scikit-learn.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from visvm.encoders.loading import load_encoder
    from visvm.errors import (
        EncoderError,
        IllConditionedWarning,
        ImageError,
        IncompatibleModelError,
        InputError,
        MemoryLimitError,
        ModelFileError,
        NeverLearnedError,
        VisvmError,
        WeightsError,
    )
    from visvm.head.classifier import IncrementalLSSVC, VisClassifier
    from visvm.image_classifier import ImageClassifier
    from visvm.journal import Journal
    from visvm.learning import LocalEngine
    from visvm.ray_engine import RayEngine
    from visvm.results import Evaluation, Prediction, SessionReport
    from visvm.sites import SiteStatistics

__version__ = "0.1.0.dev0"

_HOMES = {
    "visvm.encoders.loading": ["load_encoder"],
    "visvm.errors": [
        "EncoderError",
        "IllConditionedWarning",
        "ImageError",
        "IncompatibleModelError",
        "InputError",
        "MemoryLimitError",
        "ModelFileError",
        "NeverLearnedError",
        "VisvmError",
        "WeightsError",
    ],
    "visvm.head.classifier": ["IncrementalLSSVC", "VisClassifier"],
    "visvm.image_classifier": ["ImageClassifier"],
    "visvm.journal": ["Journal"],
    "visvm.learning": ["LocalEngine"],
    "visvm.ray_engine": ["RayEngine"],
    "visvm.results": ["Evaluation", "Prediction", "SessionReport"],
    "visvm.sites": ["SiteStatistics"],
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "EncoderError",
    "Evaluation",
    "IllConditionedWarning",
    "ImageClassifier",
    "ImageError",
    "IncompatibleModelError",
    "IncrementalLSSVC",
    "InputError",
    "Journal",
    "LocalEngine",
    "MemoryLimitError",
    "ModelFileError",
    "NeverLearnedError",
    "Prediction",
    "RayEngine",
    "SessionReport",
    "SiteStatistics",
    "VisClassifier",
    "VisvmError",
    "WeightsError",
    "__version__",
    "load_encoder",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *_HOME]
