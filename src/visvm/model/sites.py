"""Sums that travel: what a site sends of its images, and what a model remembers of the sites whose sums it holds.

A site is whoever learns elsewhere for the same model: with its encoder, mixer and map, on images
that stay there. Its sums are added to the model's, and can be taken out again. Every site has an
id, so that none is added twice.
"""

from collections.abc import Sequence, Set
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from visvm.errors import IncompatibleModelError, ModelFileError, NeverLearnedError, shown
from visvm.head.calibration import INVERSE_TEMPERATURES
from visvm.model import file as model_file
from visvm.model.head_state import head_state, restore_head
from visvm.model.labels import Label

if TYPE_CHECKING:
    from visvm.head.estimators import VisClassifier

Array = NDArray[np.float64]


@dataclass(frozen=True)
class MergedSite:
    """A site whose sums a model holds.

    Attributes
    ----------
    id : str
    merged_at : str
        When, in UTC.
    n_images : int
        Images in its sums.
    digest : str
        SHA-256 of its sums, so that no others are taken out for them.
    labels : tuple of labels
        What its classes, sorted as in its sums, are called in the model by now.
    calibration_weight : float
        How much of its calibration is left in the model's, which counts older ones half from
        session to session.
    file : str
        The name of the file that it came in; empty where it came in none.
    """

    id: str
    merged_at: str
    n_images: int
    digest: str
    labels: tuple[Label, ...]
    calibration_weight: float = 1.0
    file: str = ""

    def renamed(self, old: Label, new: Label) -> "MergedSite":
        """The same when a class of the model has got another name."""
        return replace(self, labels=tuple(new if label == old else label for label in self.labels))


def merged_sites(header: model_file.Header) -> tuple[MergedSite, ...]:
    """The sites whose sums are in a model file."""
    names = {each.name for each in fields(MergedSite)}
    entries = [
        {name: value for name, value in entry.items() if name in names}
        for entry in header.get("merged", [])
    ]
    return tuple(MergedSite(**{**entry, "labels": tuple(entry["labels"])}) for entry in entries)


def require_new(added: Sequence[MergedSite], own: Set[str], held: Set[str]) -> None:
    """Refuse sites that a model is itself, or holds already."""
    for entry in added:
        if entry.id in own:
            raise IncompatibleModelError(
                "what is merged must be another model; this is the same one: leave it out"
                if entry is added[0]
                else "a model must be merged once; the one to add holds this one already: merge into that one instead"
            )
        if entry.id in held:
            raise IncompatibleModelError(
                f"a site must be merged once; {entry.id} is in the model already: leave it out, or 'visvm unmerge' it first"
            )


def require_merged(gone: Sequence[MergedSite], held: Sequence[MergedSite]) -> None:
    """Refuse sites that a model does not hold, or holds with other sums."""
    known = {each.id: each for each in held}
    for entry in gone:
        if entry.id not in known:
            raise NeverLearnedError(
                f"a site to take out must have been merged; {entry.id} was not: 'visvm info' lists those that were"
                if entry is gone[0]
                else f"a model must be taken out with all that it held; site {entry.id}, which it held, was taken out by itself: "
                "merge that one again first"
            )
        if (known[entry.id].digest, len(known[entry.id].labels)) != (
            entry.digest,
            len(entry.labels),
        ):
            raise NeverLearnedError(
                f"sums to take out must be those that were merged; these of site {entry.id} are others: give the same file"
            )
        now = dict(zip(gone[0].labels, known[gone[0].id].labels, strict=True))
        called = tuple(now.get(label, label) for label in entry.labels)
        if called != known[entry.id].labels:
            raise NeverLearnedError(
                f"a model must be taken out with all that it held, under the same names; the classes of site {entry.id}, "
                f"which it held, are called {', '.join(map(str, called))} in it and "
                f"{', '.join(map(str, known[entry.id].labels))} here: take that one out, rename the classes, and merge it again"
            )


def is_shared(entry: dict[str, Any], history: Sequence[dict[str, Any]]) -> bool:
    """Whether a session is in a history too, under whatever number and from whatever site."""
    own = {"session": None, "site": None}
    return {**entry, **own} in [{**other, **own} for other in history]


def numbered(history: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The sessions, numbered from 1."""
    return [{**entry, "session": number} for number, entry in enumerate(history, start=1)]


def derived_id(digest: str) -> str:
    """The id of sums that were given none: that of their content."""
    return digest[:16]


@dataclass(frozen=True)
class SiteStatistics:
    """The sums of a site's images, with what must be the same in a model that they are added to.

    Attributes
    ----------
    site : str
        The site's id.
    encoder : dict
        Its name, the digest of its weights, and the transform.
    head : VisClassifier
        With the sums (``statistics_``), the mixer and the map; what it predicts is not meant to be
        used.
    history : list of dict
        The reports of the sessions in which they were learned.
    merged : tuple of MergedSite
        Other sites, whose sums are among them.
    calibration : array of shape (49,)
    calibrated_classes : int
        As in a model; zero where only sums were made.
    file : str
        The name of the file that they were read from; empty where from none.
    """

    site: str
    encoder: dict[str, Any]
    head: "VisClassifier" = field(repr=False)
    history: list[dict[str, Any]] = field(repr=False)
    merged: tuple[MergedSite, ...] = ()
    calibration: Array = field(
        default_factory=lambda: np.zeros(len(INVERSE_TEMPERATURES)), repr=False
    )
    calibrated_classes: int = 0
    file: str = ""

    @property
    def counts(self) -> dict[Label, int]:
        """How many images of every class are in the sums."""
        statistics = self.head.statistics_
        return dict(
            zip(
                statistics.classes.tolist(),
                map(round, statistics.class_counts.tolist()),
                strict=True,
            )
        )

    @property
    def n_images(self) -> int:
        """How many images are in the sums."""
        return sum(self.counts.values())

    def entries(self, merged_at: str) -> tuple[MergedSite, ...]:
        """What a model that takes the sums in notes down: this site, and those whose sums are among its own."""
        digest, labels = self.head.statistics_.digest(), tuple(self.counts)
        own = MergedSite(self.site, merged_at, self.n_images, digest, labels, file=self.file)
        return (own, *self.merged)

    def save(self, path: str | Path) -> None:
        """Write the sums to a file, which ``visvm merge`` adds to a model; paths and names of files are left out."""
        head, tensors = head_state(self.head, solved=False)
        name = Path(self.encoder["name"])
        header = {
            "encoder": {**self.encoder, "name": name.name if name.is_absolute() else str(name)},
            "head": head,
            "classes": list(self.counts),
            "counts": list(self.counts.values()),
            "calibrated_classes": self.calibrated_classes,
            "sessions": [{**entry, "skipped": []} for entry in self.history],
            "site": self.site,
            "merged": [asdict(replace(each, file="")) for each in self.merged],
        }
        model_file.write(Path(path), header, {**tensors, "calibration": self.calibration})

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read sums from a file of them, or from that of a model."""
        header, tensors = model_file.read(Path(path))
        if header["head"]["form"] is None:
            raise ModelFileError(
                f"{shown(Path(path))} must have its sums to be merged; it was exported for predicting: use the whole one"
            )
        head = restore_head(Path(path), header["head"], header["classes"], tensors)
        site = header.get("site") or derived_id(head.statistics_.digest())
        return cls(
            site,
            header["encoder"],
            head,
            header["sessions"],
            merged_sites(header),
            tensors["calibration"],
            header.get("calibrated_classes", 0),
            Path(path).name,
        )
