"""``results.jsonl``: one line of JSON for every session of every run, appended when it is measured.

A line is written in one piece and flushed to the disk, so a process that is killed leaves whole lines and at most one torn one
at the end, which is dropped when the file is opened again.
"""

import errno
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import filelock

from visvm.errors import InputError, VisvmError

FILE_NAME = "results.jsonl"
FORMAT = 1  # of a row; raise it when a field changes its meaning, and keep reading the old ones


@dataclass(frozen=True)
class Run:
    """One method on one stream of classes: what decides its numbers, and nothing else.

    Parameters
    ----------
    dataset : str
        Name of the data set, or path of a folder of one's own.
    data_digest : str
        SHA-256 over the class names and the content of all images used.
    encoder : str
    weights_digest : str
    transform : str
        "squash" or "crop".
    transform_key : str
        Everything that decides the pixels, in short.
    protocol : str
        Such as "B0 Inc20", or "sessions 5,3,2".
    class_order_seed : int
    method : str
    code_digest : str
        Of the source of the method and of the head: what was measured with other code is measured again.
    seed : int
        Of the method's own random numbers.
    options : dict
        Options of the method that differ from its defaults.
    split : str
        "test", or "validation": a fifth of the training images, the rest being trained on.
    """

    dataset: str
    data_digest: str
    encoder: str
    weights_digest: str
    transform: str
    transform_key: str
    protocol: str
    class_order_seed: int
    method: str
    code_digest: str
    seed: int = 0
    options: dict[str, Any] = field(default_factory=dict)
    split: str = "test"

    @property
    def key(self) -> str:
        """A short digest by which a run is known again; where data and encoder lie on the disk is not in it."""
        content = {name: value for name, value in asdict(self).items() if name not in ("dataset", "encoder")}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Row:
    """What was measured after one session of a run.

    Parameters
    ----------
    run : Run
    session : int
        From 1.
    n_sessions : int
        Of the whole stream.
    new_classes : list of str
        Names of the classes this session brought, in the order of arrival.
    session_sizes : list of int
        How many classes each session so far brought.
    n_train, n_test : int
        Images learned in this session; images tested on.
    accuracy : float
        A_b, from 0 to 1.
    group_accuracy : list of float
        Accuracy on the classes of each session so far.
    old_accuracy, new_accuracy, harmonic_mean : float or None
        On the classes of earlier sessions, and of this one; None where there are no earlier ones.
    class_correct, class_counts : list of int
        Of every class seen so far, in the order of arrival: test images recognised, and all of them.
    confusions : list of (int, int, int)
        After the last session only: class, what it was taken for (both by arrival, from 0), how often; most frequent first.
    seconds : dict of float
        "learn", "predict"; and "encode", what an image takes, the better of two times over one batch.
    peak_memory : int or None
        The most memory the process held while this session was learned and tested, in bytes.
    trainable_parameters, state_bytes : int
    choices : dict
    load_average : float or None
        How many processes wanted the CPU in the last minute; well above the number of threads, times mean little.
    environment : dict
        Versions, CPU, number of threads.
    measured_at : str
        UTC, ISO 8601.
    """

    run: Run
    session: int
    n_sessions: int
    new_classes: list[str]
    session_sizes: list[int]
    n_train: int
    n_test: int
    accuracy: float
    group_accuracy: list[float]
    old_accuracy: float | None
    new_accuracy: float | None
    harmonic_mean: float | None
    class_correct: list[int]
    class_counts: list[int]
    confusions: list[tuple[int, int, int]]
    seconds: dict[str, float]
    peak_memory: int | None
    trainable_parameters: int
    state_bytes: int
    choices: dict[str, Any]
    load_average: float | None
    environment: dict[str, Any]
    measured_at: str
    format: int = FORMAT


def parse(line: str) -> Row:
    """A row from its line."""
    said = json.loads(line, parse_constant=_refused)
    if said["format"] != FORMAT:
        raise ValueError(f"its format is {said['format']}, known is {FORMAT}")
    said["run"] = Run(**said["run"])
    said["confusions"] = [tuple(triple) for triple in said["confusions"]]
    row = Row(**said)
    if not all(0.0 <= value <= 1.0 for value in (row.accuracy, *row.group_accuracy)):
        raise ValueError("an accuracy is not between 0 and 1")
    return row


def _refused(number: str) -> NoReturn:
    raise ValueError(f"{number} is no number of JSON")


def read_rows(folder: Path) -> list[Row]:
    """All rows of a results folder; a torn last line is left out."""
    path = folder / FILE_NAME
    if not path.is_file():
        raise InputError(f"{folder} must hold {FILE_NAME}; it does not: run 'visvm bench RECIPE --out {folder}' first")
    rows = []
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines[:-1], start=1):  # what follows the last line end is torn, or nothing
        try:
            rows.append(parse(line.decode()))
        except (ValueError, TypeError, KeyError) as error:
            raise InputError(f"line {number} of {path} must be a row of results; it is not ({error}): remove the line") from error
    return rows


@contextmanager
def open_for_appending(folder: Path) -> Iterator["Results"]:
    """The results of a folder, held against other processes; made if they are not there."""
    is_new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"--out must be a folder that can be written to; {folder} is not ({error.strerror}): give another"
        ) from error
    path, lock_path = folder / FILE_NAME, folder / f".{FILE_NAME}.lock"
    lock = filelock.FileLock(lock_path)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        raise VisvmError(f"{folder} must not be in use by another 'visvm bench'; it is: wait, or give another --out") from None
    try:
        if path.exists():
            content = path.read_bytes()
            if content and not content.endswith(b"\n"):
                os.truncate(path, content.rfind(b"\n") + 1)
        else:
            path.touch()
        yield Results(path, read_rows(folder))
    finally:
        if is_new and path.exists() and not path.stat().st_size:  # nothing came of it
            for left in (path, lock_path):
                left.unlink(missing_ok=True)
            with suppress(OSError):
                folder.rmdir()
        lock.release()


class Results:
    """Rows that are there, and a place for more.

    Parameters
    ----------
    path : Path
    rows : list of Row
        Those already in the file.
    """

    def __init__(self, path: Path, rows: list[Row]) -> None:
        self.path = path
        self._sessions: dict[str, set[int]] = {}
        for row in rows:
            self._sessions.setdefault(row.run.key, set()).add(row.session)

    def sessions(self, run: Run) -> set[int]:
        """Which sessions of a run are there."""
        return self._sessions.get(run.key, set())

    def append(self, row: Row) -> None:
        """Add a row; it is on the disk when this returns."""
        line = json.dumps(asdict(row), allow_nan=False, separators=(",", ":")) + "\n"
        content = line.encode()
        with self.path.open("ab", buffering=0) as file:
            before = file.tell()
            try:
                if file.write(content) < len(content):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(file.fileno())
            except OSError as error:
                file.truncate(before)
                raise VisvmError(f"{self.path} must take another row; it does not ({error.strerror}): make room") from error
        self._sessions.setdefault(row.run.key, set()).add(row.session)
