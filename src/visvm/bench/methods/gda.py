"""Gaussian discriminant analysis on unit features, as CLIP-GDA, BOFA and ENGINE have it."""

import numpy as np

from visvm.bench.methods.sums import ClassScatter
from visvm.head.products import Array


def discriminant(sums: ClassScatter) -> Array:
    """Return coefficients, (width + 1, K), the bias last, of all images seen.

    With the means μ of K classes, the scatter S of N images about them, and d coordinates::

        P = d·(S + tr(S)/(N - 1)·I)⁺,   score = μᵀPx - μᵀPμ/2 - log K

    The public code of ENGINE averages the P of sessions; this is the P of one session of all.

    Examples
    --------
    >>> sums = ClassScatter(2)
    >>> sums.learn(np.array([[1, 0], [0.8, 0.6], [0, 1], [-0.6, 0.8]]), np.array([0, 0, 1, 1]))
    >>> discriminant(sums).round(6).tolist()
    [[5.4, -1.8], [1.8, 5.4], [-3.393147, -3.393147]]
    """
    lower = np.tril(sums.within)
    scatter = lower + np.tril(lower, -1).T
    n, width, n_classes = float(sums.counts.sum()), sums.width, len(sums.counts)
    shift = np.trace(scatter) / max(n - 1.0, 1.0)
    precision = width * np.linalg.pinv(scatter + shift * np.eye(width), hermitian=True)
    means = sums.means
    directions = precision @ means
    bias = -0.5 * np.einsum("ij,ij->j", means, directions) - np.log(n_classes)
    return np.vstack([directions, bias])


def scores(rows: Array, coefficients: Array) -> Array:
    """Return the scores, (n, K), of unit features, (n, width)."""
    return np.asarray(rows @ coefficients[:-1] + coefficients[-1])
