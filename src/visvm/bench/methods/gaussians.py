"""Mean and covariance of every class, from which images of old classes are made up."""

import numpy as np
from numpy.typing import NDArray

from visvm.bench.streams import ClassNumbers
from visvm.head.products import Array

_SMALL = 1e-4  # added to every variance


class ClassGaussians:
    """A Gaussian for every class; a class that comes back has that of all its images.

    Parameters
    ----------
    shrinkage : bool
        Add the mean variance to the diagonal, and the mean covariance beside it.

    Examples
    --------
    >>> known = ClassGaussians()
    >>> for rows in ([[0.0], [2.0]], [[4.0], [6.0]]):
    ...     known.learn(np.array(rows), np.array([0, 0]))
    >>> known.means[0].tolist(), known.covariance(0).round(4).tolist()
    ([3.0], [[6.6668]])
    """

    def __init__(self, *, shrinkage: bool = False) -> None:
        self.shrinkage = shrinkage
        self.counts: dict[int, int] = {}
        self.means: dict[int, Array] = {}
        self._scatters: dict[int, Array] = {}
        self._factors: dict[int, NDArray[np.float32]] = {}

    @property
    def nbytes(self) -> int:
        """Size of means and covariances; the factors are computed from these."""
        return sum(mean.nbytes + mean.nbytes * len(mean) for mean in self.means.values())

    def learn(self, rows: Array, labels: ClassNumbers) -> None:
        """Add images, (n, d) and (n,)."""
        for label in map(int, np.unique(labels)):
            new = rows[labels == label]
            mean, n = new.mean(axis=0), len(new)
            scatter = (new - mean).T @ (new - mean)
            if label in self.counts:
                m, before = self.counts[label], self.means[label]
                moved = mean - before
                scatter += self._scatters[label] + m * n / (m + n) * np.outer(moved, moved)
                mean, n = before + n / (m + n) * moved, m + n
            self.counts[label], self.means[label], self._scatters[label] = n, mean, scatter
            self._factors.pop(label, None)

    def covariance(self, label: int) -> Array:
        """Return the covariance of a class, (d, d), with what is added to it."""
        found = self._scatters[label] / max(self.counts[label] - 1, 1)
        width = len(found)
        if self.shrinkage:
            variance = np.trace(found) / width
            beside = (found.sum() - np.trace(found)) / max(width * (width - 1), 1)
            found = found + beside + (variance - beside) * np.eye(width)
        return found + _SMALL * np.eye(width)

    def draw(self, label: int, n: int, generator: np.random.Generator) -> NDArray[np.float32]:
        """Make up images of a class, (n, d)."""
        if label not in self._factors:
            values, vectors = np.linalg.eigh(self.covariance(label))
            factor = (vectors * np.sqrt(values.clip(0.0))).T
            self._factors[label] = factor.astype(np.float32)
        noise = generator.standard_normal((n, len(self.means[label])), dtype=np.float32)
        return np.asarray(noise @ self._factors[label] + self.means[label], dtype=np.float32)
