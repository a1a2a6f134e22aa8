"""A safetensors file whose metadata carries a JSON header: locked, written in one step, checked.

The metadata key ``visvm`` holds the header and ``sha256`` its digest. The header's ``format`` is
the number of the format, its ``tensors`` the SHA-256 of each tensor; all tensors are float64,
except masked sums, which are 64-bit words.

Reading a file runs none of its code. Writing goes to a new file, which is flushed and takes the old
one's place in one step.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from visvm.encoders.files import replacing
from visvm.encoders.sources import expanded
from visvm.errors import ModelFileError, shown
from visvm.head.checks import is_finite
from visvm.head.products import Array

FORMAT = 1

_MOST = 1e100  # far above sums over images; products of two are still numbers
_LOOK_SECONDS = 0.5  # how often the caller that waits for a file is asked whether to go on

Tensors = dict[str, Array]
Words = NDArray[np.uint64]


@contextmanager
def locked(path: Path, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold a file, so that nobody else writes it between reading and writing.

    While another process holds it, `waiting` is called now and then; what it raises ends that. The
    lock file beside it is gone when nobody holds it any more.
    """
    path = real_path(path)
    _require_folder(path)
    place = path.with_name(f".{path.name}.lock")
    lock = FileLock(place, is_singleton=True)
    again = lock.is_locked  # by this thread: what it held before ends later
    try:
        _make(place)  # where it cannot be made, waiting for it would never end
        _acquire(lock, waiting)
    except OSError as error:
        raise ModelFileError(
            f"The folder of {shown(path)} cannot be written to: {error.strerror}. "
            "Choose another place.",
            code="folder-read-only",
        ) from error
    try:
        yield
    finally:
        if not again and os.name == "posix":
            _remove(place, lock)  # while it is ours: nobody can hold a file of this name
        lock.release()
        if not again and os.name != "posix":
            _remove(place, lock)  # which the system refuses while anybody has it open


def _make(place: Path) -> None:
    """Make an empty file, unless there is one; a link to another file is not followed."""
    os.close(os.open(place, os.O_CREAT | os.O_RDWR | getattr(os, "O_NOFOLLOW", 0), 0o666))


def _remove(place: Path, lock: BaseFileLock) -> None:
    """Remove the file of a lock; where files are no locks, the file itself is, and ends with it."""
    if not isinstance(lock, SoftFileLock):
        with suppress(OSError):
            place.unlink(missing_ok=True)


def _acquire(lock: BaseFileLock, waiting: Callable[[], None]) -> None:
    """Take a lock, of the file that has its name now: the one before it removes that file."""
    timeout = 0.0
    while True:
        try:
            lock.acquire(timeout=timeout)
        except Timeout:
            waiting()
            timeout = _LOOK_SECONDS
        else:
            if _is_in_place(lock):
                return
            lock.release()


def _is_in_place(lock: BaseFileLock) -> bool:
    """Whether a lock that is held is of the file with its name, and not of one removed since."""
    held = lock._context.lock_file_fd  # the only way to know which file it is
    if os.name != "posix" or held is None:
        return True
    try:
        return os.path.samestat(os.fstat(held), os.stat(lock.lock_file))
    except FileNotFoundError:
        return False


def replace_file(
    path: Path, header: Mapping[str, Any], tensors: Mapping[str, Array | Words]
) -> None:
    """Write a file; until the last step the old one stays as it is."""
    with rewritten(path) as file:
        write_content(file, header, tensors)


def write_content(
    file: BinaryIO, header: Mapping[str, Any], tensors: Mapping[str, Array | Words]
) -> None:
    """Write the content of a file, its digests included."""
    text = _header_text(header, tensors)
    metadata = {"visvm": text, "sha256": hashlib.sha256(text.encode()).hexdigest()}
    _write_tensors(file, tensors, metadata)


@contextmanager
def rewritten(path: Path) -> Iterator[BinaryIO]:
    """Open a file that takes the place of another once it is whole, as ``replacing`` does."""
    path = real_path(path)
    try:
        with replacing(path) as file:
            yield file
    except OSError as error:
        raise ModelFileError(
            f"{shown(path)} cannot be written: {' '.join(str(error).split())}. "
            "Make room, or choose another place.",
            code="file-unwritable",
        ) from error


def content_digest(header: Mapping[str, Any], tensors: Mapping[str, Array | Words]) -> str:
    """Return the digest that a file of this content has, as ``OpenFile.digest``."""
    return hashlib.sha256(_header_text(header, tensors).encode()).hexdigest()


def same_content(
    path: Path, header: Mapping[str, Any], tensors: Mapping[str, Array]
) -> dict[str, Any] | None:
    """Return the header of a file that has this very content already, whatever came before it."""
    if not os.path.exists(real_path(path)):
        return None
    with suppress(ModelFileError), opened(path) as file:
        found, own = file.header, {"format", "tensors", "before"}
        theirs = {name: value for name, value in found.items() if name not in own}
        if theirs == json.loads(json.dumps(header)):  # cheap, beside the digests of tensors
            before = {"before": found["before"]} if "before" in found else {}
            return found if content_digest({**header, **before}, tensors) == file.digest else None
    return None


def _header_text(header: Mapping[str, Any], tensors: Mapping[str, Array | Words]) -> str:
    digests = {name: _digest(tensor) for name, tensor in tensors.items()}
    # ASCII: a file name need not be valid Unicode
    return json.dumps({"format": FORMAT, **header, "tensors": digests})


def _write_tensors(
    file: BinaryIO, tensors: Mapping[str, Array | Words], metadata: Mapping[str, str]
) -> None:
    """Write a safetensors file: the length of its JSON in 8 bytes, the JSON, the tensors.

    The package's own writer goes through a file of a random name, which would stay for ever when
    it is killed, and which only its owner may read.
    """
    described: dict[str, Any] = {"__metadata__": dict(metadata)}
    offset = 0
    for name, tensor in tensors.items():
        offsets = (offset, offset + tensor.nbytes)
        kind = "U64" if tensor.dtype.kind == "u" else "F64"
        described[name] = {"dtype": kind, "shape": tensor.shape, "data_offsets": offsets}
        offset += tensor.nbytes
    text = json.dumps(described).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of 8
    file.write(len(text).to_bytes(8, "little") + text)
    for tensor in tensors.values():
        file.write(np.ascontiguousarray(tensor, dtype=tensor.dtype.newbyteorder("<")).data)


class OpenFile:
    """A file that is open for reading: its header, and its tensors when they are asked for.

    Attributes
    ----------
    header : dict
    digest : str
        SHA-256 of the header, which has those of the tensors: of the whole content.
    """

    def __init__(self, path: Path, file: Any) -> None:
        self._path, self._file = path, file
        metadata = file.metadata() or {}
        self.header = _header(path, metadata)
        self.digest: str = metadata["sha256"]

    def tensors(self, wanted: Callable[[str], bool]) -> Tensors:
        """Return the tensors whose name is wanted, checked for digest, type and NaN."""
        digests = self.header.get("tensors")
        if not isinstance(digests, dict) or set(digests) != set(self._file.keys()):
            raise altered(self._path, "its tensors are not those its header names")
        return {name: self._tensor(name, digests[name]) for name in digests if wanted(name)}

    def words(self, name: str) -> Words:
        """Return a tensor of masked sums, checked for digest, type and dimensions."""
        words: Words = self._content(name, self.header["tensors"][name], "U64")
        if words.ndim != 1:
            raise altered(self._path, f"{name} has the wrong shape")
        return words

    def _content(self, name: str, digest: object, wanted: str) -> Any:
        if (kind := self._file.get_slice(name).get_dtype()) != wanted:
            raise altered(self._path, f"{name} is of type {kind}")
        tensor = self._file.get_tensor(name)
        if _digest(tensor) != digest:
            raise altered(self._path, f"{name} was altered")
        return tensor

    def _tensor(self, name: str, digest: object) -> Array:
        tensor: Array = self._content(name, digest, "F64")
        if not is_finite(tensor):
            raise altered(self._path, f"{name} holds NaN or infinity")
        if tensor.size and max(tensor.max(), -tensor.min()) > _MOST:
            raise altered(self._path, f"{name} holds numbers too large for sums over images")
        return tensor


@contextmanager
def opened(path: Path) -> Iterator[OpenFile]:
    """Open a file that visvm wrote, and check its header's digest and format."""
    path = real_path(path)
    if not os.path.exists(path):
        raise ModelFileError(
            f"There is no file {shown(path)}. Correct the path, or learn a model first.",
            code="file-missing",
        )
    _require_folder(path)
    try:
        with safe_open(path, framework="numpy") as file:
            yield OpenFile(path, file)
    except (SafetensorError, OSError) as error:
        if path.suffix.lower() == ".onnx":
            raise ModelFileError(
                f"{shown(path)} is for ONNX Runtime; visvm does not read it. Give the model that "
                "it was exported from.",
                code="file-foreign",
            ) from error
        raise ModelFileError(
            f"{shown(path)} is not a model that visvm wrote, or it is truncated "
            f"({' '.join(str(error).split())}). Choose another file.",
            code="file-foreign",
        ) from error


def altered(path: Path, what: str) -> ModelFileError:
    """Return the error for a file that is not as it was written."""
    return ModelFileError(
        f"{shown(path)} was altered after visvm wrote it: {what}. Use an older copy.",
        code="file-altered",
    )


def _header(path: Path, metadata: Mapping[str, str]) -> dict[str, Any]:
    if not {"visvm", "sha256"} <= set(metadata):
        raise ModelFileError(
            f"{shown(path)} is a safetensors file, but not one that visvm wrote. "
            "Choose another file.",
            code="file-foreign",
        )
    if hashlib.sha256(metadata["visvm"].encode()).hexdigest() != metadata["sha256"]:
        raise altered(path, "its header was altered")
    try:
        header = json.loads(metadata["visvm"], parse_constant=_no_constant)
        version = header["format"]
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        reason = " ".join(repr(error).split())
        raise altered(path, f"its header lacks a part ({reason})") from error
    if version != FORMAT or isinstance(version, bool):
        raise ModelFileError(
            f"{shown(path)} has format {version!r}; this visvm reads format {FORMAT}. "
            "Use the version of visvm that wrote it.",
            code="file-format",
        )
    return dict(header)


def _no_constant(name: str) -> None:
    """Refuse NaN and infinity, which JSON does not have and visvm never writes."""
    raise ValueError(f"{name} is no number")


def real_path(path: Path) -> Path:
    """Return where a file is that may be reached through a link."""
    return Path(os.path.realpath(expanded(path)))  # a link stays a link to the replaced file


def _require_folder(path: Path) -> None:
    if not os.path.isdir(path.parent):  # which, unlike the method, is False for a name too long
        raise ModelFileError(
            f"The folder of {shown(path)} does not exist. Make it, or choose another place.",
            code="folder-missing",
        )
    if os.path.isdir(path):
        raise ModelFileError(
            f"{shown(path)} is a folder, and a model is one file. Give a file name, such as "
            "birds.visvm.",
            code="file-is-folder",
        )
    if os.path.exists(path) and not os.path.isfile(path):
        raise ModelFileError(
            f"{shown(path)} is a device or pipe, and a model is an ordinary file. Give a file "
            "name, such as birds.visvm.",
            code="file-is-device",
        )


def _digest(tensor: Array | Words) -> str:
    return hashlib.sha256(np.ascontiguousarray(tensor).data).hexdigest()
