"""λ anew from the sums: the evidence, which needs no sample that was held out.

The ridge is a Gaussian model of the ±1 targets: ``y = W̃ᵀφ̃ + noise`` with noise of variance σ² and
coefficients of variance σ²/μ, where μ = λ / C_svm. Its evidence is the likelihood of all targets
with W̃ integrated out, and σ² as the targets make it likeliest::

    -2 log p = N·C·(1 + log 2πσ²) + C·log det(I + K/μ),    σ² = tr Yᵀ(I + K/μ)⁻¹Y / (N·C)

with K = Φ̃Φ̃ᵀ. A sample that counts w times is w copies here too, so N is the sum of the weights, and
all of it comes from the sums. With the names of ``solver.py``, and T the targets about their mean::

    log det(I + K/μ)   = log det(I + S/μ) + log((1 + N/μ)(1 + κ·mᵀv))
    tr Yᵀ(I + K/μ)⁻¹Y  = tr TᵀT - tr Bᵀ(S + μI)⁻¹B + κ·|ȳ - mᵀw₀|² / (1 + κ·mᵀv)

In the thin form ``det(I + S/μ) = det(I + FFᵀ/μ)``, and the first two terms of the last line are
``μ·tr Tᵀ(FFᵀ + μI)⁻¹T``. A λ costs one Cholesky factorisation, about what it costs to solve.
"""

import numpy as np
from scipy.linalg import LinAlgError

from visvm.head.products import Array, ShiftedCholesky
from visvm.head.scatter import ThinScatter
from visvm.head.selection import RESOLVED, ridge_above, ridge_below
from visvm.head.statistics import Statistics

_GAP = 2.0  # between the targets, +1 and -1
_DOUBT = 3.0  # log evidence: one λ is twenty times as likely as another
_GAIN = 1.0  # log evidence that is worth a further step down
_EPSILON = float(np.finfo(np.float64).eps)


class Evidence:
    """The log evidence of sums for any λ.

    Parameters
    ----------
    statistics : Statistics
        With at least one sample.
    svm_cost : float
        C_svm.

    Examples
    --------
    >>> sums = Statistics(1)
    >>> sums.add(np.array([[-1.0], [-2.0], [1.0], [2.0]]), np.array([0, 0, 1, 1]))
    >>> evidence = Evidence(sums, svm_cost=10.0)
    >>> evidence(10.0) > evidence(1000.0), evidence(10.0) > evidence(1e-3)
    (True, True)
    """

    def __init__(self, statistics: Statistics, svm_cost: float) -> None:
        self._svm_cost = svm_cost
        self._count, self._mean = statistics.n_samples, statistics.mean
        counts, scatter = statistics.class_counts, statistics.scatter
        self._n_classes = len(counts)
        self._target_mean = _GAP * counts / self._count - 1.0
        spread = _GAP**2 * float((counts - counts**2 / self._count).sum())  # tr TᵀT
        self._least = _EPSILON * spread
        if isinstance(scatter, ThinScatter):
            self._matrix, self._thin = scatter.kernel(), True
            targets, mean = _GAP * scatter.targets, scatter.times(self._mean[:, None])
            # of targets along which the features do not vary, no row need be kept
            self._unexplained = max(spread - float(np.vdot(targets, targets)), 0.0)
        else:
            self._matrix, self._thin = scatter.matrix, False
            targets, mean = _GAP * scatter.cross, self._mean[:, None]
            self._unexplained = spread
        self._right = np.asfortranarray(np.concatenate([targets, mean], axis=1))

    def __call__(self, ridge: float) -> float:
        """Return the log evidence at λ = `ridge`; -inf where float64 cannot tell."""
        shift, count = ridge / self._svm_cost, self._count
        try:
            with ShiftedCholesky(self._matrix, shift) as factor:
                solved, determinant = factor.solve(self._right), factor.log_determinant()
        except LinAlgError:
            return -np.inf
        determinant -= len(self._matrix) * np.log(shift)  # log det(I + S/μ)
        residual, at_mean, along = self._products(solved, shift)
        pull = count * shift / (count + shift)
        bend = 1.0 + pull * along
        determinant += np.log1p(count / shift) + np.log(bend)
        residual += pull * float(np.square(self._target_mean - at_mean).sum()) / bend
        size = count * self._n_classes
        variance = max(residual, self._least) / size
        return -0.5 * float(
            size * (1.0 + np.log(2.0 * np.pi * variance)) + self._n_classes * determinant
        )

    def _products(self, solved: Array, shift: float) -> tuple[float, Array, float]:
        """Return tr TᵀT - tr Bᵀ(S + μI)⁻¹B, mᵀw₀, (C,), and mᵀv."""
        targets, toward_mean = self._right[:, :-1], self._right[:, -1]
        quadratic = float(np.vdot(targets, solved[:, :-1]))
        at_mean = toward_mean @ solved[:, :-1]
        along = float(toward_mean @ solved[:, -1])
        if self._thin:
            along = (float(self._mean @ self._mean) - along) / shift
            return self._unexplained + shift * quadratic, at_mean, max(along, 0.0)
        return self._unexplained - quadratic, at_mean, along


def ridge_by_evidence(statistics: Statistics, ridge: float, svm_cost: float) -> float:
    """Return the largest λ whose evidence is not clearly below the highest.

    It is found from the present one, in steps of about three, as far as each side is worth a look.
    A few images are explained by any small λ about as well: where that is so, the larger λ is the
    safe one, as in the first session (``selection.py``).

    Parameters
    ----------
    statistics : Statistics
        With at least two classes.
    ridge, svm_cost : float
        λ so far, and C_svm.

    Examples
    --------
    >>> generator = np.random.default_rng(0)
    >>> labels = np.arange(60) % 2
    >>> sums = Statistics(5)
    >>> sums.add(generator.normal(size=(60, 5)) + labels[:, None], labels)
    >>> [ridge_by_evidence(sums, ridge, svm_cost=10.0) for ridge in (1e-3, 30.0, 1e6)]
    [100.0, 100.0, 100.0]
    """
    largest = statistics.scatter.trace()  # no eigenvalue is above it
    if not 0.0 < largest < np.inf:  # nothing to choose by, or what solving refuses
        return ridge
    evidence = Evidence(statistics, svm_cost)
    # Below the first, float64 does not resolve the scores; above the second, λ hardly matters.
    lowest, highest = RESOLVED * largest * svm_cost, largest * svm_cost
    while ridge < lowest:
        ridge = ridge_above(ridge)
    while ridge > highest:
        ridge = ridge_below(ridge)
    tried = {ridge: evidence(ridge)}
    # upwards over whatever is alike
    while (above := ridge_above(max(tried))) <= highest:
        tried[above] = evidence(above)
        if tried[above] < max(tried.values()) - _DOUBT:
            break
    # downwards only for a gain worth having
    while (below := ridge_below(min(tried))) >= lowest:
        last = tried[min(tried)]
        tried[below] = evidence(below)
        if tried[below] < last + _GAIN:
            break
    alike = max(tried.values()) - _DOUBT
    return max(each for each, found in tried.items() if found >= alike)
