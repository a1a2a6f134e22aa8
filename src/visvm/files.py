"""What files need that must survive a power cut."""

import os
from contextlib import suppress
from pathlib import Path


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
