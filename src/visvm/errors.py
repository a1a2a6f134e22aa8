"""The exceptions of visvm, one tree.

::

    VisvmError
    ├── InputError (ValueError)             the data or a parameter is not what it must be
    ├── IncompatibleModelError (ValueError) two models cannot be merged
    ├── NeverLearnedError (ValueError)      samples to forget were not learned
    ├── MemoryLimitError (MemoryError)      the work would need more memory than allowed
    ├── ImageError (ValueError)             files that cannot be read as images
    ├── EncoderError                        an encoder is unknown, or what it needs is not installed
    ├── WeightsError                        weights are missing, damaged or cannot be fetched
    └── ModelFileError                      a model file is missing, damaged, or of another kind

The service has one more, ``RefusedError``, for requests that are answered with a status of their own (``service/problems.py``).

Every message is one line: what must be how, what was given, what to do. Whatever raises one of these has changed
nothing. Using a model before it has learned anything raises scikit-learn's own ``NotFittedError``.

``IllConditionedWarning`` tells of a λ that was raised to what float64 can resolve, so that the work could go on.
"""


class VisvmError(Exception):
    """Anything a user of visvm can put right."""


class InputError(VisvmError, ValueError):
    """The data or a parameter is not what it must be."""


class IncompatibleModelError(VisvmError, ValueError):
    """Two models do not share the kernel map or the mixer, so their sums cannot be added."""


class NeverLearnedError(VisvmError, ValueError):
    """Samples that were to be forgotten are not among those that were learned."""


class MemoryLimitError(VisvmError, MemoryError):
    """The work would need more memory than allowed; it was not started."""


class ImageError(VisvmError, ValueError):
    """Files that cannot be read as images."""


class EncoderError(VisvmError):
    """An encoder is unknown, or what it needs is not installed."""


class WeightsError(VisvmError):
    """Weights are missing, damaged or cannot be fetched."""


class ModelFileError(VisvmError):
    """A model file is missing, damaged, or of another kind."""


class IllConditionedWarning(UserWarning):
    """λ is smaller than rounding in float64 lets the sums resolve; a larger one was used."""
