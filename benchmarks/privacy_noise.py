"""What differentially private sums can still do: the Gaussian mechanism on clipped features.

Each photo's lifted feature, with the constant, is scaled to length 1, so one photo more or less
changes class sums by at most 1 and the Gram matrix by at most 1 (Frobenius). Both are released
together, the Gram matrix weighted by ``GRAM_SHARE``, with noise that the analytic Gaussian
mechanism (Balle and Wang, 2018) needs for (ε, δ). λ is the one that is best on the test photos, and
counts are not noisy: both make the figures better than they could be.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.linalg import eigh
from scipy.optimize import brentq
from scipy.stats import norm

from visvm.bench.streams import Samples
from visvm.head.lift import KernelMap

Array = np.ndarray

DELTA, EPSILONS, SITES = 1e-5, (1.0, 4.0, 8.0, 16.0), (1, 10)
GRAM_SHARE = 0.1  # of the Gram matrix in what is released; less needs less noise, and hears less
RIDGES = 10.0 ** np.arange(-4.0, 5.5, 0.5)
WIDTHS = (50, 100, 384)


def noise(epsilon: float, delta: float = DELTA) -> float:
    """Return the standard deviation for sensitivity 1 (Balle and Wang, theorem 8).

    Examples
    --------
    >>> round(noise(1.0), 2)
    3.73
    """

    def excess(sigma: float) -> float:
        a, b = 1 / (2 * sigma), epsilon * sigma
        # by logarithms, as exp(ε) may be large
        return norm.cdf(a - b) - np.exp(epsilon + norm.logcdf(-a - b)) - delta

    return float(brentq(excess, 1e-2, 1e3))


def accuracies(train: Samples, test: Samples, seeds: range) -> Iterator[dict[str, Any]]:
    """Yield the accuracy left by every width D, number of sites and ε; None is without noise."""
    n_classes = int(train.targets.max()) + 1
    for width in WIDTHS:
        lift = KernelMap(train.features.shape[1], width, seed=0)
        seen, asked = (_unit(lift.lift(part.features)) for part in (train, test))
        one_hot = np.eye(n_classes)[train.targets]
        gram, sums, counts = seen.T @ seen, seen.T @ one_hot, one_hot.sum(axis=0)
        plain = _best(gram, sums, counts, asked, test.targets)
        yield {"D": width, "sites": 1, "epsilon": None, "accuracy": plain, "spread": 0.0}
        for n_sites in SITES:
            for epsilon in EPSILONS:
                size = noise(epsilon) * np.sqrt(n_sites * (1.0 + GRAM_SHARE**2))
                found = []
                for seed in seeds:
                    generator = np.random.default_rng(seed)
                    error = np.tril(generator.standard_normal(gram.shape)) * size / GRAM_SHARE
                    error = error + np.tril(error, -1).T
                    noisy = sums + size * generator.standard_normal(sums.shape)
                    found.append(_best(gram + error, noisy, counts, asked, test.targets))
                row = {"accuracy": float(np.mean(found)), "spread": float(np.std(found))}
                yield {"D": width, "sites": n_sites, "epsilon": epsilon, **row}


def _unit(lifted: Array) -> Array:
    """Return [φ, |φ|] at length 1: the constant is as long as the rest."""
    size = np.linalg.norm(lifted, axis=1, keepdims=True)
    return np.hstack([lifted / size, np.ones_like(size)]) / np.sqrt(2.0)


def _best(gram: Array, sums: Array, counts: Array, asked: Array, targets: Array) -> float:
    """Return the best accuracy over λ; eigenvalues that noise made negative are zero."""
    values, vectors = eigh(gram)
    total = sums.sum(axis=1, keepdims=True)
    targets_by_axis = vectors.T @ (2.0 * sums - total)
    along = asked @ vectors
    means = vectors.T @ (sums / counts)  # one-hot targets weighted by class: another choice
    best = 0.0
    for ridge in RIDGES:
        shrunk = along / (np.maximum(values, 0.0) + ridge)
        for right in (targets_by_axis, means):
            best = max(best, float(((shrunk @ right).argmax(axis=1) == targets).mean()))
    return best
