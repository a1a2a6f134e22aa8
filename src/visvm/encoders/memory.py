"""Images in memory: what Pillow and numpy hold, as the content of a file for ``decode``."""

import errno
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from visvm.errors import InputError

_PLAIN = ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")  # modes that a PNG holds as they are


class MemoryImage:
    """An image of Pillow, or an array, to be read like a file; nothing is lost.

    Parameters
    ----------
    image : PIL.Image.Image or array
        Arrays are of uint8 and shape (H, W, 3), (H, W, 4), (H, W, 1) or (H, W), or of uint16 and
        shape (H, W). The EXIF orientation that Pillow read from a file is applied, as to the file.
    number : int
        Its place among the images given, from 1, for messages; 0 if it is alone.

    Examples
    --------
    >>> MemoryImage(np.zeros((4, 6, 3), dtype=np.uint8)).read_bytes()[:2]
    b'BM'
    """

    def __init__(self, image: Image.Image | NDArray[Any], number: int = 0) -> None:
        if isinstance(image, np.ndarray):
            _check_array(image)
        self._image, self._number = image, number

    def __str__(self) -> str:
        return "an image in memory"

    def read_bytes(self) -> bytes:
        """Return the content of an image file that holds it; raise an OSError if that cannot be."""
        try:
            return self._saved()
        except (ValueError, AssertionError, SyntaxError) as error:  # as Pillow has it
            mode = getattr(self._image, "mode", "")
            number = f"photo {self._number} of those given: " if self._number else ""
            fact = f"Pillow cannot give its pixels, {str(error) or 'it is closed'}, mode {mode}"
            raise OSError(errno.EINVAL, number + fact) from error

    def _saved(self) -> bytes:
        image, file = self._image, io.BytesIO()
        if isinstance(image, np.ndarray):
            image = Image.fromarray(image[..., 0] if image.shape[2:] == (1,) else image)
        exif = image.info.get("exif")
        if image.mode == "RGB" and not exif:
            image.save(file, "BMP")  # the quickest
        elif image.mode == "F" or image.mode == "I":
            image.save(file, "TIFF")
        else:
            plain = image if image.mode in _PLAIN else image.convert("RGB")
            plain.save(file, "PNG", compress_level=1, **({"exif": exif} if exif else {}))
        return file.getvalue()


def _check_array(array: NDArray[Any]) -> None:
    colours = array.dtype == np.uint8 and array.ndim == 3 and array.shape[2] in (1, 3, 4)
    grey = array.dtype in (np.uint8, np.uint16) and array.ndim == 2
    if not (colours or grey) or not array.size:
        raise InputError(
            f"An array of shape {array.shape} and type {array.dtype} is not an image. Give uint8 "
            "of shape (height, width, 3); multiply numbers from 0 to 1 by 255.",
            code="image-array",
        )
