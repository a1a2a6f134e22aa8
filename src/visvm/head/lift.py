"""Layer features → lifted features φ, in one frozen step: the mixer, then the random kernel map.

``φ(u) = relu(uR)`` with R ~ N(0, 1/d) drawn once from a seed (the paper's eq. 8). Its inner product
tends to half the arc-cosine kernel of degree 1 as D grows (Cho & Saul, 2009).

The map is the same on every machine. A model file does not hold R: it is drawn again from its seed,
so its stream must never change. It is made of Philox4x64 integers, whose values are fixed by a
published specification, and of IEEE additions, products, divisions and square roots, which every
machine rounds alike. Machines do not round the logarithm alike, so it is computed here from those.
A digest of R, kept beside the seed, proves that the same R was drawn.
"""

import hashlib
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from visvm.errors import IncompatibleModelError
from visvm.head.fusion import ResidualMixer
from visvm.head.products import Array, product

Features = NDArray[Any]
"""Float32 or float64, (n, width)."""

_LOG_2 = 0.6931471805599453
_SQRT_HALF = 0.7071067811865476
_BLOCK = 1 << 16  # candidate pairs drawn at a time: part of the stream's definition


def _log(x: Array) -> Array:
    """Return the natural logarithm of positive x, by basic IEEE operations only."""
    mantissa, exponent = np.frexp(x)  # exact
    low = mantissa < _SQRT_HALF
    mantissa = np.where(low, mantissa * 2.0, mantissa)
    exponent = exponent - low
    t = (mantissa - 1.0) / (mantissa + 1.0)  # |t| < 0.172, log(mantissa) = 2 artanh(t)
    square = t * t
    series = np.full_like(t, 1.0 / 21.0)
    for denominator in range(19, 0, -2):
        series = series * square + 1.0 / denominator
    return exponent * _LOG_2 + 2.0 * t * series


def frozen_normal(seed: int, size: int) -> Array:
    """Draw standard normal numbers from a stream that is frozen for ever.

    Marsaglia's polar method on pairs of 53-bit uniforms from Philox with the seed as its key.

    Parameters
    ----------
    seed : int
        From 0 to 2**64 - 1.
    size : int
        How many numbers; a longer draw begins with the shorter one.

    Examples
    --------
    >>> frozen_normal(0, 3).round(6).tolist() == frozen_normal(0, 5)[:3].round(6).tolist()
    True
    """
    source = np.random.Philox(key=seed)
    drawn, found = np.empty(size), 0
    while found < size:
        raw = source.random_raw(2 * _BLOCK) >> np.uint64(11)
        x, y = (raw.astype(np.float64) * 2.0**-52 - 1.0).reshape(2, _BLOCK)  # uniform on [-1, 1)
        s = x * x + y * y
        inside = (s > 0.0) & (s < 1.0)
        x, y, s = x[inside], y[inside], s[inside]
        radius = np.sqrt(-2.0 * _log(s) / s)
        pairs = np.stack([x * radius, y * radius], axis=1).ravel()[: size - found]
        drawn[found : found + len(pairs)] = pairs
        found += len(pairs)
    return drawn


class MapEntry(TypedDict):
    """How a model file names a map, beside its width."""

    seed: int
    digest: str


class KernelMap:
    """The fixed random feature map, or the identity.

    Parameters
    ----------
    n_inputs : int
        d, the width of the fused features.
    n_components : int or None
        D, the width of the lifted features; None means no map (φ = u).
    seed : int
        Seed of R, from 0 to 2**64 - 1.

    Attributes
    ----------
    matrix : array of shape (d, D), or None
        R.
    digest : str
        SHA-256 of R and its shape: the same on every machine.

    Examples
    --------
    >>> KernelMap(2, 3, seed=0).lift(np.array([[1.0, -1.0]])).shape
    (1, 3)
    """

    def __init__(self, n_inputs: int, n_components: int | None, seed: int) -> None:
        self.n_inputs = n_inputs
        self.n_components = n_components
        self.seed = seed
        self.matrix: Array | None = None
        if n_components is not None:
            normal = frozen_normal(seed, n_inputs * n_components)
            normal /= np.sqrt(float(n_inputs))
            self.matrix = normal.reshape(n_inputs, n_components)
        sha = hashlib.sha256(f"visvm kernel map 1 {n_inputs}x{n_components}\n".encode())
        if self.matrix is not None:
            sha.update(self.matrix.astype("<f8", copy=False).data)
        self.digest = sha.hexdigest()

    @property
    def width(self) -> int:
        """Width of the lifted features."""
        return self.n_inputs if self.n_components is None else self.n_components

    @property
    def steps(self) -> tuple[tuple[str, Array | None], ...]:
        """What ``lift`` computes, as operators of ONNX with the constant behind their input."""
        return () if self.matrix is None else (("MatMul", self.matrix), ("Relu", None))

    @property
    def nonnegative(self) -> bool:
        """Whether no lifted feature is below zero."""
        return self.matrix is not None

    def lift(self, fused: Array) -> Array:
        """Lift features, (n, d), to a new array of float64, (n, D)."""
        if self.matrix is None:
            return np.array(fused, dtype=np.float64, order="C")
        lifted = product(np.asarray(fused, dtype=np.float64), self.matrix)
        return np.maximum(lifted, 0.0, out=lifted)

    @property
    def back(self) -> Array:
        """What lifted features, (n, D), times it are nearly the features again, (D, d).

        As E[relu(uR)Rᵀ] = u·D/2d, the error falls with D as √(d/D) does.
        """
        if self.matrix is None:
            return np.eye(self.n_inputs)
        return (self.matrix * self.back_scale).T

    def recovered(self, lifted: Array) -> Array:
        """Return lifted features, (n, D), times ``back``, of which no copy is made, (n, d)."""
        return lifted if self.matrix is None else product(lifted * self.back_scale, self.matrix.T)

    @property
    def back_scale(self) -> Array | float:
        """What ``back`` multiplies φ by, all of it or each of its D, before Rᵀ."""
        return 2.0 * self.n_inputs / self.width

    @property
    def entry(self) -> MapEntry:
        """What a file keeps of the map, which is drawn again from it."""
        return {"seed": self.seed, "digest": self.digest}

    def __getstate__(self) -> dict[str, Any]:
        return {"n_inputs": self.n_inputs, "n_components": self.n_components, **self.entry}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["n_inputs"], state["n_components"], state["seed"])  # type: ignore[misc]
        if self.__getstate__() != state:
            raise RuntimeError("The map drawn from its seed is not the one that was pickled.")


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
        return hashlib.sha256(" ".join(self.digests).encode()).hexdigest()

    def require_same(self, other: "Lift") -> None:
        """Refuse a lift whose sums cannot be added to those of this one."""
        (my_map, my_mixer), (their_map, their_mixer) = self.digests, other.digests
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

    @property
    def digests(self) -> tuple[str, str]:
        """SHA-256 of the map and of the mixer, empty without one: all that decides φ."""
        return self.kernel_map.digest, "" if self.mixer is None else self.mixer.digest
