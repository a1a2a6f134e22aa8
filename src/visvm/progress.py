"""Progress of long work: one type for every stage of every command, and what Python shows of it."""

import os
import sys
import time
from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Called with the stage, the number of steps done, and the number of all steps."""

_BAR = 24  # characters
_SECONDS = 0.1  # between two drawings


def silent(stage: str, done: int, total: int) -> None:
    """Do nothing."""


class _Line:
    """One line of a terminal or of a notebook's output, which is drawn over and over."""

    def __init__(self) -> None:
        self._width, self._next = 0, 0.0

    def __call__(self, stage: str, done: int, total: int) -> None:
        ended = done >= total > 0
        now = time.monotonic()
        if not (ended and self._width) and (ended or now < self._next or not is_watched()):
            return
        filled = _BAR * done // max(total, 1)
        text = f"{stage} {'━' * filled:{_BAR}} {done}/{total}" if total > 1 else f"{stage} …"
        said = "" if ended else text
        sys.stderr.write(f"\r{said:{self._width}}\r{said}")
        sys.stderr.flush()
        self._width, self._next = len(said), now + _SECONDS


def is_watched() -> bool:
    """Whether somebody sees progress: on a terminal or in a notebook, if VISVM_PROGRESS is not off.

    Examples
    --------
    >>> is_watched()
    False
    """
    if os.environ.get("VISVM_PROGRESS") == "off" or sys.stderr is None:
        return False
    return sys.stderr.isatty() or _in_notebook()


def _in_notebook() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


watched: Progress = _Line()
"""Draw a bar while somebody sees it, and clear it: the default of ``ImageClassifier``."""
