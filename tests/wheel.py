"""``make wheel``: build the wheel twice, elsewhere and at another time, and compare every byte.

The second copy of the sources lies in a folder with another name, its files have other dates and
rights, and the clock that the build may ask (``SOURCE_DATE_EPOCH``) is the only thing both share.
hatchling is the version in constraints.txt: another one writes its own version into the wheel.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
FILES = ("pyproject.toml", "README.md", "LICENSE")
EPOCH = "1767225600"  # the beginning of 2026


def build(folder: Path, out: Path, *, age: float, rights: int) -> Path:
    """Build the wheel from a copy of the sources whose files are so old and have these rights."""
    folder.mkdir(parents=True)
    compiled = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src", folder / "src", ignore=compiled)
    for name in FILES:
        shutil.copyfile(ROOT / name, folder / name)
    for path in folder.rglob("*"):
        if path.is_file():
            os.utime(path, (age, age))
            path.chmod(rights)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", out]
    settings = {"SOURCE_DATE_EPOCH": EPOCH, "PIP_CONSTRAINT": str(ROOT / "constraints.txt")}
    subprocess.run([*command, folder], check=True, env={**os.environ, **settings})
    (wheel,) = out.glob("visvm-*.whl")
    return wheel


def main() -> int:
    """Build twice, and say what came out."""
    with TemporaryDirectory() as name:
        place = Path(name)
        builds = [
            build(place / "one", place / "a", age=10**9, rights=0o644),
            build(place / "another/folder", place / "b", age=1.7e9, rights=0o600),
        ]
        digests = [hashlib.sha256(wheel.read_bytes()).hexdigest() for wheel in builds]
        if digests[0] != digests[1]:
            print(f"two builds differ: {digests[0]} and {digests[1]}")
            return 1
        (ROOT / "dist").mkdir(exist_ok=True)
        shutil.copyfile(builds[0], ROOT / "dist" / builds[0].name)
        print(f"two builds, one digest: sha256 {digests[0]}  dist/{builds[0].name}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
