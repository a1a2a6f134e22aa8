"""Give every command files that were changed, under limits of memory and of time.

What is expected: exit code 0, or 2 with one line; no traceback, nothing that steers a terminal, no
lack of memory, no waiting; after a refusal all files as they were; and what was written can be
read. Inputs are tried in processes forked off one that has imported everything, a few in each, and
uploads by a service that lives on.

``make fuzz MINUTES=10`` goes on for so long and prints what it found; ``python -m tests.fuzz
--input model:7`` tries one input.
"""

import io
import os
import pickle
import resource
import select
import signal
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from tests.forked import CONTEXT
from tests.fuzz.material import JOURNAL, Files, found, prepare, restore, within

CPU_SECONDS = 20  # of work, for one input
SECONDS = 120.0  # for one command, with waiting for the machine
AT_ONCE = 12  # inputs, of which those for commands share a process until one of them ends it
ROOM = 2**30  # bytes of addresses beside what Python and its packages take
MOST = 10**9  # bytes of memory, with all that is imported
ORDER = (
    *("model", "upload", "model", "picture", "model", "journal", "torn_model", "model", "upload"),
    *("model", "picture", "recipe", "model", "upload", "table", "model", "encoder", "model"),
    *("picture", "weights", "model", "upload", "rows", "pickles", "texts", "masked"),
    *("undo", "sort", "card", "names"),
)

WARM = (
    ("info", "whole.visvm"),
    ("predict", "whole.visvm", "photos/red"),
    ("rename-class", "whole.visvm", "red", "red"),
)

Input = tuple[str, int]
CORPUS = Path(__file__).with_name("corpus.txt")


@dataclass(frozen=True)
class Failure:
    """A command that did not end as it should have, and on which input."""

    input: Input
    command: tuple[str, ...]
    what: str

    def __str__(self) -> str:
        return f"input {self.input[0]}:{self.input[1]}, {' '.join(self.command)}: {self.what}"


@dataclass
class Report:
    """What came of one input."""

    failures: list[Failure] = field(default_factory=list)
    n_commands: int = 0
    seconds: float = 0.0  # of CPU
    n_bytes: int = 0  # of memory, at most


def numbered(number: int) -> Input:
    """Return the input of a number: all kinds in turn."""
    return ORDER[number % len(ORDER)], number


def corpus() -> list[Input]:
    """The inputs that are kept: those that once failed, and some of every kind."""
    lines = (line.partition("#")[0].strip() for line in CORPUS.read_text().splitlines())
    pairs = (line.split(":") for line in lines if line)
    return [(kind, int(number)) for kind, number in pairs]


# In the process that has imported everything


def _import_all() -> None:
    import matplotlib.pyplot
    import pillow_heif
    from PIL import Image

    import visvm.bench.estimate
    import visvm.bench.report.write
    import visvm.bench.runner
    import visvm.cli.main
    import visvm.encoders.onnx
    import visvm.encoders.text_tower
    import visvm.image_classifier
    import visvm.learning.choosing
    import visvm.learning.session
    import visvm.service.server
    from tests.fuzz.judge import _application

    Image.init()
    pillow_heif.register_heif_opener()
    matplotlib.pyplot.figure()
    matplotlib.pyplot.close()
    _application()
    # measures this machine, which costs more than all the rest of a plan
    visvm.bench.estimate.operations_per_second = lambda: 1e10
    visvm.encoders.text_tower.load_text_encoder = _no_tower  # which imports torch, for seconds
    visvm.service.server.Server.run = lambda *_, **__: None  # serving begins, and ends at once


def _no_tower(name: str, *_: object) -> None:
    from visvm.errors import WeightsError

    raise WeightsError(f"There is no tower {name}.", code="weights-unreadable")


def _limit(usage: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (usage + ROOM, resource.RLIM_INFINITY))


def _addresses() -> int:
    """How many bytes of addresses this process has; limits count these, threads' stacks too."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _attempt(folder: Path, files: Files, inputs: Sequence[Input], writer: int) -> None:
    """Try all commands on each input, and write down how each ended; in a process of its own."""
    from tests.fuzz.inputs import make
    from tests.fuzz.judge import judged

    _limit(_addresses())
    with os.fdopen(writer, "wb", buffering=0) as pipe:
        for given in inputs:
            began = time.process_time()
            most = int(began) + CPU_SECONDS
            resource.setrlimit(resource.RLIMIT_CPU, (most, resource.RLIM_INFINITY))
            made = make(*given, files)
            before = {**files, **made.files}
            if given[0] != "journal":
                del before[JOURNAL]
            for command in made.commands:
                restore(folder, before)
                pipe.write(pickle.dumps(command))
                pipe.write(pickle.dumps(judged(command, before, lambda: found(folder))))
            pipe.write(pickle.dumps(time.process_time() - began))


def _read(reader: int, seconds: float) -> tuple[bytes, bool]:
    """Return what comes through a pipe while it pauses for so long at most, and if that is all."""
    content = b""
    while select.select([reader], [], [], seconds)[0]:
        part = os.read(reader, 1 << 16)
        if not part:
            return content, True
        content += part
    return content, False


def _told(content: bytes, inputs: Sequence[Input], status: int) -> list[Report]:
    """Return the reports on inputs of which a process has written down how they ended."""
    stream, reports, command = io.BytesIO(content), [Report()], ()
    while stream.tell() < len(content):
        told = pickle.load(stream)
        if isinstance(told, tuple):
            command = told
        elif isinstance(told, float):
            reports[-1].seconds = told
            reports.append(Report())
        else:
            reports[-1].n_commands += 1
            if told:
                failure = Failure(inputs[len(reports) - 1], ("visvm", *command), told)
                reports[-1].failures.append(failure)
    if not status:
        return reports[:-1]
    name = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else ""
    ended = {
        "": "the input could not be made",
        "SIGXCPU": f"it works for more than {CPU_SECONDS} s",
        "SIGKILL": "it hangs",
    }.get(name, f"the process died of {name}")
    reports[-1].failures.append(Failure(inputs[len(reports) - 1], ("visvm", *command), ended))
    return reports


def tried(
    folder: Path, files: Files, inputs: Sequence[Input], seconds: float = SECONDS
) -> list[Report]:
    """Try inputs of files in a process forked off this one, or in more if one of them ends it."""
    reports: list[Report] = []
    while left := inputs[len(reports) :]:
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            code = 1
            try:
                os.close(reader)
                _attempt(folder, files, left, writer)
                code = 0
            finally:
                os._exit(code)
        os.close(writer)
        content, whole = _read(reader, seconds)
        os.close(reader)
        if not whole:
            os.kill(child, signal.SIGKILL)
        _, status, used = os.wait4(child, 0)
        for report in _told(content, left, status):
            report.n_bytes = used.ru_maxrss * 1024
            reports.append(report)
    return reports


def _command_worker(folder: Path, files: Files, pipe) -> None:
    """Try inputs of files, some at a time, and report on each."""
    from tests.fuzz.judge import outcome_of

    _import_all()
    with within(folder):
        restore(folder, files)
        for command in WARM:  # what is made once and kept need not be made by every fork
            assert not outcome_of(command).wrong
        while True:
            pipe.send(tried(folder, files, pipe.recv()))


def _upload_worker(folder: Path, files: Files, pipe) -> None:
    """Answer the requests of every input, all by one service, and report on them."""
    _import_all()
    from tests.fuzz.uploads import Uploads

    with within(folder):
        restore(folder, files)
        uploads = Uploads(files, folder)
        _limit(_addresses())
        while True:
            (given,) = pipe.recv()
            before = time.process_time()
            _, wrong = uploads.judged(given[1])
            report = Report(n_commands=1, seconds=time.process_time() - before)
            report.n_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            if wrong:
                report.failures.append(Failure(given, ("visvm", "serve"), wrong))
            pipe.send([report])


# Outside


def _within_memory(given: Input, report: Report) -> Report:
    if report.n_bytes > MOST:
        report.failures.append(Failure(given, (), f"it takes {report.n_bytes / 1e6:.0f} MB"))
    return report


class Worker:
    """A process that tries inputs, and is started anew if one of them ends it."""

    def __init__(self, target, folder: Path, files: Files) -> None:
        self._given = (target, folder, files)
        self._process = None
        folder.mkdir(exist_ok=True)

    def ask(self, inputs: Sequence[Input]) -> list[Report]:
        """Try some inputs."""
        if self._process is None:
            target, *arguments = self._given
            self._pipe, theirs = CONTEXT.Pipe()
            self._process = CONTEXT.Process(target=target, args=(*arguments, theirs), daemon=True)
            self._process.start()
            theirs.close()
        self._pipe.send(inputs)
        try:
            if self._pipe.poll(2 * SECONDS * len(inputs)):
                return [
                    _within_memory(*each) for each in zip(inputs, self._pipe.recv(), strict=True)
                ]
            what = "no answer"
        except EOFError:
            what = "the process died"
        self.close()
        return [Report([Failure(given, (), what)]) for given in inputs]

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._pipe.close()
            self._process = None


def _prepare(folder: Path, pipe) -> None:
    pipe.send(prepare(folder))


def material(folder: Path) -> Files:
    """Make the files to be changed, in a process of its own."""
    place = folder / "commands"  # a journal is known by where its photos lie
    place.mkdir(parents=True)
    ours, theirs = CONTEXT.Pipe()
    process = CONTEXT.Process(target=_prepare, args=(place, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        return ours.recv()
    finally:
        process.join()
        ours.close()


def _keep(folder: Path, given: Input, files: Files) -> None:
    """Write the changed files of an input into a folder, to be looked at."""
    from tests.fuzz.inputs import make

    place = folder.absolute() / f"{given[0]}-{given[1]}"
    place.mkdir(parents=True, exist_ok=True)
    with within(place):
        for name, content in make(*given, files).files.items():
            (place / name.replace("/", "-")).write_bytes(content)


def campaign(files: Files, folder: Path, inputs: Iterable[Input], keep: Path | None = None):
    """Try inputs in the folder of a material; yield each with its report.

    The changed files of those that fail are written below `keep`.
    """
    commands = Worker(_command_worker, folder / "commands", files)
    uploads = Worker(_upload_worker, folder / "uploads", files)
    rest = iter(inputs)
    try:
        while some := list(islice(rest, AT_ONCE)):
            reports = {each: uploads.ask([each])[0] for each in some if each[0] == "upload"}
            others = [each for each in some if each[0] != "upload"]
            reports |= zip(others, commands.ask(others), strict=True) if others else ()
            for given in some:
                if reports[given].failures and keep is not None and given[0] != "upload":
                    _keep(keep, given, files)
                yield given, reports[given]
    finally:
        commands.close()
        uploads.close()
