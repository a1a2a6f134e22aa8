"""Features and scores → how familiar an image looks, so that a model can answer "none of these".

An image of no class learned is far from the mean of every class, in the metric of the scatter
within classes (``nearness.py``), and its best score is low. Either tells something the other does
not: what looks like nothing learned is far away, also where a score happens to be high, and between
classes that are alike an image may be near to all and fit none. So the distance is taken, and made
larger where the best score is low: ``d·exp(-s/2)`` (benchmarks/UNKNOWN.md).

What is far, the images of each session show, looked at as if they had not been learned: the
number of them at each distance of a grid is noted. These are sums over images, as those of
``calibration.py`` are, and are treated alike: merging adds them, and older ones count half.
"""

import numpy as np
from scipy.special import ndtr

from visvm.head.nearness import Spread, moments_of, spread_of
from visvm.head.products import Array, Indices
from visvm.head.statistics import Statistics

DISTANCES: Array = np.geomspace(0.05, 2000.0, 161)
"""The grid of distances, of which the first and the last also stand for those beyond."""

UNKNOWN = 0.05
"""By default this share of known images may be taken for none of the classes."""

MOST_SCORE = 2.0
"""The largest size of a score that counts; scores are about one."""

_LEAST = DISTANCES[0] ** 2  # of a squared distance
_SHRINKAGE = 0.7  # towards the same scatter in every direction: benchmarks/UNKNOWN.md


def learned_spread(sums: Statistics, back: Array, chosen: Indices) -> Spread | None:
    """Return how the images in sums scatter about their classes; None of no class.

    Parameters
    ----------
    sums : Statistics
    back : array of shape (D, d)
        ``KernelMap.back``.
    chosen : array of shape (K,)
        Places of the classes that may be answered with.
    """
    if not len(chosen):
        return None
    centres, scatter = moments_of(sums, back)
    return spread_of(centres[chosen], scatter, _freedom(sums), _SHRINKAGE)


def _freedom(sums: Statistics) -> float:
    return max(sums.n_samples - len(sums.classes), 1.0)


def strangeness(squares: Array, scores: Array) -> Array:
    """Return how far images are from all classes, (n,).

    Parameters
    ----------
    squares : array of shape (n, C)
        What ``Spread`` returned for them.
    scores : array of shape (n, C)
    """
    best = scores.max(axis=1).clip(-MOST_SCORE, MOST_SCORE)
    return np.asarray(np.sqrt(np.maximum(squares.min(axis=1), _LEAST) * np.exp(-best)))


def unlearned_strangeness(
    spread: Spread,
    sums: Statistics,
    features: Array,
    scores: Array,
    targets: Indices,
    counts: Array,
) -> Array:
    """Return ``strangeness`` of learned images as if each had not been learned, (m,).

    The only image of a class is left out: without it, nothing is known of the class.

    Parameters
    ----------
    spread : Spread
        Of these sums.
    sums : Statistics
    features : array of shape (n, V, d)
        Of all views of each; it is the first that is looked at.
    scores : array of shape (n, C)
        Leave-one-out scores.
    targets : array of shape (n,)
        Places of their classes.
    counts : array of shape (C,)
        Images of every class.
    """
    some = counts[targets] > 1.0
    part = (1.0 - _SHRINKAGE) / _freedom(sums)
    squares = spread.unlearned_squares(
        features[some, 0], features[some].mean(axis=1), targets[some], counts, part
    )
    return strangeness(squares, scores[some])


def scatter_within(spread: Spread, sums: Statistics) -> Array:
    """Return the scatter within classes of these sums, (d, d), of which their spread was made."""
    factor = np.linalg.inv(spread.root)
    metric = factor.T @ factor
    size = metric.trace() / len(metric)
    metric[np.diag_indices(len(metric))] -= _SHRINKAGE * size
    return np.asarray(_freedom(sums) / (1.0 - _SHRINKAGE) * metric)


def tallied(distances: Array) -> Array:
    """Return how many of these distances, (n,), are next to each of the grid, (161,)."""
    step = np.log(DISTANCES[1] / DISTANCES[0])
    with np.errstate(divide="ignore"):
        places = np.rint(np.log(distances / DISTANCES[0]) / step)
    places = places.clip(0, len(DISTANCES) - 1).astype(np.intp)
    return np.bincount(places, minlength=len(DISTANCES)).astype(np.float64)


def known_shares(distances: Array, noted_sums: Array) -> Array | None:
    """Return the share of learned images that look less familiar than images so far away, (n,).

    Few of them tell little about the rarest: each stands for a range about it, which is narrower
    the more there are.

    Parameters
    ----------
    distances : array of shape (n,)
        From the nearest class.
    noted_sums : array of shape (161,)
        What ``tallied`` returned for learned images, added up; where it is nothing, so is the
        answer.

    Examples
    --------
    >>> sums = tallied(np.geomspace(0.5, 2.0, 101))
    >>> known_shares(np.array([0.1, 1.0, 30.0]), sums).round(2).tolist()
    [1.0, 0.5, 0.0]
    """
    smoothed = smoothing(noted_sums)
    if smoothed is None:
        return None
    weights, places, width = smoothed
    given = np.log(np.maximum(distances, DISTANCES[0]))
    return np.asarray(ndtr((places - given[:, None]) / width) @ weights / weights.sum())


def smoothing(noted_sums: Array) -> tuple[Array, Array, float] | None:
    """Return what each distance of the grid stands for: how often, (161,), where, and how widely.

    Where and how widely are logarithms, the former (161,). A kernel widens a distribution, so its
    places are drawn together first: mean and deviation stay those of what was noted. None where
    that is nothing.
    """
    weights = np.maximum(noted_sums, 0.0)
    total = float(weights.sum())
    if total < 0.5:
        return None
    logs = np.log(DISTANCES)
    mean = float(weights @ logs) / total
    # as if one more had been seen, half a unit away: one image alone has no spread
    deviation = np.sqrt((float(weights @ np.square(logs - mean)) + 0.25) / total)
    share = 1.06 * total**-0.2  # of the deviation: Silverman's rule
    drawn = 1.0 / np.sqrt(1.0 + share**2)
    return weights, mean + drawn * (logs - mean), float(drawn * share * deviation)
