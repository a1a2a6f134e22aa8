"""What a session is to learn, and who does it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from visvm.encoders.cache import FeatureCache
from visvm.encoders.encoder import Encoder, LayerFeatures
from visvm.encoders.pipeline import Unreadable
from visvm.encoders.transform import Transform
from visvm.errors import ImageError
from visvm.head.checks import Labels, seed_of
from visvm.head.head import Head
from visvm.head.selection import shuffled_by_class
from visvm.head.settle import HeadOptions
from visvm.learning.labelled import Labelled
from visvm.model.results import EncoderChoice, TransformChoice
from visvm.progress import Progress

MOST_CALIBRATION_IMAGES = 500
"""So many images of a session, at most, are scored as if they had not been learned."""

_LEAST_OF_A_CLASS = 5  # images in a sample


@dataclass(frozen=True)
class Work:
    """What a session is to learn.

    Attributes
    ----------
    images : Labelled
    encoder : Encoder
    transform : Transform
    cache : bool, Path or FeatureCache
        Where features are kept, as in ``ImageClassifier``.
    skip_unreadable : bool
        Whether to go on without files that are not images; otherwise they are only noted, and
        nothing more need be learned.
    options : HeadOptions
    start : Head or None
        What was learned before; None in the base session.
    sample : tuple of int
        Places of the images on which the base session's choices are made; empty in later ones.
    calibration : frozenset of int
        Places of images whose features are wanted afterwards.
    choice : TransformChoice or None
        How the transform was chosen, where it was.
    encoder_choice : EncoderChoice or None
        How the encoder was chosen, where it was.
    views : str
        Which views of every image are learned; together they count as one image.
    chosen_since : float or None
        When it was begun to choose by trying, by ``time.perf_counter``.
    remember : bool or None
        Whether the model is to remember photos by digests; None where that stays as it is.
    """

    images: Labelled
    encoder: Encoder
    transform: Transform
    cache: bool | Path | FeatureCache
    skip_unreadable: bool
    options: HeadOptions
    start: Head | None
    sample: tuple[int, ...]
    calibration: frozenset[int]
    choice: TransformChoice | None = None
    encoder_choice: EncoderChoice | None = None
    views: str = "one"
    chosen_since: float | None = None
    remember: bool | None = None

    @property
    def transforms(self) -> tuple[Transform, ...]:
        """One for every view."""
        return self.transform.views(self.views)

    @property
    def rest(self) -> list[int]:
        """Places of the images that are not in the sample."""
        sample = set(self.sample)
        return [place for place in range(len(self.images.sources)) if place not in sample]

    def labels(self, places: Sequence[int]) -> Labels:
        """Return the labels of the images in these places, (n,)."""
        return np.array([self.images.labels[place] for place in places])


@dataclass
class Learned:
    """What became of the images of a session.

    Attributes
    ----------
    head : Head or None
        With the images in its sums, not solved yet. None where files that are not images ended the
        session before anything was settled.
    unreadable : dict
        Files that are not images, by place.
    features : dict
        Layer features of all views, (V, width), by place, of those wanted for calibration, as far
        as this process had them.
    learn_seconds : float
        Time taken by the sums and the base session's choices, beside reading and encoding.
    """

    head: Head | None = None
    unreadable: dict[int, Unreadable] = field(default_factory=dict)
    features: dict[int, LayerFeatures] = field(default_factory=dict)
    learn_seconds: float = 0.0


class Engine(Protocol):
    """Turns images into sums."""

    def learn(self, work: Work, progress: Progress) -> Learned:
        """Make the base session's choices if it is one, and add the images to the sums."""


def plan_session(
    images: Labelled,
    encoder: Encoder,
    transform: Transform,
    cache: bool | Path | FeatureCache,
    *,
    options: HeadOptions,
    start: Head | None,
    max_base_images: int | None,
    skip_unreadable: bool,
    views: str = "one",
) -> Work:
    """Return what a session that learns these images is to do; parameters as in ``Work``."""
    sample: tuple[int, ...] = ()
    if start is None:
        sample = stratified(images.labels, max_base_images, seed_of(options.random_state))
    chosen = np.random.default_rng(0).permutation(len(images.labels))[:MOST_CALIBRATION_IMAGES]
    wanted = frozenset(chosen.tolist())
    return Work(
        images,
        encoder,
        transform,
        cache,
        skip_unreadable,
        options,
        start,
        sample,
        wanted,
        views=views,
    )


def sample_unreadable() -> ImageError:
    """Return the error for a base session none of whose sample can be read."""
    return ImageError(
        "None of the images on which the first session is settled can be read. "
        "Repair or remove the files that are not images.",
        code="sample-unreadable",
    )


def stratified(labels: Sequence[Any], most: int | None, seed: int) -> tuple[int, ...]:
    """Return the places of about `most` samples, the same share of every class.

    At least five of each class are taken. Where that is too many classes, five each of as many
    classes as there is room for. None means all.

    Examples
    --------
    >>> labels = ["cat"] * 80 + ["dog"] * 20
    >>> sorted(labels[place] for place in stratified(labels, 12, seed=0)).count("dog")
    5
    """
    if most is None or len(labels) <= most:
        return tuple(range(len(labels)))
    generator = np.random.default_rng([seed, 3])
    _, targets = np.unique(np.array(labels), return_inverse=True)
    counts = np.bincount(targets)
    order, rank = shuffled_by_class(targets, generator)
    wanted = np.maximum(np.ceil(counts * most / len(targets)), _LEAST_OF_A_CLASS)
    room = max(1, most // _LEAST_OF_A_CLASS)
    if len(counts) > room:
        wanted[generator.permutation(len(counts))[:-room]] = 0
        wanted = np.minimum(wanted, _LEAST_OF_A_CLASS)
    return tuple(np.sort(order[rank < wanted[targets[order]]]).tolist())
