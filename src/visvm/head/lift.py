"""Layer features → lifted features φ, in one frozen step: the mixer, then the random kernel map."""

import hashlib
from dataclasses import dataclass
from functools import cached_property

from typing import Any
from numpy.typing import NDArray

from visvm.errors import IncompatibleModelError
from visvm.head.fusion import ResidualMixer
from visvm.head.kernel_map import KernelMap
from visvm.head.products import Array

Features = NDArray[Any]  # float32 or float64


@dataclass(frozen=True, eq=False)
class Lift:
    """Map layer features to φ; two equal lifts make sums that can be added.

    Parameters
    ----------
    mixer : ResidualMixer or None
        Fuses the layers; None takes features as they are.
    kernel_map : KernelMap

    Examples
    --------
    >>> import numpy as np
    >>> lift = Lift(None, KernelMap(2, 3, seed=0))
    >>> lift(np.array([[1.0, -1.0]])).shape, lift.n_inputs, lift.width
    ((1, 3), 2, 3)
    """

    mixer: ResidualMixer | None
    kernel_map: KernelMap

    def __call__(self, features: Features) -> Array:
        """Lift features, (n, n_inputs), to a new array, (n, D)."""
        return self.kernel_map.lift(features if self.mixer is None else self.mixer.fuse(features))

    @property
    def n_inputs(self) -> int:
        """Width of the layer features."""
        return self.kernel_map.n_inputs if self.mixer is None else sum(self.mixer.layer_dims)

    @property
    def width(self) -> int:
        """D, the width of the lifted features."""
        return self.kernel_map.width

    @cached_property
    def digest(self) -> str:
        """SHA-256 of everything that decides φ."""
        parts = [self.kernel_map.digest, "" if self.mixer is None else self.mixer.digest]
        return hashlib.sha256(" ".join(parts).encode()).hexdigest()

    def require_same(self, other: "Lift") -> None:
        """Refuse another lift, whose sums cannot be added to those of this one.

        Raises
        ------
        IncompatibleModelError
        """
        if (self.mixer is None) != (other.mixer is None):
            raise IncompatibleModelError(
                "One model has a mixer and the other has none. Train both with the same estimator.",
                code="merge-type",
            )
        mine, theirs = self.kernel_map.digest[:12], other.kernel_map.digest[:12]
        if mine != theirs:
            raise IncompatibleModelError(
                f"The models have different kernel maps ({mine} and {theirs}), so their sums "
                "cannot be added. Train both with the same n_components and random_state.",
                code="merge-kernel-map",
            )
        if self.digest != other.digest:
            raise IncompatibleModelError(
                "The models have different mixers, so their sums cannot be added. "
                "Grow both from copies of one model.",
                code="merge-mixer",
            )
