"""Clips made on the spot: still colours, one after another."""

import numpy as np
import pytest

from tests.tiny import COLOURS

RATE = 5


def write_clip(path, shown=(("red", 2.0), ("blue", 2.0)), codec="mpeg4", size=(64, 48)):
    """Write a clip that shows each colour for so many seconds."""
    av = pytest.importorskip("av")
    with av.open(str(path), "w") as made:
        stream = made.add_stream(codec, rate=RATE)
        (stream.width, stream.height), stream.pix_fmt = size, "yuv420p"
        for label, seconds in shown:
            pixels = np.empty((size[1], size[0], 3), np.uint8)
            pixels[...] = COLOURS[label]
            for _ in range(round(RATE * seconds)):
                made.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        made.mux(stream.encode())
    return path
