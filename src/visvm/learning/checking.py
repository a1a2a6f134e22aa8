"""Labelled photos → what is wrong with them, before they are learned, or without learning them.

Every photo is scored as if it had not been learned: by a head of its own for these photos, or by
a model that has learned them too. That leaves nothing behind; the model stays as it is.
"""

import hashlib
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visvm.encoders.cache import FeatureCache, opened_cache
from visvm.encoders.encoder import Encoder, LayerFeatures
from visvm.encoders.pipeline import encode_files
from visvm.encoders.sources import Source, content_of
from visvm.encoders.transform import Transform
from visvm.head.checks import Labels
from visvm.head.doubts import (
    Likeness,
    affinities,
    doubts_of,
    far_off,
    likeness_of,
    unlearned_affinities,
)
from visvm.head.head import as_rows
from visvm.head.nearness import moments_of
from visvm.head.products import Array, Indices
from visvm.learning.findings import (
    FEW,
    Alike,
    Check,
    FewPhotos,
    Mislabelled,
    Photo,
    Unlike,
    UnreadablePhoto,
)
from visvm.learning.labelled import Labelled
from visvm.model.labels import is_forgotten
from visvm.model.state import Model
from visvm.progress import Progress

Bools = NDArray[np.bool_]


def check_labelled(
    given: Labelled,
    encoder: Encoder,
    views: tuple[Transform, ...],
    cache: bool | Path | FeatureCache,
    model: Model | None,
    progress: Progress,
) -> Check:
    """Find what is wrong with labelled photos.

    Parameters
    ----------
    given : Labelled
    encoder : Encoder
    views : tuple of Transform
        Those that are to be learned of every photo.
    cache : bool, Path or FeatureCache
    model : Model or None
        That is to learn them, or has: then they are also compared with its classes.
    progress : Progress
    """
    with opened_cache(cache) as opened:
        encoded = encode_files(given.sources, encoder, views, opened, progress, "encoding")
    progress("checking", 0, 1)
    named = [_photo(given, place) for place in range(len(given.labels))]
    missing = sorted(set(range(len(named))) - set(encoded.places))
    unreadable = [
        UnreadablePhoto(**vars(named[place]), reason=each.reason)
        for place, each in zip(missing, encoded.unreadable, strict=True)
    ]
    photos = [named[place] for place in encoded.places]
    found = _Found(given, photos, encoded.features, encoder.layer_dims[-1], model)
    check = Check(
        n=len(named),
        n_classes=len(set(given.labels)),
        mislabelled=found.mislabelled(),
        duplicates=found.duplicates(),
        unlike=found.unlike(),
        unreadable=tuple(unreadable),
        few=found.few(),
        n_learned=int(found.held.sum()),
    )
    progress("checking", 1, 1)
    return check


def _photo(given: Labelled, place: int) -> Photo:
    return Photo(place, given.name_of(place), given.labels[place])


@dataclass(frozen=True, eq=False)
class _Found:
    """Photos that can be read, with the features of their views, (n, V, width)."""

    given: Labelled
    photos: list[Photo]
    features: LayerFeatures
    width: int  # of the last block
    model: Model | None

    @cached_property
    def labels(self) -> Labels:
        """One for each, (n,)."""
        return np.array([photo.label for photo in self.photos])

    @property
    def final(self) -> LayerFeatures:
        """The last block of each photo itself, (n, d)."""
        return self.features[:, 0, -self.width :]

    @cached_property
    def held(self) -> Bools:
        """Which of them the model has learned already, as far as it can tell, (n,)."""
        if self.model is None or not self.photos:
            return np.zeros(len(self.photos), dtype=bool)
        # under its own label, as far as that is a class: it may have another name by now
        known = np.isin(self.labels, self.model.head.classes)
        if self.given.key in self.model.learned:
            return known
        held = self.model.head.holds(self.features[:, 0])
        return np.zeros_like(known) if held is None else known & held

    @cached_property
    def same(self) -> list[list[int]]:
        """Groups of photos with the same content."""
        return same_contents([self.given.sources[photo.place] for photo in self.photos])

    @cached_property
    def likeness(self) -> Likeness:
        """How they resemble one another."""
        return likeness_of(self.final, np.unique(self.labels, return_inverse=True)[1])

    def few(self) -> tuple[FewPhotos, ...]:
        """Return the classes given of which few photos are known, once these are learned."""
        new = [photo.label for photo, held in zip(self.photos, self.held, strict=True) if not held]
        counts = Counter(new)
        if self.model is not None:
            counts.update(self.model.counts)
        return tuple(
            FewPhotos(label, counts[label])
            for label in sorted(set(self.given.labels))
            if counts[label] < FEW
        )

    def duplicates(self) -> tuple[Alike, ...]:
        """Return the groups of the same content, then those of nearly the same picture."""
        if not self.photos:
            return ()
        near = [group for group in self.likeness.groups if group not in self.same]
        return tuple(self._alike(group, exact=True) for group in self.same) + tuple(
            self._alike(group, exact=False) for group in near
        )

    def _alike(self, group: list[int], *, exact: bool) -> Alike:
        return Alike(tuple(self.photos[each] for each in group), exact)

    def mislabelled(self) -> tuple[Mislabelled, ...]:
        """Return the photos whose label loses, the surest first."""
        if not self.photos:
            return ()
        model = self.model
        learned, stands = self._once()
        if model is None:
            names, counts = np.unique(self.labels[learned], return_counts=True)
            targets = np.searchsorted(names, self.labels).clip(max=len(names) - 1)
            scores = unlearned_affinities(self.final, targets, learned)
            return self._losing(scores[stands], targets, learned[stands], names, counts)
        head, new = model.head, learned & ~self.held
        learned = learned | self.held
        stands = np.where(self.held, np.arange(len(stands)), stands)
        if new.any():
            head = head.learned(*as_rows(self.features[new], self.labels[new]))
        chosen = np.flatnonzero([not is_forgotten(label) for label in head.classes.tolist()])
        names, n_of = head.classes[chosen], head.statistics.class_counts[chosen]
        means, scatter = moments_of(head.statistics, head.settled.lift.kernel_map.back)
        targets = np.searchsorted(names, self.labels).clip(max=len(names) - 1)
        n, n_views, width = self.features.shape
        views = head.recovered(self.features.reshape(-1, width)).reshape(n, n_views, -1)
        moments = means[chosen], scatter, n_of
        scores = affinities(views[:, 0], views.mean(axis=1), targets, learned, moments)
        return self._losing(scores[stands], targets, learned[stands], names, n_of)

    def _once(self) -> tuple[Bools, Indices]:
        """Return which photos to learn, and whose score each gets: both (n,).

        A photo that is there twice must not speak for itself: one of each content is learned, and
        its copies get its score. Where their labels differ, none is.
        """
        learned, stands = np.ones(len(self.photos), dtype=bool), np.arange(len(self.photos))
        for group in self.same:
            one_label = len(np.unique(self.labels[group])) == 1
            learned[group] = False
            learned[group[0]] = one_label
            if one_label:
                stands[group] = group[0]
        return (learned if learned.any() else np.ones_like(learned)), stands

    def _losing(
        self,
        scores: Array,
        targets: Indices,
        learned: Bools,
        names: Labels,
        counts: NDArray[Any],
    ) -> tuple[Mislabelled, ...]:
        """Return the photos whose label loses by scores as if unlearned, (n, C), of `names`."""
        # without the others, their class is unknown
        alone = (names[targets] != self.labels) | (learned & (counts[targets] < 2))
        places = np.flatnonzero(~alone)
        doubts = doubts_of(scores[places], targets[places])
        loses = np.flatnonzero(doubts.loses)
        order = loses[np.argsort(-doubts.confidence[loses], kind="stable")]
        return tuple(
            Mislabelled(
                **vars(self.photos[places[each]]),
                suggested=names[doubts.suggested[each]].item(),
                confidence=float(doubts.confidence[each]),
                score=float(doubts.score[each]),
            )
            for each in order.tolist()
        )

    def unlike(self) -> tuple[Unlike, ...]:
        """Return the photos unlike all others, the strangest first."""
        if not self.photos:
            return ()
        gaps = self.likeness.gaps
        far = np.flatnonzero(far_off(gaps))
        usual = max(float(np.median(gaps)), 1e-6)
        return tuple(
            Unlike(**vars(self.photos[each]), distance=float(gaps[each]) / usual)
            for each in far[np.argsort(-gaps[far], kind="stable")].tolist()
        )


def same_contents(sources: list[Source]) -> list[list[int]]:
    """Return the groups of sources that have the same content, each sorted."""
    sizes = [_size(source) for source in sources]
    often = Counter(sizes)
    places: dict[bytes, list[int]] = defaultdict(list)
    for place, source in enumerate(sources):
        # files of different sizes differ: most need not be read
        unequal = None not in often and often[sizes[place]] == 1
        digest = None if unequal else photo_digest(source)
        if digest is not None:
            places[digest].append(place)
    return [group for group in places.values() if len(group) > 1]


def _size(source: Source) -> int | None:
    """Return the size of a file, -1 if it is gone; None where it is not known."""
    if not isinstance(source, Path):
        return len(source) if isinstance(source, bytes) else None
    try:
        return source.stat().st_size
    except OSError:
        return -1


def photo_digest(source: Source) -> bytes | None:
    """Return the SHA-256 of an image file; None if it cannot be read any more."""
    try:
        return hashlib.sha256(content_of(source)).digest()
    except OSError:
        return None
