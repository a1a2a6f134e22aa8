"""Turn image files into normalised pixels: no other file opens images.

The first bytes of a file decide its format, never its name. The plug-ins of Pillow are called
directly, not through ``Image.open``: that one warns about large pictures, and a warning can only be
silenced for all threads of the process at once. So nothing here changes Pillow's or Python's global
state, and ``decode`` may run in many threads.

Colours are taken as they are stored; embedded colour profiles are not applied.
"""

import importlib
import io
import math
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray
from PIL import (
    BmpImagePlugin,
    GifImagePlugin,
    Image,
    ImageFile,
    JpegImagePlugin,
    PngImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
)

from visvm.encoders.bounds import check_work
from visvm.encoders.encoder import Pixels
from visvm.encoders.transform import Box, Transform
from visvm.errors import ImageError, InputError

MAX_PIXELS: Final = 200_000_000
_MODERN_PIXELS: Final = 60_000_000  # of WebP, AVIF and HEIC, which take twice the memory of others
SUFFIXES: Final = {
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".apng", ".webp", ".gif", ".tif", ".tiff"),
    *(".bmp", ".dib", ".avif"),
    # also without the plug-in: reading one then says how to get it
    *(".heic", ".heics", ".heif", ".heifs", ".hif"),
}
# What Pillow, its codecs and numpy raise on a damaged file. RuntimeError comes from libheif; a
# Warning is raised only where the program around us has turned warnings into errors.
_DAMAGE: Final = (
    *(OSError, SyntaxError, ValueError, TypeError, LookupError, EOFError, ArithmeticError),
    *(RuntimeError, struct.error, zlib.error, Warning),
)

_TRANSPOSES: Final = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def is_image_name(path: Path) -> bool:
    """Return whether a name ends as those of images do and is not hidden.

    Examples
    --------
    >>> [is_image_name(Path(name)) for name in ("cat.JPG", "IMG_1.heic", "._cat.jpg", "notes.txt")]
    [True, True, False, False]
    """
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".")


def find_images(folder: Path) -> list[Path]:
    """Return every image file below the folder, sorted; leave out hidden files and folders.

    Links to files are followed, links to folders are not. A link whose target is gone is listed, so
    that reading it fails instead of the picture going missing unnoticed.
    """
    if not folder.is_dir():
        raise InputError(
            f"There is no folder {str(folder)!r}. Correct the path.", code="folder-missing"
        )

    def refuse(error: OSError) -> NoReturn:
        raise ImageError(
            f"The folder {error.filename!r} cannot be listed ({error.strerror}). Get access to it.",
            code="folder-unreadable",
        ) from error

    found: list[Path] = []
    for root, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith((".", "__MACOSX"))]
        paths = [Path(root, name) for name in names]
        found += [
            path for path in paths if is_image_name(path) and (path.is_file() or path.is_symlink())
        ]
    return sorted(found)


def decode(data: bytes, transform: Transform, max_pixels: int = MAX_PIXELS) -> Pixels:
    """Decode the content of an image file to normalised pixels, (3, size, size).

    Animations give their first frame, EXIF orientation is applied, transparency becomes white. Grey
    integers of more than 8 bits count as 16 bits, floating-point numbers as the smallest of the
    ranges 0…1, 0…255 and 0…65535 that holds them all; other values are stretched, the lowest to
    black and the highest to white.

    A file that is empty, damaged, cut short or too large raises ``ImageError``, whose message
    leaves the file's name to the caller. A JPEG may have `max_pixels`. The other formats cannot be
    decoded at a reduced size, so they also keep to ``PIL.Image.MAX_IMAGE_PIXELS``, by default 89
    megapixels, and WebP, AVIF and HEIC to 60. ``bounds.py`` bounds the parts of a file.

    Examples
    --------
    >>> file = io.BytesIO()
    >>> Image.new("L", (40, 30), 255).save(file, "PNG")
    >>> from visvm.encoders.encoder import Preprocessing
    >>> half = Preprocessing(size=16, resize=16, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
    >>> square = Transform("squash", half)
    >>> decode(file.getvalue(), square).shape
    (3, 16, 16)
    >>> decode(file.getvalue()[:50], square)
    Traceback (most recent call last):
    visvm.errors.ImageError: truncated: image file is truncated
    """
    try:
        with _open(data) as image:
            box = _load(image, transform, max_pixels)
            upright, box = _upright(image, box)
            return transform.pixels(_rgb(upright), box)
    except ImageError:
        raise
    except Image.DecompressionBombError as error:
        raise _too_large(2 * (Image.MAX_IMAGE_PIXELS or MAX_PIXELS)) from error
    except MemoryError as error:
        raise ImageError("needs more memory than there is", code="image-memory") from error
    except _DAMAGE as error:
        message = " ".join(str(error).split()) or type(error).__name__
        cut = isinstance(error, EOFError) or "truncated" in message.lower()
        kind = "truncated" if cut else "damaged"
        raise ImageError(f"{kind}: {message}", code=f"image-{kind}") from error


def aspect_of(data: bytes) -> float:
    """Return the width of an upright image for each of its height; it must have been decoded."""
    with _open(data) as image:
        width, height = image.size
        turned = _orientation(image.info.get("exif") or b"") >= 5
    return height / width if turned else width / height


class _JpegFile(JpegImagePlugin.JpegImageFile):
    """A JPEG whose EXIF Pillow leaves alone; it would read the resolution there, and warn."""

    def getexif(self) -> Image.Exif:
        return Image.Exif()


Reader = Callable[[io.BytesIO], ImageFile.ImageFile]

_READERS: Final[tuple[tuple[tuple[bytes, ...], Reader], ...]] = (
    ((b"\xff\xd8\xff",), _JpegFile),
    ((b"\x89PNG\r\n\x1a\n",), PngImagePlugin.PngImageFile),
    ((b"GIF87a", b"GIF89a"), GifImagePlugin.GifImageFile),
    ((b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"), TiffImagePlugin.TiffImageFile),
    ((b"BM",), BmpImagePlugin.BmpImageFile),
)
_HEIF_BRANDS: Final = (
    *(b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs"),
    *(b"mif1", b"msf1"),
)


def _open(data: bytes) -> ImageFile.ImageFile:
    """Return the image with its header read and its pixels not yet decoded."""
    if not data:
        raise ImageError("the file is empty", code="image-empty")
    check_work(data)
    for signatures, reader in _READERS:
        if data.startswith(signatures):
            return reader(io.BytesIO(data))
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return WebPImagePlugin.WebPImageFile(io.BytesIO(data))
    if data[4:8] == b"ftyp" and data[8:12] in _HEIF_BRANDS:
        return _plugin_reader("HEIC", "pillow_heif", "pillow-heif", "HeifImageFile")(
            io.BytesIO(data)
        )
    if data[4:12] in (b"ftypavif", b"ftypavis"):
        return _plugin_reader("AVIF", "PIL.AvifImagePlugin", "pillow>=11.3", "AvifImageFile")(
            io.BytesIO(data)
        )
    raise ImageError(
        "not an image of a known format: JPEG, PNG, WebP, GIF, TIFF, BMP, AVIF or HEIC",
        code="image-format-unknown",
    )


def _plugin_reader(kind: str, module: str, package: str, name: str) -> Reader:
    try:
        reader: Reader = getattr(importlib.import_module(module), name)
        return reader
    except ImportError as error:
        raise ImageError(
            f"{kind} needs the plug-in {package}: pip install {package}", code="package-missing"
        ) from error


def _load(image: ImageFile.ImageFile, transform: Transform, limit: int) -> Box:
    """Decode the pixels, a JPEG reduced if that loses nothing; return the box of the picture."""
    # decoded in full, whatever memory that takes
    if not isinstance(image, JpegImagePlugin.JpegImageFile):
        limit = min(limit, Image.MAX_IMAGE_PIXELS or limit)
        if image.format in ("WEBP", "AVIF", "HEIF"):
            limit = min(limit, _MODERN_PIXELS)
    if image.width * image.height > limit:
        raise _too_large(limit)
    drafted = None
    if isinstance(image, JpegImagePlugin.JpegImageFile):
        sides = transform.scaled(*image.size)
        width, height = (math.ceil(2 * side / transform.share) for side in sides)
        drafted = image.draft(None, (width, height))
    image.load()
    # The reduced image is rounded up to whole pixels: the picture ends within the last ones.
    return drafted[1] if drafted else (0, 0, *image.size)


def _too_large(limit: int) -> ImageError:
    return ImageError(
        f"more than {limit // 1_000_000} megapixels, which could fill the memory",
        code="image-too-large",
    )


def _upright(image: Image.Image, box: Box) -> tuple[Image.Image, Box]:
    """Turn image and box as the EXIF orientation says; TIFF and HEIC are already turned."""
    orientation = _orientation(image.info.get("exif") or b"")
    if orientation not in _TRANSPOSES:
        return image, box
    _, _, width, height = box
    # mirrored: the rest is at the other edge
    left = image.width - width if orientation in (2, 3, 7, 8) else 0
    top = image.height - height if orientation in (3, 4, 6, 7) else 0
    upright = image.transpose(_TRANSPOSES[orientation])
    if orientation >= 5:
        return upright, (top, left, top + height, left + width)
    return upright, (left, top, left + width, top + height)


def _orientation(exif: bytes) -> int:
    """Return the orientation tag of an EXIF block; 1, upright, if there is none or it is damaged.

    By hand, because Pillow's own reader warns about damaged blocks.
    """
    tiff = exif.removeprefix(b"Exif\0\0")
    order = ">" if tiff.startswith(b"MM") else "<"
    try:
        (start,) = struct.unpack_from(order + "4xI", tiff)
        (n_entries,) = struct.unpack_from(order + "H", tiff, start)
        for entry in range(n_entries):
            tag, value = struct.unpack_from(order + "H6xH", tiff, start + 2 + 12 * entry)
            if tag == 0x0112:
                return int(value)
    except struct.error:
        pass
    return 1


def _rgb(image: Image.Image) -> Image.Image:
    """Convert the image to RGB, with transparency blended on white."""
    if image.mode == "F" or image.mode.startswith("I"):
        return Image.fromarray(_eight_bits(np.asarray(image))).convert("RGB")
    if not image.has_transparency_data:
        return image if image.mode == "RGB" else image.convert("RGB")
    image = image if image.mode == "RGBA" else image.convert("RGBA")
    canvas = Image.new("RGB", image.size, "white")
    canvas.paste(image, mask=image.getchannel("A"))
    return canvas


def _eight_bits(grey: NDArray[Any]) -> NDArray[np.uint8]:
    """Bring grey values of more than 8 bits to 0…255, as `decode` says, (h, w) → (h, w)."""
    low, high = float(grey.min()), float(grey.max())
    if not np.isfinite([low, high]).all():
        raise ImageError("has pixels that are not finite numbers", code="image-not-finite")
    ranges = (1.0, 255.0, 65535.0) if grey.dtype.kind == "f" else (65535.0,)
    white = next((white for white in ranges if low >= 0 and high <= white), None)
    black, white = (0.0, white) if white else (low, high)
    eight = np.empty(grey.shape, dtype=np.uint8)
    exact = np.float32 if grey.dtype.itemsize == 2 else np.float64
    step = max(1, 2**20 // grey.shape[1])  # rows at a time, for the memory
    for rows in (slice(top, top + step) for top in range(0, len(grey), step)):
        values: NDArray[np.floating] = grey[rows].astype(exact)
        values -= black
        values *= 255 / ((white - black) or 1)
        eight[rows] = np.rint(values, out=values)
    return eight
