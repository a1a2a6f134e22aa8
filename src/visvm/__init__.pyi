from .encoders.loading import load_encoder
from .errors import (
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
from .head.estimators import IncrementalLSSVC, VisClassifier
from .image_classifier import ImageClassifier
from .learning.findings import Check
from .learning.local import LocalEngine
from .learning.ray import RayEngine
from .model.journal import Journal
from .model.results import Evaluation, Prediction, SessionReport
from .model.sites import SiteStatistics

__version__: str

__all__ = [
    "Check",
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
