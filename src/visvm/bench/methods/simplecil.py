"""SimpleCIL: class means of the frozen feature, and a cosine classifier."""

import numpy as np

from visvm.bench.methods.method import Costs, Entry, Setup
from visvm.bench.methods.sums import ClassSums
from visvm.bench.streams import ClassNumbers
from visvm.encoders.encoder import LayerFeatures
from visvm.head.products import Array, product

_LEAST_NORM = 1e-12  # as torch.nn.functional.normalize has it


class SimpleCIL:
    """Zhou et al., *Revisiting Class-Incremental Learning with Pre-Trained Models* (IJCV 2025).

    There is no adapter. The feature is the encoder's own projection, (n, any width), and not
    normalised before it is averaged.
    """

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        blank = np.zeros((1, setup.layer_dims[-1]), np.float32)
        self._sums = ClassSums(self._project(blank).shape[1])

    def learn(self, features: LayerFeatures, labels: ClassNumbers) -> None:
        """Add one session to the class sums."""
        self._sums.learn(self._project(features), labels)

    def predict(self, features: LayerFeatures) -> ClassNumbers:
        """Return class numbers, (n,)."""
        means = self._sums.means
        # xᵀm / (|x|·|m|): |x| is the same for all classes.
        directions = means / np.maximum(np.linalg.norm(means, axis=0), _LEAST_NORM)
        return np.asarray(product(self._project(features), directions).argmax(axis=1))

    def costs(self) -> Costs:
        """Return what was kept so far."""
        return Costs(0, self._sums.nbytes)

    def _project(self, features: LayerFeatures) -> Array:
        final = features[:, -self._setup.layer_dims[-1] :]
        return np.asarray(self._setup.project(final), dtype=np.float64)


ENTRIES = [Entry("simplecil", SimpleCIL, published="simplecil")]
