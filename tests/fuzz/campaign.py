"""Give every command files that were changed at random, under a limit of memory and of time.

What is expected: exit code 0, or 2 with one line; no traceback, nothing that steers a terminal, no
lack of memory, no waiting. ``make fuzz MINUTES=10`` goes on for so long and prints what it found;
``python -m tests.fuzz --seed N`` tries one input, and shows what the commands say.
"""

import contextlib
import io
import re
import resource
import shutil
import sys
import time
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests import tiny
from tests.forked import CONTEXT
from tests.fuzz.mutations import damage, mutation
from tests.model.raw import rewrite

SECONDS, ROOM = 30.0, 2**30  # for one input; beside what Python and its packages take
N_COMMANDS = 5  # on one input
STEERING = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
MODELS = ("whole.visvm", "dense.visvm", "exported.visvm", "site.visvm", "site.sums")
COMMANDS = (
    ("info", "x.visvm"),
    ("info", "x.visvm", "--json"),
    ("predict", "x.visvm", "photos/red", "--encoder", "tiny.onnx"),
    ("predict", "x.visvm", "photos/red/0-0.png"),
    ("evaluate", "x.visvm", "photos", "--encoder", "tiny.onnx"),
    ("export", "x.visvm", "out.visvm", "--force"),
    ("export", "x.visvm", "--for-site", "out.visvm", "--force"),
    ("merge", "out.visvm", "whole.visvm", "x.visvm", "--force"),
    ("merge", "out.visvm", "x.visvm", "site.sums", "--force"),
    ("unmerge", "merged.visvm", "x.visvm"),
    ("unmerge", "x.visvm", "site.sums"),
    ("learn", "x.visvm", "more", "--statistics-only", "out.visvm", "--force", "--reveal-features"),
    ("rename-class", "x.visvm", "red", "crimson"),
    ("forget", "x.visvm", "more", "--encoder", "tiny.onnx"),
    ("learn", "x.visvm", "more", "--encoder", "tiny.onnx"),
    ("forget-class", "x.visvm", "green"),
)
PICTURES = (
    ("predict", "whole.visvm", "x.png", "--no-cache"),
    ("learn", "x.visvm", "table.csv", "--again", "--skip-unreadable"),
)


@dataclass(frozen=True)
class Failure:
    """A command that did not end as it should have, and on which input."""

    seed: int
    command: tuple[str, ...]
    what: str

    def __str__(self) -> str:
        return f"seed {self.seed}, visvm {' '.join(self.command)}: {self.what}"


def prepare(folder: Path) -> None:
    """Make the files that are changed, and those that the commands need beside them."""
    from visvm import ImageClassifier
    from visvm.model.sites import SiteStatistics

    folder.mkdir(parents=True, exist_ok=True)
    encoder = str(tiny.write_encoder(folder))
    tiny.write_photos(folder / "photos", n=2)
    tiny.write_photos(folder / "more", ("yellow", "red"), n=2, seed=1)
    (folder / "table.csv").write_text("x.png,red\nphotos/red/0-0.png,red\n")
    for name, width in (("whole", 40), ("dense", 8)):
        model = ImageClassifier(encoder, n_components=width, cache=False, layers=(1, 3), ridge=1.0)
        model.learn(folder / "photos", test=folder / "photos")
        model.save(folder / f"{name}.visvm")
    model = ImageClassifier.load(folder / "whole.visvm", cache=False)
    model.export(folder / "exported.visvm")
    model.export_for_site(folder / "site.visvm")
    model.learn_statistics(folder / "more").save(folder / "site.sums", reveal_features=True)
    model.merge(SiteStatistics.load(folder / "site.sums")).save(folder / "merged.visvm")


def _restore(folder, work):
    for name in (*MODELS, "merged.visvm"):
        shutil.copyfile(folder / name, work / name)


def run(command) -> str:
    """Run a command in this process; return what is wrong with how it ended, or nothing."""
    from visvm.cli import main as cli

    out, err = io.StringIO(), io.StringIO()
    sys.argv = ["visvm", *command]
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            warnings.simplefilter("default")
            cli.main()
    except SystemExit as stop:
        code = stop.code or 0
    except BaseException as error:  # noqa: BLE001, whatever it is, it is a failure
        lines = traceback.format_exception(error)
        return f"{type(error).__name__}: {str(error)[:200]} ({lines[-2].strip().splitlines()[0]})"
    said = [line for line in err.getvalue().splitlines() if not line.startswith("visvm: note: ")]
    if code not in (0, 2) or (code == 2 and len(said) != 1):
        return f"exit code {code}, {len(said)} lines: {err.getvalue()[:200]!r}"
    if STEERING.search(out.getvalue() + err.getvalue()):
        return "it writes what steers a terminal"
    if "too little memory" in err.getvalue():
        return "memory ran out"
    if re.search(r"\bnan\b", out.getvalue()):
        return f"it prints nan: {out.getvalue()[:200]!r}"
    return ""


def attempt(folder: Path, work: Path, seed: int):
    """Yield the failures of all commands on the input of this seed."""
    pictures = seed % 4 == 3
    chosen = np.random.default_rng([seed, 1]).permutation(len(COMMANDS))[:N_COMMANDS]
    for command in PICTURES if pictures else [COMMANDS[place] for place in sorted(chosen)]:
        _restore(folder, work)
        if pictures:
            whole = (folder / "photos/red/0-0.png").read_bytes()
            (work / "x.png").write_bytes(damage(whole, seed))
            shutil.copyfile(work / "whole.visvm", work / "x.visvm")
        else:
            shutil.copyfile(work / MODELS[seed // 4 % len(MODELS)], work / "x.visvm")
            rewrite(work / "x.visvm", mutation(seed))
        (work / "out.visvm").unlink(missing_ok=True)
        if what := run(command):
            yield Failure(seed, command, what)


def _work(folder, work, first, step, pipe):
    """Try one seed after the other, and tell of each, until somebody ends this process."""
    import os

    import visvm.encoders.onnx
    import visvm.image_classifier  # noqa: F401

    for name in ("tiny.onnx", "tiny.onnx.json", "table.csv"):
        shutil.copyfile(folder / name, work / name)
    for name in ("photos", "more"):
        shutil.copytree(folder / name, work / name, dirs_exist_ok=True)
    os.chdir(work)
    os.environ["VISVM_CACHE"] = str(work / "cache")
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, resource.RLIM_INFINITY))
    seed = first
    while True:
        pipe.send((seed, list(attempt(folder, work, seed))))
        seed += step


def campaign(folder: Path, *, first=0, seconds=None, most=None):
    """Try inputs for so many seconds, or so many of them; yield (seed, failures) for each."""
    until, seed = None if seconds is None else time.monotonic() + seconds, first
    while most is None or seed < first + most:
        reader, writer = CONTEXT.Pipe(duplex=False)
        work = folder / "work"
        work.mkdir(exist_ok=True)
        process = CONTEXT.Process(target=_work, args=(folder, work, seed, 1, writer), daemon=True)
        process.start()
        writer.close()
        try:
            while most is None or seed < first + most:
                if until is not None and time.monotonic() > until:
                    return
                if not reader.poll(SECONDS + 30 * (seed == first)):
                    yield seed, [Failure(seed, (), f"no answer after {SECONDS:.0f} s")]
                    seed += 1
                    break
                try:
                    _, failures = reader.recv()
                except EOFError:
                    failures = [Failure(seed, (), f"the process died ({process.exitcode})")]
                    yield seed, failures
                    seed += 1
                    break
                yield seed, failures
                seed += 1
        finally:
            process.kill()
            process.join()
            reader.close()
