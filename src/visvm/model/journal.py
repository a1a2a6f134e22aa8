"""A long session's sums on disk, so that it resumes after a kill instead of starting again.

A journal has the form of a model file without coefficients. It is written whole, every few minutes,
and takes the place of the one before in one step. It is used only by the session that wrote it: the
same model before it, the same files and options.
"""

import os
import time
import warnings
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from visvm.encoders.encoder import LayerFeatures
from visvm.encoders.files import part_of
from visvm.errors import InputError, ModelFileError
from visvm.head.head import Head
from visvm.model import file as model_file
from visvm.model.header import JournalNote
from visvm.model.state import EncoderId, Model

DEFAULT_SECONDS = 180.0


@dataclass(frozen=True)
class JournalEntry:
    """How far a session is."""

    key: str  # which session it is
    done: int  # files that were read
    head: Head  # with the sums so far
    unreadable: list[tuple[int, str, str]]  # place, path, reason
    features: dict[int, LayerFeatures]  # (V, width) by place, wanted after the session


class Journal:
    """The journal of a model file; as a context it is removed when all has gone well.

    Parameters
    ----------
    model : Path
        The model file, beside which it lies.
    every : float, optional
        Seconds between two writings; by default ``VISVM_JOURNAL_SECONDS``, or 180.
    """

    def __init__(self, model: Path, every: float | None = None) -> None:
        self.path = model.with_name(f".{model.name}.journal")
        self._every = _seconds() if every is None else every
        self._last = time.monotonic()

    @property
    def due(self) -> bool:
        """Whether it is time to write."""
        return time.monotonic() - self._last >= self._every

    def read(self, key: str) -> JournalEntry | None:
        """Return how far this session came, if it was begun before."""
        try:
            if not self.path.exists():
                return None
            found = model_file.read_journal(self.path)
            note = found.note
            features = found.features["features"].astype(np.float32)
            if features.ndim == 2:  # of an older version, which knew one view
                features = features[:, None]
            kept = dict(zip(note.places, features, strict=True))
        except (ModelFileError, ValueError, OSError):
            warnings.warn("The journal of an earlier try is damaged. Starting again.", stacklevel=2)
            return None
        if note.key != key:
            warnings.warn("Ignoring the journal of another session that was cut off.", stacklevel=2)
            return None
        return JournalEntry(key, note.done, found.model.head, note.unreadable, kept)

    def write(self, entry: JournalEntry) -> None:
        """Keep how far a session is; if that fails, warn and let the session go on without."""
        places = list(entry.features)
        rows = list(entry.features.values()) or np.empty((0, 1, 0))
        try:
            model_file.write_journal(
                self.path,
                Model(EncoderId("", "", ""), entry.head),  # the encoder is part of the key
                JournalNote(entry.key, entry.done, entry.unreadable, places),
                {"features": np.array(rows, dtype=np.float64)},
            )
        except ModelFileError as error:
            warnings.warn(f"Going on without a journal: {error}", stacklevel=2)
            self._every = float("inf")
        self._last = time.monotonic()

    def discard(self) -> None:
        """Remove it, and what a kill may have left of the next one."""
        with suppress(OSError):  # a name too long for a file, of which there is none
            for path in (self.path, part_of(self.path)):
                path.unlink(missing_ok=True)

    def discard_if_done(self, model: Path) -> None:
        """Remove it if the model was written after it: its session is in the model, or over."""
        with suppress(OSError):
            if self.path.stat().st_mtime_ns <= model.stat().st_mtime_ns:
                self.discard()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.discard()


def _seconds() -> float:
    text = os.environ.get("VISVM_JOURNAL_SECONDS", "")
    try:
        seconds = float(text) if text else DEFAULT_SECONDS
    except ValueError:
        seconds = -1.0
    if not seconds >= 0:
        raise InputError(
            f"VISVM_JOURNAL_SECONDS is {text!r}, not a number of seconds of at least 0. "
            "Correct or unset it.",
            code="journal-seconds",
        )
    return seconds
