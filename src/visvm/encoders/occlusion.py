"""Which part of a picture an answer rests on: what changes when that part is hidden.

A window as wide as a quarter of the picture goes over it in steps of an eighth. What it hides gets
the mean colour, so the encoder sees the picture 50 times: whole, and once for each of 7 × 7
windows. The heat of each of the 8 × 8 cells is the mean loss over the windows that hide it.
"""

import io
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from visvm.encoders.encoder import Pixels, Preprocessing

CELLS = 8
"""Cells of the heat map in a row, and in a column."""

_WINDOW = 2  # in cells
_PLACES = CELLS - _WINDOW + 1
PASSES = 1 + _PLACES**2
"""How many pictures the encoder sees."""

_LEAST_SIDE = 448  # of the picture that is drawn
_FOR, _AGAINST = (255, 40, 0), (0, 90, 255)
_STRONGEST = 0.75  # opacity where there is most heat

Heat = NDArray[np.float64]


def occluded(pixels: Pixels, batch: int) -> Iterator[Pixels]:
    """Yield the picture, (3, size, size), whole and with each window hidden, some at a time.

    Examples
    --------
    >>> batches = list(occluded(np.ones((3, 16, 16), dtype=np.float32), batch=20))
    >>> [len(each) for each in batches], float(batches[0][1].sum()) == 3 * (16 * 16 - 4 * 4)
    ([20, 20, 10], True)
    """
    edges = np.rint(np.linspace(0, pixels.shape[-1], CELLS + 1)).astype(int)
    for begin in range(0, PASSES, batch):
        shown = np.repeat(pixels[None], min(batch, PASSES - begin), axis=0)
        for number, each in enumerate(shown, begin - 1):
            if number >= 0:
                top, left = divmod(number, _PLACES)
                rows = slice(edges[top], edges[top + _WINDOW])
                columns = slice(edges[left], edges[left + _WINDOW])
                each[:, rows, columns] = 0.0  # the mean colour, as pixels are normalised
        yield shown


def heat_map(values: NDArray[np.float64]) -> Heat:
    """Return what each cell gives to a value, (8, 8), by what it is of ``occluded``, (50,)."""
    losses = (values[0] - values[1:]).reshape(_PLACES, _PLACES)
    heat, times = np.zeros((CELLS, CELLS)), np.zeros((CELLS, CELLS))
    for top in range(_PLACES):
        for left in range(_PLACES):
            inside = slice(top, top + _WINDOW), slice(left, left + _WINDOW)
            heat[inside] += losses[top, left]
            times[inside] += 1.0
    return heat / times


def heat_picture(
    pixels: Pixels, preprocessing: Preprocessing, heat: Heat, aspect: float = 1.0
) -> bytes:
    """Return the picture under its heat map, as a PNG file: red is for the answer, blue against it.

    Parameters
    ----------
    pixels : array of shape (3, size, size)
    preprocessing : Preprocessing
        By which they were normalised.
    heat : array of shape (8, 8)
    aspect : float
        Width of the photo for each of its height; the picture is drawn so.
    """
    colours = pixels.transpose(1, 2, 0) * preprocessing.std + preprocessing.mean
    square = Image.fromarray(np.rint(255 * colours.clip(0, 1)).astype(np.uint8))
    side = max(_LEAST_SIDE, preprocessing.size)
    root = float(np.sqrt(min(max(aspect, 0.1), 10.0)))
    shape = round(side * root), round(side / root)
    photo = square.resize(shape, Image.Resampling.BICUBIC)
    share = heat / (np.abs(heat).max() or 1.0)
    for colour, part in ((_FOR, share), (_AGAINST, -share)):
        levels = np.rint(255 * _STRONGEST * part.clip(0, 1)).astype(np.uint8)
        mask = Image.fromarray(levels).resize(shape, Image.Resampling.BICUBIC)
        photo.paste(Image.new("RGB", shape, colour), mask=mask)
    file = io.BytesIO()
    photo.save(file, "PNG")
    return file.getvalue()
