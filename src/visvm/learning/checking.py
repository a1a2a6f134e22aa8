"""Labelled photos → what is wrong with them, before they are learned, or without learning them.

Every photo is scored as if it had not been learned: by a head of its own for these photos, or by
a model that has learned them too. That leaves nothing behind; the model stays as it is.
"""

import hashlib
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from visvm.encoders.cache import FeatureCache, opened_cache
from visvm.encoders.encoder import Encoder, LayerFeatures
from visvm.encoders.pipeline import encode_files
from visvm.encoders.sources import Source, content_of
from visvm.encoders.transform import Transform
from visvm.head.checks import Labels
from visvm.head.doubts import Doubts, doubts_of, far_off, groups_alike
from visvm.head.familiarity import spread_of
from visvm.head.head import Head, as_rows
from visvm.head.memory import chunk_rows
from visvm.head.products import Array, Indices
from visvm.head.settle import HeadOptions, settle
from visvm.learning.findings import FEW, Alike, Check, FewPhotos, Mislabelled, Photo, Unlike
from visvm.learning.findings import Unreadable as UnreadablePhoto
from visvm.learning.labelled import Labelled
from visvm.model.labels import Label, is_forgotten
from visvm.model.state import Model
from visvm.progress import Progress

_COMPONENTS = 2000  # D of a head of its own: benchmarks/CHECK.md
_SEED = 0
_CHUNKS = 3  # of lifted rows at a time: where sums are dense, each time costs a factorisation


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
    found = _Found(given, photos, encoded.features, encoder.layer_dims[-1])
    judged = found.judged(model)
    check = Check(
        n=len(named),
        n_classes=len(set(given.labels)),
        mislabelled=judged.mislabelled,
        duplicates=found.duplicates(),
        unlike=judged.unlike,
        unreadable=tuple(unreadable),
        few=_few(given, photos, model),
    )
    progress("checking", 1, 1)
    return check


def _photo(given: Labelled, place: int) -> Photo:
    source = given.sources[place]
    path = f"photo {place + 1}" if isinstance(source, bytes) else str(source)
    return Photo(place, path, given.labels[place])


def _few(given: Labelled, photos: list[Photo], model: Model | None) -> tuple[FewPhotos, ...]:
    """Return the classes given of which few photos are known, once these are learned."""
    counts = Counter(photo.label for photo in photos)
    if model is not None and given.key not in model.learned:
        counts.update(model.counts)
    return tuple(
        FewPhotos(label, counts[label])
        for label in sorted(set(given.labels))
        if counts[label] < FEW
    )


@dataclass(frozen=True)
class _Judged:
    mislabelled: tuple[Mislabelled, ...] = ()
    unlike: tuple[Unlike, ...] = ()


@dataclass(frozen=True, eq=False)
class _Found:
    """Photos that can be read, with the features of their views, (n, V, width)."""

    given: Labelled
    photos: list[Photo]
    features: LayerFeatures
    width: int  # of the last block

    @property
    def final(self) -> LayerFeatures:
        """The last block of each photo itself, (n, d)."""
        return self.features[:, 0, -self.width :]

    def duplicates(self) -> tuple[Alike, ...]:
        """Return the groups of the same content, then those of nearly the same picture."""
        if not self.photos:
            return ()
        same = same_contents([self.given.sources[photo.place] for photo in self.photos])
        labels = np.unique([photo.label for photo in self.photos], return_inverse=True)[1]
        near = [group for group in groups_alike(self.final, labels) if group not in same]
        return tuple(self._alike(group, exact=True) for group in same) + tuple(
            self._alike(group, exact=False) for group in near
        )

    def _alike(self, group: list[int], *, exact: bool) -> Alike:
        return Alike(tuple(self.photos[each] for each in group), exact)

    def judged(self, model: Model | None) -> _Judged:
        """Compare labels with what the photos look like."""
        if not self.photos:
            return _Judged()
        labels = np.array([photo.label for photo in self.photos])
        if model is None:
            rows: LayerFeatures = self.final[:, None]
            head = head_of_its_own(rows[:, 0], labels)
        else:
            rows, head = self.features, model.head
            if self.given.key not in model.learned:
                head = head.learned(*as_rows(rows, labels)).solved()
        measured = 0.0 if model is None else model.calibration.likelihoods
        return self._compared(head, rows, measured)

    def _compared(self, head: Head, rows: LayerFeatures, measured: Array | float) -> _Judged:
        """Compare labels with scores as if unlearned; `measured` is that of ``doubts_of``."""
        labels = np.array([photo.label for photo in self.photos])
        scores, chosen = unlearned_scores(head, rows, labels)
        names, counts = head.classes[chosen], head.statistics.class_counts[chosen]
        targets = np.searchsorted(names, labels)
        doubts, shown = doubts_of(scores, targets, measured), names.tolist()
        distances = np.zeros(len(scores))
        assert head.coefficients is not None
        shift = head.settled.ridge / head.settled.options.svm_cost
        spread = spread_of(head.statistics, head.coefficients, shift, chosen)
        if spread is not None:
            fitted = head.scores(rows[:, 0])[:, chosen]
            distances = spread.unlearned_distances(scores, fitted, targets, counts)
        alone = counts[targets] < 2  # without it, its class is unknown
        return _Judged(self._mislabelled(doubts, alone, shown), self._unlike(distances, alone))

    def _mislabelled(
        self, doubts: Doubts, alone: NDArray[np.bool_], names: list[Label]
    ) -> tuple[Mislabelled, ...]:
        loses = np.flatnonzero((doubts.confidence > 0.5) & ~alone)
        order = loses[np.argsort(-doubts.confidence[loses], kind="stable")]
        return tuple(
            Mislabelled(
                **vars(self.photos[each]),
                suggested=names[doubts.suggested[each]],
                confidence=float(doubts.confidence[each]),
            )
            for each in order.tolist()
        )

    def _unlike(self, distances: Array, alone: NDArray[np.bool_]) -> tuple[Unlike, ...]:
        far = np.flatnonzero(far_off(distances) & ~alone)
        order = far[np.argsort(-distances[far], kind="stable")]
        usual = float(np.median(distances))
        return tuple(
            Unlike(**vars(self.photos[each]), distance=float(distances[each] / usual))
            for each in order.tolist()
        )


def same_contents(sources: list[Source]) -> list[list[int]]:
    """Return the groups of sources that have the same content, each sorted."""
    places: dict[bytes, list[int]] = defaultdict(list)
    for place, source in enumerate(sources):
        digest = content_digest(source)
        if digest is not None:
            places[digest].append(place)
    return [group for group in places.values() if len(group) > 1]


def content_digest(source: Source) -> bytes | None:
    """Return the SHA-256 of an image file; None if it cannot be read any more."""
    try:
        return hashlib.sha256(content_of(source)).digest()
    except OSError:
        return None


def head_of_its_own(features: LayerFeatures, labels: Labels, seed: int = _SEED) -> Head:
    """Return a small head that has learned features, (n, d), and nothing else."""
    options = HeadOptions(n_components=_COMPONENTS, fused=False, random_state=seed)
    return Head.blank(settle(features, labels, options)).learned(features, labels).solved()


def unlearned_scores(head: Head, rows: LayerFeatures, labels: Labels) -> tuple[Array, Indices]:
    """Return scores as if unlearned, (n, K), and the columns of the K classes that are shown.

    `rows`, (n, V, width), have been learned; some are lifted at a time.
    """
    chosen = np.flatnonzero([not is_forgotten(label) for label in head.classes.tolist()])
    size = max(1, _CHUNKS * chunk_rows(head.settled.lift.width) // rows.shape[1])
    scores = [
        head.leave_one_out_scores(rows[begin : begin + size], labels[begin : begin + size])
        for begin in range(0, len(rows), size)
    ]
    return np.concatenate(scores)[:, chosen], chosen
