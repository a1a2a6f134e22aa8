"""ACIL: recursive least squares on a random expansion of the frozen feature."""

from functools import cached_property

import numpy as np
from scipy.linalg import LinAlgError, blas, cho_factor, cho_solve

from visvm.bench.methods.linear import best_classes, final_block
from visvm.bench.methods.method import Costs, Entry, Setup, Traits
from visvm.bench.methods.sums import count_classes
from visvm.bench.streams import ClassNumbers
from visvm.encoders.encoder import LayerFeatures
from visvm.errors import InputError
from visvm.head.checks import is_count, is_positive, require
from visvm.head.memory import chunks
from visvm.head.products import Array, add_symmetric_product, product


class ACIL:
    """Zhuang et al., *ACIL: Analytic Class-Incremental Learning …* (NeurIPS 2022).

    The official code (ZHUANGHP/Analytic-continual-learning) is followed in the expansion, ``X =
    relu(f·W₀)`` with no bias and W₀ as torch's Linear starts, uniform in ±1/√d; in float64; in γ
    and D as its README gives them; and in the recursion over batches, with one-hot Y to which a new
    class adds a column::

        R ← R - RXᵀ(I + XRXᵀ)⁻¹XR      eq. 10, from R = I/γ
        W ← W + RXᵀ(Y - XW)            eq. 9, with the new R

    so that W is the joint ridge regression (XᵀX + γI)⁻¹XᵀY. The new RXᵀ is computed as the old
    RXᵀ(I + XRXᵀ)⁻¹, which is the same. The backbone is the frozen encoder, where the original
    trains one on the base classes.

    Parameters
    ----------
    n_components : int
        D, the width of the expansion.
    gamma : float
        γ.
    """

    def __init__(self, setup: Setup, *, n_components: int = 8192, gamma: float = 0.1) -> None:
        self.n_components = n_components
        self.gamma = gamma
        require(is_count(n_components), self, "n_components", "a whole number of at least 1")
        require(is_positive(gamma), self, "gamma", "a finite number above 0")
        self._setup = setup
        # R, of which the lower triangle counts
        self._inverse: Array = np.zeros((n_components, n_components), order="F")
        np.fill_diagonal(self._inverse, 1.0 / gamma)
        self._coefficients: Array = np.zeros((n_components + 1, 0))  # W, and a bias of zero

    def learn(self, features: LayerFeatures, labels: ClassNumbers) -> None:
        """Learn one session, a batch at a time."""
        known = self._coefficients.shape[1]
        n_classes = count_classes(labels, known)
        self._coefficients = np.pad(self._coefficients, ((0, 0), (0, n_classes - known)))
        final = final_block(features, self._setup)
        for part in chunks(len(labels), self.n_components):
            self._update(self._lift(final[part]), np.eye(n_classes)[labels[part]])

    def predict(self, features: LayerFeatures) -> ClassNumbers:
        """Return class numbers, (n,)."""
        return best_classes(final_block(features, self._setup), self._lift, self._coefficients)

    def costs(self) -> Costs:
        """Return what was kept; the expansion is drawn from its seed, and not counted."""
        return Costs(0, self._inverse.nbytes + self._coefficients.nbytes)

    @cached_property
    def _expansion(self) -> Array:
        """W₀, (d, D)."""
        shape = (self._setup.layer_dims[-1], self.n_components)
        drawn = np.random.default_rng(self._setup.seed).uniform(-1.0, 1.0, shape)
        return np.asarray(drawn / np.sqrt(shape[0]))

    def _lift(self, final: Array) -> Array:
        expanded = product(final, self._expansion)
        return np.maximum(expanded, 0.0, out=expanded)

    def _update(self, rows: Array, targets: Array) -> None:
        """Take in a batch X, (n, D), with its Y, (n, C)."""
        spread = blas.dsymm(1.0, self._inverse, rows.T, lower=1)  # RXᵀ, (D, n)
        middle = product(rows, spread)
        middle[np.diag_indices(len(rows))] += 1.0
        try:
            factor = cho_factor(middle, lower=True, overwrite_a=True, check_finite=False)
        except LinAlgError:
            raise InputError(
                f"float64 cannot resolve gamma = {self.gamma:g} beside these features. "
                "Raise gamma, or scale the features down.",
                code="features-too-large",
            ) from None
        weights = self._coefficients[:-1]
        weights += product(spread, cho_solve(factor, targets - product(rows, weights)))
        # RXᵀL⁻ᵀ
        half = blas.dtrsm(1.0, factor[0], spread, side=1, lower=1, trans_a=1, overwrite_b=1)
        add_symmetric_product(self._inverse, half.T, sign=-1.0)


ENTRIES = [Entry("acil", ACIL, traits=Traits(dense=True), published="acil")]
