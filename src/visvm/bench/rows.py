"""``results.jsonl``: one line of JSON for every session of every run, appended when it is measured.

A line is written in one piece and flushed to the disk, so a process that is killed leaves whole
lines and at most one torn one at the end, which is dropped when the file is opened again. What else
stands there is nobody's to drop, and refused.
"""

import errno
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import UnionType
from typing import Any, NoReturn, get_args, get_origin, get_type_hints

import filelock

from visvm.errors import InputError, VisvmError

FILE_NAME = "results.jsonl"
_BEGINNING = b'{"run":{"dataset":'  # of every row
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
        Of the source of the method and of the head: what was measured with other code is measured
        again.
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
        content = {
            name: value
            for name, value in asdict(self).items()
            if name not in ("dataset", "encoder")
        }
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
        Of every class seen so far, in the order of arrival: test images recognised, and all of
        them.
    confusions : list of (int, int, int)
        After the last session only: class, what it was taken for (both by arrival, from 0), how
        often; most frequent first.
    seconds : dict of float
        "learn", "predict"; and "encode", what an image takes, the better of two times over one
        batch.
    peak_memory : int or None
        The most memory the process held while this session was learned and tested, in bytes.
    trainable_parameters, state_bytes : int
    choices : dict
    load_average : float or None
        How many processes wanted the CPU in the last minute; well above the number of threads,
        times mean little.
    environment : dict
        Versions, CPU, number of threads.
    measured_at : str
        UTC, ISO 8601.
    n_shared : int or None
        How many of all test images of the data set are training images too; None in rows from
        before this was told.
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
    n_shared: int | None = None
    format: int = FORMAT


_HINTS = {kind: get_type_hints(kind) for kind in (Run, Row)}


def parse(line: str) -> Row:
    """A row from its line."""
    said = json.loads(line, parse_constant=_refused)
    if said["format"] != FORMAT:
        raise ValueError(f"its format is {said['format']}, known is {FORMAT}")
    said["run"] = Run(**said["run"])
    said["confusions"] = [tuple(triple) for triple in said["confusions"]]
    row = Row(**said)
    for part in (row.run, row):
        for name, hint in _HINTS[type(part)].items():
            if not _fits(getattr(part, name), hint):
                raise TypeError(f"{name} is {str(getattr(part, name))[:40]!r}")
    if not {"learn", "predict"} <= row.seconds.keys():
        raise ValueError("seconds has no learn or no predict")
    if not all(0.0 <= value <= 1.0 for value in (row.accuracy, *row.group_accuracy)):
        raise ValueError("an accuracy is not between 0 and 1")
    sessions = {row.session, len(row.session_sizes), len(row.group_accuracy)}
    classes = {sum(row.session_sizes), len(row.class_correct), len(row.class_counts)}
    if (
        not 1 <= row.session <= row.n_sessions
        or row.n_test < 1
        or len(sessions) > 1
        or len(classes) > 1
    ):
        raise ValueError("its numbers of sessions, classes and images do not go together")
    return row


def _fits(value: object, hint: Any) -> bool:
    """Whether a value read from JSON is what a field is declared to be: where it is a float, a whole number does as well."""
    kinds = get_args(hint)
    if isinstance(hint, UnionType):
        return any(_fits(value, kind) for kind in kinds)
    if isinstance(value, list) and get_origin(hint) is list:
        return all(_fits(each, kinds[0]) for each in value)
    if isinstance(value, tuple) and get_origin(hint) is tuple:
        return len(value) == len(kinds) and all(map(_fits, value, kinds))
    if isinstance(value, dict) and get_origin(hint) is dict:
        return all(_fits(each, kinds[1]) for each in value.values())
    if kinds or hint is Any:
        return hint is Any
    return isinstance(value, (int, float) if hint is float else hint) and not isinstance(
        value, bool
    )


def _refused(number: str) -> NoReturn:
    raise ValueError(f"{number} is no number of JSON")


def read_rows(folder: Path) -> list[Row]:
    """All rows of a results folder; a torn last line is left out."""
    path = folder / FILE_NAME
    if not path.is_file():
        raise InputError(
            f"{folder} must hold {FILE_NAME}; it does not: run 'visvm bench RECIPE --out {folder}' first"
        )
    rows = []
    *lines, last = path.read_bytes().split(b"\n")
    for number, line in enumerate([*lines, *([] if _is_torn(last) else [last])], start=1):
        try:
            rows.append(parse(line.decode()))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise InputError(
                f"line {number} of {path} must be a row of results; it is not ({error}): remove the line"
            ) from error
    return rows


def _is_torn(last: bytes) -> bool:
    """Whether what follows the last line end is nothing, or the beginning of a row."""
    if not (_BEGINNING.startswith(last) or last.startswith(_BEGINNING)):
        return False
    try:
        json.loads(last)
    except ValueError:
        return True
    return False


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
        raise VisvmError(
            f"{folder} must not be in use by another 'visvm bench'; it is: wait, or give another --out"
        ) from None
    except OSError as error:
        raise InputError(
            f"--out must be a folder that can be written to; {folder} is not ({error.strerror}): give another"
        ) from error
    try:
        if path.exists():
            rows = read_rows(folder)
            content = path.read_bytes()
            if _is_torn(content[content.rfind(b"\n") + 1 :]):
                os.truncate(path, content.rfind(b"\n") + 1)
            else:  # a whole row, but for its line end
                with path.open("ab") as file:
                    file.write(b"\n")
        else:
            path.touch()
            rows = []
        yield Results(path, rows)
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
        self._accuracies: dict[str, dict[int, float]] = {}
        self._of_any_code: set[str] = set()
        for row in rows:
            self._remember(row)

    def _remember(self, row: Row) -> None:
        self._accuracies.setdefault(row.run.key, {})[row.session] = row.accuracy
        self._of_any_code.add(replace(row.run, code_digest="").key)

    def accuracies(self, run: Run) -> dict[int, float]:
        """A_b of the sessions of a run that are there."""
        return self._accuracies.get(run.key, {})

    def is_outdated(self, run: Run) -> bool:
        """Whether there are rows of a run, but of other code only."""
        return not self.accuracies(run) and replace(run, code_digest="").key in self._of_any_code

    def append(self, row: Row) -> None:
        """Add a row; it is on the disk when this returns. An InputError where what the method told cannot be written as JSON."""
        try:
            line = json.dumps(asdict(row), allow_nan=False, separators=(",", ":")) + "\n"
        except (TypeError, ValueError) as error:
            raise InputError(
                f"{row.run.method} must tell its costs in plain numbers and texts; it does not ({error}): correct the method"
            ) from error
        content = line.encode()
        with self.path.open("ab", buffering=0) as file:
            before = file.tell()
            try:
                if file.write(content) < len(content):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(file.fileno())
            except OSError as error:
                file.truncate(before)
                raise VisvmError(
                    f"{self.path} must take another row; it does not ({error.strerror}): make room"
                ) from error
        self._remember(row)
