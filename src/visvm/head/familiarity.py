"""Scores → how familiar an image looks, so that a model can answer "none of these".

The scores of a class's images scatter about the class's own mean scores. An image of no class
learned lies far from all of these, also where its best score is high: the classes that it
resembles a little disagree. So its distance from the nearest class is taken, in the metric of the
scatter within classes, which the sums and the coefficients give without any image.

What is far, the images of each session show, scored as if they had not been learned: the
number of them at each distance of a grid is noted. These are sums over images, as those of
``calibration.py`` are, and are treated alike: merging adds them, and older ones count half.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from visvm.head.products import Array, Indices
from visvm.head.statistics import Statistics

DISTANCES: Array = np.geomspace(0.05, 2000.0, 161)
"""The grid of distances, of which the first and the last also stand for those beyond."""

UNKNOWN = 0.05
"""By default this share of known images may be taken for none of the classes."""

MOST_CLASSES = 2000
"""Beyond so many classes no spread is kept: it has the square of their number in numbers."""

# Scores are about one: where every image is fitted exactly, this much of a scatter is rounding.
_ROUNDING = 1e-12
_SHRINKAGE = 0.5  # towards the same scatter in every direction: benchmarks/UNKNOWN.md


@dataclass(frozen=True, eq=False)
class ScoreSpread:
    """How the scores of learned images scatter.

    Attributes
    ----------
    centres : array of shape (C, C)
        By row, the mean scores of the images of a class.
    root : array of shape (C, C)
        Differences of scores, times it, scatter alike in all directions.

    Examples
    --------
    >>> spread = ScoreSpread(np.array([[1.0, -1.0], [-1.0, 1.0]]), 5.0 * np.eye(2))
    >>> spread.distances(np.array([[1.0, -1.0], [0.0, 0.0]])).round(1).tolist()
    [[0.0, 10.0], [5.0, 5.0]]
    """

    centres: Array
    root: Array

    def distances(self, scores: Array) -> Array:
        """Return how far scores, (n, C), are from those of each class, (n, C).

        The unit is what the scores of a learned image are away from its class, as a root mean
        square.
        """
        inside, centres = scores @ self.root, self.centres @ self.root
        squares = np.square(inside).sum(axis=1)[:, None] + np.square(centres).sum(axis=1)
        squares -= 2.0 * (inside @ centres.T)
        return np.asarray(np.sqrt(np.maximum(squares, 0.0) / len(self.centres)))

    def unlearned_distances(
        self, scores: Array, fitted: Array, targets: Indices, counts: Array
    ) -> Array:
        """Return how far learned images would be from the nearest class without them, (n,).

        Parameters
        ----------
        scores : array of shape (n, C)
            Leave-one-out scores.
        fitted : array of shape (n, C)
            Scores by the model that has learned them, which are in the centres.
        targets : array of shape (n,)
            Columns of their classes.
        counts : array of shape (C,)
            Images of every class.
        """
        distances, n = self.distances(scores), counts[targets][:, None]
        others = np.maximum(n - 1.0, 1.0)  # an image that is alone leaves its class as it is
        own = np.where(n > 1.0, (n * self.centres[targets] - fitted) / others, fitted)
        away = np.square((scores - own) @ self.root).sum(axis=1)
        distances[np.arange(len(scores)), targets] = np.sqrt(away / len(self.centres))
        return np.asarray(distances.min(axis=1))

    def reordered(self, order: Indices) -> "ScoreSpread":
        """Return the spread with its classes in another order."""
        return ScoreSpread(self.centres[np.ix_(order, order)], self.root[order])


def spread_of(
    statistics: Statistics, coefficients: Array, shift: float, chosen: Indices
) -> ScoreSpread | None:
    """Return how the scores of learned images scatter; None where there are too many classes.

    With W̃ the solution of (G + μI)W̃ = Q, the second moment of all scores is
    W̃ᵀGW̃ = W̃ᵀQ - μW̃ᵀW̃. What the means of the classes leave of it is the scatter within them.

    Parameters
    ----------
    statistics : Statistics
    coefficients : array of shape (D + 1, C)
        That solve them.
    shift : float
        μ = λ / C_svm.
    chosen : array of shape (K,)
        Places of the classes that may be answered with.
    """
    if not 0 < len(chosen) <= MOST_CLASSES:
        return None
    weights = coefficients[:, chosen]
    counts = statistics.class_counts
    centres = (statistics.class_sums.T @ weights) / counts[:, None]  # of all classes
    moment = weights.T @ statistics.cross_moment[:, chosen] - shift * (weights.T @ weights)
    within = moment - (centres.T * counts) @ centres
    within = (within + within.T) / (2.0 * max(statistics.n_samples - len(counts), 1.0))
    mean = max(float(np.trace(within)) / len(chosen), _ROUNDING)
    metric = (1.0 - _SHRINKAGE) * within + _SHRINKAGE * mean * np.eye(len(chosen))
    values, vectors = np.linalg.eigh(metric)
    root = vectors / np.sqrt(np.maximum(values, 0.5 * _SHRINKAGE * mean))
    return ScoreSpread(centres[chosen], root)


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
    weights, width = smoothed
    given = np.log(np.maximum(distances, DISTANCES[0]))
    return np.asarray(ndtr((np.log(DISTANCES) - given[:, None]) / width) @ weights / weights.sum())


def smoothing(noted_sums: Array) -> tuple[Array, float] | None:
    """Return how much each distance of the grid counts, (161,), and over what range of logarithms.

    That is None where nothing was noted.
    """
    weights = np.maximum(noted_sums, 0.0)
    total = float(weights.sum())
    if total < 0.5:
        return None
    logs = np.log(DISTANCES)
    mean = float(weights @ logs) / total
    # as if one more had been seen, half a unit away: one image alone has no spread
    deviation = np.sqrt((float(weights @ np.square(logs - mean)) + 0.25) / total)
    return weights, float(1.06 * deviation * total**-0.2)  # Silverman's rule
