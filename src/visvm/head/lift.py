"""Layer features → lifted features φ, in one frozen step: the mixer, then the random kernel map."""

import hashlib
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from visvm.errors import IncompatibleModelError
from visvm.head.fusion import ResidualMixer
from visvm.head.kernel_map import KernelMap
from visvm.head.products import Array

Features = NDArray[Any]
"""Float32 or float64, (n, width)."""


@dataclass(frozen=True, eq=False)
class Lift:
    """Map layer features to φ; two equal lifts make sums that can be added.

    Parameters
    ----------
    mixer : ResidualMixer or None
        Fuses the layers; None passes the features on unchanged.
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

    @property
    def digest(self) -> str:
        """SHA-256 of everything that decides φ."""
        return hashlib.sha256(" ".join(self._digests()).encode()).hexdigest()

    def require_same(self, other: "Lift") -> None:
        """Refuse a lift whose sums cannot be added to those of this one.

        Raises
        ------
        IncompatibleModelError
        """
        (my_map, my_mixer), (their_map, their_mixer) = self._digests(), other._digests()
        if my_map != their_map:
            raise IncompatibleModelError(
                f"The models have different kernel maps ({my_map[:12]} and {their_map[:12]}), so "
                "their sums cannot be added. Grow both from copies of one model, or give both the "
                "same n_components and random_state.",
                code="merge-kernel-map",
            )
        if my_mixer != their_mixer:
            raise IncompatibleModelError(
                f"The models have different mixers ({my_mixer[:12] or 'none'} and "
                f"{their_mixer[:12] or 'none'}), so their sums cannot be added. Grow both from "
                "copies of one model.",
                code="merge-mixer",
            )

    def _digests(self) -> tuple[str, str]:
        return self.kernel_map.digest, "" if self.mixer is None else self.mixer.digest
