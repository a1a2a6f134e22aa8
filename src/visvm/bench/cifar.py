"""CIFAR-100's official files, ``cifar-100-python/{train,test,meta}`` → arrays.

They are pickles, and a pickle can run any code. Nothing that a file names is ever looked up here:
the few names that the official files need get stand-ins of our own, which only keep what they are
given, and every other name is refused.
"""

import io
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal, overload

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from visvm.errors import InputError, shown
from visvm.model.labels import check_label

N_CLASSES: Final = 100
_SHAPE: Final = (3, 32, 32)  # of an image in the files
_N_VALUES: Final = 3 * 32 * 32

RawPixels = NDArray[np.uint8]


def read_split(path: Path) -> tuple[RawPixels, NDArray[np.intp]]:
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
        reason = f"its fine_labels are not all whole numbers from 0 to {N_CLASSES - 1}"
        raise _refusal(path, reason, "cifar-labels-invalid")
    if len(labels) != len(pixels):
        reason = f"it has {len(pixels)} images and {len(labels)} fine_labels"
        raise _refusal(path, reason, "cifar-counts-differ")
    missing = sorted(set(range(N_CLASSES)) - set(labels))
    if missing:
        reason = f"{len(missing)} of its {N_CLASSES} classes have no image, such as {missing[0]}"
        raise _refusal(path, reason, "cifar-classes-missing")
    return pixels, np.array(labels, dtype=np.intp)


def read_class_names(path: Path) -> list[str]:
    """Read ``meta``: the names of the fine labels, in their order."""
    names = _read(path).get("fine_label_names")
    if not isinstance(names, list) or not all(isinstance(name, str | bytes) for name in names):
        raise _refusal(path, "it has no list fine_label_names", "cifar-names-invalid")
    texts = [str(check_label(_text(name), shown(path))) for name in names]
    if len(set(texts)) != N_CLASSES or len(texts) != N_CLASSES:
        different = f"{len(set(texts))} of them different"
        reason = f"it has {len(texts)} fine_label_names, {different}, instead of {N_CLASSES}"
        raise _refusal(path, reason, "cifar-names-invalid")
    return texts


def bmp(pixels: RawPixels) -> bytes:
    """Write an image, (height, width) or (height, width, 3), as the content of a BMP file.

    It is lossless, and the key under which the features of the image are cached.

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
    """Images as the contents of BMP files, each made on demand.

    Parameters
    ----------
    pixels : array of shape (n, height, width, 3)

    Examples
    --------
    >>> images = BmpImages(np.zeros((5, 32, 32, 3), dtype=np.uint8))
    >>> len(images), len(images[4]), len(images[1:3])
    (5, 3126, 2)
    """

    def __init__(self, pixels: RawPixels) -> None:
        self.pixels = pixels

    def __len__(self) -> int:
        return len(self.pixels)

    @overload
    def __getitem__(self, index: int) -> bytes: ...

    @overload
    def __getitem__(self, index: slice) -> "BmpImages": ...

    def __getitem__(self, index: int | slice) -> "bytes | BmpImages":
        found = self.pixels[index]
        return BmpImages(found) if isinstance(index, slice) else bmp(found)


class _ForeignNameError(pickle.UnpicklingError):
    """A file asks for something that CIFAR-100's files do not need."""


class _Array:
    """Stand-in for numpy's array, and for the function that makes an empty one."""

    # of the class, because a pickle can make an object without calling __init__
    state: object = None

    def __init__(self, *_: object) -> None:
        pass

    def __setstate__(self, state: object) -> None:
        self.state = state


class _Dtype:
    """Stand-in for numpy's dtype; its state is the byte order, which single bytes do not have."""

    def __init__(self, *arguments: object) -> None:
        self.arguments = arguments

    def __setstate__(self, state: object) -> None:
        pass


def _latin1(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise _ForeignNameError(f"it asks for the encoding {encoding!r}, which was refused")
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
            raise _ForeignNameError(f"it asks for {f'{module}.{name}'!r}, which was refused")
        return self._STAND_INS[module, name]


# What the unpickler raises on a damaged file; MemoryError for a length that was damaged or forged.
_DAMAGE: Final = (
    *(pickle.UnpicklingError, EOFError, ValueError, TypeError, AttributeError),
    *(LookupError, ArithmeticError, MemoryError),
)


def _read(path: Path) -> dict[str, object]:
    """Return the entries of a file by name; Python 2's text arrives as bytes."""
    try:
        with path.open("rb") as file:
            content = _Unpickler(file, encoding="bytes").load()
    except OSError as error:
        reason = f"it cannot be read ({error.strerror})"
        raise _refusal(path, reason, "cifar-unreadable") from error
    except _ForeignNameError as error:
        raise _refusal(path, str(error), "cifar-name-refused") from error
    except _DAMAGE as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise _refusal(path, reason, "cifar-damaged") from error
    if not isinstance(content, dict):
        raise _refusal(path, "it has no dictionary", "cifar-damaged")
    return {_text(key): value for key, value in content.items() if isinstance(key, str | bytes)}


def _pixels(array: object, path: Path) -> RawPixels:
    """Return the stand-in's pixels, (n, 32, 32, 3)."""
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
                found = f"{len(values)} bytes of shape ({n}, {width})"
                reason = f"its data are {found} instead of (n, {_N_VALUES})"
                raise _refusal(path, reason, "cifar-images-invalid")
            order: Literal["F", "C"] = "F" if fortran else "C"
            rows = np.frombuffer(values, dtype=np.uint8).reshape((n, width), order=order)
            return rows.reshape(n, *_SHAPE).transpose(0, 2, 3, 1)
    reason = f"its data are no array of bytes of shape (n, {_N_VALUES})"
    raise _refusal(path, reason, "cifar-images-invalid")


def _text(text: str | bytes) -> str:
    return text.decode("latin-1") if isinstance(text, bytes) else text


def _refusal(path: Path, reason: str, code: str) -> InputError:
    return InputError(
        f"{shown(path)} is not a file of CIFAR-100's python version: {reason}. "
        "Get it again; see 'visvm doctor data'.",
        code=code,
    )
