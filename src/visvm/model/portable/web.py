"""Write a folder that any web server can show: a page that asks the model, in the browser."""

import hashlib
import json
import os
import shutil
import zlib
from collections.abc import Collection, Mapping
from contextlib import suppress
from importlib import resources
from pathlib import Path

import msgspec

from visvm.encoders.encoder import Encoder
from visvm.encoders.files import flush_folder, has_content, read_file, written
from visvm.errors import ModelFileError, shown
from visvm.head.familiarity import UNKNOWN
from visvm.model.container import locked
from visvm.model.portable.graph import PortableOptions
from visvm.model.portable.metadata import settled_content
from visvm.model.portable.runtime import MODULE, WASM, Runtime
from visvm.model.portable.writing import Written, made_content
from visvm.model.state import Model

_ABOUT, _MARK = "model.json", "visvm export --web"
_WASM = f"{WASM}.gz"
_TEACHING = ("teach.html", "teach.js", "worker.js", "solve.js", "draw.js", "file.js")
_SETTLED = "settled.visvm"
_MANIFEST = {
    "name": "What is it?",
    "start_url": "./",
    "display": "standalone",
    "icons": [{"src": "icon.svg", "sizes": "any", "type": "image/svg+xml"}],
}


class _About(msgspec.Struct):
    """What a folder of this says of itself, as far as it is read again."""

    made_by: str
    names: list[str]


def write_web(
    folder: Path,
    model: Model,
    encoder: Encoder,
    options: PortableOptions,
    runtime: Runtime,
    *,
    replaces: bool = False,
) -> Written:
    """Write the folder, all of it or nothing.

    Parameters
    ----------
    folder : Path
    model : Model
        Which knows a class.
    encoder : Encoder
        The model's.
    options : PortableOptions
    runtime : Runtime
    replaces : bool
        Whether a folder that this has written, and nobody has added to, may be replaced.
    """
    folder = Path(os.path.abspath(folder))  # that "." has a name
    content, made = made_content(model, encoder, options)
    # a name of its own, so that no cache between takes it for that of another export
    name = f"model.{hashlib.sha256(content).hexdigest()[:16]}.onnx.gz"
    files = {name: _packed(content), MODULE: runtime.module, _WASM: runtime.wasm}
    files |= _page(() if options.teach else _TEACHING)
    taught = None
    if options.teach:
        files[_SETTLED] = settled_content(model)
        taught = {"file": _SETTLED, "width": model.head.settled.lift.width}
    files["manifest.webmanifest"] = json.dumps(_MANIFEST, indent=1).encode()
    files[_ABOUT] = _about(files, name, model, taught)
    with locked(folder.with_name(f"{folder.name}.web")):  # no folder, as locks are of files
        _put_back(folder)
        same = _holds(folder, files)
        if not same:
            _require_free(folder, replaces)
            _write(folder, files)
    encoder_bytes = made.encoder_bytes * len(files[name]) // len(content)  # weights pack alike
    whole = sum(map(len, files.values()))
    return Written(whole, encoder_bytes, made.precision, made.difference, same)


def _about(
    files: Mapping[str, bytes], name: str, model: Model, taught: dict[str, object] | None
) -> bytes:
    """Return what the page reads first: what is here, and what the model knows."""
    about = {
        "made_by": _MARK,
        "names": sorted([*files, _ABOUT]),
        "labels": model.classes.tolist(),
        "unknown": UNKNOWN,
        "teach": taught,
        "digest": _digest(files),
        "files": {"model": name, "wasm": _WASM, "runtime": f"./{MODULE}"},
        "bytes": {"model": len(files[name]), "wasm": len(files[_WASM])},
    }
    return json.dumps(about, ensure_ascii=False).encode()


def _packed(content: bytes) -> bytes:
    """Compress a model; weights hardly repeat, but small ones are more frequent than large ones."""
    how = zlib.compressobj(6, zlib.DEFLATED, 16 + zlib.MAX_WBITS, 9, zlib.Z_HUFFMAN_ONLY)
    return how.compress(content) + how.flush()


def _page(left: Collection[str]) -> dict[str, bytes]:
    """Return the files of the page by name, those `left` out."""
    page = resources.files("visvm.model.portable") / "page"
    found = (each for each in page.iterdir() if each.is_file() and each.name not in left)
    return {each.name: each.read_bytes() for each in found}


def _digest(files: Mapping[str, bytes]) -> str:
    sha = hashlib.sha256()
    for name in sorted(files):
        sha.update(f"{name} {hashlib.sha256(files[name]).hexdigest()}\n".encode())
    return sha.hexdigest()[:16]


def _holds(folder: Path, files: Mapping[str, bytes]) -> bool:
    """Whether a folder has these files already."""
    with suppress(OSError):
        return all(has_content(folder / name, content) for name, content in files.items())
    return False


def _require_free(folder: Path, replaces: bool) -> None:
    """Refuse to replace what is there, unless it may be, and was written by this."""
    if not folder.exists():
        return
    if not replaces:
        raise ModelFileError(
            f"{shown(folder)} already exists. Choose another name, or replace it with --force.",
            code="file-exists",
        )
    if not _is_ours(folder):
        raise ModelFileError(
            f"{shown(folder)} holds other files than 'visvm export --web' has written, so it is "
            "not replaced. Choose another name.",
            code="folder-foreign",
        )


def _is_ours(folder: Path) -> bool:
    """Whether a folder is of this, and has nothing else in it."""
    with suppress(OSError, msgspec.MsgspecError, RecursionError):
        said = msgspec.json.decode(read_file(folder / _ABOUT), type=_About)
        return said.made_by == _MARK and {each.name for each in folder.iterdir()} <= {*said.names}
    return False


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write the files to a new folder, which takes its place when it is whole."""
    part, old = (folder.with_name(f".{folder.name}.{kind}") for kind in ("part", "old"))
    try:
        shutil.rmtree(part, ignore_errors=True)  # what a kill has left
        part.mkdir()
        for name, content in files.items():
            with written(part / name) as file:
                file.write(content)
        flush_folder(part)
        if folder.exists():
            folder.rename(old)
        try:
            part.rename(folder)
        except OSError:
            _put_back(folder)
            raise
        flush_folder(folder.parent)
        _remove(old)
    except OSError as error:
        shutil.rmtree(part, ignore_errors=True)
        raise ModelFileError(
            f"{shown(folder)} cannot be written: {' '.join(str(error).split())}. "
            "Make room, or choose another place.",
            code="file-unwritable",
        ) from error


def _put_back(folder: Path) -> None:
    """Give an old folder its place again, where a kill came between two names."""
    old = folder.with_name(f".{folder.name}.old")
    if old.exists() and not folder.exists():
        old.rename(folder)
    elif _is_ours(old) or (old.is_dir() and not any(old.iterdir())):
        _remove(old)


def _remove(old: Path) -> None:
    """Remove an old folder, last the file that says whose it is: a kill may come in between."""
    with suppress(OSError):
        for path in sorted(old.iterdir(), key=lambda path: path.name == _ABOUT):
            if path.name == _ABOUT:
                flush_folder(old)
            path.unlink()
        flush_folder(old)
        old.rmdir()
        flush_folder(old.parent)
