"""Photos of any size → the pixels that an encoder takes, as nodes of a graph.

They give what ``encoders/transform.py`` gives. ONNX Runtime resizes whole grey levels as Pillow
does, filter, fixed point and rounding, so that nearly all pixels are equal. What happens before is
not in the graph: turning a photo upright, and reading a large JPEG at half its size or less.
"""

from typing import Any

import numpy as np
from onnx import TensorProto

from visvm.encoders.encoder import Preprocessing
from visvm.model.portable.net import Net

PIXELS = {"uint8": TensorProto.UINT8, "float32": TensorProto.FLOAT}
"""What the graph takes: grey levels 0…255, or numbers 0…1."""

_PILLOW = -0.5  # coefficient of its bicubic filter


def add_pixels(net: Net, image: str, kind: str, transform: str, p: Preprocessing) -> str:
    """Add what makes photos what the encoder takes; return the name of its pixels.

    Parameters
    ----------
    net : Net
    image : str
        The tensor of photos, (n, height, width, 3), RGB.
    kind : str
        Of numbers in it: a key of ``PIXELS``.
    transform : "crop", "squash" or "pad"
    p : Preprocessing

    Returns
    -------
    str
        Of the tensor (n, 3, size, size).
    """
    # No Transpose: ONNX Runtime would move it behind Resize, whose axes it then mistakes.
    first = net.constant([1], np.int64)
    planes = (net.op("Gather", image, net.constant(c, np.int64), axis=3) for c in range(3))
    levels = net.op("Concat", *(net.op("Unsqueeze", plane, first) for plane in planes), axis=1)
    if kind == "float32":
        whole = net.op("Round", net.op("Mul", levels, net.constant(255.0)))
        clipped = net.op("Clip", whole, net.constant(0.0), net.constant(255.0))
        levels = net.cast(clipped, TensorProto.UINT8)
    sides = net.op("Shape", image, start=1, end=3)
    square = {"squash": _squashed, "crop": _cropped, "pad": _padded}[transform]
    shown = square(net, levels, sides, p)
    mean, std = (np.array(numbers)[None, :, None, None] for numbers in (p.mean, p.std))
    scaled = net.op("Mul", shown, net.constant(1.0 / (255.0 * std)))
    return net.op("Sub", scaled, net.constant(mean / std))


def _resized(net: Net, levels: str, sides: str) -> str:
    """Resize (n, 3, h, w) to these two sides."""
    how: dict[str, Any] = {
        "mode": "cubic",
        "cubic_coeff_a": _PILLOW,
        "antialias": 1,
        "exclude_outside": 1,
    }
    return net.op("Resize", levels, "", "", sides, axes=[2, 3], **how)


def _squashed(net: Net, levels: str, sides: str, p: Preprocessing) -> str:
    del sides  # whatever they are
    square = net.constant([p.size, p.size], np.int64)
    return net.cast(_resized(net, levels, square), TensorProto.FLOAT)


def _cropped(net: Net, levels: str, sides: str, p: Preprocessing) -> str:
    """Bring the shorter side to ``resize``, and cut out the centre."""
    short = net.op("ReduceMin", sides, keepdims=1)
    grown = net.op("Mul", sides, net.constant([p.resize], np.int64))
    scaled = net.op("Div", grown, short)  # of whole numbers: rounded down
    size = net.constant([p.size], np.int64)
    first = net.op("Div", net.op("Sub", scaled, size), net.constant([2], np.int64))
    axes = net.constant([2, 3], np.int64)
    whole = _resized(net, levels, scaled)
    return net.cast(
        net.op("Slice", whole, first, net.op("Add", first, size), axes), TensorProto.FLOAT
    )


def _padded(net: Net, levels: str, sides: str, p: Preprocessing) -> str:
    """Bring the longer side to ``size``, and fill up with the mean colour."""
    exact = net.cast(sides, TensorProto.DOUBLE)
    grown = net.op("Mul", exact, net.constant([float(p.size)], np.float64))
    long = net.op("ReduceMax", exact, keepdims=1)
    rounded = net.cast(net.op("Round", net.op("Div", grown, long)), TensorProto.INT64)
    scaled = net.op("Max", rounded, net.constant([1], np.int64))
    shown = net.cast(_resized(net, levels, scaled), TensorProto.FLOAT)
    missing = net.op("Sub", net.constant([p.size], np.int64), scaled)
    before = net.op("Div", missing, net.constant([2], np.int64))
    pads = net.op("Concat", before, net.op("Sub", missing, before), axis=0)
    colour = net.constant(np.array([round(255 * mean) for mean in p.mean])[None, :, None, None])
    # Pad has one number for all colours, so the colour is taken away and given back
    margins = net.op("Pad", net.op("Sub", shown, colour), pads, "", net.constant([2, 3], np.int64))
    return net.op("Add", margins, colour)
