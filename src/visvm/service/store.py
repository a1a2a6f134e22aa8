"""The model that is served: what predictions are made with, and how it is changed on disk."""

import copy
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from visvm import model_file
from visvm.image_classifier import ImageClassifier, Progress

T = TypeVar("T")


@dataclass(frozen=True)
class Snapshot:
    """A state of the model that never changes.

    Attributes
    ----------
    classifier : ImageClassifier
    revision : int
        Counts the states since the service was started.
    n_bytes : int
        Size of the model file, 0 while there is none.
    """

    classifier: ImageClassifier
    revision: int
    n_bytes: int


class ModelStore:
    """Keeps one model in memory and on disk.

    Readers take ``current``, once for a request, and are never waited for. A change is made to a copy, written to disk, and only
    then put in the place of ``current``: whoever is told of a change finds it on disk, whatever happens to the process.

    Parameters
    ----------
    path : Path
        Of the model file, which need not exist yet.
    classifier : ImageClassifier
        What is in it.
    """

    def __init__(self, path: Path, classifier: ImageClassifier) -> None:
        self.path = path
        self._signature = self._unreadable = self._sign()
        self.current = Snapshot(classifier, 1, self._size())

    def change(self, work: Callable[[ImageClassifier], T], progress: Progress) -> T:
        """Let `work` change a copy of the model, and keep it; for one thread at a time.

        Parameters
        ----------
        work : callable
            Changes the classifier it is given; its result is passed on.
        progress : callable
        """
        with model_file.locked(self.path, lambda: progress("waiting for another program", 0, 1)):
            self.refresh()
            draft = copy.copy(self.current.classifier)
            result = work(draft)
            progress("writing the model", 0, 1)
            draft.save(self.path)
            self._publish(draft)
        return result

    def look(self) -> None:
        """Read the file again if another program has changed it, unless it was found to be unreadable."""
        if self._sign() != self._unreadable:
            self.refresh()

    def refresh(self) -> None:
        """Read the file again if another program has changed it."""
        signature = self._sign()
        if signature is not None and signature != self._signature:
            old, self._unreadable = self.current.classifier, signature
            self._publish(ImageClassifier.load(self.path, encoder=old.load_encoder(), cache=old.cache))

    def _publish(self, classifier: ImageClassifier) -> None:
        self._signature = self._sign()
        self.current = Snapshot(classifier, self.current.revision + 1, self._size())

    def _sign(self) -> tuple[int, ...] | None:
        """What tells one state of the file from another."""
        try:
            found = os.stat(self.path)
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def _size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0
