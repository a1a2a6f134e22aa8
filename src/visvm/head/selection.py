"""The base session's two choices: λ, and which layers to tap.

Both are made on the first batch a model learns. The layers never change; λ may be chosen anew from
the sums where that batch had few classes (``evidence.py``). A fifth of every class is held out. λ
is the largest candidate whose mean squared error of the ±1 targets there is within 2 % of the
least; the layers are those with the highest accuracy. All λ come from one decomposition
(``solver.RidgePath``). Where a class has fewer than five samples, or there is only one class, every
sample is held out in turn instead, in closed form.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from visvm.head.products import Array, Indices
from visvm.head.solver import RidgePath

RIDGE_CANDIDATES = (
    *(1e-6, 1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1),
    *(1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4),
)
"""The paper's 16 values of λ, and 30, 300 and 3 000 between them.

Steps of ten cost points (benchmarks/base_session.py ridge).
"""

_FOLDS = 5  # one fifth is held out
# beyond the candidates, a further value is tried while the last one gained this share
_WORTH = 1e-6
_SMALL = 1e-3  # beside the largest eigenvalue
_ALIKE = 0.02  # errors that differ by a smaller share are alike
_ALIKE_TO_ONE = 1e-3  # one class: errors of the ±1 targets that differ by less are alike
_ROUNDING = 1e-6  # λ is chosen only where float64 keeps the scores to this share

RESOLVED = float(np.finfo(float).eps) / _ROUNDING
"""λ / C_svm is chosen only above this share of the scatter's largest eigenvalue."""


class RidgeTrial(NamedTuple):
    """One candidate λ with its error on the held-out samples."""

    ridge: float
    mse: float
    accuracy: float


@dataclass(frozen=True)
class RidgeBasis:
    """How many images λ was chosen by, and of how many classes."""

    n_images: int
    n_classes: int


class LayerTrial(NamedTuple):
    """One candidate set of layers, the λ chosen for it, and its error on the held-out samples."""

    layers: tuple[int, ...]
    ridge: float
    mse: float
    accuracy: float


@dataclass(frozen=True)
class HoldOut:
    """Which samples to learn from, and which to judge by.

    `held_out` is None where each sample is held out in turn.
    """

    train: Indices
    held_out: Indices | None


def split_base_session(targets: Indices, limit: int | None, seed: int) -> HoldOut:
    """Split the base session 4:1 within every class.

    Parameters
    ----------
    targets : array of shape (n,)
        Class indices from 0.
    limit : int or None
        Look at no more than about this many samples: the same share of every class, and at
        least five of each.
    seed : int

    Examples
    --------
    >>> split = split_base_session(np.array([0] * 10 + [1] * 5), limit=None, seed=0)
    >>> len(split.train), np.bincount(np.array([0] * 10 + [1] * 5)[split.held_out]).tolist()
    (12, [2, 1])
    """
    counts = np.bincount(targets)
    order, rank = shuffled_by_class(targets, np.random.default_rng([seed, 2]))
    if limit is not None and len(targets) > limit:
        kept = rank < np.maximum(np.ceil(counts * limit / len(targets)), _FOLDS)[targets[order]]
        order, rank = order[kept], rank[kept]
    if len(counts) == 1 or counts.min() < _FOLDS:
        return HoldOut(np.sort(order), None)
    held_out = rank % _FOLDS == _FOLDS - 1
    return HoldOut(np.sort(order[~held_out]), np.sort(order[held_out]))


def shuffled_by_class(targets: Indices, generator: np.random.Generator) -> tuple[Indices, Indices]:
    """Return samples class by class, (n,), shuffled within each, and their ranks there, (n,)."""
    counts = np.bincount(targets)
    order = generator.permutation(len(targets))
    order = order[np.argsort(targets[order], kind="stable")]
    return order, np.arange(len(targets)) - np.repeat(np.cumsum(counts) - counts, counts)


def search_ridge(
    lift: Callable[[Indices], Array],
    targets: Indices,
    weight: Array,
    split: HoldOut,
    *,
    svm_cost: float,
    candidates: Sequence[float] = RIDGE_CANDIDATES,
    beyond: bool = True,
    negative: float = -1.0,
) -> tuple[RidgeTrial, list[RidgeTrial]]:
    """Try every candidate λ.

    Parameters
    ----------
    lift : callable
        Returns the lifted features, (m, D), of the samples with these indices, in an array that
        may be overwritten.
    targets : array of shape (n,)
        Class indices from 0.
    weight : array of shape (n,)
    split : HoldOut
    svm_cost : float
    candidates : sequence of float
    beyond : bool
        Go on past the first and the last candidate where one of them is the best, or where all
        are small beside the data, if samples were held out; and where all are larger than them.
    negative : float
        Target of a sample for the classes that are not its own, as in ``solver.solve``.

    Returns
    -------
    best : RidgeTrial
        The largest λ whose error is within 2 % of the least, among those that float64 resolves.
    trials : list of RidgeTrial
        All of them, sorted by λ.
    """
    search = _RidgeSearch(lift, targets, weight, split, svm_cost, negative)
    trials = sorted(search.attempt(ridge) for ridge in candidates)
    if beyond:
        trials = search.below_large_ones(trials)
    if beyond and split.held_out is not None:
        trials = search.beyond_the_edge(trials)
    return search.best(trials), trials


class _RidgeSearch:
    """One decomposition, and the candidates judged by it."""

    def __init__(
        self,
        lift: Callable[[Indices], Array],
        targets: Indices,
        weight: Array,
        split: HoldOut,
        svm_cost: float,
        negative: float,
    ) -> None:
        signs = (1.0 - negative) * np.eye(int(targets.max()) + 1)[targets] + negative
        judged = split.train if split.held_out is None else split.held_out
        self._svm_cost = svm_cost
        self._path = RidgePath(lift(split.train), signs[split.train], weight[split.train])
        self._projected = (
            None if split.held_out is None else self._path.project(lift(split.held_out))
        )
        self._signs, self._targets, self._weight = signs[judged], targets[judged], weight[judged]

    def attempt(self, ridge: float) -> RidgeTrial:
        """Judge one λ."""
        shift = ridge / self._svm_cost
        if self._projected is None:
            scores = self._path.leave_one_out_scores(shift)
        else:
            scores = self._path.scores(self._projected, shift)
        errors = ((scores - self._signs) ** 2).mean(axis=1)
        correct = scores.argmax(axis=1) == self._targets
        mse, accuracy = (
            float(np.average(values, weights=self._weight)) for values in (errors, correct)
        )
        return RidgeTrial(ridge, mse, accuracy)

    def usable(self, trials: list[RidgeTrial]) -> list[RidgeTrial]:
        """Return those with a λ that float64 resolves, or the largest where it resolves none."""
        noise = RESOLVED * self._path.largest
        return [
            trial for trial in trials if self._path.smallest + trial.ridge / self._svm_cost >= noise
        ] or trials[-1:]

    def best(self, trials: list[RidgeTrial]) -> RidgeTrial:
        """Return the usable trial with the least error; among those alike, the largest λ.

        Any small λ fits a first session of a few images. Later sessions differ: where the number
        of images nears D, a tiny λ costs many points (the interpolation peak). So where errors are
        alike, the larger λ is the safe choice.
        """
        usable = self.usable(trials)
        least = min(trial.mse for trial in usable)
        one_class = self._signs.shape[1] == 1  # says nothing about how classes differ
        alike = least + _ALIKE_TO_ONE if one_class else least * (1.0 + _ALIKE)
        return max((trial for trial in usable if trial.mse <= alike), default=usable[-1])

    def below_large_ones(self, trials: list[RidgeTrial]) -> list[RidgeTrial]:
        """Add values near the data where all are so large that no score would depend on them."""
        size = self._path.largest * self._svm_cost
        if not 0.0 < size < trials[0].ridge:
            return trials
        decade = int(np.floor(np.log10(size)))
        values = [float(f"1e{power}") for power in range(decade - 6, decade + 4)]
        least = trials[0].ridge
        return [*(self.attempt(value) for value in values if 0.0 < value < least), *trials]

    def beyond_the_edge(self, trials: list[RidgeTrial]) -> list[RidgeTrial]:
        """Add values on both sides if the best is at an edge, or all are small beside the data."""
        small = trials[-1].ridge / self._svm_cost < _SMALL * self._path.largest
        if not small and self.best(trials) not in (self.usable(trials)[0], trials[-1]):
            return trials
        # Upwards as far as λ can matter: the whole grid may lie on a plateau, or in a shallow dip,
        # far below the minimum.
        gain = True
        while trials[-1].ridge / self._svm_cost < self._path.largest or (
            gain and self.best(trials) == trials[-1]
        ):
            trials = [*trials, self.attempt(ridge_above(trials[-1].ridge))]
            gain = trials[-1].mse < trials[-2].mse * (1.0 - _WORTH)
        # Downwards only for a gain worth having: a smaller λ is less well conditioned for every
        # session to come.
        gain = self.best(trials) == trials[0]
        while gain:
            trials = [self.attempt(0.1 * trials[0].ridge), *trials]
            gain = self.best(trials) == trials[0] and trials[0].mse < trials[1].mse * (1.0 - _WORTH)
        return trials


def ridge_above(ridge: float) -> float:
    """Return the next larger of 1, 3, 10, 30 and so on.

    Examples
    --------
    >>> ridge_above(1e4), ridge_above(3e4), ridge_above(0.7)
    (30000.0, 100000.0, 1.0)
    """
    return next(value for value in _round_values(1.5 * ridge) if value > 1.2 * ridge)


def ridge_below(ridge: float) -> float:
    """Return the next smaller of 1, 3, 10, 30 and so on.

    Examples
    --------
    >>> ridge_below(1e4), ridge_below(3e4), ridge_below(0.7)
    (3000.0, 10000.0, 0.3)
    """
    return max(value for value in _round_values(ridge / 1.5) if value < ridge / 1.2)


def _round_values(near: float) -> tuple[float, float, float]:
    """Return the 1, 3 and 10 of the decade of a number."""
    decade = int(np.floor(np.log10(near)))
    return float(f"1e{decade}"), float(f"3e{decade}"), float(f"1e{decade + 1}")


def layer_candidates(n_layers: int) -> list[tuple[int, ...]]:
    """Return the sets of layers to try, smallest first; each ends with the final one.

    Examples
    --------
    >>> layer_candidates(3)
    [(3,), (1, 3), (2, 3), (1, 2, 3)]
    >>> (6, 8, 10, 12) in layer_candidates(12)
    True
    """
    every = range(1, n_layers + 1)
    sets = {tuple(every[-1:]), tuple(every[-2:]), tuple(every[-4:]), tuple(every)}
    sets |= {tuple(sorted(every[::-2])), tuple(sorted(every[::-3]))}
    if n_layers == 12:
        sets.add((6, 8, 10, 12))
    return sorted(sets, key=lambda layers: (len(layers), layers))


def best_layers(trials: Sequence[LayerTrial]) -> LayerTrial:
    """Return the most accurate set; among equals that with the least error, then the smallest."""
    return min(trials, key=lambda trial: (-trial.accuracy, trial.mse, len(trial.layers)))
