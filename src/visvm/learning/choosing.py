"""What the first session of a new model finds out about its own photos before it learns them."""

from collections import Counter
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from visvm.encoders.cache import opened_cache
from visvm.encoders.encoder import LayerFeatures
from visvm.encoders.images import DEFAULT_TRANSFORM, TRANSFORMS, Transform
from visvm.encoders.pipeline import encode_files
from visvm.head.checks import Labels, seed_of
from visvm.head.head import Head
from visvm.head.settle import HeadOptions, settle
from visvm.learning.work import Work, stratified
from visvm.model.results import TransformChoice
from visvm.progress import Progress

_MOST = 400  # photos on which every transform is tried
_LEAST = 12
# The winner's features are kept, so a trial on every sixth photo costs a third more encoding.
_SHARE = 3 * (len(TRANSFORMS) - 1)
STANDARD_ERRORS = 1.5  # by which another must be ahead of the default: benchmarks/TRANSFORMS.md
_COMPONENTS = 2000  # D of the trial, in which accuracies are only compared


def with_chosen_transform(work: Work, progress: Progress) -> Work:
    """Return the work of a first session with the transform that suits its photos.

    Every transform is tried on a sample, in which each photo is scored as if it were not learned.
    The default stays unless another one is ahead of it by more than 1.5 standard errors. What is
    encoded for it stays in the work's cache.
    """
    choice = _choose(work, seed_of(work.options.random_state), progress)
    return replace(
        work, transform=Transform(choice.transform, work.encoder.preprocessing), choice=choice
    )


def _choose(work: Work, seed: int, progress: Progress) -> TransformChoice:
    images, encoder = work.images, work.encoder
    counts = Counter(images.labels)
    known = images.only({label for label, count in counts.items() if count > 1})
    most = min(len(images.labels) // _SHARE, _MOST)
    sample = known.at(stratified(known.labels, most, seed))
    if len(sample.labels) < _LEAST or len(set(sample.labels)) < 2:
        return TransformChoice(DEFAULT_TRANSFORM)
    rights: dict[str, NDArray[np.float64]] = {}
    with opened_cache(work.cache) as opened:
        for kind in TRANSFORMS:
            transform = Transform(kind, encoder.preprocessing)
            stage = f"trying the transform {kind}"
            encoded = encode_files(sample.sources, encoder, transform, opened, progress, stage)
            labels = np.array([sample.labels[place] for place in encoded.places])
            final = encoded.features[:, -encoder.layer_dims[-1] :]
            rights[kind] = right_unlearned(final, labels, seed)
    return TransformChoice(
        winner(rights),
        len(rights[DEFAULT_TRANSFORM]),
        {kind: float(right.mean()) for kind, right in rights.items()},
    )


def right_unlearned(features: LayerFeatures, labels: Labels, seed: int) -> NDArray[np.float64]:
    """Return 1 for every photo that a head without it would recognise, and 0 for others, (n,)."""
    options = HeadOptions(n_components=_COMPONENTS, fused=False, random_state=seed)
    head = Head.blank(settle(features, labels, options)).learned(features, labels).solved()
    scores = head.leave_one_out_scores(features, labels)
    return np.asarray(head.classes[scores.argmax(axis=1)] == labels, dtype=np.float64)


def winner(rights: dict[str, NDArray[np.float64]], errors: float = STANDARD_ERRORS) -> str:
    """Return the default transform, or the one that is ahead of it by so many standard errors.

    Parameters
    ----------
    rights : dict of arrays of shape (n,)
        By transform, what ``right_unlearned`` returns for the same photos.
    errors : float, default=1.5
    """

    def lead(kind: str) -> float:
        difference = rights[kind] - rights[DEFAULT_TRANSFORM]
        error = difference.std() / np.sqrt(len(difference))
        return float(difference.mean() / max(error, 1e-9))

    leads = {kind: lead(kind) for kind in rights}
    best = max(leads, key=lambda kind: leads[kind])
    return best if leads[best] > errors else DEFAULT_TRANSFORM
