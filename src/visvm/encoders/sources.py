"""Say where images are: in files, at URIs, or in memory.

A path is a file of this machine. A URI is anything that pyarrow or fsspec can read: pyarrow has
``s3://``, ``gs://``, ``hdfs://`` and ``file://``; other schemes, such as ``zip://`` or ``abfs://``,
go to fsspec, which may need a package of its own for them (extra ``ray``).
"""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from visvm.encoders.files import MOST_BYTES, read_bounded, read_file
from visvm.encoders.images import find_images, is_image_name
from visvm.encoders.memory import MemoryImage
from visvm.errors import InputError

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


MAX_BYTES = MOST_BYTES
"""No image file may be larger: reading one takes its size in memory."""


class Readable(Protocol):
    """Anything that gives an image file's content, as a Path does; messages name it by its str."""

    def read_bytes(self) -> bytes:
        """Return the content."""


Source = Readable | bytes
"""An image file, or the content of one."""


ImageLike = str | Source | Image.Image | NDArray[Any]
"""An image: a path or URI, a file, the content of one, an image of Pillow, or an array."""


def as_source(image: ImageLike, number: int = 0) -> Source:
    """Return where to read an image: a URI, a path with ~ expanded, memory, or the given source.

    `number` is its place among the images given, from 1, for messages about one in memory.
    """
    if isinstance(image, str) and is_uri(image):
        return RemoteFile(image)
    if isinstance(image, (str, Path)):
        return expanded(image)
    if isinstance(image, (Image.Image, np.ndarray)):
        return MemoryImage(image, number)
    if not isinstance(image, bytes) and not hasattr(image, "read_bytes"):
        raise InputError(
            f"{image!r:.60} is not an image. Give a path, the content of a file, an image of "
            "Pillow, or an array.",
            code="image-kind",
        )
    return image


def in_memory(source: Source) -> bool:
    """Return whether an image is no file."""
    return isinstance(source, (bytes, MemoryImage))


def listed(images: Any) -> list[Any]:
    """Return images as a list: one of them alone, a batch, a column of a table, or any sequence.

    Examples
    --------
    >>> listed("a.jpg"), len(listed(np.zeros((2, 4, 4, 3)))), listed(np.array(["a.jpg", "b.jpg"]))
    (['a.jpg'], 2, ['a.jpg', 'b.jpg'])
    """
    if isinstance(images, np.ndarray):
        if images.dtype.kind in "OU":
            return list(np.atleast_1d(images).tolist())
        return list(images) if images.ndim == 4 else [images]
    alone = isinstance(images, (str, bytes, Image.Image)) or hasattr(images, "read_bytes")
    if alone or not isinstance(images, Iterable):
        return [images]
    return list(images)


def content_of(source: Source) -> bytes:
    """Return the content of an image file; raise an OSError if it cannot be read."""
    if isinstance(source, Path):
        return read_file(source, MAX_BYTES)
    return source if isinstance(source, bytes) else source.read_bytes()


def expanded(path: str | Path) -> Path:
    """Expand ~ to the home folder; keep a name such as ~copy.jpg, which is nobody's home."""
    return Path(os.path.expanduser(path))


def is_uri(text: str) -> bool:
    """Return whether a text names a place by a scheme.

    Examples
    --------
    >>> is_uri("s3://bucket/photos"), is_uri("photos"), is_uri("C://photos")
    (True, False, False)
    """
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", text) is not None


def sources_of(images: Any) -> list[Source]:
    """Return where to read images that are given alone, together, or as a folder of them."""
    if isinstance(images, (str, Path)) and os.path.isdir(expanded(images)):
        if not (found := find_images(expanded(images))):
            fact = f"There are no images at {images}."
            raise InputError(f"{fact} Correct the path or the pattern.", code="images-missing")
        return list(found)
    return [as_source(image, number) for number, image in enumerate(listed(images), 1)]


@dataclass(frozen=True)
class RemoteFile:
    """A file at a URI, or below one; it can be sent to another machine and read there.

    Attributes
    ----------
    uri : str
    below : str
        Path from there.
    version : str
        Its size and time when it was listed.
    """

    uri: str
    below: str = ""
    version: str = ""

    def __str__(self) -> str:
        return f"{self.uri.rstrip('/')}/{self.below}" if self.below else self.uri

    def read_bytes(self) -> bytes:
        """Return the content; raise an OSError if it cannot be read."""
        filesystem, path = _opened(self.uri)
        path = f"{path.rstrip('/')}/{self.below}" if self.below else path
        if filesystem.type_name == "local":
            return read_file(path, MAX_BYTES)
        try:
            with filesystem.open_input_stream(path) as file:
                return read_bounded(file, most=MAX_BYTES)
        except Exception as error:  # of any kind: a filesystem may be anybody's code
            raise OSError(_said(error)) from error


def list_classes(uri: str) -> dict[str, list[RemoteFile]]:
    """List the images below a URI by the sub-folder of their class, both sorted."""
    filesystem, root = _opened(uri)
    from pyarrow.fs import FileSelector, FileType

    try:
        found = filesystem.get_file_info(FileSelector(root, recursive=True))
    except Exception as error:  # as above
        raise _unreadable(uri, error) from error
    classes: dict[str, list[RemoteFile]] = {}
    folders: set[str] = set()
    for each in sorted(found, key=lambda info: info.path):
        below = each.path.removeprefix(root).lstrip("/")
        parts = below.split("/")
        if any(part.startswith((".", "__")) for part in parts):
            continue
        if each.type == FileType.Directory and len(parts) == 1:
            folders.add(below)
        if each.type != FileType.File or not is_image_name(Path(each.path)):
            continue
        if len(parts) == 1:
            raise InputError(
                f"{RemoteFile(uri, below)} is not in the sub-folder of a class. Move it into one.",
                code="image-outside-class",
            )
        version = f"{each.size} {each.mtime_ns}"
        classes.setdefault(parts[0], []).append(RemoteFile(uri, below, version))
    if classes and (empty := folders - classes.keys()):
        raise InputError(
            f"{RemoteFile(uri, min(empty))} has no images. Add some, or remove the folder.",
            code="class-empty",
        )
    if not classes:
        raise InputError(
            f"{uri} has no images in sub-folders. Make one sub-folder per class, named after it.",
            code="classes-missing",
        )
    return classes


@lru_cache(maxsize=64)
def _opened(uri: str) -> "tuple[FileSystem, str]":
    """Return the filesystem of a URI, and the path in it."""
    try:
        import fsspec
        from pyarrow import ArrowInvalid
        from pyarrow.fs import FileSystem, FSSpecHandler, PyFileSystem
    except ModuleNotFoundError as error:
        raise InputError(
            f"{uri} cannot be read without {error.name}. Run pip install 'visvm[ray]'.",
            code="package-missing",
        ) from error
    try:
        filesystem, path = FileSystem.from_uri(uri)
    except ArrowInvalid:  # a scheme that is not pyarrow's
        try:
            inner, path = fsspec.core.url_to_fs(uri)
        except Exception as error:  # as above
            raise _unreadable(uri, error) from error
        filesystem = PyFileSystem(FSSpecHandler(inner))
    except OSError as error:
        raise _unreadable(uri, error) from error
    return filesystem, path


def _unreadable(uri: str, error: Exception) -> InputError:
    return InputError(
        f"Neither pyarrow nor fsspec can read {uri} ({_said(error)}). Correct it, or get access.",
        code="uri-unreadable",
    )


def _said(error: Exception) -> str:
    """Return what an error says, in one line; its kind if it says nothing."""
    return " ".join(str(error).split()) or type(error).__name__
