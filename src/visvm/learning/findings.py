"""What a check of labelled photos finds, as every surface shows it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from visvm.head.doubts import sure
from visvm.model.labels import Label

LIKELY: Final = 0.9
"""From this score on, a fix list puts the suggested label in place of a wrong one."""

FEW: Final = 5
"""A class with fewer photos is said to have few."""


@dataclass(frozen=True)
class Photo:
    """One of the photos that were checked.

    Attributes
    ----------
    place : int
        Among those that were given, from 0.
    path : str
    label : str or int
    """

    place: int
    path: str
    label: Label


@dataclass(frozen=True)
class Mislabelled(Photo):
    """A photo whose own label loses, scored as if the photo had not been learned.

    Attributes
    ----------
    suggested : str or int
        The likeliest other class.
    confidence : float
        How likely it is that its own label is wrong.
    score : float
        How likely the suggested class is, among all.
    """

    suggested: Label
    confidence: float
    score: float


@dataclass(frozen=True)
class Unlike(Photo):
    """A photo unlike its class, and unlike all other photos.

    Attributes
    ----------
    distance : float
        From the nearest others; 1 is usual.
    """

    distance: float


@dataclass(frozen=True)
class UnreadablePhoto(Photo):
    """A file that is not an image.

    Attributes
    ----------
    reason : str
    """

    reason: str


@dataclass(frozen=True)
class Alike:
    """Photos that are the same, or nearly.

    Attributes
    ----------
    photos : tuple of Photo
        In the order given.
    exact : bool
        Whether the files have the same content.
    """

    photos: tuple[Photo, ...]
    exact: bool

    @property
    def across(self) -> bool:
        """Whether they have different labels."""
        return len({photo.label for photo in self.photos}) > 1


@dataclass(frozen=True)
class FewPhotos:
    """A class with few photos, those that a model has learned among them."""

    label: Label
    n: int


@dataclass(frozen=True)
class Check:
    """What is wrong with labelled photos.

    Attributes
    ----------
    n : int
        Photos that were given.
    n_classes : int
        Of these.
    mislabelled : tuple of Mislabelled
        Photos whose own label loses, the surest first. Those from `sure` on are called wrong.
    duplicates : tuple of Alike
        Groups of the same content, and groups of nearly the same picture.
    unlike : tuple of Unlike
        The furthest first.
    unreadable : tuple of UnreadablePhoto
    few : tuple of FewPhotos
        Classes with fewer than five photos.
    n_learned : int
        Photos that the model has learned already, as far as it can tell: not from more than 2/3 D.
    """

    n: int
    n_classes: int
    mislabelled: tuple[Mislabelled, ...] = ()
    duplicates: tuple[Alike, ...] = ()
    unlike: tuple[Unlike, ...] = ()
    unreadable: tuple[UnreadablePhoto, ...] = ()
    few: tuple[FewPhotos, ...] = ()
    n_learned: int = 0

    @property
    def sure(self) -> float:
        """From this confidence on, a label is called wrong; few photos can tell less surely."""
        return sure(self.n)

    @property
    def wrong(self) -> tuple[Mislabelled, ...]:
        """Photos whose label is called wrong."""
        return tuple(each for each in self.mislabelled if each.confidence >= self.sure)

    @property
    def again(self) -> frozenset[int]:
        """Places of photos whose content was given before, under the same label."""
        return frozenset(
            photo.place
            for group in self.duplicates
            if group.exact
            for photo in again_of(group.photos)
        )


def again_of(photos: Iterable[Photo]) -> list[Photo]:
    """Return the photos of the same content whose label came before.

    Examples
    --------
    >>> again_of([Photo(0, "a", "cat"), Photo(1, "b", "dog"), Photo(2, "c", "cat")])
    [Photo(place=2, path='c', label='cat')]
    """
    seen: set[Label] = set()
    found = []
    for photo in photos:
        if photo.label in seen:
            found.append(photo)
        seen.add(photo.label)
    return found


def sentences(check: Check) -> list[str]:
    """Return what was found, each in a sentence; none where nothing is wrong.

    Examples
    --------
    >>> sentences(Check(9, 1, few=(FewPhotos("owl", 2),)))
    ['1 class has fewer than 5 photos.']
    """
    wrong, n_unsure = len(check.wrong), len(check.mislabelled) - len(check.wrong)
    same = [group for group in check.duplicates if group.exact]
    near = len(check.duplicates) - len(same)
    across = sum(group.across for group in check.duplicates)
    found = (
        (wrong, "label looks", "labels look", "wrong"),
        (n_unsure, "more label loses", "more labels lose", "to another class, less surely"),
        (len(same), "photo is", "photos are", "there more than once"),
        (near, "photo has", "photos have", "a near copy"),
        (across, "of these is", "of these are", "under different labels"),
        (len(check.unlike), "photo is", "photos are", "unlike all others"),
        (len(check.unreadable), "file is", "files are", "not readable as an image"),
        (check.n_learned, "photo was", "photos were", "learned by the model already"),
        (len(check.few), "class has", "classes have", f"fewer than {FEW} photos"),
    )
    return [f"{n} {one if n == 1 else many} {what}." for n, one, many, what in found if n]
