"""What the first session of a new model finds out about its own photos before it learns them."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from visvm.encoders.cache import FeatureCache, opened_cache
from visvm.encoders.encoder import LayerFeatures
from visvm.encoders.pipeline import Encoded, encode_files
from visvm.encoders.transform import DEFAULT_TRANSFORM, TRANSFORMS
from visvm.head.checks import Labels, seed_of
from visvm.head.head import Head
from visvm.head.settle import HeadOptions, settle
from visvm.learning.labelled import Labelled
from visvm.learning.work import Work, stratified
from visvm.model.results import TransformChoice
from visvm.progress import Progress

_MOST = 400  # photos on which every candidate is tried
_LEAST = 12
STANDARD_ERRORS = 1.5  # by which another must be ahead of the default: benchmarks/TRANSFORMS.md
_COMPONENTS = 2000  # D of the trial, in which accuracies are only compared


@contextmanager
def trial_cache(
    cache: bool | Path | FeatureCache, chooses: bool
) -> Iterator[bool | Path | FeatureCache]:
    """Yield the cache; for a choice without one, one in memory for what the choice encodes."""
    if cache is not False or not chooses:
        yield cache
        return
    with FeatureCache(Path(":memory:"), limit=2**28) as own:
        yield own


def with_chosen_transform(work: Work, progress: Progress) -> Work:
    """Return the work of a first session with the transform that suits its photos.

    Every transform is tried on a sample, in which each photo is scored as if it were not learned.
    The default stays unless another one is ahead of it by more than 1.5 standard errors. What is
    encoded for it stays in the work's cache.
    """
    choice = _choose(work, progress)
    return replace(work, transform=replace(work.transform, kind=choice.transform), choice=choice)


def _choose(work: Work, progress: Progress) -> TransformChoice:
    sample = trial_sample(work, len(TRANSFORMS))
    if sample is None:
        return TransformChoice(DEFAULT_TRANSFORM)
    rights: dict[str, NDArray[np.float64]] = {}
    for kind in TRANSFORMS:
        candidate = replace(work, transform=replace(work.transform, kind=kind))
        rights[kind] = rights_of(candidate, sample, f"trying the transform {kind}", progress)
    return TransformChoice(
        winner(rights, DEFAULT_TRANSFORM), len(rights[DEFAULT_TRANSFORM]), shares(rights)
    )


def trial_sample(work: Work, n_candidates: int) -> Labelled | None:
    """Return the photos on which so many candidates are tried; None if there are too few.

    The winner's features are kept, so a trial costs a third more encoding, whatever the number.
    """
    images, counts = work.images, Counter(work.images.labels)
    known = images.only({label for label, count in counts.items() if count > 1})
    most = min(len(images.labels) // (3 * (n_candidates - 1)), _MOST)
    sample = known.at(stratified(known.labels, most, seed_of(work.options.random_state)))
    return sample if len(sample.labels) >= _LEAST and len(set(sample.labels)) > 1 else None


def encoded_for_trial(
    work: Work, images: Labelled, stage: str, progress: Progress, *, cached: bool = True
) -> Encoded:
    """Encode images as the work would, through its cache unless that is not wanted."""
    with opened_cache(work.cache if cached else False) as cache:
        return encode_files(images.sources, work.encoder, [work.transform], cache, progress, stage)


def rights_of(work: Work, sample: Labelled, stage: str, progress: Progress) -> NDArray[np.float64]:
    """Return what ``right_unlearned`` does for those photos of a sample that can be read, (n,)."""
    encoded = encoded_for_trial(work, sample, stage, progress)
    labels = np.array([sample.labels[place] for place in encoded.places])
    if len(set(labels.tolist())) < 2:  # the others cannot be read, as learning will say
        return np.zeros(len(labels))
    final = encoded.features[:, 0, -work.encoder.layer_dims[-1] :]
    return right_unlearned(final, labels, seed_of(work.options.random_state))


def shares(rights: Mapping[str, NDArray[np.float64]]) -> dict[str, float]:
    """Return the share of photos that each candidate recognised."""
    return {name: float(right.sum() / max(len(right), 1)) for name, right in rights.items()}


def right_unlearned(features: LayerFeatures, labels: Labels, seed: int) -> NDArray[np.float64]:
    """Return 1 for every photo that a head without it would recognise, and 0 for others, (n,)."""
    options = HeadOptions(n_components=_COMPONENTS, fused=False, random_state=seed)
    head = Head.blank(settle(features, labels, options)).learned(features, labels).solved()
    scores = head.leave_one_out_scores(features, labels)
    return np.asarray(head.classes[scores.argmax(axis=1)] == labels, dtype=np.float64)


def winner(
    rights: Mapping[str, NDArray[np.float64]], default: str, errors: float = STANDARD_ERRORS
) -> str:
    """Return the default candidate, or the one that is ahead of it by so many standard errors.

    Parameters
    ----------
    rights : mapping of arrays of shape (n,)
        By candidate, what ``right_unlearned`` returns for the same photos.
    default : str
        One of them.
    errors : float, default=1.5
    """

    def lead(name: str) -> float:
        difference = rights[name] - rights[default]
        if not len(difference):
            return 0.0
        error = difference.std() / np.sqrt(len(difference))
        return float(difference.mean() / max(error, 1e-9))

    leads = {name: lead(name) for name in rights}
    best = max(leads, key=lambda name: leads[name])
    return best if leads[best] > errors else default
