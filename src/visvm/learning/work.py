"""What a session is to learn, and who does it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from visvm.encoders.cache import FeatureCache
from visvm.encoders.encoder import Encoder, LayerFeatures
from visvm.encoders.images import Transform
from visvm.encoders.pipeline import Unreadable
from visvm.head.selection import shuffled_by_class
from visvm.learning.labelled import Labelled
from visvm.progress import Progress

if TYPE_CHECKING:
    from visvm.head.estimators import VisClassifier

NONE_OF_THE_SAMPLE = "the images on which a first session is settled must be readable; none of the sample is: repair or remove what is no image"

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
        Whether to go on without files that are no images; otherwise they are told, and nothing need
        be learned.
    sample : tuple of int
        Of a base session, the places of the images on which its choices are made; empty in later
        ones.
    calibration : frozenset of int
        Places of images whose features are wanted afterwards.
    """

    images: Labelled
    encoder: Encoder
    transform: Transform
    cache: bool | Path | FeatureCache
    skip_unreadable: bool
    sample: tuple[int, ...]
    calibration: frozenset[int]

    @property
    def rest(self) -> list[int]:
        """Places of the images that are not in the sample."""
        sample = set(self.sample)
        return [place for place in range(len(self.images.sources)) if place not in sample]

    def labels(self, places: Sequence[int]) -> NDArray[np.generic]:
        """Labels of the images in these places, (n,)."""
        return np.array([self.images.labels[place] for place in places])


@dataclass
class Learned:
    """What became of the images of a session.

    Attributes
    ----------
    unreadable : dict
        Those that are no images, by place.
    features : dict
        Layer features, (width,), by place, of those wanted for calibration, as far as this process
        had them.
    learn_seconds : float
        Time taken by the sums and the base session's choices, beside reading and encoding.
    """

    unreadable: dict[int, Unreadable] = field(default_factory=dict)
    features: dict[int, LayerFeatures] = field(default_factory=dict)
    learn_seconds: float = 0.0


class Engine(Protocol):
    """Who turns images into sums."""

    def learn(self, head: "VisClassifier", work: Work, progress: Progress) -> Learned:
        """Add the images to the sums of a head, making the base session's choices first; solving is left to the caller.

        Parameters
        ----------
        head : VisClassifier
            A draft, whose sums may still be those of another.
        work : Work
        progress : callable
        """


def stratified(labels: Sequence[Any], most: int | None, seed: int) -> tuple[int, ...]:
    """Places of at most about `most` samples, the same share of every class but at least five of each.

    Where that is too many classes, five each of as many classes as there is room for.

    Parameters
    ----------
    labels : sequence of labels
    most : int or None
        None means all.
    seed : int

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
