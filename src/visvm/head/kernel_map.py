"""Fused features → lifted features: a fixed random map, the same on every machine.

``φ(u) = relu(uR)`` with R ~ N(0, 1/d) drawn once from a seed (the paper's eq. 8). Its inner product
tends to half the arc-cosine kernel of degree 1 as D grows (Cho & Saul, 2009).

A model file does not hold R: it is drawn again from its seed, so its stream must never change. It
is made of Philox4x64 integers, whose values are fixed by a published specification, and of IEEE
additions, products, divisions and square roots, which every machine rounds alike. Machines do not
round the logarithm alike, so it is computed here from those. A digest of R, kept beside the seed,
proves that the same R was drawn.
"""

import hashlib
from typing import Any, TypedDict

import numpy as np

from visvm.head.products import Array, product

_LOG_2 = 0.6931471805599453
_SQRT_HALF = 0.7071067811865476
_BLOCK = 1 << 16  # candidate pairs drawn at a time: part of the stream's definition


def _log(x: Array) -> Array:
    """Return the natural logarithm of positive x, with the same bits on every machine.

    It is made of basic IEEE operations only.
    """
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
        self.digest = self._compute_digest()

    @property
    def width(self) -> int:
        """Width of the lifted features."""
        return self.n_inputs if self.n_components is None else self.n_components

    def lift(self, fused: Array) -> Array:
        """Lift features, in float64.

        Parameters
        ----------
        fused : array of shape (n, d)

        Returns
        -------
        array of shape (n, D)
            A new array.
        """
        if self.matrix is None:
            return np.array(fused, dtype=np.float64, order="C")
        lifted = product(np.asarray(fused, dtype=np.float64), self.matrix)
        return np.maximum(lifted, 0.0, out=lifted)

    def _compute_digest(self) -> str:
        shape = f"{self.n_inputs}x{self.n_components}".encode()
        sha = hashlib.sha256(b"visvm kernel map 1 " + shape + b"\n")
        if self.matrix is not None:
            sha.update(self.matrix.astype("<f8", copy=False).data)
        return sha.hexdigest()

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
