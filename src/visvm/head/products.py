"""Large matrix products and factorisations, all by SciPy's BLAS.

numpy and SciPy each bring a BLAS with its own threads, which wait busily between calls. Work that
alternates between the two loses a third of its speed. SciPy's has the symmetric and in-place calls,
so everything large goes there.

Symmetric matrices live in the lower triangle of a Fortran-ordered square; the upper triangle is
scratch space in which ``ShiftedCholesky`` puts its factor, so that solving needs no second matrix.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, blas, lapack

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

_PANEL = 512


def product(left: NDArray[np.floating[Any]], right: NDArray[np.floating[Any]]) -> Array:
    """Return left @ right, in C order."""
    # C order is Fortran order of the transpose: (left @ right)ᵀ = rightᵀ @ leftᵀ
    (a, a_turned), (b, b_turned) = _operand(right), _operand(left)
    return np.asarray(blas.dgemm(1.0, a, b, trans_a=not a_turned, trans_b=not b_turned).T)


def add_product(total: Array, left: Array, right: Array) -> None:
    """Add left @ right to a C-ordered matrix, in place."""
    (a, a_turned), (b, b_turned) = _operand(right), _operand(left)
    blas.dgemm(
        1.0, a, b, beta=1.0, c=total.T, trans_a=not a_turned, trans_b=not b_turned, overwrite_c=1
    )


def _operand(matrix: NDArray[np.floating[Any]]) -> tuple[NDArray[np.floating[Any]], bool]:
    """Return the matrix in Fortran order, or else its transpose, and whether it is transposed."""
    if matrix.flags.f_contiguous:
        return matrix, False
    return np.ascontiguousarray(matrix).T, True


def add_symmetric_product(matrix: Array, rows: Array, sign: float = 1.0) -> None:
    """Add ±rowsᵀrows to the lower triangle of a Fortran-ordered matrix, in place.

    This is half the work of a full product.
    """
    blas.dsyrk(sign, np.ascontiguousarray(rows).T, beta=1.0, c=matrix, lower=1, overwrite_c=1)


def kernel_product(rows: Array) -> Array:
    """Return the lower triangle of rows @ rowsᵀ, in Fortran order."""
    return np.asarray(blas.dsyrk(1.0, np.ascontiguousarray(rows).T, trans=1, lower=1))


def mirrored(matrix: Array) -> Array:
    """Return the whole of a symmetric matrix whose lower triangle counts, as a new array."""
    lower = np.tril(matrix)
    return np.asarray(lower + np.tril(lower, -1).T)


class GrowingCholesky:
    """Cholesky factor of ``K + shift·I`` in panels of rows, which grows with K.

    A finished panel is never written to, so copies can share it.
    """

    def __init__(self, shift: float) -> None:
        self.shift = shift
        self.largest = 0.0  # of K's diagonal
        # per panel: (n, columns before it) and its lower corner (n, n)
        self._panels: list[tuple[Array, Array]] = []

    @property
    def n_rows(self) -> int:
        """Size of K so far."""
        return sum(len(corner) for _, corner in self._panels)

    def leading(self, rows: int) -> "GrowingCholesky":
        """Return the factor of the leading rows and columns of K."""
        twin, count = GrowingCholesky(self.shift), 0
        twin.largest = self.largest
        for left, corner in self._panels:
            kept = min(len(corner), rows - count)
            if kept <= 0:
                break
            if kept < len(corner):
                left = left[:kept].copy(order="F")
                corner = corner[:kept, :kept].copy(order="F")
            twin._panels.append((left, corner))
            count += kept
        return twin

    def append(self, left: Array, corner: Array) -> None:
        """Append rows and columns to K.

        Parameters
        ----------
        left : array of shape (n, rows)
            Products with the rows before, in Fortran order. Overwritten.
        corner : array of shape (n, n)
            Products among the new rows, in Fortran order. Overwritten.

        Raises
        ------
        LinAlgError
            K + shift·I is not positive definite to working precision. The factor is unchanged.
        """
        self.largest = float(np.maximum(self.largest, corner.diagonal().max()))  # keeps a NaN
        begin = self._substitute(left)
        if begin:
            blas.dsyrk(-1.0, left, beta=1.0, c=corner, lower=1, overwrite_c=1)
        corner[np.diag_indices(len(corner))] += self.shift
        factor, info = lapack.dpotrf(corner, lower=1, clean=0, overwrite_a=1)
        if info != 0:
            raise LinAlgError(f"leading minor {begin + info} is not positive")
        self._panels.append((left, factor))

    def _substitute(self, rows: Array) -> int:
        """Multiply rows, (k, n_rows), by the inverse transpose, in place, and return n_rows."""
        begin = 0  # columns done; rows are in Fortran order, so that slices of them are contiguous
        for before, triangle in self._panels:
            here = rows[:, begin : begin + len(triangle)]
            if begin:
                blas.dgemm(
                    -1.0, rows[:, :begin], before, beta=1.0, c=here, trans_b=1, overwrite_c=1
                )
            blas.dtrsm(1.0, triangle, here, side=1, lower=1, trans_a=1, overwrite_b=1)
            begin += len(triangle)
        return begin

    def solve(self, right: Array) -> Array:
        """Solve (K + shift·I) x = right, (rows, k)."""
        # (k, rows) in Fortran order: slices of columns are contiguous
        turned = np.array(right, order="C").T
        begin = self._substitute(turned)
        for before, triangle in reversed(self._panels):
            begin -= len(triangle)
            here = turned[:, begin : begin + len(triangle)]
            blas.dtrsm(1.0, triangle, here, side=1, lower=1, overwrite_b=1)
            if begin:
                blas.dgemm(-1.0, here, before, beta=1.0, c=turned[:, :begin], overwrite_c=1)
        return np.asarray(turned.T)


class ShiftedCholesky:
    """Cholesky factor of ``matrix + shift·I``, in the matrix's own upper triangle.

    It is there as long as the ``with`` block lasts.

    Attributes
    ----------
    shift : float
    kept : array of shape (size,)
        The matrix's own diagonal.

    Raises
    ------
    LinAlgError
        The shifted matrix is not positive definite to working precision.
    """

    def __init__(self, matrix: Array, shift: float) -> None:
        self._matrix = matrix
        self.shift = shift
        self._diagonal = matrix.reshape(-1, order="A")[:: len(matrix) + 1]  # a view

    def __enter__(self) -> "ShiftedCholesky":
        matrix, size = self._matrix, len(self._matrix)
        self.kept = self._diagonal.copy()
        for begin in range(0, size, _PANEL):
            end = min(begin + _PANEL, size)
            matrix[:begin, begin:end] = matrix[begin:end, :begin].T
            corner = matrix[begin:end, begin:end]
            corner[:] = mirrored(corner)
        info = -1
        try:
            self._diagonal += self.shift
            _, info = lapack.dpotrf(matrix, lower=0, clean=0, overwrite_a=1)
        finally:  # interrupted or refused, the matrix is as it was
            if info != 0:
                self._diagonal[:] = self.kept
        if info != 0:
            raise LinAlgError(f"leading minor {info} is not positive")
        return self

    def __exit__(self, *_: object) -> None:
        self._diagonal[:] = self.kept

    def log_determinant(self) -> float:
        """Return the logarithm of the shifted matrix's determinant."""
        return 2.0 * float(np.log(self._diagonal).sum())

    def solve(self, right: Array) -> Array:
        """Solve for right-hand sides of shape (size, k)."""
        solution, _ = lapack.dpotrs(self._matrix, right, lower=0)
        return np.asarray(solution)
