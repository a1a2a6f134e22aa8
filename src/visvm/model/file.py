"""One file holds a model: safetensors, whose metadata carries a JSON header.

Format 1. The header (metadata key ``visvm``; its SHA-256 is under ``sha256``) has ``format``,
``encoder``, ``head``, ``classes``, ``counts``, ``sessions``, ``tensors`` (the SHA-256 of each) and,
where they are known, ``calibrated_classes``, ``site`` (the id of the site that the file belongs to)
and ``merged`` (the sites whose sums are in it, ``sites.py``). Tensors are float64: ``mixer.*``,
``coefficients``, ``calibration``, and, unless the file was exported for predicting only,
``class_sums`` with either ``factor.0…`` and ``targets`` (thin) or ``scatter`` (the lower triangle,
column by column) and ``cross`` (dense). R is not in it: it is drawn from its seed and compared with
its digest. A file whose ``head`` says ``"solved": false`` has sums and no ``coefficients``: a
site's statistics, or a journal.

Reading a file runs no code of it. Writing goes to a new file, which is flushed and takes the old
one's place in one step.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from filelock import BaseFileLock, FileLock, Timeout
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from visvm.encoders.sources import expanded
from visvm.errors import ModelFileError, shown

FORMAT = 1

_LOOK_SECONDS = 0.5  # how often whoever waits for a file is asked whether to go on

Array = NDArray[np.float64]
Header = dict[str, Any]
Tensors = dict[str, Array]


@contextmanager
def locked(path: Path, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold a model file for oneself, so that between reading and writing it nobody else writes.

    Parameters
    ----------
    path : Path
    waiting : callable
        Called now and then while another process holds it; what it raises ends the waiting.
    """
    path = _real(path)
    _require_folder(path)
    place = path.with_name(f".{path.name}.lock")
    lock = FileLock(place, is_singleton=True)
    try:
        place.touch()  # where it cannot be made, waiting for it would never end
        _acquire(lock, waiting)
    except OSError as error:
        raise ModelFileError(
            f"the folder of {shown(path)} must be writable; it is not: {error.strerror}"
        ) from error
    try:
        yield
    finally:
        lock.release()


def _acquire(lock: BaseFileLock, waiting: Callable[[], None]) -> None:
    timeout = 0.0
    while True:
        try:
            lock.acquire(timeout=timeout)
        except Timeout:
            waiting()
            timeout = _LOOK_SECONDS
        else:
            return


def write(path: Path, header: Mapping[str, Any], tensors: Mapping[str, Array]) -> None:
    """Write a model file, which nobody else writes meanwhile; until the last step the old one stays as it is."""
    with locked(path):
        replace(path, header, tensors)


def replace(path: Path, header: Mapping[str, Any], tensors: Mapping[str, Array]) -> None:
    """Write a file in the form of a model's; until the last step the old one stays as it is."""
    path = _real(path)
    digests = {name: _digest(tensor) for name, tensor in tensors.items()}
    # ASCII: a file name need not be valid Unicode
    text = json.dumps({"format": FORMAT, **header, "tensors": digests})
    part = part_of(path)
    try:
        _write_tensors(
            part, tensors, {"visvm": text, "sha256": hashlib.sha256(text.encode()).hexdigest()}
        )
        if path.exists():
            shutil.copymode(path, part)
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise ModelFileError(
            f"{shown(path)} must be writable; it is not ({' '.join(str(error).split())}): make room or choose another place"
        ) from error
    if os.name == "posix":
        with suppress(OSError):  # a file system that cannot: the file is in its place all the same
            _flush_folder(path.parent)


def part_of(path: Path) -> Path:
    """Where a file is written before it takes its place."""
    return path.with_name(f".{path.name}.part")


def read_header(path: Path) -> Header:
    """The JSON header of a model file, checked."""
    with _opened(path) as file:
        return _header(path, file)


def read(path: Path, *, for_prediction: bool = False) -> tuple[Header, Tensors]:
    """The header and the tensors of a model file, checked; with `for_prediction` only those that predicting needs."""
    with _opened(path) as file:
        header = _header(path, file)
        digests = header["tensors"]
        if set(digests) != set(file.keys()):
            raise altered(path, "its tensors are not those its header names")
        names = [name for name in digests if not (for_prediction and _is_statistics(name))]
        return header, {name: _tensor(path, file, name, digests[name]) for name in names}


def for_prediction(header: Header, tensors: Tensors) -> tuple[Header, Tensors]:
    """What predicting needs, without the sums."""
    head = {**header["head"], "form": None}
    merged = [{**entry, "file": ""} for entry in header.get("merged", [])]
    return {**header, "head": head, "merged": merged}, {
        name: tensor for name, tensor in tensors.items() if not _is_statistics(name)
    }


def for_site(header: Header, tensors: Tensors, site: str) -> tuple[Header, Tensors]:
    """What a site needs to learn for a model: encoder, mixer, map, λ; nothing else of what the model has learned."""
    rows = len(tensors["coefficients"])  # D + 1
    nothing = {
        "coefficients": np.empty((rows, 0)),
        "class_sums": np.empty((rows, 0)),
        "targets": np.empty((0, 0)),
    }
    mixer = {name: tensor for name, tensor in tensors.items() if name.startswith("mixer.")}
    described = {
        "encoder": header["encoder"],
        "head": {**header["head"], "form": "thin", "ridge_path": [], "layer_path": []},
        "classes": [],
        "counts": [],
        "calibrated_classes": 0,
        "sessions": [],
        "site": site,
    }
    return described, {**mixer, **nothing, "calibration": np.zeros_like(tensors["calibration"])}


def _is_statistics(name: str) -> bool:
    return name in {"class_sums", "targets", "scatter", "cross"} or name.startswith("factor.")


def _real(path: Path) -> Path:
    # a link stays a link to the file that is replaced
    return Path(os.path.realpath(expanded(path)))


def _require_folder(path: Path) -> None:
    # which, unlike the method, is False for a name too long to exist
    if not os.path.isdir(path.parent):
        raise ModelFileError(
            f"the folder of {shown(path)} must exist; it does not: make it, or choose another place"
        )
    if os.path.isdir(path):
        raise ModelFileError(
            f"a model is one file; {shown(path)} is a folder: give a file, such as birds.visvm"
        )
    if os.path.exists(path) and not os.path.isfile(path):
        raise ModelFileError(
            f"a model is an ordinary file; {shown(path)} is a device or pipe: give a file, such as birds.visvm"
        )


def _write_tensors(path: Path, tensors: Mapping[str, Array], metadata: Mapping[str, str]) -> None:
    """Write a safetensors file: the length of its JSON in 8 bytes, the JSON, the tensors.

    The package's own writer goes through a file of a random name, which would stay for ever when it
    is killed, and which only its owner may read.
    """
    described: dict[str, Any] = {"__metadata__": dict(metadata)}
    offset = 0
    for name, tensor in tensors.items():
        described[name] = {
            "dtype": "F64",
            "shape": tensor.shape,
            "data_offsets": (offset, offset + tensor.nbytes),
        }
        offset += tensor.nbytes
    text = json.dumps(described).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of 8
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            file.write(np.ascontiguousarray(tensor, dtype="<f8").data)
        file.flush()
        os.fsync(file.fileno())


def _flush_folder(path: Path) -> None:
    """Have a rename in a folder survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _digest(tensor: Array) -> str:
    return hashlib.sha256(np.ascontiguousarray(tensor).data).hexdigest()


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    path = _real(path)
    if not os.path.exists(path):
        raise ModelFileError(
            f"{shown(path)} must be a model that visvm wrote; there is no such file: correct the path, or learn one first"
        )
    _require_folder(path)
    try:
        with safe_open(path, framework="numpy") as file:
            yield file
    except (SafetensorError, OSError) as error:
        raise ModelFileError(
            f"{shown(path)} must be a model that visvm wrote; it is another file, or truncated ({' '.join(str(error).split())})"
        ) from error


def altered(path: Path, what: str) -> ModelFileError:
    """The error that tells of a file that is not as it was written."""
    return ModelFileError(
        f"{shown(path)} must be as visvm wrote it; {what}: take a copy from before"
    )


def _header(path: Path, file: Any) -> Header:
    metadata = file.metadata() or {}
    if not {"visvm", "sha256"} <= set(metadata):
        raise ModelFileError(
            f"{shown(path)} must be a model that visvm wrote; it is another safetensors file"
        )
    if hashlib.sha256(metadata["visvm"].encode()).hexdigest() != metadata["sha256"]:
        raise altered(path, "its header was altered")
    try:
        header: Header = json.loads(metadata["visvm"])
        version = header["format"]
        if version == FORMAT:
            _check_header(header)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise altered(path, f"its header lacks a part ({' '.join(repr(error).split())})") from error
    if version != FORMAT:
        raise ModelFileError(
            f"{shown(path)} must be of format {FORMAT}; it is of format {version!r}: use the visvm version that wrote it"
        )
    return header


def _check_header(header: Header) -> None:
    kinds = {
        "encoder": dict,
        "head": dict,
        "classes": list,
        "counts": list,
        "sessions": list,
        "tensors": dict,
    }
    for name, kind in kinds.items():
        if not isinstance(header[name], kind):
            raise TypeError(f"{name} is {header[name]!r:.50}")
    for name in ("name", "digest", "transform"):
        if not isinstance(header["encoder"][name], str):
            raise TypeError(f"the encoder's {name} is {header['encoder'][name]!r:.50}")
    classes = header["classes"]
    if {type(label) for label in classes} not in ({str}, {int}, set()) or classes != sorted(
        set(classes)
    ):
        raise ValueError("classes are not sorted names or numbers")
    if [type(count) for count in header["counts"]] != [int] * len(classes):
        raise ValueError("counts are not one number for every class")
    reported = {"session", "learned_at", "n_images", "new_classes", "returning_classes", "test"}
    if not all(isinstance(entry, dict) and reported <= set(entry) for entry in header["sessions"]):
        raise TypeError("sessions are no reports")
    if type(header.get("calibrated_classes", 0)) is not int:
        raise TypeError("calibrated_classes is no number")
    if "site" in header and not _is_site(header["site"]):
        raise TypeError(f"the site is {header['site']!r:.50}")
    if not all(map(_is_merged, header.get("merged", []))):
        raise TypeError("merged are no sites")
    if header["head"]["form"] not in ("thin", "dense", None):
        raise ValueError(f"the form is {header['head']['form']!r:.50}")
    if (header["head"]["form"] is None) != ("class_sums" not in header["tensors"]):
        raise ValueError("the sums are not those of the form")


def _is_site(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{16}", value) is not None


def _is_merged(entry: dict[str, Any]) -> bool:
    """Whether this is what ``sites.MergedSite`` keeps."""
    kinds = {
        "merged_at": str,
        "n_images": int,
        "digest": str,
        "labels": list,
        "calibration_weight": float,
    }
    return (
        _is_site(entry["id"])
        and all(type(entry[name]) is kind for name, kind in kinds.items())
        and {type(label) for label in entry["labels"]} in ({str}, {int})
        and 0.0 <= entry["calibration_weight"] <= 1.0
        and isinstance(entry.get("file", ""), str)
    )


def _tensor(path: Path, file: Any, name: str, digest: str) -> Array:
    if (kind := file.get_slice(name).get_dtype()) != "F64":
        raise altered(path, f"{name} is of type {kind}")
    tensor: Array = file.get_tensor(name)
    if _digest(tensor) != digest:
        raise altered(path, f"{name} was altered")
    with np.errstate(over="ignore", invalid="ignore"):
        finite = np.isfinite(tensor.sum()) or np.isfinite(tensor).all()
    if not finite:
        raise altered(path, f"{name} holds NaN or infinity")
    return tensor
