"""``results.jsonl``: one line of JSON for every session of every run, appended when it is measured.

A line is written in one piece and flushed to the disk, so a kill or a power cut leaves whole lines
and at most one torn one at the end, which is dropped when the file is opened again. After a power
cut, zeros may stand for the rest of it. Anything else that is not a row is refused and left where
it is.

Format 1 had the digest of the code inside ``run``, where it decided which rows belong together.
Format 2 has it beside ``run``, as information, and the method's revision in its place; rows of
format 1 are read as revision 1.
"""

import errno
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, NoReturn

import filelock
import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from visvm.encoders.files import flush_folder, make_folder, read_file
from visvm.errors import InputError, VisvmError
from visvm.head.checks import is_positive

FILE_NAME = "results.jsonl"
_BEGINNING = b'{"run":{"dataset":'  # of every row
ROW_FORMAT = 2  # of a row; raise it when a field changes its meaning, and keep reading the old ones

Share = Annotated[float, Meta(ge=0, le=1)]
Positive = Annotated[int, Meta(ge=1)]


class Run(Struct, frozen=True, forbid_unknown_fields=True):
    """One method on one stream of classes: what decides its numbers, and nothing else."""

    dataset: str  # name of the data set, or path of a folder of one's own
    data_digest: str  # SHA-256 over the class names and the content of all images used
    encoder: str
    weights_digest: str
    transform: str  # "squash" or "crop"
    transform_key: str  # everything that decides the pixels, in short
    protocol: str  # such as "B0 Inc20", or "sessions 5,3,2"
    class_order_seed: int
    method: str
    revision: int  # of the method: what another revision measured is measured again
    seed: int = 0  # of the method's own random numbers
    options: dict[str, Any] = {}  # of the method, as far as they differ from its defaults
    split: str = "test"  # or "validation": a fifth of the training images, the rest trained on
    text: str = ""  # digest of the text features, of methods that need them
    text_of: str = ""  # what these say, in short: a prompt, or the name of the file

    @property
    def key(self) -> str:
        """A short digest to find a run again, wherever its data and encoder lie on the disk."""
        content = msgspec.to_builtins(self)
        del content["dataset"], content["encoder"], content["text_of"]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


class Row(Struct, frozen=True, forbid_unknown_fields=True):
    """What was measured after one session of a run; classes are listed as they arrived."""

    run: Run
    session: Positive
    n_sessions: int  # of the whole stream
    new_classes: list[str]  # names
    session_sizes: list[int]  # how many classes each session so far brought
    n_train: int  # images learned in this session
    n_test: Positive  # images tested on
    accuracy: Share  # A_b
    group_accuracy: list[Share]  # on the classes of each session so far
    old_accuracy: float | None  # on the classes of earlier sessions, if there are any
    new_accuracy: float | None  # on those of this one, likewise
    harmonic_mean: float | None  # of both, likewise
    class_correct: list[int]  # test images recognised, of every class seen so far
    class_counts: list[int]  # all of its test images
    # After the last session only: class, what it was taken for, how often; most frequent first.
    confusions: list[tuple[int, int, int]]
    # "learn", "predict"; and "encode", for an image: the better of two times over one batch
    seconds: dict[str, float]
    peak_memory: int | None  # most bytes of the process while this session was learned and tested
    trainable_parameters: int
    state_bytes: int
    choices: dict[str, Any]
    load_average: float | None  # well above the number of threads, times mean little
    environment: dict[str, Any]  # versions, CPU, number of threads
    measured_at: str  # UTC, ISO 8601
    code_digest: str  # of the source of the method and of the head, for information
    n_shared: int | None = None  # test images that are training images too; early rows have None
    format: int = ROW_FORMAT


def parse(line: bytes) -> Row:
    """Read a row from its line; a ValueError says why it is none."""
    said = msgspec.json.decode(line)
    version = said.get("format") if isinstance(said, dict) else None
    if version == 1:
        said = _from_format_1(said)
    elif version != ROW_FORMAT:
        raise ValueError(f"its format is {version!r}, known are 1 and {ROW_FORMAT}")
    row = msgspec.convert(said, Row)
    if not {"learn", "predict"} <= row.seconds.keys():
        raise ValueError("seconds lacks learn or predict")
    if not all(is_positive(row.environment.get(name, 1)) for name in ("cores", "threads")):
        raise ValueError("environment has cores or threads that are not numbers above 0")
    sessions = {row.session, len(row.session_sizes), len(row.group_accuracy)}
    classes = {sum(row.session_sizes), len(row.class_correct), len(row.class_counts)}
    if row.session > row.n_sessions or len(sessions) > 1 or len(classes) > 1:
        raise ValueError("its numbers of sessions and classes do not go together")
    return row


def _from_format_1(said: dict[str, Any]) -> dict[str, Any]:
    """Read the digest of the code as information, and the run as revision 1 of its method.

    Where a run was measured by several states of the code, the last row of a session counts.
    """
    run = {**msgspec.convert(said.get("run"), dict[str, Any]), "revision": 1}
    return {**said, "run": run, "code_digest": run.pop("code_digest", None), "format": ROW_FORMAT}


def read_rows(folder: Path) -> list[Row]:
    """Read all rows of a results folder; a torn last line is left out."""
    path = folder / FILE_NAME
    if not path.is_file():
        raise InputError(
            f"{folder} has no {FILE_NAME}. Run 'visvm bench RECIPE --out {folder}' first.",
            code="results-missing",
        )
    rows = []
    *lines, last = _content(path).split(b"\n")
    for number, line in enumerate([*lines, *([] if _is_torn(last) else [last])], start=1):
        try:
            rows.append(parse(line))
        except (ValueError, msgspec.MsgspecError, RecursionError) as error:
            raise InputError(
                f"Line {number} of {path} is not a row of results ({error}). Remove the line.",
                code="row-invalid",
            ) from error
    return rows


def _content(path: Path) -> bytes:
    """Read a file without the zeros that a power cut may have left at its end."""
    return read_file(path).rstrip(b"\0")


def _is_torn(last: bytes) -> bool:
    """Whether what follows the last line end is nothing, or the beginning of a row."""
    if not (_BEGINNING.startswith(last) or last.startswith(_BEGINNING)):
        return False
    try:
        msgspec.json.decode(last)
    except msgspec.DecodeError:
        return True
    except (UnicodeDecodeError, RecursionError):  # rows are ASCII and flat: it is damaged
        return False
    return False


@contextmanager
def open_for_appending(folder: Path) -> Iterator["Results"]:
    """Hold the results of a folder against other processes; make them if they are not there."""
    is_new = not folder.exists()
    try:
        make_folder(folder)
    except OSError as error:
        _refuse_folder(folder, error)
    path, lock_path = folder / FILE_NAME, folder / f".{FILE_NAME}.lock"
    lock = filelock.FileLock(lock_path)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        raise VisvmError(
            f"Another 'visvm bench' is writing to {folder}. Wait for it, or give another --out.",
            code="results-in-use",
        ) from None
    except OSError as error:
        _refuse_folder(folder, error)
    try:
        rows = _mended(path)
        flush_folder(folder)
        yield Results(path, rows)
    finally:
        if is_new and path.exists() and not path.stat().st_size:  # nothing came of it
            for left in (path, lock_path):
                left.unlink(missing_ok=True)
            with suppress(OSError):
                folder.rmdir()
        lock.release()


def _refuse_folder(folder: Path, error: OSError) -> NoReturn:
    raise InputError(
        f"{folder} cannot be written to ({error.strerror}). Give another --out.",
        code="results-unwritable",
    ) from error


def _mended(path: Path) -> list[Row]:
    """Read the rows of a file, and make it end with a whole line; make it if it is not there."""
    if not path.exists():
        path.touch()
        return []
    rows = read_rows(path.parent)
    content = _content(path)
    end = content.rfind(b"\n") + 1
    if _is_torn(content[end:]):
        os.truncate(path, end)
    else:
        os.truncate(path, len(content))
        with path.open("ab") as file:
            file.write(b"\n")
    return rows


class Results:
    """Rows that are in a file, and a place for more."""

    def __init__(self, path: Path, rows: list[Row]) -> None:
        self.path = path
        self._accuracies: dict[str, dict[int, float]] = {}
        self._of_any_revision: set[str] = set()
        for row in rows:
            self._remember(row)

    def _remember(self, row: Row) -> None:
        self._accuracies.setdefault(row.run.key, {})[row.session] = row.accuracy
        self._of_any_revision.add(replace(row.run, revision=0).key)

    def accuracies(self, run: Run) -> dict[int, float]:
        """Return A_b of the sessions of a run that are there."""
        return self._accuracies.get(run.key, {})

    def is_outdated(self, run: Run) -> bool:
        """Return whether there are rows of a run, but of other revisions of its method only."""
        return not self.accuracies(run) and replace(run, revision=0).key in self._of_any_revision

    def append(self, row: Row) -> None:
        """Add a row; it is on the disk when this returns. Costs must be what JSON can write."""
        try:
            # not msgspec's own encoder, which writes NaN as null
            text = json.dumps(msgspec.to_builtins(row), allow_nan=False, separators=(",", ":"))
        except (TypeError, ValueError) as error:
            raise InputError(
                f"The costs of {row.run.method} are not plain numbers and texts ({error}). "
                "Correct the method.",
                code="costs-unwritable",
            ) from error
        content = f"{text}\n".encode()
        with self.path.open("ab", buffering=0) as file:
            before = file.tell()
            try:
                if file.write(content) < len(content):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(file.fileno())
            except OSError as error:
                file.truncate(before)
                raise VisvmError(
                    f"{self.path} cannot take another row ({error.strerror}). Make room.",
                    code="results-full",
                ) from error
        self._remember(row)
