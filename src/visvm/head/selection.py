"""The base session's two choices: λ, and which layers to tap.

Both are made once, on the first batch a model learns, and hold for ever after. A fifth of every class is held out; λ is the
candidate with the least mean squared error of the ±1 targets there, the layers those with the highest accuracy. All λ come
from one decomposition (``solver.RidgePath``). Where a class has fewer than five samples, or there is one class only, every
sample is held out in turn instead, in closed form.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from visvm.head.solver import RidgePath

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

RIDGE_CANDIDATES = (1e-6, 1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0, 3.0, 10.0, 100.0, 1e3, 1e4)
"""The paper's 16 values of λ."""

_FOLDS = 5  # one fifth is held out
_WORTH = 1e-6  # a smaller λ than the first candidate is tried while it gains this share
_MOST = 60  # candidates in all
_ALIKE = 1e-3  # errors of the ±1 targets that differ by less are alike to one class
_ROUNDING = 1e-6  # λ is chosen only where float64 keeps the scores to this share


class RidgeTrial(NamedTuple):
    """One candidate λ with its error on the held-out samples."""

    ridge: float
    mse: float
    accuracy: float


class LayerTrial(NamedTuple):
    """One candidate set of layers with the λ chosen for it and its error on the held-out samples."""

    layers: tuple[int, ...]
    ridge: float
    mse: float
    accuracy: float


@dataclass(frozen=True)
class Split:
    """Which samples to learn from and which to judge by; `held_out` is None where each sample is held out in turn."""

    train: Indices
    held_out: Indices | None


def split_base_session(targets: Indices, limit: int | None, seed: int) -> Split:
    """Split the base session 4:1 within every class.

    Parameters
    ----------
    targets : int array of shape (n,)
        Class indices from 0.
    limit : int or None
        Look at no more than about this many samples, the same share of every class but at least five of each.
    seed : int

    Examples
    --------
    >>> split = split_base_session(np.array([0] * 10 + [1] * 5), limit=None, seed=0)
    >>> len(split.train), np.bincount(np.array([0] * 10 + [1] * 5)[split.held_out]).tolist()
    (12, [2, 1])
    """
    counts = np.bincount(targets)
    order = np.random.default_rng([seed, 2]).permutation(len(targets))
    order = order[np.argsort(targets[order], kind="stable")]
    rank = np.arange(len(targets)) - np.repeat(np.cumsum(counts) - counts, counts)  # place within the class
    if limit is not None and len(targets) > limit:
        kept = rank < np.maximum(np.ceil(counts * limit / len(targets)), _FOLDS)[targets[order]]
        order, rank = order[kept], rank[kept]
    if len(counts) == 1 or counts.min() < _FOLDS:
        return Split(np.sort(order), None)
    held_out = rank % _FOLDS == _FOLDS - 1
    return Split(np.sort(order[~held_out]), np.sort(order[held_out]))


def search_ridge(
    lift: Callable[[Indices], Array],
    targets: Indices,
    weight: Array,
    split: Split,
    *,
    svm_cost: float,
    candidates: Sequence[float] = RIDGE_CANDIDATES,
    beyond: bool = True,
) -> tuple[RidgeTrial, list[RidgeTrial]]:
    """Try every candidate λ.

    Parameters
    ----------
    lift : callable
        Gives the lifted features, (m, D), of the samples with these indices, as an array that may be overwritten.
    targets : int array of shape (n,)
        Class indices from 0.
    weight : array of shape (n,)
    split : Split
    svm_cost : float
    candidates : sequence of float
    beyond : bool
        Go on in decades past the first and the last candidate where one of them is the best, and samples were held out to
        tell.

    Returns
    -------
    best : RidgeTrial
        The one with the least error among those that float64 resolves.
    trials : list of RidgeTrial
        All of them, by λ.
    """
    signs = 2.0 * np.eye(int(targets.max()) + 1)[targets] - 1.0
    path = RidgePath(lift(split.train), signs[split.train], weight[split.train])
    judged = split.train if split.held_out is None else split.held_out
    projected = None if split.held_out is None else path.project(lift(split.held_out))

    def attempt(ridge: float) -> RidgeTrial:
        shift = ridge / svm_cost
        scores = path.leave_one_out_scores(shift) if projected is None else path.scores(projected, shift)
        errors = ((scores - signs[judged]) ** 2).mean(axis=1)
        correct = scores.argmax(axis=1) == targets[judged]
        mse, accuracy = (float(np.average(values, weights=weight[judged])) for values in (errors, correct))
        return RidgeTrial(ridge, mse, accuracy)

    def resolved(trial: RidgeTrial) -> bool:
        return float(np.finfo(float).eps) * path.largest <= _ROUNDING * (path.smallest + trial.ridge / svm_cost)

    def best(trials: list[RidgeTrial]) -> RidgeTrial:
        usable = [trial for trial in trials if resolved(trial)] or trials[-1:]
        if signs.shape[1] == 1:  # one class tells nothing of where classes part: the largest λ that still fits it
            return max(trial for trial in usable if trial.mse <= min(usable, key=lambda t: t.mse).mse + _ALIKE)
        return min(usable, key=lambda t: (t.mse, -t.ridge))

    trials = sorted(attempt(ridge) for ridge in candidates)
    if beyond and projected is not None and best(trials) in (trials[0], trials[-1]):
        # Upwards as far as λ can matter: where the data are large, the whole grid may lie on a plateau far below the minimum.
        while trials[-1].ridge / svm_cost < path.largest:
            trials.append(attempt(10.0 * trials[-1].ridge))
        # Downwards only for a gain worth having: a smaller λ is less well conditioned for every session to come.
        gain = best(trials) == trials[0]
        while gain and len(trials) < _MOST:
            trials.insert(0, attempt(0.1 * trials[0].ridge))
            gain = resolved(trials[0]) and trials[0].mse < trials[1].mse * (1.0 - _WORTH)
    return best(trials), trials


def layer_candidates(n_layers: int) -> list[tuple[int, ...]]:
    """The sets of layers that are tried, smallest first; each ends with the final one.

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
    """The set with the highest accuracy; among equals the one with the least error, then the smallest."""
    return min(trials, key=lambda trial: (-trial.accuracy, trial.mse, len(trial.layers)))
