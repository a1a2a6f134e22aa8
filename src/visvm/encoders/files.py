"""What files need that must survive a kill or a power cut."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


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
