"""The exceptions of visvm, one tree.

::

    VisvmError                              error
    ├── InputError (ValueError)             input               data or a parameter
    ├── IncompatibleModelError (ValueError) incompatible-model  two models cannot be merged
    ├── NeverLearnedError (ValueError)      never-learned       samples to forget were not learned
    ├── MemoryLimitError (MemoryError)      memory-limit        the work needs too much memory
    ├── ImageError (ValueError)             image               files are not images
    ├── EncoderError                        encoder             unknown, or lacks a package
    ├── WeightsError                        weights             missing, damaged or out of reach
    └── ModelFileError                      model-file          missing, damaged or of another kind

The service has one more, ``RefusedError``, for requests that are answered with a status of their
own (``service/problems.py``).

Every message is one line: the fact, then the remedy. Every error also has a ``code``, a few words
joined by hyphens that never change, for programs: ``--json`` and HTTP problems carry it. The codes
in the tree are those of errors that were given none of their own. Whatever raises one of these has
changed nothing. Using a model before it has learned anything raises scikit-learn's own
``NotFittedError``.

``IllConditionedWarning`` warns that λ was raised to what float64 can resolve.
"""

import re
from pathlib import Path

# control characters, ends of lines, what turns the direction of text, halves of characters
UNPRINTABLE = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ud800-\udfff]"
)


class VisvmError(Exception):
    """Anything a user of visvm can put right.

    Parameters
    ----------
    message : str
        One line: the fact, then the remedy.
    code : str, optional
        What the error is for a program; by default that of its class.

    Examples
    --------
    >>> InputError("The list is empty. Add a file.", code="no-files").code, InputError("…").code
    ('no-files', 'input')
    """

    code = "error"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code


class InputError(VisvmError, ValueError):
    """The data or a parameter is not what it must be."""

    code = "input"


class IncompatibleModelError(VisvmError, ValueError):
    """Two models do not share the kernel map or the mixer, so their sums cannot be added."""

    code = "incompatible-model"


class NeverLearnedError(VisvmError, ValueError):
    """Samples that were to be forgotten are not among those that were learned."""

    code = "never-learned"


class MemoryLimitError(VisvmError, MemoryError):
    """The work would need more memory than allowed; it was not started."""

    code = "memory-limit"


class ImageError(VisvmError, ValueError):
    """Files that cannot be read as images."""

    code = "image"


class EncoderError(VisvmError):
    """An encoder is unknown, or what it needs is not installed."""

    code = "encoder"


class WeightsError(VisvmError):
    """Weights are missing, damaged or cannot be fetched."""

    code = "weights"


class ModelFileError(VisvmError):
    """A model file is missing, damaged, or of another kind."""

    code = "model-file"


class IllConditionedWarning(UserWarning):
    """λ is smaller than rounding in float64 lets the sums resolve; a larger one was used."""


def escaped(text: str) -> str:
    r"""Return text that cannot steer a terminal: what could is written as Python escapes it.

    Examples
    --------
    >>> print(escaped("red\x1b[2J"), escaped("鷺"))
    red\x1b[2J 鷺
    """
    return UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def shown(path: Path | str) -> str:
    """Return a path as a message names it: on one line, in characters that can be printed."""
    text = str(path)
    return text if text.isprintable() else repr(text)
