"""RAPF: one linear map of the image feature, rehearsed on Gaussians, fused after every session."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from visvm.bench.methods.gaussians import ClassGaussians
from visvm.bench.methods.gradient import (
    Adam,
    array,
    cross_entropy,
    descend,
    linear_start,
    numbers,
    steps,
    tensor,
    unit_rows,
)
from visvm.bench.methods.method import Costs, Entry, Setup
from visvm.bench.methods.text import project_final, published_setting, texts_of
from visvm.bench.streams import ClassNumbers
from visvm.encoders.encoder import LayerFeatures
from visvm.encoders.texts import unit
from visvm.head.checks import require
from visvm.head.products import Array

if TYPE_CHECKING:
    from torch import Tensor

_MARGIN = 0.1  # of the hinge
_MOST_PAIRS = 32  # hard pairs in a batch; there may be hundreds


@dataclass(frozen=True)
class _Setting:
    """Hyper-parameters as published for a data set."""

    epochs: int = 15
    batch_size: int = 100
    n_rehearsed: int = 2  # old classes in a batch
    beta: int = 2  # ten samples times this of each of them, twenty times of a hard pair
    mix_bias: float = 0.6
    threshold: float = 0.55  # texts nearer than this are hard to tell apart
    shrinkage: bool = False


SETTINGS = {
    "cifar100": _Setting(),
    "cub200": _Setting(15, 32, 10, 1, 0.8, 0.65, shrinkage=True),
    "imagenet-r": _Setting(15, 64, 5, 1, 0.7, 0.65, shrinkage=True),
    "c3box": _Setting(10, 128),
}
"""The official code's by data set, and C3Box's for all others."""


class RAPF:
    """Huang et al., *Class-Incremental Learning with CLIP: Adaptive Representation Adjustment …*.

    ECCV 2024. A, (p, p), starts at random, as in the official code. Score: n(A·f)·text. Text
    features are those of ``--text``; the paper has one prompt, "a good photo of a {}.". Of the hard
    pairs, at most 32 drawn at random are in a batch.

    Parameters
    ----------
    rapf_setting : {"cifar100", "cub200", "imagenet-r", "c3box"}, optional
        The published hyper-parameters to use; by default those of the data set.
    """

    def __init__(self, setup: Setup, *, rapf_setting: str | None = None) -> None:
        chosen = rapf_setting or published_setting(setup, SETTINGS, "c3box")
        self.rapf_setting = chosen
        require(chosen in SETTINGS, self, "rapf_setting", f"one of {', '.join(SETTINGS)}")
        self._setup, self._how = setup, SETTINGS[chosen]
        self._generator = np.random.default_rng(setup.seed)
        self._known = ClassGaussians(shrinkage=self._how.shrinkage)
        self._map: Array | None = None

    def learn(self, features: LayerFeatures, labels: ClassNumbers) -> None:
        """Train the map on one session, fuse it with the one before, and keep the Gaussians."""
        rows = self._rows(features)
        before = self._map
        width = rows.shape[1]
        start = linear_start(self._generator, width, width) if before is None else before
        self._map = self._trained(rows, labels, start)
        if before is not None:
            self._map = fuse(before, self._map, self._how.mix_bias)
        self._known.learn(rows, labels)

    def predict(self, features: LayerFeatures) -> ClassNumbers:
        """Return class numbers, (n,)."""
        assert self._map is not None
        texts = texts_of(self._setup).features(range(len(self._known.counts)))
        return np.asarray((unit(self._rows(features) @ self._map.T) @ texts.T).argmax(axis=1))

    def costs(self) -> Costs:
        """Return what was trained and kept so far."""
        n_trained = 0 if self._map is None else self._map.size
        kept = 8 * n_trained + self._known.nbytes
        return Costs(n_trained, kept, {"setting": self.rapf_setting})

    def _rows(self, features: LayerFeatures) -> Array:
        return project_final(features, self._setup).astype(np.float64)

    def _trained(self, rows: Array, labels: ClassNumbers, start: Array) -> Array:
        """Return the map after its epochs on this session."""
        how, old = self._how, np.array(sorted(self._known.counts), dtype=np.intp)
        n_classes = max(len(old), int(labels.max()) + 1)
        said = texts_of(self._setup)
        exact = said.features(range(n_classes))
        texts, scale = tensor(exact), said.scale
        pairs = hard_pairs(exact, old, np.setdiff1d(labels, old), how.threshold)
        images, targets = tensor(rows), numbers(labels)
        weights = tensor(start).requires_grad_()
        turn = _Turn(old, self._generator)

        def loss(places: ClassNumbers, epoch: int) -> "Tensor":
            chosen = turn.next(how.n_rehearsed, epoch)
            made = [self._known.draw(label, 10 * how.beta, self._generator) for label in chosen]
            inputs = tensor(np.concatenate([np.asarray(images[places]), *made]))
            known = np.concatenate([labels[places], np.repeat(chosen, 10 * how.beta)])
            scores = scale * unit_rows(inputs @ weights.T) @ texts.T
            total = cross_entropy(scores, numbers(known.astype(np.intp)))
            if not len(pairs):
                return total
            few = self._generator.permutation(len(pairs))[:_MOST_PAIRS]
            near = [self._known.draw(o, 20 * how.beta, self._generator) for o in pairs[few, 0]]
            return total + hinge(tensor(np.stack(near)), weights, texts, pairs[few])

        descend(
            Adam([weights], 1e-3),
            loss,
            len(targets),
            epochs=how.epochs,
            batch_size=how.batch_size,
            generator=self._generator,
            factor=steps(4, 10),
        )
        return array(weights)


class _Turn:
    """Walks through the old classes, so many at a time, in an order drawn once an epoch."""

    def __init__(self, classes: ClassNumbers, generator: np.random.Generator) -> None:
        self._classes, self._generator = classes, generator
        self._epoch, self._order, self._place = -1, classes, 0

    def next(self, n: int, epoch: int) -> ClassNumbers:
        if epoch != self._epoch:
            self._epoch, self._place = epoch, 0
            self._order = self._generator.permutation(self._classes)
        if not len(self._order):
            return self._order
        places = (self._place + np.arange(min(n, len(self._order)))) % len(self._order)
        self._place += n
        return np.asarray(self._order[places])


def hard_pairs(
    texts: Array, old: ClassNumbers, new: ClassNumbers, threshold: float
) -> ClassNumbers:
    """Return the pairs, (m, 2), of an old and a new class whose texts are nearer than this.

    Examples
    --------
    >>> texts = np.array([[1.0, 0.0], [0.0, 1.0], [0.8, 0.6]])
    >>> hard_pairs(texts, np.array([0, 1]), np.array([2]), 0.7).tolist()
    [[0, 2]]
    """
    distances = np.linalg.norm(texts[old][:, None] - texts[new][None], axis=2)
    first, second = np.nonzero(distances < threshold)
    return np.stack([old[first], new[second]], axis=1)


def hinge(rows: "Tensor", weights: "Tensor", texts: "Tensor", pairs: ClassNumbers) -> "Tensor":
    """Return the mean of relu(0.1 - n(Ax)·t_old + n(Ax)·t_new) over rows, (m, k, p), of pairs."""
    mapped = unit_rows(rows @ weights.T)
    old, new = texts[pairs[:, 0]][:, None], texts[pairs[:, 1]][:, None]
    return (_MARGIN - (mapped * old).sum(-1) + (mapped * new).sum(-1)).relu().mean()


def fuse(before: Array, after: Array, mix_bias: float) -> Array:
    """Return the map in which what has changed much is as after, and the rest as before.

    With before = U·S·Vᵀ, R = S·Vᵀ, N = Uᵀ·after and D = |N - R|, the share of N is
    M = min(1, D/max D + bias).

    Examples
    --------
    >>> fuse(np.diag([2.0, 1.0]), np.array([[2.0, 0.5], [0.0, 2.0]]), 0.3).round(9).tolist()
    [[2.0, 0.4], [0.0, 2.0]]
    """
    left, _, _ = np.linalg.svd(before)
    old, new = left.T @ before, left.T @ after
    moved = np.abs(new - old)
    if not moved.max():
        return before
    share = np.minimum(1.0, moved / moved.max() + mix_bias)
    return np.asarray(left @ (new * share + old * (1.0 - share)))


ENTRIES = [Entry("rapf", RAPF, needs=("text", "torch"), revision=2, published="rapf")]
