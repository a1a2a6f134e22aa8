"""``make release``: build the wheel and the sdist, install each elsewhere, and run the quick tests.

Each is installed into a new environment of the Python that runs this, with what the tests need and
without torch and Ray; the tests are those of the sdist, and see the installed package only. What is
built stays in dist/ (``python -m build`` must be there).
"""

import shutil
import subprocess
import sys
import tarfile
import venv
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
QUICK = "not (slow or browser or ray or kill)"
WITH_SOURCES = ("src", "pyproject.toml")  # the tests may read them, but must not import them


def build() -> list[Path]:
    """Build into an empty dist/."""
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    subprocess.run([sys.executable, "-m", "build", ROOT], check=True, stdout=subprocess.DEVNULL)
    return sorted((ROOT / "dist").iterdir())


def try_out(package: Path, sdist: Path, place: Path) -> None:
    """Install a package, see that it works without its extras, and run the quick tests of it."""
    venv.create(place / "env", with_pip=True, symlinks=sys.platform != "win32")
    folder = "Scripts" if sys.platform == "win32" else "bin"
    python, program = (place / "env" / folder / name for name in ("python", "visvm"))
    pip = [python, "-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt"]
    subprocess.run([*pip, package], check=True)
    subprocess.run([program, "--version"], check=True, cwd=place)
    subprocess.run([*pip, f"visvm[test] @ {package.as_uri()}"], check=True)
    with tarfile.open(sdist) as archive:
        archive.extractall(place, filter="data")
    (unpacked,) = place.glob("visvm-*")
    marked = ["-m", QUICK, "--numprocesses", "auto", "--quiet", "tests"]
    # -P: not the unpacked sources; importlib: nor by way of the tests
    subprocess.run([python, "-P", "-m", "pytest", *marked], check=True, cwd=unpacked)


def main() -> int:
    """Build, and try out what was built."""
    packages = build()
    (sdist,) = (package for package in packages if package.name.endswith(".tar.gz"))
    for package in packages:
        print(f"{package.name}, Python {sys.version.split()[0]}", flush=True)
        with TemporaryDirectory() as place:
            try_out(package, sdist, Path(place))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
