"""ONNX Runtime's C headers, from an npm package that carries them: its own packages do not.

Its Python wheel has the library alone. npm fetches the package once; nothing of it is run.
"""

import hashlib
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from visvm.encoders.files import replacing
from visvm.encoders.weights import cache_folder

PACKAGE = "@siteed/sherpa-onnx.rn@1.3.1"
SHA512 = (
    "75ecffb5277ed89cc43b0ebb387b87734b48288f3850fbc962fe0e898055869c"
    "30bdd3a0126d5d1e55ccc7f0d06008ef74fddd43bbc2d3ef980ccb63c10a83d7"
)
INSIDE = "package/prebuilt/include/onnxruntime/"
NAMES = ("onnxruntime_c_api.h", "onnxruntime_ep_c_api.h")  # the first includes the second


def c_headers(work: Path) -> Path:
    """Return the folder of the headers; skip where they cannot be had, unless in CI."""
    folder = cache_folder() / "headers" / SHA512[:16]
    if not all((folder / name).exists() for name in NAMES):
        npm = shutil.which("npm")
        if npm is None:
            (pytest.fail if os.environ.get("CI") else pytest.skip)("npm is not installed")
        fetch = [npm, "pack", "--ignore-scripts", "--silent", PACKAGE]
        subprocess.run(fetch, cwd=work, check=True, capture_output=True, timeout=300)
        (path,) = work.glob("*.tgz")
        assert hashlib.sha512(path.read_bytes()).hexdigest() == SHA512
        folder.mkdir(parents=True, exist_ok=True)
        with tarfile.open(path) as package:
            for name in NAMES:
                file = package.extractfile(INSIDE + name)
                assert file is not None
                with replacing(folder / name) as kept:
                    kept.write(file.read())
    return folder
