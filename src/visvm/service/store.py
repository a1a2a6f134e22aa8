"""The model that is served, in memory and on disk."""

import copy
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from visvm.errors import IncompatibleModelError
from visvm.image_classifier import ImageClassifier
from visvm.model import file as model_file
from visvm.progress import Progress

T = TypeVar("T")
Signature = tuple[int, ...] | None


def signature_of(path: Path) -> Signature:
    """Return what tells one state of a file from another; None where there is no file."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


@dataclass(frozen=True)
class Snapshot:
    """A state of the model that never changes.

    Attributes
    ----------
    classifier : ImageClassifier
    revision : int
        Counts the states since the service started.
    n_bytes : int
        Size of the model file, 0 while there is none.
    """

    classifier: ImageClassifier
    revision: int
    n_bytes: int


class ModelStore:
    """Keeps one model in memory and on disk.

    A request takes ``current`` once, and holds nobody up. A change is made to a copy, written to
    disk, and only then published as ``current``: an acknowledged change is on disk, whatever
    happens to the process.

    Parameters
    ----------
    path : Path
        Of the model file, which need not exist yet.
    classifier : ImageClassifier
        What is in it.
    signature : Signature
        Of the file, taken before it was read, so that later writes of other programs are noticed.
    """

    def __init__(self, path: Path, classifier: ImageClassifier, signature: Signature) -> None:
        self.path = path
        self._signature = self._unreadable = signature
        self.current = Snapshot(classifier, 1, _size(signature))

    def change(self, work: Callable[[ImageClassifier], T], progress: Progress) -> T:
        """Let `work` change a copy of the model, and keep the copy; for one thread at a time."""
        with model_file.locked(self.path, lambda: progress("waiting for another program", 0, 1)):
            self.refresh()
            draft = copy.copy(self.current.classifier)
            result = work(draft)
            progress("writing the model", 0, 1)
            draft.save(self.path)
            self._publish(draft, signature_of(self.path))
        return result

    def look(self) -> None:
        """Do as ``refresh``, unless the file was found to be unreadable."""
        if signature_of(self.path) != self._unreadable:
            self.refresh()

    def refresh(self) -> None:
        """Read the file again if another program has changed it."""
        signature = signature_of(self.path)
        if signature is None or signature == self._signature:
            return
        old, self._unreadable = self.current.classifier, signature
        read = ImageClassifier.load(self.path, encoder=old.load_encoder(), cache=old.cache)
        if read.transform != old.transform:
            raise IncompatibleModelError(
                f"Another program replaced the model, with transform {old.transform}, by one with "
                f"transform {read.transform}. Start the service again.",
                code="transform-changed",
            )
        self._publish(read, signature)

    def _publish(self, classifier: ImageClassifier, signature: Signature) -> None:
        self._signature = signature
        self.current = Snapshot(classifier, self.current.revision + 1, _size(signature))


def _size(signature: Signature) -> int:
    return 0 if signature is None else signature[-1]
