"""BOFA: the projection of CLIP itself is trained, where earlier sessions leave it free."""

from typing import TYPE_CHECKING, Any

import numpy as np

from visvm.bench.methods import gda
from visvm.bench.methods.gradient import (
    SGD,
    array,
    cosine,
    cross_entropy,
    descend,
    numbers,
    tensor,
    unit_rows,
)
from visvm.bench.methods.method import Costs, Entry, Setup
from visvm.bench.methods.sums import ClassScatter, ClassSums
from visvm.bench.methods.text import require_tail, texts_of
from visvm.bench.streams import ClassNumbers
from visvm.encoders.encoder import LayerFeatures
from visvm.encoders.texts import unit
from visvm.head.checks import is_count, is_positive, require
from visvm.head.products import Array

if TYPE_CHECKING:
    from torch import Tensor

_SMALL = 1e-4  # added to every second moment
_SHARES = np.linspace(0.0, 1.0, 21)  # of the text in a prototype


class BOFA:
    """Li et al., *BOFA: Bridge-Layer Orthogonal Low-Rank Fusion* (2026), in the clean form.

    With h behind the last norm, f = hWᵀ, and a prototype (1 - λ)·n(mean of h·W₀ᵀ) + λ·text::

        score = ρ·GDA(n(h)) + (1 - ρ)·n(hWᵀ)·prototype

    W is the mean over sessions of W_task in the first one, and of W₀ + BAᵀ after it, where A spans
    the directions in which earlier sessions have least energy. Of the public code: λ means there in
    the search what 1 - λ means afterwards; here it is one thing. Its auxiliary head has no gradient
    on W when h is frozen, and is left out; its rate rises again in the second stage, ours is
    constant. As there, the logits are multiplied by log(scale).

    Parameters
    ----------
    statistical_weight : float
        ρ.
    rank : int
        Number of directions.
    projection_epochs : int
        Of the first stage; the second has two.
    """

    def __init__(
        self,
        setup: Setup,
        *,
        statistical_weight: float = 0.1,
        rank: int = 64,
        projection_epochs: int = 15,
    ) -> None:
        self.statistical_weight, self.rank = statistical_weight, rank
        self.projection_epochs = projection_epochs
        valid = is_positive(statistical_weight, or_zero=True) and statistical_weight <= 1
        require(valid, self, "statistical_weight", "a number from 0 to 1")
        require(is_count(rank), self, "rank", "a whole number of at least 1")
        valid = projection_epochs == 0 or is_count(projection_epochs)
        require(valid, self, "projection_epochs", "a whole number of at least 0")
        self._setup, self._tail = setup, require_tail(setup, "bofa")
        width = len(self._tail.matrix)
        self._means, self._unit_sums = ClassSums(width), ClassScatter(width)
        self._task = self._first = self._tail.matrix.T  # (p, width)
        self._total: Array = np.zeros_like(self._first)
        self._moment: Array = np.zeros((width, width))
        self._n_sessions = 0
        self._text_share: float | None = None
        self._coefficients: Array = np.zeros((width + 1, 0))
        self._generator = np.random.default_rng(setup.seed)

    def learn(self, features: LayerFeatures, labels: ClassNumbers) -> None:
        """Train the projection on one session, and add it to the mean."""
        h = self._hidden(features)
        self._means.learn(h, labels)
        self._unit_sums.learn(unit(h), labels)
        self._coefficients = gda.discriminant(self._unit_sums)
        if self._text_share is None:
            self._text_share = self._choose_share(h, labels)
        basis = self._free_directions() if self._n_sessions else None
        self._task = self._train(h, labels, self._task, None)
        settled = self._task
        if basis is not None:
            within = self._train(h, labels, (self._task - self._first) @ basis, basis)
            settled = self._first + within @ basis.T
        self._total += settled
        self._moment += h.T @ h / max(len(h) - 1, 1) + _SMALL * np.eye(len(self._moment))
        self._n_sessions += 1

    def predict(self, features: LayerFeatures) -> ClassNumbers:
        """Return class numbers, (n,)."""
        h, rho = self._hidden(features), self.statistical_weight
        projected = unit(h @ (self._total / self._n_sessions).T)
        scores = (1.0 - rho) * projected @ self._prototypes().T
        scores += rho * gda.scores(unit(h), self._coefficients)
        return np.asarray(scores.argmax(axis=1))

    def costs(self) -> Costs:
        """Return what was trained, kept and chosen so far."""
        sums = self._means.nbytes + self._unit_sums.nbytes + self._moment.nbytes
        kept = sums + self._total.nbytes + self._task.nbytes + self._coefficients.nbytes
        return Costs(self._total.size, kept, {"text_share": self._text_share})

    def _hidden(self, features: LayerFeatures) -> Array:
        return self._tail.normed(features[:, -self._setup.layer_dims[-1] :])

    def _choose_share(self, h: Array, labels: ClassNumbers) -> float:
        """Return λ, by the accuracy of the untrained projection on the first session's images."""
        projected, right = unit(h @ self._first.T), []
        for share in _SHARES:
            self._text_share = float(share)
            prototypes = self._prototypes(train=True)
            right.append((projected @ prototypes.T).argmax(axis=1) == labels)
        return float(_SHARES[int(np.mean(right, axis=1).argmax())])

    def _prototypes(self, *, train: bool = False) -> Array:
        """Return the prototypes of all classes, (C, p); the first prompt trains, all answer."""
        share = self._text_share
        assert share is not None
        images = unit(self._means.means.T @ self._first.T)
        said, seen = texts_of(self._setup), range(len(images))
        texts = said.each(seen)[:, 0] if train else said.features(seen)
        return np.asarray((1.0 - share) * images + share * texts)

    def _free_directions(self) -> Array:
        """Return the directions in which earlier sessions have least energy, (width, rank)."""
        _, vectors = np.linalg.eigh(self._moment)
        return np.asarray(vectors[:, : self.rank])

    def _train(self, h: Array, labels: ClassNumbers, start: Array, basis: Array | None) -> Array:
        """Train W, (p, width), or B, (p, rank), in W₀ + BAᵀ, from a start."""
        weights = tensor(start).requires_grad_()
        rows, targets, prototypes = tensor(h), numbers(labels), tensor(self._prototypes(train=True))
        scale = float(np.log(texts_of(self._setup).scale))
        first, along = tensor(self._first), None if basis is None else tensor(basis)
        whole = along is None
        optimizer = SGD([weights], 0.05 if whole else 0.001, 0.05 if whole else 0.001)

        def loss(places: ClassNumbers, _epoch: int) -> "Tensor":
            projection = weights if along is None else first + weights @ along.T
            cosines = unit_rows(rows[places] @ projection.T) @ prototypes.T
            return cross_entropy(scale * cosines, targets[places])

        epochs = self.projection_epochs if whole else min(self.projection_epochs, 2)
        factor = cosine(max(epochs, 1)) if whole else (lambda _: 1.0)
        shared: dict[str, Any] = {"epochs": epochs, "batch_size": 128, "generator": self._generator}
        descend(optimizer, loss, len(rows), factor=factor, **shared)
        return array(weights)


ENTRIES = [Entry("bofa", BOFA, needs=("text", "torch"), revision=2, published="bofa")]
