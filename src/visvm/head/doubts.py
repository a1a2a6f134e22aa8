"""Labels and features → which labels look wrong, and which samples are nearly the same.

Each sample is scored as if it had not been learned (``Head.leave_one_out_scores``), so its own
label, right or wrong, has no say in its score.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.special import expit

from visvm.head.calibration import inverse_temperature, log_likelihoods
from visvm.head.products import Array, Indices

# Of nearly the same picture are features about their mean whose cosine is so large, and which are
# so much closer than samples of their classes are to one another: benchmarks/CHECK.md.
_ALIKE, _CLOSER = 0.85, 0.2
_FAR = 3.5  # deviations of a logarithm
_ROWS = 1024  # compared with all others at once
_MOST_OF_A_CLASS = 200  # by which it is told how close samples of a class are


@dataclass(frozen=True, eq=False)
class Doubts:
    """How labels fare against the scores of models that have not learned them.

    Attributes
    ----------
    suggested : array of shape (n,)
        Column of the likeliest class but the sample's own; -1 where there is no other.
    confidence : array of shape (n,)
        How likely that class is, of the two; above 0.5 the sample's own label loses.
    """

    suggested: Indices
    confidence: Array


def doubts_of(scores: Array, targets: Indices, measured: Array | float = 0.0) -> Doubts:
    """Compare labels with leave-one-out scores.

    Parameters
    ----------
    scores : array of shape (n, C)
    targets : array of shape (n,)
        Columns of the samples' own classes.
    measured : array of shape (49,), optional
        Log-likelihoods of other samples, by which the confidence is told as well.

    Examples
    --------
    >>> scores = np.array([[1.0, -1.0], [-1.0, 1.0], [0.9, -0.9]])
    >>> found = doubts_of(scores, np.array([0, 1, 1]))
    >>> found.suggested.tolist(), (found.confidence > 0.5).tolist()
    ([1, 0, 0], [False, False, True])
    """
    n, n_classes = scores.shape
    if n_classes < 2 or not n:
        return Doubts(np.full(n, -1), np.zeros(n))
    rows = np.arange(n)
    others = scores.copy()
    others[rows, targets] = -np.inf
    suggested = others.argmax(axis=1)
    beta = inverse_temperature(log_likelihoods(scores, targets) + measured)
    margin = others[rows, suggested] - scores[rows, targets]
    return Doubts(suggested, np.asarray(expit(beta * margin)))


def groups_alike(features: NDArray[np.floating], targets: Indices) -> list[list[int]]:
    """Return groups of samples that show nearly the same, of any classes; each is sorted.

    Parameters
    ----------
    features : array of shape (n, d)
    targets : array of shape (n,)
        Their classes.

    Examples
    --------
    >>> X = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.01], [-1.0, -1.0]])
    >>> groups_alike(X, np.array([0, 0, 1, 1]))
    [[0, 2]]
    """
    units = (features - features.mean(axis=0)).astype(np.float32)
    units /= np.maximum(np.linalg.norm(units, axis=1, keepdims=True), 1e-12)
    least = np.maximum(_ALIKE, 1.0 - _CLOSER * _gaps(units, targets))
    pairs = [np.empty((0, 2), dtype=np.intp)]
    for begin in range(0, len(units), _ROWS):
        here = slice(begin, begin + _ROWS)
        # both must be close to the other, as their classes go
        limit = np.maximum(least[here, None], least[begin:])
        first, second = np.nonzero(units[here] @ units[begin:].T >= limit)
        pairs.append(begin + np.stack([first, second], axis=1)[second > first])
    return joined(len(units), np.concatenate(pairs))


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


def far_off(distances: Array) -> NDArray[np.bool_]:
    """Return which distances, (n,), are far above what is usual among them.

    Examples
    --------
    >>> far_off(np.array([1.0, 1.1, 0.9, 1.2, 1.0, 9.0])).tolist()
    [False, False, False, False, False, True]
    """
    if not len(distances):
        return np.zeros(0, dtype=bool)
    logs = np.log(np.maximum(distances, 1e-12))
    middle = np.median(logs)
    deviation = 1.4826 * float(np.median(np.abs(logs - middle)))  # of a normal distribution
    return np.asarray(logs > middle + _FAR * max(deviation, 0.1))
