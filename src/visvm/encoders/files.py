"""Files that end when they are read, and survive a kill or a power cut when they are written."""

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Protocol

MOST_BYTES = 2**30
"""No file may be larger that is read whole, as an image is."""

MOST_OF_TEXT = 2**26
"""Nor one that people may have written: a recipe, names, or a description."""

_BINARY = getattr(os, "O_BINARY", 0)  # of Windows


class SupportsRead(Protocol):
    """A file that is open for reading."""

    def read(self, size: int, /) -> Any:
        """Return at most so many bytes."""


@contextmanager
def opened_file(path: str | Path) -> Iterator[BinaryIO]:
    """Open an ordinary file for reading: no device and no pipe, which may never end."""
    # not blocking: opening a pipe would wait for somebody to write to it
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _BINARY)
    with open(descriptor, "rb") as file:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "not an ordinary file", str(path))
        yield file


def read_file(path: str | Path, most: int = MOST_BYTES) -> bytes:
    """Return the content of an ordinary file."""
    with opened_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:  # before memory is taken for it
            raise _too_large(most)
        return read_bounded(file, max(size + 1, 2**16), most)


def has_content(path: Path, content: bytes) -> bool:
    """Whether a file has this very content."""
    return path.is_file() and path.stat().st_size == len(content) and path.read_bytes() == content


def read_bounded(file: SupportsRead, likely: int = 2**22, most: int = MOST_BYTES) -> bytes:
    """Return all that a file has, in pieces of its likely size; refuse one that goes on and on."""
    pieces: list[bytes] = []
    while piece := file.read(likely):
        pieces.append(bytes(piece))
        if sum(map(len, pieces)) > most:
            raise _too_large(most)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _too_large(most: int) -> OSError:
    return OSError(errno.EFBIG, f"it is larger than {most // 2**20} MiB")


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it, that survive a power cut; it may be there already."""
    if not folder.parent.is_dir():
        make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    flush_folder(folder.parent)


def flush_folder(folder: Path) -> None:
    """Have what was made, renamed or removed in a folder survive a power cut, where that can be."""
    if os.name != "posix":
        return
    with suppress(OSError):  # a file system that cannot: the file is in its place all the same
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def part_of(path: Path) -> Path:
    """Return where a file is written before it takes its place."""
    return path.with_name(f".{path.name}.part")


@contextmanager
def written(part: Path) -> Iterator[BinaryIO]:
    """Open a new file for writing; it is on the disk when the context ends, or gone if that fails.

    A file of this name that a kill has left is removed first.
    """
    try:
        part.unlink(missing_ok=True)
        with part.open("xb") as file:  # a new one: never another file through a link
            yield file
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a file that takes the place of another in one step, once it is whole and on the disk."""
    part = part_of(path)
    with written(part) as file:
        yield file
    try:
        if path.exists():
            shutil.copymode(path, part)
        part.replace(path)
    except OSError:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise
    flush_folder(path.parent)
