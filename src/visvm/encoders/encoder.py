"""What an encoder is: pixels in, layer features out, and how pixels must be prepared for it."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.float32]
"""Normalised images, (n, 3, size, size)."""

LayerFeatures = NDArray[np.float32]
"""CLS token of every block, raw, side by side, the final block last: (n, sum of layer_dims)."""


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
