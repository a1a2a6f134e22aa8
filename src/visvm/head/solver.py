"""Sums and λ → coefficients, exactly.

The paper solves ``(λI + C_svm·G) W̃ = C_svm·Q`` (eq. 17). Only μ = λ / C_svm matters. With φ split
into its mean m and the rest, and the bias eliminated, the same W̃ = [w; b] comes from the scatter S
and the centred right-hand side B::

    (S + μI + κ·m·mᵀ) w = B + κ·m·ȳᵀ        κ = N·μ / (N + μ),   ȳ = mean ±1 target
    b = N (ȳ - mᵀw) / (N + μ)

and the rank-one term is added after the solve: with w₀ = (S + μI)⁻¹B and v = (S + μI)⁻¹m::

    w = w₀ + v · κ (ȳ - mᵀw₀) / (1 + κ·mᵀv)

Thin form: w₀ = Fᵀ(FFᵀ + μI)⁻¹T with the rotated targets T, and v = (m - Fᵀ(FFᵀ + μI)⁻¹Fm) / μ.

**Precision.** Everything is float64, and the mean is kept apart. ReLU features have a mean far
above their spread, so the largest eigenvalue of G is about N·|m|², and forming G in float64 leaves
an error of about 1e-16·N·|m|² in every direction. λ can be as small as 1e-6 (μ = 1e-7): features
with a mean of 100 then lose all but two digits of their scores, and in float32 the same happens to
ordinary features. Without the mean the error is 1e-16 times the *spread*, and scores stay exact to
1e-5. A thin solve whose conditioning would still cost digits is refined with residuals from F
itself, which was never squared.
"""

import warnings
from functools import cached_property

import numpy as np
from scipy.linalg import LinAlgError, blas, eigh

from visvm.errors import IllConditionedWarning, InputError
from visvm.head.products import (
    Array,
    add_symmetric_product,
    kernel_product,
    product,
)
from visvm.head.scatter import ThinScatter
from visvm.head.statistics import Statistics

_EPSILON = float(np.finfo(np.float64).eps)


def solve(
    statistics: Statistics, ridge: float, svm_cost: float, *, negative: float = -1.0
) -> Array:
    """Solve for the coefficients of all classes seen, eq. 17.

    Parameters
    ----------
    statistics : Statistics
        With at least one sample.
    ridge, svm_cost : float
        λ and C_svm.
    negative : float
        Target of a sample for classes other than its own, which has 1; 0 gives one-hot targets.

    Returns
    -------
    array of shape (D + 1, C)
        The coefficients W̃, the bias last.

    Raises
    ------
    InputError
        The sums overflow.

    Warns
    -----
    IllConditionedWarning
        λ was raised to what float64 resolves in these sums.

    Examples
    --------
    >>> sums = Statistics(1)
    >>> sums.add(np.array([[-1.0], [1.0]]), np.array([0, 1]))
    >>> solve(sums, ridge=10.0, svm_cost=10.0).round(3).tolist()      # 2w + 1w = 2
    [[-0.667, 0.667], [0.0, 0.0]]
    """
    shift = ridge / svm_cost
    while True:
        try:
            coefficients = _solve(statistics, shift, negative)
            _check_finite(float(np.abs(coefficients).max()))
            return coefficients
        except LinAlgError:
            raised = _raised(statistics, shift)
            message = (
                f"ridge {shift * svm_cost:.3g} is below what float64 resolves in these sums; "
                f"{raised * svm_cost:.3g} was used. Raise ridge, or scale the features down."
            )
            warnings.warn(message, IllConditionedWarning, stacklevel=2)
            shift = raised


def leverage(statistics: Statistics, lifted: Array, ridge: float, svm_cost: float) -> Array:
    """Return how far each sample's scores follow its own target: H = Φ̃(G + μI)⁻¹Φ̃ᵀ / V.

    V views of a sample, the rows of Φ̃, count 1/V each. Learned with target y and scores f, they
    would get the scores y - (I - H)⁻¹(y - f) from a model without the sample. With
    φ' = φ - m·N/(N + μ), z' likewise, and the names above, its entries are, times V::

        φ'ᵀ(S + μI)⁻¹z' - κ(φ'ᵀv)(z'ᵀv) / (1 + κ·mᵀv) + 1/(N + μ)

    Parameters
    ----------
    statistics : Statistics
    lifted : array of shape (n, V, D)
        Samples that are in the sums.
    ridge, svm_cost : float
        As in `solve`.

    Returns
    -------
    array of shape (n, V, V)
        Its eigenvalues lie between 0 and 1.
    """
    shift = ridge / svm_cost
    count, mean = statistics.n_samples, statistics.mean
    while True:
        try:
            centred = lifted - mean * (count / (count + shift))
            quadratic, along, size = _inverse_products(statistics, centred, mean, shift)
            break
        except LinAlgError:
            shift = _raised(statistics, shift)
    pull = count * shift / (count + shift)
    quadratic -= along[:, :, None] * along[:, None] * (pull / (1.0 + pull * size))
    quadratic += 1.0 / (count + shift)
    return np.asarray(quadratic / lifted.shape[1])


def _inverse_products(
    statistics: Statistics, groups: Array, mean: Array, shift: float
) -> tuple[Array, Array, float]:
    """Return X(S + μI)⁻¹Xᵀ, (n, V, V), X(S + μI)⁻¹m, (n, V), and mᵀ(S + μI)⁻¹m.

    X is each of the groups, (n, V, D); m is the mean, (D,).
    """
    n, n_views, _ = groups.shape
    vectors = np.concatenate([groups.reshape(n * n_views, -1), mean[None]])
    if isinstance(statistics.scatter, ThinScatter):
        inside = statistics.scatter.times(vectors.T)  # (rows, nV + 1)
        dual = statistics.scatter.factored(shift).solve(inside)
        taken = inside[:, :-1].T.reshape(n, n_views, -1)
        quadratic = groups @ groups.swapaxes(1, 2)
        quadratic -= taken @ dual[:, :-1].T.reshape(n, n_views, -1).swapaxes(1, 2)
        quadratic /= shift
        along = (vectors @ mean - inside.T @ dual[:, -1]) / shift
    else:
        with statistics.scatter.factored(shift) as factor:
            solved = factor.solve(vectors.T)  # (D, nV + 1)
        quadratic = groups @ solved[:, :-1].T.reshape(n, n_views, -1).swapaxes(1, 2)
        along = vectors @ solved[:, -1]
    return quadratic, along[:-1].reshape(n, n_views), float(along[-1])


def _raised(statistics: Statistics, shift: float) -> float:
    """Return the next larger μ to try where the sums cannot be factored at this one."""
    raised = max(10.0 * shift, 4.0 * _EPSILON * statistics.scatter.trace())
    _check_finite(raised)
    return raised


def _check_finite(size: float) -> None:
    if not np.isfinite(size):
        raise InputError(
            "Squares of the features, weights or ridge overflow float64. Scale them down.",
            code="numbers-overflow",
        )


def _solve(statistics: Statistics, shift: float, negative: float) -> Array:
    count, mean, gap = statistics.n_samples, statistics.mean, 1.0 - negative
    target_mean = gap * statistics.class_counts / count + negative
    if isinstance(statistics.scatter, ThinScatter):
        solution = _solve_thin(statistics.scatter, mean, shift, gap)
    else:
        right = np.empty((len(mean), len(target_mean) + 1), order="F")
        right[:, :-1], right[:, -1] = gap * statistics.scatter.cross, mean
        _check_finite(statistics.scatter.trace())
        with statistics.scatter.factored(shift) as factor:
            solution = factor.solve(right)
    weights, toward_mean = solution[:, :-1], solution[:, -1]
    pull = count * shift / (count + shift)
    step = pull * (target_mean - mean @ weights) / (1.0 + pull * (mean @ toward_mean))
    coefficients = np.empty((len(mean) + 1, len(target_mean)))
    np.add(weights, np.outer(toward_mean, step), out=coefficients[:-1])
    coefficients[-1] = count * (target_mean - mean @ coefficients[:-1]) / (count + shift)
    return coefficients


def _solve_thin(scatter: ThinScatter, mean: Array, shift: float, gap: float) -> Array:
    """Return w₀ and v side by side, (D, C + 1), for one-hot targets `gap` times as far apart."""
    right = np.concatenate([gap * scatter.targets, scatter.times(mean[:, None])], axis=1)
    factor = scatter.factored(shift)
    _check_finite(factor.largest)
    dual = factor.solve(right)
    result = scatter.transposed_times(dual)
    rounding = _EPSILON * scatter.n_rows * factor.largest / shift
    for _ in range(3 if rounding > 1e-7 else 0):
        dual += factor.solve(right - shift * dual - scatter.times(result))
        result = scatter.transposed_times(dual)
    result[:, -1] = (mean - result[:, -1]) / shift
    return result


class RidgePath:
    """Scores for any λ from one decomposition.

    The scatter S of the training rows Z, or their kernel matrix ZZᵀ where that is smaller, is
    decomposed once; a candidate λ then costs one small product. The formulas are those of `solve`
    in the coordinates of the eigenvectors.

    Parameters
    ----------
    lifted : array of shape (n, D)
        Overwritten.
    signs : array of shape (n, C)
        Targets, ±1 or in any other coding.
    weight : array of shape (n,)

    Attributes
    ----------
    largest, smallest : float
        Extreme eigenvalues of the scatter; `smallest` is zero where there are too few rows to span
        the space.
    """

    def __init__(self, lifted: Array, signs: Array, weight: Array) -> None:
        self._root = np.sqrt(weight)
        self._count = float(weight.sum())
        self._mean = weight @ lifted / self._count
        self._target_mean = weight @ signs / self._count
        self._rows = lifted
        self._rows -= self._mean
        self._rows *= self._root[:, None]
        self._targets = (signs - self._target_mean) * self._root[:, None]
        self._unit = self._root / np.sqrt(self._count)  # the direction in which centred rows vanish
        n, d = self._rows.shape
        self._dual = n <= d
        if self._dual:
            square = kernel_product(self._rows)
            self._lifted_unit = float(np.trace(square)) / n or 1.0
            # That direction is known to vanish. An eigenvalue in the middle keeps it apart from
            # the small ones.
            blas.dsyr(self._lifted_unit, self._unit, a=square, lower=1, overwrite_a=1)
        else:
            square = np.zeros((d, d), order="F")
            add_symmetric_product(square, self._rows)
        _check_finite(float(np.trace(square)))
        values, vectors = eigh(
            square, lower=True, overwrite_a=True, driver="evd", check_finite=False
        )
        self._values, self._vectors = np.maximum(values, 0.0), np.asarray(vectors)
        self.smallest = 0.0 if self._dual else float(self._values[0])
        self.largest = float(self._values[-1])
        if self._dual:
            self._right = self._vectors.T @ self._targets
            self._mean_inside = (self._rows @ self._mean) @ self._vectors
        else:
            self._right = self._vectors.T @ (self._rows.T @ self._targets)
            self._mean_inside = self._mean @ self._vectors

    def project(self, lifted: Array) -> tuple[Array, Array]:
        """Bring rows, (m, D), into the coordinates in which every λ is cheap, (m, r).

        Returned beside them: the product of the centred rows with the mean, (m,). `lifted` is
        overwritten.
        """
        centred = lifted
        centred -= self._mean
        inside = product(centred, self._rows.T) if self._dual else centred
        return product(inside, self._vectors), centred @ self._mean

    def scores(self, projected: tuple[Array, Array], shift: float) -> Array:
        """Return the scores, (m, C), of projected rows at μ = `shift`."""
        inside, with_mean = projected
        weights = self._right / (self._values + shift)[:, None]
        toward_mean, along = self._toward_mean(shift)
        rows_along = inside @ toward_mean  # φᵀv
        if self._dual:
            rows_along = (with_mean - rows_along) / shift
        pull = self._count * shift / (self._count + shift)
        step = pull * (self._target_mean - self._mean_inside @ weights) / (1.0 + pull * along)
        at_mean = self._mean_inside @ weights + along * step  # mᵀw
        constant = (self._count * self._target_mean + shift * at_mean) / (self._count + shift)
        return np.asarray(inside @ weights + np.outer(rows_along, step) + constant)

    def _toward_mean(self, shift: float) -> tuple[Array, float]:
        """Return the mean's coordinates divided by the shifted values, and mᵀv."""
        toward_mean = self._mean_inside / (self._values + shift)
        along = float(self._mean_inside @ toward_mean)
        if self._dual:
            along = (float(self._mean @ self._mean) - along) / shift
        return toward_mean, along

    @cached_property
    def _own_coordinates(self) -> Array:
        """The training rows in the coordinates of the scatter's eigenvectors, (n, D)."""
        return product(self._rows, self._vectors)

    def leave_one_out_scores(self, shift: float) -> Array:
        """Return the scores, (n, C), of every training row by a model without it, at μ = `shift`.

        With A = (Φ̃Φ̃ᵀ + μI)⁻¹ over the (weighted) augmented rows, row i is missed by [AY]ᵢ / Aᵢᵢ.
        Here A = L + ρ·qqᵀ, where L = (ZZᵀ + μI)⁻¹ without the direction `unit`, and q = L·Z·m -
        unit / √N.
        """
        inverse = 1.0 / (self._values + shift)
        # L = offset·I + basis·middle·basisᵀ - unit·unitᵀ·remainder
        if self._dual:
            basis, middle, offset = self._vectors, inverse, 0.0
            remainder = 1.0 / (self._lifted_unit + shift)
        else:
            basis, middle, offset = self._own_coordinates, -inverse / shift, 1.0 / shift
            remainder = offset

        def invert(columns: Array) -> Array:
            spread = basis @ (middle[:, None] * (basis.T @ columns))
            return np.asarray(
                offset * columns + spread - remainder * np.outer(self._unit, self._unit @ columns)
            )

        _, along = self._toward_mean(shift)
        pull = self._count * shift / (self._count + shift)
        rho = self._count / ((self._count + shift) * (1.0 + pull * along))
        q = invert((self._rows @ self._mean)[:, None])[:, 0] - self._unit / np.sqrt(self._count)
        signs = self._targets + np.outer(self._root, self._target_mean)
        missed = invert(self._targets) + rho * np.outer(q, q @ signs)
        diagonal = offset + (basis**2) @ middle - remainder * self._unit**2 + rho * q**2
        return np.asarray((signs - missed / diagonal[:, None]) / self._root[:, None])
