"""ONNX Runtime for browsers: two files of the npm package onnxruntime-web, fetched and checked.

npm downloads the package, as its own settings say; none of its code runs here. It can also be given
as a file. What is kept in the user's cache folder is what a web page needs of it.
"""

import base64
import gzip
import hashlib
import io
import shutil
import subprocess
import tarfile
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from visvm.encoders.files import make_folder, read_file, replacing
from visvm.encoders.weights import cache_folder
from visvm.errors import WeightsError, shown
from visvm.progress import Progress

PACKAGE, VERSION = "onnxruntime-web", "1.30.0"
MODULE = "ort.webgpu.bundle.min.mjs"
WASM = "ort-wasm-simd-threaded.asyncify.wasm"
"""With WebGPU and without: one file does both."""

SHA512 = "q0y+JrrtukXSzsBWEMccVfqX25LRmosXHF+CaRJmg8pZClzcV7svNc4rKY3jL02Vb7QmRMDs1SigqR4CXAfKYQ=="
MODULE_SHA256 = "0730816731ce2cdfb06f273da065d4a1c7091eb9d1756a83b2916c8a89d015e2"
WASM_SHA256 = "39f9f0894d478800487ed9f7dbe92618498db320cf55c8e3d89adff8dce658da"
"""Of the two files as they are in the package: what is kept is checked at every load."""

_PATIENCE = 600.0  # seconds, for npm
_BY_HAND = (
    f"run 'npm pack {PACKAGE}@{VERSION}' on another machine, and give its file with --runtime FILE "
    "(runtime=…)"
)


@dataclass(frozen=True)
class Runtime:
    """The files of the runtime: the module, and the WebAssembly, compressed by gzip."""

    module: bytes
    wasm: bytes


def load_runtime(progress: Progress, source: Path | None = None) -> Runtime:
    """Return the runtime, fetched by npm unless it is here; or that of a package already fetched.

    Parameters
    ----------
    progress : callable
    source : Path, optional
        The package, a .tgz as 'npm pack' writes it.
    """
    folder = cache_folder() / "runtime" / f"{PACKAGE}-{VERSION}"
    module, wasm = folder / MODULE, folder / f"{WASM}.gz"
    kept = _kept(module, wasm) if source is None else None
    if kept is not None:
        return kept
    progress("fetching the runtime", 0, 0)
    if source is not None:
        runtime = _read(source)
    else:
        with TemporaryDirectory(prefix="visvm-") as work:
            runtime = _read(_packed_by_npm(Path(work)))
    try:
        make_folder(folder)
        for path, content in ((module, runtime.module), (wasm, runtime.wasm)):
            with replacing(path) as file:
                file.write(content)
    except OSError as error:
        raise WeightsError(
            f"The runtime cannot be kept in {folder} ({error}). Make room or get access there, or "
            "set VISVM_CACHE to another folder.",
            code="weights-unwritable",
        ) from error
    return runtime


def _kept(module: Path, wasm: Path) -> Runtime | None:
    """Return what is kept, if it is what was fetched."""
    with suppress(OSError, EOFError, zlib.error):
        kept = Runtime(module.read_bytes(), wasm.read_bytes())
        contents = kept.module, gzip.decompress(kept.wasm)
        if tuple(hashlib.sha256(each).hexdigest() for each in contents) == (
            MODULE_SHA256,
            WASM_SHA256,
        ):
            return kept
    return None


def _packed_by_npm(folder: Path) -> Path:
    """Let npm download the package into a folder."""
    npm = shutil.which("npm")
    if npm is None:
        raise WeightsError(
            f"The runtime for browsers, {PACKAGE} {VERSION}, is not here, and neither is npm, "
            f"which fetches it. Install npm, or {_BY_HAND}.",
            code="runtime-missing",
        )
    command = [npm, "pack", "--ignore-scripts", "--silent", f"{PACKAGE}@{VERSION}"]
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=False, timeout=_PATIENCE
        )
    except subprocess.TimeoutExpired as error:
        raise WeightsError(
            f"npm has not downloaded {PACKAGE} {VERSION} in {_PATIENCE:g} s. "
            f"Check the network and npm's settings, or {_BY_HAND}.",
            code="runtime-missing",
        ) from error
    path = next(folder.glob("*.tgz"), None)
    if done.returncode or path is None:
        raise WeightsError(
            f"npm could not download {PACKAGE} {VERSION} ({' '.join(done.stderr.split())[-200:]}). "
            f"Check the network and npm's settings, or {_BY_HAND}.",
            code="runtime-missing",
        )
    return path


def _read(source: Path) -> Runtime:
    """Read the package, and check that it is the one that is meant."""
    try:
        content = read_file(source)
    except OSError as error:
        raise WeightsError(
            f"{shown(source)} cannot be read ({error.strerror}). Correct the path, or {_BY_HAND}.",
            code="runtime-missing",
        ) from error
    if base64.b64encode(hashlib.sha512(content).digest()).decode() != SHA512:
        raise WeightsError(
            f"{shown(source)} is not the package {PACKAGE} {VERSION}: its SHA-512 is another. "
            f"Download it again: {_BY_HAND}.",
            code="runtime-mismatch",
        )
    with tarfile.open(fileobj=io.BytesIO(content)) as package:
        module, wasm = (package.extractfile(f"package/dist/{name}") for name in (MODULE, WASM))
        assert module is not None, "the digest says that they are there"
        assert wasm is not None
        return Runtime(module.read(), gzip.compress(wasm.read(), 9, mtime=0))
