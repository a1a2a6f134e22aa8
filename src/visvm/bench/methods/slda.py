"""Deep SLDA: class means and one shared covariance of the frozen feature, linear discriminant."""

import numpy as np

from visvm.bench.methods.linear import best_classes, final_block
from visvm.bench.methods.method import Costs, Entry, Setup
from visvm.bench.methods.sums import ClassScatter
from visvm.bench.streams import ClassNumbers
from visvm.encoders.encoder import LayerFeatures
from visvm.head.checks import is_positive, require
from visvm.head.products import Array


class SLDA:
    """Hayes & Kanan, *Lifelong Machine Learning with Deep Streaming LDA* (CVPRW 2020).

    With the class means m and the covariance Σ of all N samples about the means of their classes::

        Λ = ((1 - ε)Σ + εI)⁻¹,   score of a class = mᵀΛx - mᵀΛm / 2

    Σ comes from exact sums. The official code (tyler-hayes/Deep_SLDA) starts from an OAS estimate
    of the base session and goes on sample by sample, weighing each by the number of all samples in
    place of those of its class.

    Parameters
    ----------
    shrinkage : float
        ε, between 0 and 1.
    """

    def __init__(self, setup: Setup, *, shrinkage: float = 1e-4) -> None:
        self.shrinkage = shrinkage
        valid = is_positive(shrinkage) and shrinkage < 1
        require(valid, self, "shrinkage", "a number above 0 and below 1")
        self._setup = setup
        self._sums = ClassScatter(setup.layer_dims[-1])
        self._coefficients: Array = np.empty((self._sums.width + 1, 0))

    def learn(self, features: LayerFeatures, labels: ClassNumbers) -> None:
        """Add one session to the sums, and solve."""
        self._sums.learn(final_block(features, self._setup), labels)
        # Λ up to a factor: (N·Σ + shift·I)⁻¹
        shift = self.shrinkage / (1.0 - self.shrinkage) * float(self._sums.counts.sum())
        self._coefficients = self._sums.discriminant(shift)

    def predict(self, features: LayerFeatures) -> ClassNumbers:
        """Return class numbers, (n,)."""
        return best_classes(final_block(features, self._setup), np.asarray, self._coefficients)

    def costs(self) -> Costs:
        """Return what was kept so far."""
        return Costs(0, self._sums.nbytes + self._coefficients.nbytes)


ENTRIES = [Entry("slda", SLDA)]
