"""Lifted features and labels → additive sums: all that a model remembers of its data.

The state is the sum of the features of every class, the number of samples of every class (the last
row of those sums, whose feature is always 1), and the scatter (``scatter.py``). λ, the target
coding and the order of the classes are not part of it. The paper's G, Q and s (eq. 14) are derived:
``gram``, ``cross_moment`` and ``feature_sum``.

Two sets of samples a and b with means m_a, m_b and N_a, N_b samples are joined by::

    scatter(a ∪ b) = scatter(a) + scatter(b) + N_a·N_b/(N_a + N_b) · (m_b - m_a)(m_b - m_a)ᵀ

so a batch adds n *difference rows* to the factor: its own n samples as n - 1 differences between
them, and one difference between its mean and the mean so far. Learning, merging, unmerging and
forgetting are these sums, added or taken away.

Sums are not anonymous: features of single samples can be computed from them while there are fewer
samples than D, and from the class sum of a few (``benchmarks/PRIVACY.md``).
"""

import hashlib
import json
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas

from visvm.errors import InputError, NeverLearnedError
from visvm.head.checks import suggestion
from visvm.head.products import Array, product
from visvm.head.scatter import THIN_SHARE, DenseScatter, ThinScatter, never_learned, reordered

_TOLERANCE = 1e-12  # relative: a count of weighted samples closer to zero than this is zero


@dataclass(frozen=True)
class _Moments:
    """Number of samples, mean feature (D,) and mean one-hot target (C,)."""

    count: float
    mean: Array
    target_mean: Array


class Statistics:
    """The additive sums of a model.

    Parameters
    ----------
    n_features : int
        D, the width of the lifted features, without the constant 1.

    Attributes
    ----------
    classes : array of shape (C,)
        The labels seen, sorted.
    class_sums : array of shape (D + 1, C)
        Sum of the augmented features [φ, 1] of every class.
    scatter : ThinScatter or DenseScatter

    Examples
    --------
    >>> a, b, both = Statistics(2), Statistics(2), Statistics(2)
    >>> phi, y = np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 1.0]]), np.array(["x", "y", "x"])
    >>> a.add(phi[:2].copy(), y[:2]); b.add(phi[2:].copy(), y[2:]); both.add(phi, y)
    >>> a.merge(b)
    >>> bool(np.allclose(a.gram, both.gram)), a.class_counts.tolist()
    (True, [2.0, 1.0])
    >>> a.unmerge(b)
    >>> a.gram.round(9).tolist()
    [[1.0, 0.0, 1.0], [0.0, 4.0, 2.0], [1.0, 2.0, 2.0]]
    """

    def __init__(self, n_features: int) -> None:
        self.n_features = n_features
        self.classes: NDArray[np.generic] = np.empty(0, dtype=np.int64)
        self.class_sums: Array = np.empty((n_features + 1, 0))
        self.scatter: ThinScatter | DenseScatter = ThinScatter(n_features)

    # Derived values

    @property
    def class_counts(self) -> Array:
        """Number (or summed weight) of the samples of every class, (C,)."""
        return np.asarray(self.class_sums[-1])

    @property
    def feature_sum(self) -> Array:
        """s = Σ φ̃, (D + 1,), eq. 14."""
        return np.asarray(self.class_sums.sum(axis=1))

    @property
    def cross_moment(self) -> Array:
        """Q = Σ φ̃yᵀ with y in ±1, (D + 1, C), eq. 14."""
        return 2.0 * self.class_sums - self.feature_sum[:, None]

    @property
    def gram(self) -> Array:
        """G = Σ φ̃φ̃ᵀ, (D + 1, D + 1), eq. 14, as a new array."""
        total = self.feature_sum
        gram: Array = np.outer(total, total) / max(total[-1], np.finfo(float).tiny)
        gram[:-1, :-1] += self.scatter.to_matrix()
        return gram

    @property
    def n_samples(self) -> float:
        """Number (or summed weight) of all samples."""
        return float(self.class_counts.sum())

    @property
    def mean(self) -> Array:
        """Mean lifted feature, (D,)."""
        return np.asarray(self.feature_sum[:-1] / self.n_samples)

    def square_sum(self) -> float:
        """Return Σ |φ|², the size that rounding is relative to."""
        return self.scatter.trace() + self.n_samples * float(self.mean @ self.mean)

    def digest(self) -> str:
        """Return the SHA-256 of the classes and the sums, to the last bit."""
        digest = hashlib.sha256(json.dumps(self.classes.tolist()).encode())
        for array in (self.class_sums, *self.scatter.arrays()):
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    # Changes

    def copy(self) -> "Statistics":
        """Return a copy that can be changed without changing this one."""
        return self._twin(self.scatter.copy())

    def reserve(self, n_new: int) -> None:
        """Take the form in which `n_new` more rows are best added; the sums stay the same."""
        room = THIN_SHARE * self.n_features
        if isinstance(self.scatter, ThinScatter) and self.scatter.n_rows + n_new > room:
            self.scatter = self.scatter.to_dense()

    def add(self, lifted: Array, labels: NDArray[np.generic], weight: Array | None = None) -> None:
        """Learn samples.

        Parameters
        ----------
        lifted : array of shape (n, D)
            Overwritten.
        labels : array of shape (n,)
        weight : array of shape (n,), optional
            How often each sample counts, above zero.
        """
        self.reserve(len(lifted))
        self.announce(labels)
        one_hot, weight = self._one_hot(labels), np.ones(len(lifted)) if weight is None else weight
        sums, before = _sums(lifted, one_hot, weight), self._moments(self.class_sums)
        self.scatter.add(*_difference_rows(lifted, one_hot, weight, before))
        self.class_sums = self.class_sums + sums

    def announce(self, labels: NDArray[np.generic]) -> None:
        """Make columns for the classes of samples that are about to be added."""
        self._set_classes(
            np.union1d(self.classes, labels) if len(self.classes) else np.unique(labels)
        )

    def require_alike(self, weight: float) -> None:
        """Refuse samples of this weight together beside which those in the sums would be lost."""
        if self.n_samples and weight * _TOLERANCE > self.n_samples:
            raise InputError(
                f"These samples weigh {weight / self.n_samples:.3g} times as much as all learned "
                "before, which would be lost to rounding. Give smaller values of sample_weight.",
                code="weights-ratio",
            )

    def merge(self, other: "Statistics") -> None:
        """Add the sums of other samples, lifted by the same map; `other` does not change."""
        if not len(other.classes):
            return
        joined = np.union1d(self.classes, other.classes) if len(self.classes) else other.classes
        twin = other._twin(other.scatter.shared())  # with the columns of both
        twin._set_classes(joined)
        self._set_classes(joined)
        mine, theirs = self._moments(self.class_sums), twin._moments(twin.class_sums)
        if isinstance(twin.scatter, DenseScatter) and isinstance(self.scatter, ThinScatter):
            self.scatter, twin.scatter = twin.scatter.copy(), self.scatter
        row, target = _mean_difference(theirs, mine)
        if isinstance(twin.scatter, ThinScatter):
            self.reserve(twin.scatter.n_rows + 1)
            for rows, targets in twin.scatter.rows():
                self.scatter.add(rows.copy(), targets.copy())
        elif isinstance(self.scatter, DenseScatter):
            self.scatter.merge(twin.scatter)
        if mine.count:
            self.scatter.add(row[None], target[None])
        self.class_sums = self.class_sums + twin.class_sums

    def require_learned(self, labels: NDArray[np.generic], weight: Array) -> None:
        """Refuse to forget more samples of a class than were learned."""
        classes, places = np.unique(labels, return_inverse=True)
        self._require_counts(classes, np.asarray(np.bincount(places, weight), dtype=np.float64))

    def _require_counts(self, classes: NDArray[np.generic], counts: Array) -> None:
        unknown = np.setdiff1d(classes, self.classes)
        if len(unknown):
            raise NeverLearnedError(
                f"Class {unknown.tolist()[0]!r} was never learned, so it cannot be forgotten. "
                f"{suggestion(unknown.tolist()[0], self.classes)}",
                code="class-never-learned",
            )
        given = np.zeros(len(self.classes))
        given[np.searchsorted(self.classes, classes)] = counts
        excess = given - self.class_counts
        worst = int(excess.argmax())
        if excess[worst] > _TOLERANCE * self.class_counts[worst]:
            raise NeverLearnedError(
                f"Class {self.classes.tolist()[worst]!r} has {self.class_counts[worst]:g} samples, "
                f"so {given[worst]:g} cannot be forgotten. Give only samples that were learned.",
                code="samples-too-many",
            )

    def subtract(
        self, lifted: Array, labels: NDArray[np.generic], weight: Array | None = None
    ) -> None:
        """Forget samples that were learned. Parameters as in `add`.

        Raises
        ------
        NeverLearnedError
            No data could have the sums that are left. The object may be half changed: work on a
            copy.
        """
        weight = np.ones(len(lifted)) if weight is None else weight
        self.require_learned(labels, weight)
        one_hot = self._one_hot(labels)
        left, gone = self._left(_sums(lifted, one_hot, weight), np.abs(lifted).max())
        rows, targets = _difference_rows(lifted, one_hot, weight, self._moments(left))
        self.scatter.subtract(rows, targets, self.square_sum())
        self._shrink(left, gone)

    def unmerge(self, other: "Statistics") -> None:
        """Take away the sums of samples that were merged; `other` does not change.

        Raises
        ------
        NeverLearnedError
            As in `subtract`.
        """
        if not len(other.classes):
            return
        self._require_counts(other.classes, other.class_counts)
        twin, scale = other._twin(other.scatter.shared()), self.square_sum()
        twin._set_classes(self.classes)
        left, gone = self._left(twin.class_sums, np.abs(other.class_sums).max())
        rest, theirs = self._moments(left), twin._moments(twin.class_sums)
        row, target = _mean_difference(theirs, rest)
        parts = [(row[None], target[None])]
        if isinstance(twin.scatter, ThinScatter):
            parts += twin.scatter.rows()
        else:
            if isinstance(self.scatter, ThinScatter):
                self.scatter = self.scatter.to_dense()
            self.scatter.unmerge(twin.scatter)
        if isinstance(self.scatter, ThinScatter):  # whose every subtraction costs a decomposition
            every_row, every_target = map(np.concatenate, zip(*parts, strict=True))
            parts = [(every_row, every_target)]
        for rows, targets in parts:
            self.scatter.subtract(rows, targets, scale)
        self._shrink(left, gone)

    def renamed(self, classes: NDArray[np.generic]) -> "Statistics":
        """Return the same sums with other names for the classes, sorted by them.

        Classes that get one name become one. A dense matrix is shared.
        """
        twin = self._twin(self.scatter.shared())
        twin.classes, places = np.unique(classes, return_inverse=True)
        twin.class_sums = reordered(twin.class_sums, len(twin.classes), places)
        twin.scatter.reorder(len(twin.classes), places)
        return twin

    def _left(self, sums: Array, size: float) -> tuple[Array, NDArray[np.bool_]]:
        """Return the class sums without these, (D + 1, C), and which classes are gone, (C,).

        `size` is that of the largest feature in the sums taken away.
        """
        left = self.class_sums - sums
        gone = left[-1] <= _TOLERANCE * self.class_counts
        sizes = np.abs(self.class_sums[:-1, gone]).max(axis=0, initial=0.0) + size
        if (np.abs(left[:-1, gone]).max(axis=0, initial=0.0) > 1e-6 * sizes).any():
            raise never_learned()
        left[:, gone] = 0.0
        return left, gone

    def _shrink(self, class_sums: Array, gone: NDArray[np.bool_]) -> None:
        """Keep what is left after samples have been taken away."""
        self.class_sums = class_sums
        if gone.all():
            vars(self).update(vars(Statistics(self.n_features)))
        else:
            self._set_classes(self.classes[~gone])

    def _twin(self, scatter: ThinScatter | DenseScatter) -> "Statistics":
        """Return the same sums, with columns of their own, over this scatter."""
        twin = Statistics(self.n_features)
        twin.classes, twin.class_sums, twin.scatter = self.classes, self.class_sums, scatter
        return twin

    def _set_classes(self, classes: NDArray[np.generic]) -> None:
        """Give the columns to these classes, sorted: add new ones, drop those not named."""
        if np.array_equal(classes, self.classes):
            return
        places = np.full(len(self.classes), -1, dtype=np.intp)
        if len(self.classes):
            found = np.isin(self.classes, classes)
            places[found] = np.searchsorted(classes, self.classes[found])
        self.scatter.reorder(len(classes), places)
        self.classes, self.class_sums = classes, reordered(self.class_sums, len(classes), places)

    def _one_hot(self, labels: NDArray[np.generic]) -> Array:
        one_hot = np.zeros((len(labels), len(self.classes)))
        one_hot[np.arange(len(labels)), np.searchsorted(self.classes, labels)] = 1.0
        return one_hot

    def _moments(self, class_sums: Array) -> _Moments:
        counts = class_sums[-1]
        count = float(counts.sum())
        divisor = count or 1.0
        return _Moments(count, class_sums[:-1].sum(axis=1) / divisor, counts / divisor)


def _sums(lifted: Array, one_hot: Array, weight: Array) -> Array:
    """Return the class sums of a batch, (D + 1, C); only its own classes cost anything."""
    present = one_hot.any(axis=0)
    weighted = one_hot[:, present] * weight[:, None]
    sums = np.zeros((lifted.shape[1] + 1, one_hot.shape[1]))
    sums[:-1, present] = product(lifted.T, weighted)
    sums[-1, present] = weighted.sum(axis=0)
    return sums


def _mean_difference(batch: _Moments, before: _Moments) -> tuple[Array, Array]:
    """Return the row and target that joining two sets of samples adds."""
    scale = np.sqrt(batch.count / (batch.count + before.count)) * np.sqrt(before.count)
    return scale * (batch.mean - before.mean), scale * (batch.target_mean - before.target_mean)


def _difference_rows(
    lifted: Array, one_hot: Array, weight: Array, before: _Moments
) -> tuple[Array, Array]:
    """Return the rows, (n, D), and targets, (n, C), that a batch adds to the scatter `before` it.

    `lifted` becomes the rows. A reflection takes the weights' own direction, along which centred
    rows vanish, to the first row; the difference of the means goes there.
    """
    root, count = np.sqrt(weight), float(weight.sum())
    batch = _Moments(count, weight @ lifted / count, weight @ one_hot / count)
    rows = np.ascontiguousarray(lifted)  # as BLAS needs it to write in place
    rows -= batch.mean
    rows *= root[:, None]
    targets = (one_hot - batch.target_mean) * root[:, None]
    axis = root / np.sqrt(count)
    axis[0] += 1.0
    for array in (rows, targets):
        along = axis @ array
        blas.dger(-1.0 / axis[0], along, axis, a=array.T, overwrite_y=0, overwrite_a=1)
    if not before.count:
        return rows[1:], targets[1:]
    rows[0], targets[0] = _mean_difference(batch, before)
    return rows, targets
