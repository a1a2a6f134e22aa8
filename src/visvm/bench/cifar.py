"""CIFAR-100's official files, ``cifar-100-python/{train,test,meta}`` → arrays.

They are pickles, and a pickle can run any code. Here nothing that a file names is ever looked up:
the few names that the official files need are answered with stand-ins of our own, which only keep
what they are given, and every other name is refused.
"""

import io
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, overload

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from visvm.errors import InputError, shown
from visvm.model.labels import check_label

N_CLASSES: Final = 100
_SHAPE: Final = (3, 32, 32)  # of an image in the files
_N_VALUES: Final = 3 * 32 * 32

Pixels = NDArray[np.uint8]


def read_split(path: Path) -> tuple[Pixels, NDArray[np.intp]]:
    """Read ``train`` or ``test``.

    Returns
    -------
    pixels : array of shape (n, 32, 32, 3)
        Red, green, blue.
    labels : array of shape (n,)
        Fine labels, 0 … 99; every one of them occurs.
    """
    content = _read(path)
    pixels = _pixels(content.get("data"), path)
    labels = content.get("fine_labels")
    if not isinstance(labels, list) or not all(
        isinstance(label, int) and 0 <= label < N_CLASSES for label in labels
    ):
        raise _refusal(path, f"its fine_labels are not all whole numbers from 0 to {N_CLASSES - 1}")
    if len(labels) != len(pixels):
        raise _refusal(path, f"it has {len(pixels)} images and {len(labels)} fine_labels")
    missing = sorted(set(range(N_CLASSES)) - set(labels))
    if missing:
        raise _refusal(
            path, f"{len(missing)} of its {N_CLASSES} classes have no image, such as {missing[0]}"
        )
    return pixels, np.array(labels, dtype=np.intp)


def read_class_names(path: Path) -> list[str]:
    """Read ``meta``: the names of the fine labels, in their order."""
    names = _read(path).get("fine_label_names")
    if not isinstance(names, list) or not all(isinstance(name, str | bytes) for name in names):
        raise _refusal(path, "it has no list fine_label_names")
    texts = [str(check_label(_text(name), shown(path))) for name in names]
    if len(set(texts)) != N_CLASSES or len(texts) != N_CLASSES:
        raise _refusal(
            path,
            f"it has {len(texts)} fine_label_names, {len(set(texts))} of them different, instead of {N_CLASSES}",
        )
    return texts


def bmp(pixels: Pixels) -> bytes:
    """An image, (height, width, 3), as the content of a BMP file: lossless, and by it the image's features are cached.

    Examples
    --------
    >>> content = bmp(np.zeros((32, 32, 3), dtype=np.uint8))
    >>> content[:2], len(content)
    (b'BM', 3126)
    """
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "BMP")
    return buffer.getvalue()


class BmpImages(Sequence[bytes]):
    """Images as the contents of BMP files, each made when it is asked for.

    Parameters
    ----------
    pixels : array of shape (n, height, width, 3)

    Examples
    --------
    >>> images = BmpImages(np.zeros((5, 32, 32, 3), dtype=np.uint8))
    >>> len(images), len(images[4]), len(images[1:3])
    (5, 3126, 2)
    """

    def __init__(self, pixels: Pixels) -> None:
        self.pixels = pixels

    def __len__(self) -> int:
        return len(self.pixels)

    @overload
    def __getitem__(self, index: int) -> bytes: ...

    @overload
    def __getitem__(self, index: slice) -> "BmpImages": ...

    def __getitem__(self, index: int | slice) -> "bytes | BmpImages":
        return (
            BmpImages(self.pixels[index]) if isinstance(index, slice) else bmp(self.pixels[index])
        )


class _Array:
    """Stands in for numpy's array, and for the function that makes an empty one."""

    # of the class, because a pickle can make an object without calling __init__
    state: object = None

    def __init__(self, *_: object) -> None:
        pass

    def __setstate__(self, state: object) -> None:
        self.state = state


class _Dtype:
    """Stands in for numpy's dtype; the state that follows is about byte order, which single bytes do not have."""

    def __init__(self, *arguments: object) -> None:
        self.arguments = arguments

    def __setstate__(self, state: object) -> None:
        pass


def _latin1(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise pickle.UnpicklingError(
            f"it asks for the encoding {encoding!r}, which it does not need and did not get"
        )
    return text.encode(encoding)


class _Unpickler(pickle.Unpickler):
    _STAND_INS: Final[dict[tuple[str, str], Any]] = {
        ("numpy.core.multiarray", "_reconstruct"): _Array,
        ("numpy._core.multiarray", "_reconstruct"): _Array,  # as numpy 2 spells it
        ("numpy", "ndarray"): _Array,
        ("numpy", "dtype"): _Dtype,
        ("_codecs", "encode"): _latin1,  # how Python 3 writes bytes for Python 2
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._STAND_INS:
            raise pickle.UnpicklingError(
                f"it asks for {f'{module}.{name}'!r}, which it does not need and did not get"
            )
        return self._STAND_INS[module, name]


# What the unpickler raises on a damaged file.
_DAMAGE: Final = (
    *(
        pickle.UnpicklingError,
        EOFError,
        ValueError,
        TypeError,
        AttributeError,
        LookupError,
        ArithmeticError,
    ),
    MemoryError,  # a length that was damaged, or forged
)


def _read(path: Path) -> dict[str, object]:
    """The entries of a file by name; Python 2's text arrives as bytes."""
    try:
        with path.open("rb") as file:
            content = _Unpickler(file, encoding="bytes").load()
    except OSError as error:
        raise _refusal(path, f"it cannot be read, {error.strerror}") from error
    except _DAMAGE as error:
        raise _refusal(path, " ".join(str(error).split()) or type(error).__name__) from error
    if not isinstance(content, dict):
        raise _refusal(path, "it holds no dictionary")
    return {_text(key): value for key, value in content.items() if isinstance(key, str | bytes)}


def _pixels(array: object, path: Path) -> Pixels:
    """The stand-in's pixels, (n, 32, 32, 3)."""
    match array.state if isinstance(array, _Array) else None:
        # Version, shape, dtype, whether columns come first, values: what numpy's __reduce__ gives.
        case (
            _,
            (int(n), int(width)),
            _Dtype(arguments=("u1" | b"u1", *_)),
            fortran,
            bytes(values),
        ):
            if width != _N_VALUES or len(values) != n * width:
                raise _refusal(
                    path,
                    f"its data are {len(values)} bytes of shape ({n}, {width}) instead of (n, {_N_VALUES})",
                )
            rows = np.frombuffer(values, dtype=np.uint8).reshape(
                (n, width), order="F" if fortran else "C"
            )
            return rows.reshape(n, *_SHAPE).transpose(0, 2, 3, 1)
    raise _refusal(path, f"its data are no array of bytes of shape (n, {_N_VALUES})")


def _text(text: str | bytes) -> str:
    return text.decode("latin-1") if isinstance(text, bytes) else text


def _refusal(path: Path, reason: str) -> InputError:
    return InputError(
        f"{shown(path)} must be a file of CIFAR-100's python version; it is not: {reason}; get it anew, see 'visvm doctor data'"
    )
