"""Sums that travel: what a site sends of its images, and what must hold when it is merged.

A site learns elsewhere for the same model: with its encoder, mixer and map, on images that stay
there. Its sums are added to the model's, and can be taken out again. Every site has an id, so that
none is added twice.

Sums are not anonymous (``head/scatter.py``): treat them as the features of the images. Below a
``Minimum`` of images they are not written unless that is asked for.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any, Self

from visvm.errors import (
    IncompatibleModelError,
    InputError,
    ModelFileError,
    NeverLearnedError,
    escaped,
    shown,
)
from visvm.head.lift import Lift
from visvm.model import file as model_file
from visvm.model.header import report_as_dict
from visvm.model.labels import Label, some_of
from visvm.model.state import MergedSite, Model


def require_new_sites(added: Sequence[MergedSite], own: Set[str], held: Set[str]) -> None:
    """Refuse sites that a model is itself, or holds already."""
    for entry in added:
        if entry.id in own and entry is added[0]:
            raise IncompatibleModelError(
                "A model cannot be merged with itself. Leave it out.", code="merge-self"
            )
        if entry.id in own:
            raise IncompatibleModelError(
                "The other model already holds this one. Merge into that one instead.",
                code="merge-inside-out",
            )
        if entry.id in held:
            raise IncompatibleModelError(
                f"Site {entry.id} is already in the model. Leave it out, or 'visvm unmerge' it "
                "first.",
                code="site-merged-twice",
            )


def require_merged_sites(gone: Sequence[MergedSite], held: Sequence[MergedSite]) -> None:
    """Refuse sites that a model does not hold, or holds with other sums or under other names."""
    known = {each.id: each for each in held}
    for entry in gone:
        if entry.id not in known and entry is gone[0]:
            raise NeverLearnedError(
                f"Site {entry.id} is not in the model. 'visvm info' lists the sites that are.",
                code="site-unknown",
            )
        if entry.id not in known:
            raise NeverLearnedError(
                f"Site {entry.id} was already removed separately; merge it again first.",
                code="site-removed-separately",
            )
        mine = known[entry.id]
        if (mine.digest, len(mine.labels)) != (entry.digest, len(entry.labels)):
            raise NeverLearnedError(
                f"These are not the sums of site {entry.id} that were merged. Give the same file.",
                code="site-altered",
            )
        now = dict(zip(gone[0].labels, known[gone[0].id].labels, strict=True))
        called = tuple(now.get(label, label) for label in entry.labels)
        if called != mine.labels:
            raise NeverLearnedError(
                f"The classes of site {entry.id} are called {_listed(called)} in the model to "
                f"remove and {_listed(mine.labels)} here. Remove that site, rename its classes, "
                "and merge it again first.",
                code="site-renamed",
            )


def _listed(labels: Sequence[Label]) -> str:
    return ", ".join(escaped(str(label)) for label in labels)


@dataclass(frozen=True)
class Minimum:
    """How many images sums must have before the known attacks on them end.

    They end there (``benchmarks/PRIVACY.md``); that nothing else works is not proven. The number of
    classes is no part of it: more of them make an attack easier, not harder.

    Attributes
    ----------
    n_images : int
        Of all classes together.
    per_class : int
        Of every class that has any.

    Examples
    --------
    >>> from visvm.head.lift import KernelMap
    >>> Minimum.of(Lift(None, KernelMap(384, 1000, seed=0)))
    Minimum(n_images=1001, per_class=3)
    """

    n_images: int
    per_class: int

    @classmethod
    def of(cls, lift: Lift) -> "Minimum":
        """Return what a site's own sums need.

        D + 1 images leave no direction of φ out. Features of D/d images have as many numbers as
        their class sum.
        """
        return cls(lift.width + 1, max(2, -(-lift.width // lift.kernel_map.n_inputs)))

    def require(self, counts: Mapping[Label, int]) -> None:
        """Refuse sums of so many images of each class."""
        fewest = min(counts, key=lambda label: counts[label])
        if (n := sum(counts.values())) < self.n_images:
            of, least = "", self.n_images
        elif (n := counts[fewest]) < self.per_class:
            of, least = f" of {some_of([fewest])}", self.per_class
        else:
            return
        raise InputError(
            f"Features of single photos can be computed from the sums of {n} photos{of}, as they "
            f"are fewer than {least}. Give more photos, lower the model's n_components, or write "
            "them with --reveal-features (reveal_features=True) if the features may be known, or "
            "if you keep them and send what 'visvm masked sums' makes of them.",
            code="sums-revealing",
        )


@dataclass(frozen=True, eq=False)
class SiteStatistics:
    """The sums of a site's images, with what must be the same in a model that they are added to.

    Attributes
    ----------
    model : Model
        With the sums, the mixer and the map.
    file : str
        The name of the file that they were read from; empty where from none.
    """

    model: Model
    file: str = ""

    @property
    def site(self) -> str:
        """The site's id; sums that were given none have that of their content."""
        return self.model.site or self.model.head.statistics.digest()[:16]

    @property
    def named(self) -> str:
        """What messages about it begin with: its file, where it came from one."""
        return f"{shown(self.file)}: " if self.file else ""

    @property
    def counts(self) -> dict[Label, int]:
        """How many images of every class are in the sums."""
        return self.model.counts

    @property
    def n_images(self) -> int:
        """How many images are in the sums."""
        return sum(self.counts.values())

    @property
    def history(self) -> list[dict[str, Any]]:
        """The reports of the sessions in which they were learned."""
        return [report_as_dict(each) for each in self.model.sessions]

    def is_for(self, model: Model) -> bool:
        """Whether the sums are those of this site, and of this encoder, mixer and map."""
        own, there = self.model, model.encoder
        return (
            self.site == (model.site or own.head.statistics.digest()[:16])
            and (own.encoder.digest, own.encoder.transform) == (there.digest, there.transform)
            and own.head.settled.lift.digest == model.head.settled.lift.digest
        )

    def entries(self, merged_at: str) -> tuple[MergedSite, ...]:
        """Return what a model notes that takes the sums in: this site, and those in its sums."""
        digest, labels = self.model.head.statistics.digest(), tuple(self.counts)
        own = MergedSite(self.site, merged_at, self.n_images, digest, labels, file=self.file)
        return (own, *self.model.sites)

    @property
    def minimum(self) -> Minimum:
        """How many images they should have before they are given to others."""
        return Minimum.of(self.model.head.settled.lift)

    def save(self, path: str | Path, *, reveal_features: bool = False) -> None:
        """Write the sums to a file, which ``visvm merge`` adds to a model.

        Paths and names of files are left out.

        Parameters
        ----------
        path : path
        reveal_features : bool, default=False
            Write sums below the minimum, too, from which features of single images can be computed.
        """
        if not reveal_features:
            self.minimum.require(self.counts)
        model, name = self.model, PurePath(self.model.encoder.name)
        nameless = replace(
            model,
            encoder=replace(model.encoder, name=name.name if name.is_absolute() else str(name)),
            head=replace(model.head, coefficients=None),
            sessions=tuple(replace(each, skipped=(), estimate=None) for each in model.sessions),
            site=self.site,
            sites=tuple(replace(each, file="") for each in model.sites),
            change=None,
            events=(),
            photos=None,
        )
        model_file.write(Path(path), nameless)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read sums from a file of them, or from that of a model."""
        model = model_file.read(Path(path))
        if model.head.sums is None:
            raise ModelFileError(
                f"{shown(path)} was exported for predicting and has no sums to merge. "
                "Use the whole model.",
                code="sums-missing",
            )
        return cls(model, Path(path).name)
