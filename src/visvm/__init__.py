"""Visual Incremental SVM: learn to recognise images class by class, exactly and without forgetting.

Reading order: ``errors`` (what can go wrong), then ``head`` (layer features → scores), whose own docstring goes on from
there, then ``demo``.
"""

from visvm.errors import (
    IllConditionedWarning,
    IncompatibleModelError,
    InputError,
    LearningRateWarning,
    MemoryLimitError,
    NeverLearnedError,
    VisvmError,
)
from visvm.head.classifier import IncrementalLSSVC, VisClassifier

__version__ = "0.1.0.dev0"

__all__ = [
    "IllConditionedWarning",
    "IncompatibleModelError",
    "IncrementalLSSVC",
    "InputError",
    "LearningRateWarning",
    "MemoryLimitError",
    "NeverLearnedError",
    "VisClassifier",
    "VisvmError",
    "__version__",
]
