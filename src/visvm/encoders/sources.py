"""Images in places that are no folders of this machine: whatever pyarrow or fsspec can read.

pyarrow knows ``s3://``, ``gs://``, ``hdfs://`` and ``file://`` by itself; any other scheme, such as
``zip://`` or ``abfs://``, is fsspec's, which may need a package of its own for it.
"""

import os
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from visvm.encoders.images import is_image_name
from visvm.errors import InputError

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


class Readable(Protocol):
    """What gives the content of an image file, as a Path does; as text, it is what messages call the image."""

    def read_bytes(self) -> bytes:
        """The content."""


Source = Readable | bytes
"""An image file, or the content of one."""


def content_of(source: Source) -> bytes:
    """The content of an image file."""
    return source if isinstance(source, bytes) else source.read_bytes()


def expanded(path: str | Path) -> Path:
    """The path with ~ as the home folder; a name such as ~copy.jpg, which is nobody's home, stays as it is."""
    return Path(os.path.expanduser(path))


def as_source(image: str | Source) -> Source:
    """What is read for an image that was given: a path with ~ expanded, a URI, or what gives its content as it is."""
    if isinstance(image, str) and is_uri(image):
        return RemoteFile(image)
    return expanded(image) if isinstance(image, (str, Path)) else image


def is_uri(text: str) -> bool:
    """Whether this names a place by a scheme.

    Examples
    --------
    >>> is_uri("s3://bucket/photos"), is_uri("photos"), is_uri("C://photos")
    (True, False, False)
    """
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", text) is not None


@dataclass(frozen=True)
class RemoteFile:
    """A file at a URI, or below one; can be sent to another machine and read there.

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
        """The content; an OSError where it cannot be read."""
        filesystem, path = _opened(self.uri)
        try:
            with filesystem.open_input_stream(
                f"{path.rstrip('/')}/{self.below}" if self.below else path
            ) as file:
                return bytes(file.read())
        except Exception as error:  # of any kind: a filesystem may be anybody's code
            raise OSError(_said(error)) from error


def list_classes(uri: str) -> dict[str, list[RemoteFile]]:
    """The images below a URI, by the sub-folder they lie in, both sorted.

    Parameters
    ----------
    uri : str
        A place with one sub-folder per class.
    """
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
                f"images must lie in the sub-folder of their class; {RemoteFile(uri, below)} does not: move it"
            )
        classes.setdefault(parts[0], []).append(
            RemoteFile(uri, below, f"{each.size} {each.mtime_ns}")
        )
    if classes and (empty := folders - classes.keys()):
        raise InputError(
            f"every class must have images; {RemoteFile(uri, min(empty))} has none: add some, or remove the folder"
        )
    if not classes:
        raise InputError(
            f"{uri} must have one sub-folder per class, named after it, with images in it; it has none"
        )
    return classes


@lru_cache(maxsize=64)
def _opened(uri: str) -> "tuple[FileSystem, str]":
    """The filesystem of a URI, and the path in it."""
    try:
        import fsspec
        from pyarrow import ArrowInvalid
        from pyarrow.fs import FileSystem, FSSpecHandler, PyFileSystem
    except ModuleNotFoundError as error:
        raise InputError(
            f"{uri} needs {error.name} to be read, which is not installed: pip install 'visvm[ray]'"
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
        f"{uri} must be a place that pyarrow or fsspec can read; it is not ({_said(error)})"
    )


def _said(error: Exception) -> str:
    """What an error says, in one line; its kind where it says nothing."""
    return " ".join(str(error).split()) or type(error).__name__
