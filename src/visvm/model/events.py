"""Changes of a model that are no sessions: what its history says of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from visvm.model.formats import counted
from visvm.model.labels import Label, some_of
from visvm.model.results import SessionReport


@dataclass(frozen=True)
class Event:
    """A change of a model that is not a session.

    Attributes
    ----------
    kind : str
        "merge-classes" is a class renamed to one that there is; the others are named as commands.
    at : str
        When, in UTC.
    after_session : int
        How many sessions the history had then.
    n_images : int or None
        Images that were taken out, or added by a site.
    classes : tuple of labels
        That were renamed or forgotten, or of which images were, by their names then.
    name : str, int or None
        What the class was called afterwards.
    site : str or None
        The id of the site.

    Examples
    --------
    >>> Event("rename-class", "2026-01-02", 1, classes=("robbin",), name="robin").said
    'renamed robbin to robin'
    """

    kind: Literal["forget", "forget-class", "rename-class", "merge-classes", "merge", "unmerge"]
    at: str
    after_session: int
    n_images: int | None = None
    classes: tuple[Label, ...] = ()
    name: Label | None = None
    site: str | None = None

    @property
    def said(self) -> str:
        """What was done, in words."""
        classes, images = some_of(self.classes), f"{self.n_images} image{'s'[: self.n_images != 1]}"
        return {
            "forget": f"forgot {images} of {classes}",
            "forget-class": f"forgot the class {classes} ({images})",
            "rename-class": f"renamed {classes} to {self.name}",
            "merge-classes": f"put {classes} into {self.name}",
            "merge": f"merged site {self.site} ({images})",
            "unmerge": f"took out site {self.site} ({images})",
        }[self.kind]


def last_change(sessions: Sequence[SessionReport], events: Sequence[Event]) -> str | None:
    """Return what was changed last, in words; None where nothing was."""
    if events and events[-1].after_session >= len(sessions):
        return events[-1].said
    if sessions:
        images = counted(sessions[-1].n_images, "image")
        return f"learned session {sessions[-1].session} ({images})"
    return None
