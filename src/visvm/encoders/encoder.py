"""What an encoder is: pixels in, layer features out, and how pixels must be prepared for it."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from visvm.errors import InputError

Pixels = NDArray[np.float32]
"""Normalised images, (n, 3, size, size)."""

LayerFeatures = NDArray[np.float32]
"""CLS token of every block, raw, side by side, the final block last: (n, sum of layer_dims)."""

FinalFeatures = NDArray[np.float32]
"""CLS token of the final block, raw: (n, layer_dims[-1])."""


@dataclass(frozen=True)
class Preprocessing:
    """How the weights were trained to see: it travels with them.

    Parameters
    ----------
    size : int
        Side of the square the encoder takes.
    resize : int
        Length the shorter side gets before the centre of `size` is cut out (transform "crop").
    mean, std : three floats each
        Subtracted from, and divided out of, the channels in [0, 1].
    """

    size: int
    resize: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]


class Encoder(Protocol):
    """A frozen vision transformer.

    Attributes
    ----------
    name : str
        What the user calls it: a name of the catalogue or of the hub, or a path.
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
        """Layer features of normalised images, (n, 3, size, size) → (n, sum of layer_dims)."""

    def project(self, final: FinalFeatures) -> NDArray[np.float32]:
        """What the encoder itself puts out: (n, layer_dims[-1]) → (n, p).

        The last norm, and CLIP's projection after it, not scaled to unit length. What follows the
        blocks of SigLIP needs more than one token, and what follows those of one's own ONNX file is
        not known: they give `final` as it is.
        """


def check_final(final: FinalFeatures, layer_dims: tuple[int, ...]) -> FinalFeatures:
    """The final block's features in float32; an InputError where they are not (n, layer_dims[-1])."""
    if final.ndim != 2 or final.shape[1] != layer_dims[-1]:
        raise InputError(
            f"final must have the shape (n, {layer_dims[-1]}), got {final.shape}: give the final block's features"
        )
    return np.asarray(final, dtype=np.float32)
