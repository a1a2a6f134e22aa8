"""RanPAC's head: a random projection, a Gram matrix, and a ridge chosen anew in every session."""

import warnings
from functools import cached_property

import numpy as np
from scipy.linalg import LinAlgError, eigh

from visvm.bench.methods.linear import Lifting, best_classes, final_block
from visvm.bench.methods.method import Costs, Entry, Setup, Traits
from visvm.bench.methods.sums import ClassSums, present_classes
from visvm.bench.streams import ClassNumbers
from visvm.encoders.encoder import LayerFeatures
from visvm.errors import IllConditionedWarning, InputError
from visvm.head.checks import is_count, require
from visvm.head.lift import frozen_normal
from visvm.head.memory import chunks
from visvm.head.products import (
    Array,
    ShiftedCholesky,
    add_product,
    add_symmetric_product,
    kernel_product,
    product,
)

RIDGES = tuple(10.0**power for power in range(-8, 9))
"""The official code's 17 values of λ."""

_EPSILON = float(np.finfo(np.float64).eps)
# a λ that must be raised is raised to where float64 keeps the scores to this share
_ROUNDING = 1e-6


class RanPACHead:
    """McDonnell et al., *RanPAC: Random Projections and Pre-trained Models …* (2023), its head.

    The official code (RanPAC/RanPAC) is followed in ``H = relu(f·W)`` with W ~ N(0, 1) and no bias,
    ``G += HᵀH``, ``Q += HᵀY`` with one-hot Y, the scores ``h(G + λI)⁻¹Q``, and λ, chosen in every
    session by the mean squared error of the one-hot targets on a random fifth of that session,
    having learned the rest of it alone. Float64 takes the place of float32, one decomposition that
    of 17 solves, Cholesky that of LU. There is no adapter trained in the first session.

    Parameters
    ----------
    n_components : int
        D, the width of the projection.
    """

    def __init__(self, setup: Setup, *, n_components: int = 10000) -> None:
        self.n_components = n_components
        require(is_count(n_components), self, "n_components", "a whole number of at least 1")
        self._setup = setup
        self._generator = np.random.default_rng(setup.seed)
        self._sums = _GramSums(n_components)
        self._coefficients: Array = np.zeros((n_components + 1, 0))  # and a bias of zero
        self._ridge = 0.0

    def learn(self, features: LayerFeatures, labels: ClassNumbers) -> None:
        """Add one session to the sums, choose λ, and solve."""
        if len(labels) < 2:
            raise InputError(
                f"The session has {len(labels)} images, too few to choose λ on a split of them. "
                "Give every session two images or more.",
                code="session-too-small",
            )
        final = final_block(features, self._setup)
        self._sums.learn(final, labels, self._lift)
        order = self._generator.permutation(len(labels))
        _, targets = present_classes(labels[order])
        errors = _ridge_errors(final[order], targets, self._lift, self.n_components)
        self._ridge, weights = self._sums.solve(RIDGES[int(np.argmin(errors))])
        self._coefficients = np.vstack([weights, np.zeros(weights.shape[1])])

    def predict(self, features: LayerFeatures) -> ClassNumbers:
        """Return class numbers, (n,)."""
        return best_classes(final_block(features, self._setup), self._lift, self._coefficients)

    def costs(self) -> Costs:
        """Return what was kept and chosen; W is drawn from its seed, and not counted."""
        return Costs(0, self._sums.nbytes + self._coefficients.nbytes, {"ridge": self._ridge})

    @cached_property
    def _projection(self) -> Array:
        """W, (d, D)."""
        shape = (self._setup.layer_dims[-1], self.n_components)
        return frozen_normal(self._setup.seed, shape[0] * shape[1]).reshape(shape)

    def _lift(self, final: Array) -> Array:
        projected = product(final, self._projection)
        return np.maximum(projected, 0.0, out=projected)


class _GramSums(ClassSums):
    """Q, the class sums, and G = HᵀH, (D, D), of which the lower triangle counts."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.gram: Array = np.zeros((width, width), order="F")

    @property
    def nbytes(self) -> int:
        return super().nbytes + self.gram.nbytes

    def _add(self, rows: Array, labels: ClassNumbers) -> None:
        super()._add(rows, labels)
        add_symmetric_product(self.gram, rows)

    def solve(self, ridge: float) -> tuple[float, Array]:
        """Return λ and (G + λI)⁻¹Q, (D, C); λ is raised where G + λI is singular in float64."""
        least = _EPSILON / _ROUNDING * float(np.trace(self.gram))
        for candidate in (ridge, *(larger for larger in RIDGES if larger > max(ridge, least))):
            try:
                with ShiftedCholesky(self.gram, candidate) as factor:
                    return candidate, factor.solve(self.sums)
            except LinAlgError:
                warnings.warn(
                    f"float64 does not resolve λ = {candidate:g} in these sums; it is raised",
                    IllConditionedWarning,
                    stacklevel=3,
                )
        raise InputError(
            f"The features are so large that even λ = {RIDGES[-1]:g} vanishes. Scale them down.",
            code="features-too-large",
        )


def _ridge_errors(final: Array, targets: Array, lift: Lifting, width: int) -> list[float]:
    """Return the mean squared error of each of `RIDGES` on the last fifth, the rest being learned.

    With HᵀH = V·diag(s)·Vᵀ, or HHᵀ = U·diag(s)·Uᵀ where that is smaller, the scores of held-out
    rows H' are::

        H'V · (s + λ)⁻¹ · VᵀHᵀY   =   H'HᵀU · (s + λ)⁻¹ · UᵀY
    """
    cut = int(0.8 * len(final))
    held_out = lift(final[cut:])
    if cut <= width:
        rows = lift(final[:cut])
        square, right, inside = kernel_product(rows), targets[:cut], product(held_out, rows.T)
    else:
        inside, square = held_out, np.zeros((width, width), order="F")
        right = np.zeros((width, targets.shape[1]))
        for part in chunks(cut, width):
            rows = lift(final[:cut][part])
            add_symmetric_product(square, rows)
            add_product(right, rows.T, targets[:cut][part])
    values, vectors = eigh(square, lower=True, overwrite_a=True, driver="evd", check_finite=False)
    inside, right = product(inside, vectors), product(vectors.T, right)
    # the rest is rounding, and its coordinates vanish
    real = values > _EPSILON * len(values) * values[-1]
    inside, right, values = inside[:, real], right[real], values[real]
    return [
        float(((product(inside, right / (values + ridge)[:, None]) - targets[cut:]) ** 2).mean())
        for ridge in RIDGES
    ]


ENTRIES = [
    Entry("ranpac-head", RanPACHead, traits=Traits(dense=True, resplits=True), published="ranpac")
]
