"""The model that is served, in memory and on disk."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from visvm.errors import IncompatibleModelError
from visvm.image_classifier import ImageClassifier
from visvm.model import undo as kept
from visvm.model.container import locked
from visvm.model.events import last_change
from visvm.model.labels import Label
from visvm.model.results import SessionReport
from visvm.model.state import AnsweredRequest, Model
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
    """A state of the model, which never changes."""

    model: Model | None  # None while nothing has been learned
    revision: int  # counts the states since the service started
    n_bytes: int  # size of the model file, 0 while there is none
    undoable: str | None = None  # the last change, if it can be undone

    @property
    def counts(self) -> dict[Label, int]:
        """How many images of each class were learned, by class."""
        if self.model is None:
            return {}
        return dict(zip(self.model.classes.tolist(), self.model.class_counts, strict=True))

    @property
    def numbers(self) -> bool:
        """Whether the classes are numbers."""
        return self.model is not None and self.model.numbers

    @property
    def sessions(self) -> tuple[SessionReport, ...]:
        """The reports of all sessions."""
        return () if self.model is None else self.model.sessions

    @property
    def requests(self) -> tuple[AnsweredRequest, ...]:
        """The last changes that were asked for under a key."""
        return () if self.model is None else self.model.requests


class ModelStore:
    """Keeps one model in memory and on disk, and swaps it.

    A request takes ``current`` once, and holds nobody up. A change makes another model, which is
    written to disk and only then published as ``current``: an acknowledged change is on disk,
    whatever happens to the process.

    Parameters
    ----------
    path : Path
        Of the model file, which need not exist yet.
    classifier : ImageClassifier
        What is in it, with its encoder.
    signature : Signature
        Of the file, taken before it was read, so that later writes of other programs are noticed.
    """

    def __init__(self, path: Path, classifier: ImageClassifier, signature: Signature) -> None:
        self.path = path
        self._classifier = classifier
        self._signature = self._unreadable = signature
        kept.tidy_if_free(path)  # as a kill may have come after the last step of a change
        self.current = self._snapshot(classifier.model_, 1)

    @property
    def encoder_name(self) -> str:
        """The encoder's name."""
        return self._classifier.encoder_name

    @property
    def views(self) -> str:
        """What is learned of every image."""
        return self._classifier.views

    @property
    def transform(self) -> str:
        """How images become square."""
        return self._classifier.transform

    def classifier(self) -> ImageClassifier:
        """Return a classifier of its own with the current model."""
        return self._classifier.with_model(self.current.model)

    @property
    def overtaken(self) -> bool:
        """Whether another program has changed the file, and ``current`` is an older state."""
        return signature_of(self.path) != self._signature

    def change(
        self, work: Callable[[ImageClassifier], T], progress: Progress, *, undo: bool = True
    ) -> T:
        """Let `work` change the model of a classifier, and keep it; for one thread at a time.

        If `work` leaves the model as it was, nothing is written. With `undo` the file from before
        is kept.
        """
        with locked(self.path, lambda: progress("waiting for another program", 0, 1)):
            self.refresh()
            draft = self.classifier()
            result = work(draft)
            if draft.model_ is self.current.model:
                return result
            progress("writing the model", 0, 1)
            draft.save(self.path, undo=undo)
            self._publish(draft.model_, signature_of(self.path))
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
        self._unreadable = signature
        old = self._classifier
        read = ImageClassifier.load(self.path, encoder=old.load_encoder(), cache=old.cache)
        if read.transform != old.transform:
            raise IncompatibleModelError(
                f"Another program replaced the model, with transform {old.transform}, by one with "
                f"transform {read.transform}. Start the service again.",
                code="transform-changed",
            )
        self._classifier = read
        self._publish(read.model_, signature)

    def _publish(self, model: Model | None, signature: Signature) -> None:
        self._signature = signature
        self.current = self._snapshot(model, self.current.revision + 1)

    def _snapshot(self, model: Model | None, revision: int) -> Snapshot:
        undoable = None
        if model is not None and kept.available(self.path) is not None:
            undoable = last_change(model.sessions, model.events)
        return Snapshot(model, revision, _size(self._signature), undoable)


def _size(signature: Signature) -> int:
    return 0 if signature is None else signature[-1]
