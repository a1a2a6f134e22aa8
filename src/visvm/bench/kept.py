"""What a method has trained, on the disk, so that a run that was killed need not train it again."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from visvm.encoders.files import make_folder, replacing

Arrays = dict[str, NDArray[np.float32]]

_SECONDS = "seconds that it took"


class Kept:
    """Arrays by name, each set in a file of its own.

    Parameters
    ----------
    folder : Path, optional
        Made when there is something to keep; without it, nothing is kept.

    Attributes
    ----------
    seconds : float
        What the sets took that were found, when they were made.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder, self.seconds = folder, 0.0

    def once(self, name: str, make: Callable[[], Arrays]) -> Arrays:
        """Return what was kept by this name, or else make it and keep it.

        A file that is damaged counts as none.
        """
        path = None if self._folder is None else self._folder / f"{name}.safetensors"
        found = None if path is None else _read(path)
        if found is not None:
            self.seconds += float(found.pop(_SECONDS)[0])
            return found
        start = time.perf_counter()
        made = make()
        if path is not None:
            taken = np.array([time.perf_counter() - start])
            make_folder(path.parent)
            with replacing(path) as file:
                whole = {key: np.ascontiguousarray(value) for key, value in made.items()}
                file.write(save({**whole, _SECONDS: taken}))
        return made

    def clear(self) -> None:
        """Remove everything, and the folder above when it is empty."""
        if self._folder is not None and self._folder.is_dir():
            shutil.rmtree(self._folder)
            if not any(self._folder.parent.iterdir()):
                self._folder.parent.rmdir()


def _read(path: Path) -> Arrays | None:
    try:
        found: Arrays = load(path.read_bytes())
    except (OSError, SafetensorError, ValueError):
        return None
    whole = _SECONDS in found and all(bool(np.isfinite(each).all()) for each in found.values())
    return found if whole else None
