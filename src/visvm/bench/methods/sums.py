"""Sums over the samples of every class: what the methods that keep class means share."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError

from visvm.bench.methods.linear import Lifting, linear_discriminant
from visvm.bench.streams import ClassNumbers
from visvm.errors import InputError
from visvm.head.memory import chunks
from visvm.head.products import Array, ShiftedCholesky, add_symmetric_product, product
from visvm.head.scatter import DenseScatter
from visvm.head.statistics import Statistics


def count_classes(labels: ClassNumbers, known: int) -> int:
    """Return how many classes there are once these labels are learned, after `known` before.

    A number that was left out is refused: methods that keep one column a class would else predict a
    class they have never seen.

    Examples
    --------
    >>> count_classes(np.array([2, 0, 3]), known=2)
    4
    """
    new = np.unique(labels[labels >= known])
    due = known + np.arange(len(new))
    if (wrong := new != due).any():
        got, wanted = new[wrong][0], due[wrong][0]
        raise InputError(
            f"Class number {got} was given where {wanted} comes next. "
            "Number classes as they arrive.",
            code="class-number-skipped",
        )
    return known + len(new)


class ClassSums:
    """Sum and number of the samples of every class.

    Parameters
    ----------
    width : int
        Of the features that are summed.

    Attributes
    ----------
    sums : array of shape (width, C)
    counts : array of shape (C,)

    Examples
    --------
    >>> sums = ClassSums(1)
    >>> sums.learn(np.array([[1.0], [2.0], [4.0]]), np.array([1, 0, 0]))
    >>> sums.means.tolist()
    [[3.0, 1.0]]
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self.sums: Array = np.zeros((width, 0))
        self.counts: Array = np.zeros(0)

    @property
    def means(self) -> Array:
        """Class means, (width, C)."""
        return self.sums / self.counts

    @property
    def nbytes(self) -> int:
        """Size of all that is kept; a symmetric matrix is held, and counted, whole."""
        return self.sums.nbytes + self.counts.nbytes

    def learn(
        self, features: NDArray[Any], labels: ClassNumbers, lift: Lifting = np.asarray
    ) -> None:
        """Add a session, (n, d) and (n,), some samples at a time; what is lifted is summed."""
        new = count_classes(labels, len(self.counts)) - len(self.counts)
        self.sums = np.pad(self.sums, ((0, 0), (0, new)))
        self.counts = np.pad(self.counts, (0, new))
        for part in chunks(len(labels), self.width):
            self._add(lift(features[part]), labels[part])

    def _add(self, rows: Array, labels: ClassNumbers) -> None:
        """Add rows, (n, width), of classes that there are columns for."""
        present, one_hot = present_classes(labels)
        self.sums[:, present] += product(rows.T, one_hot)
        self.counts[present] += one_hot.sum(axis=0)


class ClassScatter(ClassSums):
    """Class sums, and the scatter of all samples about the means of their classes.

    A class of n samples with mean m that gets n' more with mean m' adds the scatter of these about
    m', and::

        n·n' / (n + n') · (m' - m)(m' - m)ᵀ

    which is nothing for a class that is new, and which an update by the running mean leaves wrong.

    Attributes
    ----------
    within : array of shape (width, width)
        Σ (x - mean of its class)(x - mean of its class)ᵀ, of which the lower triangle counts.
    """

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.within: Array = np.zeros((width, width), order="F")

    @property
    def nbytes(self) -> int:
        """Size of all that is kept."""
        return super().nbytes + self.within.nbytes

    def _add(self, rows: Array, labels: ClassNumbers) -> None:
        present, one_hot = present_classes(labels)
        known, added = self.counts[present], one_hot.sum(axis=0)
        means = product(rows.T, one_hot) / added
        moved = (means - self.sums[:, present] / np.maximum(known, 1.0)) * np.sqrt(
            known * added / (known + added)
        )
        add_symmetric_product(self.within, rows - product(one_hot, means.T))
        add_symmetric_product(self.within, moved.T)
        self.sums[:, present] += means * added
        self.counts[present] += added

    def discriminant(self, shift: float) -> Array:
        """Return coefficients, (width + 1, C), of the linear discriminant: scatter + `shift`·I."""
        means = self.means
        try:
            with ShiftedCholesky(self.within, shift) as factor:
                return linear_discriminant(means, factor.solve(means))
        except LinAlgError:
            raise InputError(
                f"The features are so large that {shift:.3g}, added to their scatter, vanishes. "
                "Scale them down.",
                code="features-too-large",
            ) from None


def present_classes(labels: ClassNumbers) -> tuple[ClassNumbers, Array]:
    """Return the classes among the labels, (C',), sorted, and one-hot targets for them, (n, C')."""
    present, places = np.unique(labels, return_inverse=True)
    return present, np.eye(len(present))[places]


def statistics_bytes(statistics: Statistics) -> int:
    """Return the size of the sums of an LS-SVM, without a thin one's Cholesky factor."""
    scatter, arrays = statistics.scatter, [statistics.class_sums]
    if isinstance(scatter, DenseScatter):
        arrays += [scatter.matrix, scatter.cross]
    else:
        arrays += [*scatter.blocks, scatter.targets]
    return sum(array.nbytes for array in arrays)
