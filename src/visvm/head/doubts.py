"""Labels and features → which labels look wrong, and which samples are nearly the same.

Each sample is scored as if it had not been learned (``unlearned_affinities``, or
``Head.leave_one_out_scores``), so its own label, right or wrong, has no say in its score.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from visvm.head.calibration import log_likelihoods, probabilities
from visvm.head.nearness import spread_of
from visvm.head.products import Array, Indices

_NEAREST = 3  # samples that decide whether one is unlike all others
_FAR, _LEAST_DEVIATION = 3.5, 0.05
_LEAST_SCATTER = 1e-12
_UNIT = 4.0  # of affinities, so that those of most images lie on the grid of calibration
_ROWS = 1024  # compared with all others at once
_MOST_OF_A_CLASS = 200  # that are compared to find how close samples of a class are


SHRINKAGE: Final = 0.9
"""Of the scatter within classes, towards the same in every direction: benchmarks/CHECK.md."""

ALIKE: Final = (0.85, 0.2)
"""The limits by which samples are of nearly the same picture: benchmarks/ALIKE.md."""

CONFIDENT: Final = 0.99
"""From this confidence on, a label is called wrong: benchmarks/CHECK.md."""


def sure(n: int) -> float:
    """Return the confidence from which on labels are called wrong; few samples can tell less."""
    return min(CONFIDENT, 1.0 - 2.0 / (n + 2.0))


@dataclass(frozen=True, eq=False)
class Doubts:
    """How labels fare against the scores of models that have not learned them.

    Attributes
    ----------
    suggested : array of shape (n,)
        Column of the likeliest class but the sample's own; -1 where there is no other.
    confidence : array of shape (n,)
        How likely it is, by the calibrated probabilities, that the sample's own class is another.
    score : array of shape (n,)
        How likely the suggested class is.
    loses : array of shape (n,)
        Whether the suggested class has the higher score.
    """

    suggested: Indices
    confidence: Array
    score: Array
    loses: NDArray[np.bool_]


def doubts_of(scores: Array, targets: Indices) -> Doubts:
    """Compare labels with leave-one-out scores.

    Parameters
    ----------
    scores : array of shape (n, C)
    targets : array of shape (n,)
        Columns of the samples' own classes.

    Examples
    --------
    >>> scores = np.array([[1.0, -1.0], [-1.0, 1.0], [0.9, -0.9]])
    >>> found = doubts_of(scores, np.array([0, 1, 1]))
    >>> found.suggested.tolist(), found.loses.tolist()
    ([1, 0, 0], [False, False, True])
    """
    n, n_classes = scores.shape
    if n_classes < 2 or not n:
        return Doubts(np.full(n, -1), np.zeros(n), np.zeros(n), np.zeros(n, dtype=bool))
    rows = np.arange(n)
    others = scores.copy()
    others[rows, targets] = -np.inf
    suggested = others.argmax(axis=1)
    chances = probabilities(scores, log_likelihoods(scores, targets))
    loses = others[rows, suggested] > scores[rows, targets]
    own, best = chances[rows, targets], chances[rows, suggested]
    return Doubts(suggested, 1.0 - own, best, loses)


def unlearned_affinities(
    features: NDArray[np.floating],
    targets: Indices,
    learned: NDArray[np.bool_],
    shrinkage: float = SHRINKAGE,
) -> Array:
    """Return how close samples are to every class, (n, C), each as if it had not been learned.

    That is minus the squared distance from the mean of the class, in the metric of the scatter
    within classes (``nearness.py``).

    Parameters
    ----------
    features : array of shape (n, d)
    targets : array of shape (n,)
        Their classes, from 0.
    learned : array of shape (n,)
        Which of them count; every class has some.
    shrinkage : float
        Towards the same scatter in every direction.
    """
    X, own = features.astype(np.float64), targets[learned]
    counts = np.bincount(own).astype(np.float64)
    means = np.zeros((len(counts), X.shape[1]))
    np.add.at(means, own, X[learned])
    means /= counts[:, None]
    away = X[learned] - means[own]
    return affinities(X, X, targets, learned, (means, away.T @ away, counts), shrinkage)


def affinities(
    features: Array,
    own: Array,
    targets: Indices,
    learned: NDArray[np.bool_],
    moments: tuple[Array, Array, Array],
    shrinkage: float = SHRINKAGE,
) -> Array:
    """Return ``unlearned_affinities`` by what is known of classes.

    Parameters
    ----------
    features : array of shape (n, d)
    own : array of shape (n, d)
        What of each is in the means: of several views their mean.
    targets : array of shape (n,)
    learned : array of shape (n,)
        Which of them are in the means and the scatter.
    moments : arrays of shape (C, d), (d, d) and (C,)
        Means of the classes, the scatter within them, and their numbers of samples.
    shrinkage : float
        As in ``unlearned_affinities``.
    """
    means, scatter, counts = moments
    within = max(float(counts.sum()) - len(counts), 1.0)
    spread = spread_of(means, scatter, within, shrinkage)
    squares = spread.squares(features)
    rows, columns = np.flatnonzero(learned), targets[learned]
    part = (1.0 - shrinkage) / within
    squares[rows] = spread.unlearned_squares(features[rows], own[rows], columns, counts, part)
    usual = float(squares[rows, columns].mean()) if len(rows) else 1.0
    return np.asarray(-_UNIT * squares / max(usual, _LEAST_SCATTER))


@dataclass(frozen=True, eq=False)
class Likeness:
    """How samples resemble one another.

    Attributes
    ----------
    groups : list of lists
        Samples that show nearly the same, of any classes; each list is sorted.
    gaps : array of shape (n,)
        One minus the cosine with the three nearest others, their mean.
    """

    groups: list[list[int]]
    gaps: Array


def likeness_of(
    features: NDArray[np.floating], targets: Indices, limits: tuple[float, float] = ALIKE
) -> Likeness:
    """Compare all samples with one another.

    Parameters
    ----------
    features : array of shape (n, d)
    targets : array of shape (n,)
        Their classes.
    limits : pair of float
        The least cosine of features about their mean, and how much closer two samples of nearly the
        same picture are than samples of their classes are to one another.

    Examples
    --------
    >>> X = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.01], [-1.0, -1.0]])
    >>> likeness_of(X, np.array([0, 0, 1, 1])).groups
    [[0, 2]]
    """
    units = (features - features.mean(axis=0)).astype(np.float32)
    units /= np.maximum(np.linalg.norm(units, axis=1, keepdims=True), 1e-12)
    least = np.maximum(limits[0], 1.0 - limits[1] * _gaps(units, targets))
    pairs, gaps = [np.empty((0, 2), dtype=np.intp)], np.zeros(len(units))
    nearest = min(_NEAREST, len(units) - 1)
    for begin in range(0, len(units), _ROWS):
        here = slice(begin, begin + _ROWS)
        cosines = units[here] @ units.T
        rows = np.arange(len(cosines))
        cosines[rows, begin + rows] = -2.0
        # both must be close to the other, as their classes go
        first, second = np.nonzero(cosines >= np.maximum(least[here, None], least))
        pairs.append(np.stack([begin + first, second], axis=1)[second > begin + first])
        if nearest:
            cosines.partition(len(units) - nearest, axis=1)
            gaps[here] = 1.0 - cosines[:, -nearest:].mean(axis=1)
    return Likeness(joined(len(units), np.concatenate(pairs)), gaps)


def _gaps(units: NDArray[np.float32], targets: Indices) -> Array:
    """Return one minus the usual cosine of two samples of each one's class, (n,).

    For classes of one sample it is the usual one of all classes.
    """
    gaps = np.full(len(units), np.nan)
    for target in np.unique(targets):
        members = np.flatnonzero(targets == target)
        chosen = units[members[:_MOST_OF_A_CLASS]]
        if len(chosen) > 1:
            apart = ~np.eye(len(chosen), dtype=bool)
            gaps[members] = 1.0 - np.median((chosen @ chosen.T)[apart])
    unknown = np.isnan(gaps)
    gaps[unknown] = 1.0 if unknown.all() else np.median(gaps[~unknown])
    return gaps


def joined(n: int, pairs: Indices) -> list[list[int]]:
    """Return the groups, of two or more of n, that pairs, (m, 2), join; each is sorted."""
    graph = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(n, n))
    _, components = connected_components(graph, directed=False)
    order = np.argsort(components, kind="stable")
    ends = np.flatnonzero(np.diff(components[order])) + 1
    return sorted(part.tolist() for part in np.split(order, ends) if len(part) > 1)


def far_off(gaps: Array) -> NDArray[np.bool_]:
    """Return which gaps, (n,), are far above what is usual among them.

    Examples
    --------
    >>> far_off(np.array([0.4, 0.5, 0.3, 0.45, 0.4, 1.1])).tolist()
    [False, False, False, False, False, True]
    """
    if not len(gaps):
        return np.zeros(0, dtype=bool)
    middle = np.median(gaps)
    deviation = 1.4826 * float(np.median(np.abs(gaps - middle)))  # of a normal distribution
    return np.asarray(gaps > middle + _FAR * max(deviation, _LEAST_DEVIATION))
