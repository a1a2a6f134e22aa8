"""Pictures made on the spot, and what they must look like to an encoder."""

import io
import struct
from functools import cache

import numpy as np
import pytest
from PIL import Image

from visvm.encoders.encoder import Preprocessing
from visvm.encoders.transform import Transform
from visvm.errors import ImageError

CLIP = Preprocessing(
    224, 256, (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
)
PLAIN = Preprocessing(32, 32, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))  # pixels / 255
SQUASH = Transform("squash", PLAIN)


@cache
def picture(width=32, height=32, seed=0):
    """Smooth and without symmetry: noise at several scales, coarse ones strongest, as in photos."""
    generator = np.random.default_rng(seed)
    total = np.zeros((3, height, width))
    for cells in (2, 4, 8, 16, 64, 256):
        for channel in total:
            noise = Image.fromarray(generator.normal(size=(cells, cells)).astype(np.float32))
            channel += np.asarray(noise.resize((width, height), Image.Resampling.BICUBIC)) / cells
    total = 255 * (total - total.min()) / np.ptp(total)
    made = total.round().astype(np.uint8).transpose(1, 2, 0)
    made.flags.writeable = False  # others get the same one
    return made


def encoded(image, kind="PNG", **options):
    file = io.BytesIO()
    (Image.fromarray(image) if isinstance(image, np.ndarray) else image).save(file, kind, **options)
    return file.getvalue()


def reference(array, kind, p):
    """The transform in the obvious order: scale all of the picture, cut, normalise."""
    image = Image.fromarray(array)
    width, height = image.size
    if kind == "squash":
        scaled = image.resize((p.size, p.size), Image.Resampling.BICUBIC)
    elif kind == "pad":
        return _padded(image, p)
    elif width <= height:
        scaled = image.resize((p.resize, int(p.resize * height / width)), Image.Resampling.BICUBIC)
    else:
        scaled = image.resize((int(p.resize * width / height), p.resize), Image.Resampling.BICUBIC)
    left, top = (scaled.width - p.size) // 2, (scaled.height - p.size) // 2
    square = np.asarray(scaled)[top : top + p.size, left : left + p.size] / 255
    return ((square - p.mean) / p.std).transpose(2, 0, 1)


def _padded(image, p):
    """All of the picture in the middle of a square of the mean colour, in whole grey levels."""
    sides = [max(round(p.size * side / max(image.size)), 1) for side in image.size]
    square = np.ones((p.size, p.size, 3)) * np.round(255 * np.array(p.mean))
    above, before = (p.size - sides[1]) // 2, (p.size - sides[0]) // 2
    square[above : above + sides[1], before : before + sides[0]] = image.resize(
        sides, Image.Resampling.BICUBIC
    )
    return ((square / 255 - p.mean) / p.std).transpose(2, 0, 1)


def grey_levels(difference, p=CLIP):
    return np.abs(difference) * 255 * np.array(p.std)[:, None, None]


# Orientation

TURNS = {  # what a viewer must do with the stored array to see it upright
    1: lambda a: a,
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.transpose(1, 0, 2),
    6: lambda a: np.rot90(a, -1),
    7: lambda a: a[::-1, ::-1].transpose(1, 0, 2),
    8: lambda a: np.rot90(a),
}


def exif_with(orientation, order="<"):
    mark = b"II*\0" if order == "<" else b"MM\0*"
    entries = struct.pack(order + "HHIHxx", 0x0100, 3, 1, 7) + struct.pack(
        order + "HHIHxx", 0x0112, 3, 1, orientation
    )
    return b"Exif\0\0" + mark + struct.pack(order + "IH", 8, 2) + entries + bytes(4)


# HEIC


def damaged_or_truncated():
    def fits(error):
        words = str(error).partition(": ")[0], error.code
        return words in (("damaged", "image-damaged"), ("truncated", "image-truncated"))

    return pytest.raises(ImageError, check=lambda error: fits(error) and "\n" not in str(error))


def sample_files():
    array = picture(40, 30)
    yield "JPEG", encoded(array, "JPEG", exif=exif_with(6))
    yield "progressive JPEG", encoded(array, "JPEG", progressive=True)
    yield "PNG", encoded(array)
    yield "palette PNG", encoded(Image.fromarray(array).quantize(20), transparency=3)
    yield "WebP", encoded(array, "WEBP")
    yield (
        "animated WebP",
        encoded(array, "WEBP", save_all=True, append_images=[Image.new("RGB", (40, 30))]),
    )
    yield "GIF", encoded(array, "GIF")
    yield "APNG", encoded(array, save_all=True, append_images=[Image.new("RGB", (40, 30))])
    yield "BMP", encoded(array, "BMP")
    yield "TIFF", encoded(array, "TIFF")
    yield "grey TIFF", encoded(array[:, :, 0].astype(np.float32), "TIFF")
    for compression in ("tiff_lzw", "tiff_adobe_deflate", "jpeg", "packbits"):
        yield compression, encoded(array, "TIFF", compression=compression)


FILES = dict(sample_files())
