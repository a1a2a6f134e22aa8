"""Features and sums → how near an image is to each class, learned or left out.

Nearness is the squared distance from the mean of a class, in the metric of the scatter within
classes: linear discriminant analysis. Means and scatter come from samples, or from sums: lifted
features become features again by a product (``KernelMap.back``), and so do their sums.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cholesky, solve_triangular

from visvm.errors import NeverLearnedError
from visvm.head.products import Array, Indices, product
from visvm.head.statistics import Statistics

_LEAST_SCATTER = 1e-12
_ROUNDING = 1e-12  # of the squares of the features


@dataclass(frozen=True, eq=False)
class Spread:
    """How the features of learned images scatter.

    Attributes
    ----------
    centres : array of shape (C, d)
        The mean features of every class.
    root : array of shape (d, d)
        Differences of features, times it, scatter alike in all directions.

    Examples
    --------
    >>> spread = Spread(np.array([[1.0, -1.0], [-1.0, 1.0]]), 5.0 * np.eye(2))
    >>> spread.squares(np.array([[1.0, -1.0], [0.0, 0.0]])).round(1).tolist()
    [[0.0, 100.0], [25.0, 25.0]]
    """

    centres: Array
    root: Array

    def squares(self, features: Array) -> Array:
        """Return squared distances of features, (n, d), from every class, (n, C); their mean."""
        return self._squares(features @ self.root, self.centres @ self.root)

    @staticmethod
    def _squares(inside: Array, centres: Array) -> Array:
        squares = np.square(inside).sum(axis=1)[:, None] + np.square(centres).sum(axis=1)
        squares -= 2.0 * (inside @ centres.T)
        return np.asarray(np.maximum(squares, 0.0) / inside.shape[1])

    def unlearned_squares(
        self, features: Array, own: Array, targets: Indices, counts: Array, part: float
    ) -> Array:
        """Return ``squares`` of learned images as if each had not been learned, (n, C).

        An image is taken out of the mean of its class and out of the scatter, in closed form; with
        r its difference from the mean of k images, the scatter loses k/(k-1)·rrᵀ. One that is
        alone in its class leaves it as it is.

        Parameters
        ----------
        features : array of shape (n, d)
        own : array of shape (n, d)
            What of each is in the mean of its class: of several views their mean.
        targets : array of shape (n,)
            Places of their classes.
        counts : array of shape (C,)
            Images of every class.
        part : float
            How much of rrᵀ is in the metric.
        """
        inside, centres = features @ self.root, self.centres @ self.root
        squares, d = self._squares(inside, centres), inside.shape[1]
        rows = np.flatnonzero(counts[targets] > 1.0)
        columns, k = targets[rows], counts[targets[rows]]
        away = own[rows] @ self.root - centres[columns]
        more = k / (k - 1.0)
        here = inside[rows] - centres[columns] + away / (k - 1.0)[:, None]
        size = np.square(away).sum(axis=1)
        along = (inside[rows] * away).sum(axis=1)[:, None] - away @ centres.T
        squares[rows, columns] = np.square(here).sum(axis=1) / d
        along[np.arange(len(rows)), columns] = (here * away).sum(axis=1)
        lost = part * more / np.maximum(1.0 - part * more * size, 1e-9)
        squares[rows] += lost[:, None] * np.square(along) / d
        return squares


def spread_of(centres: Array, scatter: Array, within: float, shrinkage: float) -> Spread:
    """Return the spread about the means of classes, (C, d).

    Parameters
    ----------
    centres : array of shape (C, d)
    scatter : array of shape (d, d)
        The sum over images of rrᵀ, r the difference from the mean of the class.
    within : float
        How many images less classes.
    shrinkage : float
        Towards the same scatter in every direction.

    Raises
    ------
    NeverLearnedError
        No images could scatter so, as in a file that was altered.
    """
    metric = (1.0 - shrinkage) / within * scatter
    mean = float(scatter.trace()) / within / len(scatter)
    # a scatter from sums is a difference: where classes have one image each, all of it is rounding
    squares = float(np.square(centres).sum()) * max(1.0 / len(centres), 1.0 / within)
    level = max(shrinkage * mean, _ROUNDING * squares, _LEAST_SCATTER)
    metric[np.diag_indices(len(metric))] += level
    try:
        factor = cholesky(metric, lower=True)
    except LinAlgError as error:
        raise NeverLearnedError(
            "The sums of this model were altered: no images could have them. Use an older copy.",
            code="sums-impossible",
        ) from error
    return Spread(centres, solve_triangular(factor, np.eye(len(factor)), lower=True).T)


def moments_of(sums: Statistics, back: Array) -> tuple[Array, Array]:
    """Return the mean features of every class, (C, d), and the scatter within classes, (d, d).

    `back`, (D, d), is ``KernelMap.back``.
    """
    counts = sums.class_counts
    centres = product(sums.class_sums[:-1].T, back) / counts[:, None]
    away = (centres - counts @ centres / counts.sum()) * np.sqrt(counts)[:, None]
    return centres, sums.scatter.along(back) - away.T @ away
