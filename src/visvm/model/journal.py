"""A long session's sums on disk, so that after a kill it goes on from there instead of from the beginning.

A journal has the form of a model file without coefficients. It is written whole, every few minutes,
and takes the place of the one before in one step. It is used only by the session that wrote it: the
same model before it, the same files and options.
"""

import os
import time
import warnings
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import numpy as np

from visvm.encoders.encoder import LayerFeatures
from visvm.errors import InputError, ModelFileError
from visvm.head.calibration import INVERSE_TEMPERATURES
from visvm.model import file as model_file
from visvm.model.head_state import head_state, restore_head

if TYPE_CHECKING:
    from visvm.head.estimators import VisClassifier

DEFAULT_SECONDS = 180.0


@dataclass(frozen=True)
class Entry:
    """How far a session is.

    Attributes
    ----------
    key : str
        Which session it is.
    done : int
        How many files were read.
    head : VisClassifier
        With the sums so far.
    unreadable : list of (place, path, reason)
    features : dict
        Layer features, (width,), by place, that are wanted after the session.
    """

    key: str
    done: int
    head: "VisClassifier"
    unreadable: list[tuple[int, str, str]]
    features: dict[int, LayerFeatures]


class Journal:
    """The journal of a model file; as a context it is removed when all has gone well.

    Parameters
    ----------
    model : Path
        The model file, beside which it lies.
    every : float, optional
        Seconds between two writings; by default ``VISVM_JOURNAL_SECONDS``, or 180.
    """

    def __init__(self, model: Path, every: float | None = None) -> None:
        self.path = model.with_name(f".{model.name}.journal")
        self._every = _seconds() if every is None else every
        self._last = time.monotonic()

    @property
    def due(self) -> bool:
        """Whether it is time to write."""
        return time.monotonic() - self._last >= self._every

    def read(self, key: str) -> Entry | None:
        """How far this session came, if it was begun before."""
        try:
            if not self.path.exists():
                return None
            header, tensors = model_file.read(self.path)
            noted = header["journal"]
            if noted["key"] != key:
                warnings.warn(
                    "the journal is of another session, which was cut off; it is not used",
                    stacklevel=2,
                )
                return None
            head = restore_head(self.path, header["head"], header["classes"], tensors)
            features = dict(
                zip(noted["places"], tensors["features"].astype(np.float32), strict=True)
            )
        except (ModelFileError, KeyError, OSError) as error:
            warnings.warn(
                f"the journal of an earlier try cannot be used ({error}); beginning anew",
                stacklevel=2,
            )
            return None
        return Entry(
            key, noted["done"], head, [tuple(each) for each in noted["unreadable"]], features
        )

    def write(self, entry: Entry) -> None:
        """Keep how far a session is; where that cannot be written, a warning is given and the session goes on without."""
        head, tensors = head_state(entry.head, solved=False)
        counts = entry.head.statistics_.class_counts
        header = {
            "encoder": {"name": "", "digest": "", "transform": ""},  # part of the key
            "head": head,
            "classes": entry.head.statistics_.classes.tolist(),
            "counts": [round(count) for count in counts.tolist()],
            "sessions": [],
            "journal": {
                "key": entry.key,
                "done": entry.done,
                "unreadable": entry.unreadable,
                "places": list(entry.features),
            },
        }
        tensors["calibration"] = np.zeros(len(INVERSE_TEMPERATURES))
        tensors["features"] = np.array(
            list(entry.features.values()) or np.empty((0, 0)), dtype=np.float64
        )
        try:
            model_file.replace(self.path, header, tensors)
        except ModelFileError as error:
            warnings.warn(f"{error}; this session goes on without a journal", stacklevel=2)
            self._every = float("inf")
        self._last = time.monotonic()

    def discard(self) -> None:
        """Remove it, and what a kill may have left of the next one."""
        with suppress(OSError):  # a name too long for a file, of which there is none
            for path in (self.path, model_file.part_of(self.path)):
                path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.discard()


def _seconds() -> float:
    text = os.environ.get("VISVM_JOURNAL_SECONDS", "")
    try:
        seconds = float(text) if text else DEFAULT_SECONDS
    except ValueError:
        seconds = -1.0
    if not seconds >= 0:
        raise InputError(
            f"VISVM_JOURNAL_SECONDS must be a number of seconds, at least 0; got {text!r}: correct or unset it"
        )
    return seconds
