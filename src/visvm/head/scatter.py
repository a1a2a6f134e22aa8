"""The second moment of the lifted features about their mean, in one of two exact forms.

``scatter = Σ (φ - mean)(φ - mean)ᵀ = gram - N·mean·meanᵀ`` holds what the Gram matrix adds to the
class sums. It is kept instead of the Gram matrix because ReLU features have a mean far larger than
their spread: the Gram matrix spends float64's digits on the mean, and a small λ then drowns in
rounding (``solver.py``).

- **Thin**: while few samples have been seen, a factor F with FᵀF = scatter, one row a sample, and
  the Cholesky factor of its small kernel matrix FFᵀ. Nothing of size D x D exists.
- **Dense**: the D x D matrix itself.

Both take in *difference rows* (``statistics.py``), so adding a batch is the same call. The rows of
every batch are turned by a random rotation that is not kept. Its seed is a hash of sums over the
rows themselves, so equal data give equal bits.

**Neither form hides single samples.** A rotation leaves the space that the samples span, and with
fewer samples than D few points of it are ReLU features. Those are the samples, and
``benchmarks/privacy.py`` computes them, from F session by session, or from the matrix. As R is
public, their fused features follow.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, blas, eigh, qr

from visvm.errors import NeverLearnedError
from visvm.head.products import (
    Array,
    GrowingCholesky,
    ShiftedCholesky,
    add_product,
    add_symmetric_product,
    kernel_product,
    mirrored,
    product,
)

THIN_SHARE = 2 / 3
"""The thin form is kept up to this share of D in rows. It is the faster one nearly up to D, where
a session's N²·n operations meet the D³/3 of a dense one. Past this share, though, it would outgrow
two dense matrices while it turns into one."""

# Rows turned together: every stored row blends many samples, at a cost far below the kernel rows'.
_GROUP = 64


class DenseScatter:
    """The scatter as a matrix, with its counterpart between features and targets beside it.

    Attributes
    ----------
    matrix : array of shape (D, D)
    cross : array of shape (D, C)
        Σ (φ - mean)(t - mean of t)ᵀ over the one-hot targets t. Class sums and mean would give
        it too, without its last digits.
    """

    n_rows = 0  # there is no factor

    def __init__(self, matrix: Array, cross: Array) -> None:
        self._matrix = matrix
        self.cross = cross
        self._held: ShiftedCholesky | None = None  # within a block of ``factored``

    @property
    def matrix(self) -> Array:
        """The lower triangle counts; not for use while a factor is held, whose diagonal it has."""
        assert self._held is None, "its diagonal is that of a factor"
        return self._matrix

    def copy(self) -> "DenseScatter":
        """Return an independent copy."""
        matrix = self._matrix.copy(order="F")
        matrix[np.diag_indices(len(matrix))] = self._diagonal
        return DenseScatter(matrix, self.cross.copy())

    def shared(self) -> "DenseScatter":
        """Return one that shares the matrix, with columns that can be reordered."""
        return DenseScatter(self.matrix, self.cross)

    @property
    def _diagonal(self) -> Array:
        """The diagonal, (D,), also where a factor is in the matrix's upper triangle."""
        return self._matrix.diagonal() if self._held is None else self._held.kept

    @contextmanager
    def factored(self, shift: float) -> Iterator[ShiftedCholesky]:
        """Yield the factor of the matrix + shift·I; a block within the block shares it."""
        if self._held is not None and self._held.shift == shift:
            yield self._held
            return
        with ShiftedCholesky(self.matrix, shift) as factor:
            self._held = factor
            try:
                yield factor
            finally:
                self._held = None

    def __getstate__(self) -> tuple[int, Array, Array]:
        # half of the matrix is enough to send
        return len(self.matrix), packed_triangle(self.matrix), self.cross

    def __setstate__(self, state: tuple[int, Array, Array]) -> None:
        self._matrix, self.cross = unpacked_triangle(state[1], state[0]), state[2]
        self._held = None

    def add(self, rows: Array, targets: Array) -> None:
        """Add the difference rows of a batch, (n, D), with their targets, (n, C)."""
        add_symmetric_product(self.matrix, rows)
        self.cross += product(rows.T, targets)

    def merge(self, other: "DenseScatter") -> None:
        """Add the sums of other samples, without the difference between the means."""
        matrix = self.matrix
        matrix += other.matrix
        self.cross += other.cross

    def unmerge(self, other: "DenseScatter") -> None:
        """Take away the sums of other samples, without the difference between the means."""
        matrix = self.matrix
        matrix -= other.matrix
        self.cross -= other.cross

    def subtract(self, rows: Array, targets: Array, scale: float) -> None:  # noqa: ARG002
        """Take away the difference rows of a batch that was added."""
        add_symmetric_product(self.matrix, rows, sign=-1.0)
        self.cross -= product(rows.T, targets)

    def check(self, scale: float) -> None:
        """Refuse sums that no data could have; their squares added up to `scale` before."""
        try:
            with ShiftedCholesky(self.matrix, 1e-9 * scale + np.finfo(float).tiny):
                pass
        except LinAlgError:
            raise never_learned() from None

    def reorder(self, n_classes: int, places: NDArray[np.intp]) -> None:
        """Move the class columns to `places` among `n_classes`, as ``reordered`` does."""
        self.cross = reordered(self.cross, n_classes, places)

    def arrays(self) -> Iterator[Array]:
        """Yield every array that counts."""
        yield from (self.matrix[column:, column] for column in range(len(self.matrix)))
        yield self.cross

    def trace(self) -> float:
        """Return the sum of the eigenvalues."""
        return float(self._diagonal.sum())

    def along(self, axes: Array) -> Array:
        """Return axesᵀ @ scatter @ axes, (k, k), for axes of shape (D, k)."""
        half = blas.dsymm(1.0, self._matrix, axes, lower=1)
        half += (self._diagonal - self._matrix.diagonal())[:, None] * axes  # a factor's are there
        return product(axes.T, half)

    def to_matrix(self) -> Array:
        """Return the whole symmetric matrix, (D, D), as a new array."""
        return mirrored(self.matrix)


def packed_triangle(matrix: Array) -> Array:
    """Return the lower triangle, column by column, (D(D + 1)/2,)."""
    size = len(matrix)
    packed, begin = np.empty(size * (size + 1) // 2), 0
    for column in range(size):
        packed[begin : begin + size - column] = matrix[column:, column]
        begin += size - column
    return packed


def unpacked_triangle(packed: Array, size: int) -> Array:
    """Return the matrix, (D, D), with this lower triangle; the upper one, not in use, is zero."""
    if packed.shape != (size * (size + 1) // 2,):
        raise ValueError("scatter has the wrong shape")
    matrix, begin = np.zeros((size, size), order="F"), 0
    for column in range(size):
        matrix[column:, column] = packed[begin : begin + size - column]
        begin += size - column
    return matrix


def reordered(columns: Array, n_classes: int, places: NDArray[np.intp]) -> Array:
    """Return columns moved to `places` (-1: drop) among `n_classes`.

    Columns that meet in one place are added up; new ones are zero.

    Examples
    --------
    >>> reordered(np.array([[1.0, 2.0, 4.0]]), 3, np.array([2, 0, 2])).tolist()
    [[2.0, 0.0, 5.0]]
    """
    wider = np.zeros((len(columns), n_classes))
    first = np.zeros(len(places), dtype=bool)
    first[np.unique(places, return_index=True)[1]] = True
    moved = first & (places >= 0)
    wider[:, places[moved]] = columns[:, moved]
    for column in np.flatnonzero(~first & (places >= 0)):
        wider[:, places[column]] += columns[:, column]
    return wider


def never_learned() -> NeverLearnedError:
    """Return the error for samples whose removal would leave sums that no data could have."""
    return NeverLearnedError(
        "These are not the samples that were learned: removing them would leave impossible sums. "
        "Give the same features, labels and weights that were learned.",
        code="samples-never-learned",
    )


class ThinScatter:
    """The scatter as a factor F with FᵀF = scatter, with the equally rotated targets beside it.

    Attributes
    ----------
    blocks : list of arrays of shape (rows, D)
        F. Blocks are never written to, so copies can share them.
    targets : array of shape (all rows, C)
        The one-hot targets under the same differences and rotations.
    """

    def __init__(self, n_features: int) -> None:
        self.n_features = n_features
        self.blocks: list[Array] = []
        self.targets: Array = np.empty((0, 0))
        self._factor = GrowingCholesky(0.0)
        self._factored_rows = 0  # how many leading rows of F are in _factor

    @property
    def n_rows(self) -> int:
        """How many rows F has."""
        return len(self.targets)

    def copy(self) -> "ThinScatter":
        """Return a copy that shares the blocks."""
        twin = ThinScatter(self.n_features)
        twin.blocks, twin.targets = list(self.blocks), self.targets
        twin._factor, twin._factored_rows = self._factor, self._factored_rows
        return twin

    shared = copy

    def add(self, rows: Array, targets: Array) -> None:
        """Add the difference rows of a batch, (n, D), with their targets, (n, C), and keep both."""
        if not len(rows):
            return
        kept = self.n_rows
        if self.blocks and min(len(rows), len(self.blocks[-1])) < _GROUP:
            if len(self.blocks[-1]) > 2 * _GROUP:
                last = self.blocks.pop()
                self.blocks += [last[:-_GROUP], last[-_GROUP:]]
            last = self.blocks.pop()
            kept -= len(last)
            rows = np.concatenate([last, rows])
            targets = np.concatenate([self.targets[kept:], targets])
        _rotate(rows, targets)
        self.blocks.append(rows)
        self.targets = np.concatenate([self.targets[:kept], targets])
        self._factored_rows = min(self._factored_rows, kept)

    def subtract(self, rows: Array, targets: Array, scale: float) -> None:
        """Take away the difference rows of a batch from squares that add up to `scale`.

        F is brought to an orthonormal basis of its rows, where the subtraction is that of the dense
        form, and a factor is taken of what is left.
        """
        factor = np.concatenate(self.blocks) if self.blocks else np.empty((0, self.n_features))
        basis, triangle = qr(factor.T, mode="economic", overwrite_a=True)  # (D, rows), (rows, rows)
        inside = product(rows, basis)
        moment = product(triangle, triangle.T) - product(inside.T, inside)
        cross = product(triangle, self.targets) - product(inside.T, targets)
        values, vectors = eigh(moment, overwrite_a=True)
        outside = float(np.linalg.norm(rows - product(inside, basis.T)))
        if outside > 1e-6 * np.sqrt(scale) or values.min(initial=0.0) < -1e-9 * scale:
            raise never_learned()
        size = float(np.abs(values).max(initial=0.0)) + float(np.vdot(rows, rows))
        real = values > len(values) * np.finfo(float).eps * size
        root = np.sqrt(values[real])
        self.blocks, self.targets, self._factored_rows = [], np.empty((0, targets.shape[1])), 0
        self.add(
            product((vectors[:, real] * root).T, basis.T),
            product((vectors[:, real] / root).T, cross),
        )

    def check(self, scale: float) -> None:
        """Do nothing: `subtract` has checked."""

    def arrays(self) -> Iterator[Array]:
        """Yield every array that counts."""
        yield from self.blocks
        yield self.targets

    def rows(self) -> Iterator[tuple[Array, Array]]:
        """Yield the blocks of F, each with its targets."""
        begin = 0
        for block in self.blocks:
            yield block, self.targets[begin : begin + len(block)]
            begin += len(block)

    def reorder(self, n_classes: int, places: NDArray[np.intp]) -> None:
        """Move the class columns to `places` among `n_classes`, as ``reordered`` does."""
        self.targets = reordered(self.targets, n_classes, places)

    def factored(self, shift: float) -> GrowingCholesky:
        """Return the Cholesky factor of FFᵀ + shift·I.

        Only rows that are new since the last call with this shift cost anything.
        """
        factor = self._factor.leading(self._factored_rows if self._factor.shift == shift else 0)
        factor.shift = shift
        for left, corner in self._kernel_panels(factor.n_rows):
            factor.append(left, corner)
        self._factor, self._factored_rows = factor, self.n_rows
        return factor

    def kernel(self) -> Array:
        """Return FFᵀ, (rows, rows), in Fortran order; its lower triangle counts."""
        kernel = np.empty((self.n_rows, self.n_rows), order="F")
        for left, corner in self._kernel_panels(0):
            begin, end = left.shape[1], left.shape[1] + len(corner)
            kernel[begin:end, :begin], kernel[begin:end, begin:end] = left, corner
        return kernel

    def _kernel_panels(self, known: int) -> Iterator[tuple[Array, Array]]:
        """Yield the blocks' rows of FFᵀ, all but the `known` first: before the diagonal, on it."""
        first = 0
        for place, rows in enumerate(self.blocks):
            if first >= known:
                left = np.empty((len(rows), first), order="F")
                begin = 0
                for block in self.blocks[:place]:
                    left[:, begin : begin + len(block)] = product(block, rows.T).T
                    begin += len(block)
                yield left, kernel_product(rows)
            first += len(rows)

    def times(self, matrix: Array) -> Array:
        """Return F @ matrix, (rows, k)."""
        return np.concatenate(
            [product(block, matrix) for block in self.blocks] or [np.empty((0, matrix.shape[1]))]
        )

    def transposed_times(self, matrix: Array) -> Array:
        """Return Fᵀ @ matrix, (D, k)."""
        result = np.zeros((self.n_features, matrix.shape[1]))
        begin = 0
        for block in self.blocks:
            add_product(result, block.T, matrix[begin : begin + len(block)])
            begin += len(block)
        return result

    def to_dense(self) -> DenseScatter:
        """Return the same sums as a matrix."""
        matrix = np.zeros((self.n_features, self.n_features), order="F")
        for block in self.blocks:
            add_symmetric_product(matrix, block)
        return DenseScatter(matrix, self.transposed_times(self.targets))

    def trace(self) -> float:
        """Return the sum of the eigenvalues."""
        return float(sum(np.vdot(block, block) for block in self.blocks))

    def along(self, axes: Array) -> Array:
        """Return axesᵀ @ scatter @ axes, (k, k), for axes of shape (D, k)."""
        half = self.times(axes)
        return product(half.T, half)

    def to_matrix(self) -> Array:
        """Return the whole symmetric matrix, (D, D), as a new array."""
        return self.to_dense().to_matrix()


def _rotate(rows: Array, targets: Array) -> None:
    """Turn rows and targets, in place, by one random rotation in each of many random groups."""
    entropy = hashlib.sha256(rows.sum(axis=1).tobytes() + targets.tobytes()).digest()
    generator = np.random.default_rng(int.from_bytes(entropy))
    for group in np.array_split(generator.permutation(len(rows)), -(-len(rows) // _GROUP)):
        rotation, _ = np.linalg.qr(generator.standard_normal((len(group), len(group))))
        rows[group] = product(rotation, rows[group])
        targets[group] = rotation @ targets[group]
