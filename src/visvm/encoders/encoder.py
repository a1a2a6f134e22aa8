"""Define what an encoder is: pixels in, layer features out, and how pixels are prepared for it."""

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from visvm.errors import InputError

Pixels = NDArray[np.float32]
"""Normalised images, (n, 3, size, size), or one of them, (3, size, size)."""

LayerFeatures = NDArray[np.float32]
"""CLS token of every block, raw, side by side, the final block last: (n, sum of layer_dims)."""

FinalFeatures = NDArray[np.float32]
"""CLS token of the final block, raw: (n, layer_dims[-1])."""

Projected = NDArray[np.float32]
"""What an encoder makes of the final CLS token: (n, p)."""


@dataclass(frozen=True)
class Preprocessing:
    """How images were prepared when the weights were trained; it travels with the weights.

    Parameters
    ----------
    size : int
        Side of the square the encoder takes.
    resize : int
        Length of the shorter side before the centre of `size` is cut out (transform "crop").
    mean, std : three floats each
        Subtracted from, and divided out of, the channels in [0, 1].
    """

    size: int
    resize: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    def at(self, size: int | None) -> "Preprocessing":
        """Return the same for pictures of another size; None means their own."""
        if size is None:
            return self
        return replace(self, size=size, resize=round(self.resize * size / self.size))


class Encoder(Protocol):
    """A frozen vision transformer.

    Attributes
    ----------
    name : str
        As the user gives it: a name of the catalogue or of the hub, or a path.
    digest : str
        SHA-256 of its weights, in hex: two encoders with one digest give the same features.
    layer_dims : tuple of int
        Width of every block's feature.
    preprocessing : Preprocessing
    """

    name: str
    digest: str
    layer_dims: tuple[int, ...]
    preprocessing: Preprocessing

    def encode(self, pixels: Pixels) -> LayerFeatures:
        """Return layer features of images, (n, 3, size, size) → (n, sum of layer_dims)."""

    def project(self, final: FinalFeatures) -> Projected:
        """Return the encoder's own output, (n, layer_dims[-1]) → (n, p).

        This is the last norm, and CLIP's projection after it, not scaled to unit length. SigLIP's
        needs more than one token, and that of a user's ONNX file is not known: they return `final`.
        """


def check_final(final: FinalFeatures, layer_dims: tuple[int, ...]) -> FinalFeatures:
    """Return the final block's features in float32; refuse them unless (n, layer_dims[-1])."""
    if final.ndim != 2 or final.shape[1] != layer_dims[-1]:
        raise InputError(
            "The 'final' parameter of project must be the final block's features, (n, "
            f"{layer_dims[-1]}). Got the shape {final.shape} instead.",
            code="features-shape",
        )
    return np.asarray(final, dtype=np.float32)
