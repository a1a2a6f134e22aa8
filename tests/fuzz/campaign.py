"""Give every command files that were changed, under limits of memory and of time.

What is expected: exit code 0, or 2 with one line; no traceback, nothing that steers a terminal, no
lack of memory, no waiting; after a refusal all files as they were; and what was written can be
read. Each input is tried in a process forked off one that has imported everything, and each upload
by a service that lives on. ``make fuzz MINUTES=10`` goes on for so long and prints what it found;
``python -m tests.fuzz --input model:7`` tries one input.
"""

import os
import pickle
import resource
import select
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.forked import CONTEXT
from tests.fuzz.material import Files, found, prepare, restore, within

CPU_SECONDS, SECONDS = 20, 120.0  # for one input: of work, and with waiting for the machine
ROOM = 2**30  # bytes of addresses beside what Python and its packages take
MOST = 10**9  # bytes of memory, with all that is imported
ORDER = (
    *("model", "upload", "model", "picture", "model", "journal", "torn_model", "model", "upload"),
    *("model", "picture", "recipe", "model", "upload", "table", "model", "encoder", "model"),
    *("picture", "weights", "model", "upload", "rows", "pickles", "model"),
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
    visvm.service.server.Server.run = lambda *_, **__: None  # serving begins, and ends at once


def _limit(usage: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (usage + ROOM, resource.RLIM_INFINITY))


def _addresses() -> int:
    """How many bytes of addresses this process has; limits count these, threads' stacks too."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _attempt(folder: Path, files: Files, given: Input, writer: int) -> None:
    """Try all commands on an input, and write down how each ended; in a process of its own."""
    from tests.fuzz.inputs import make
    from tests.fuzz.judge import judged

    _limit(_addresses())
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))
    with os.fdopen(writer, "wb", buffering=0) as pipe:
        made = make(*given, files)
        before = {**files, **made.files}
        if given[0] != "journal":
            del before[".x.visvm.journal"]
        for command in made.commands:
            restore(folder, before)
            pipe.write(pickle.dumps((command, None)))
            pipe.write(pickle.dumps((command, judged(command, before, lambda: found(folder)))))


def _read(reader: int, until: float) -> tuple[bytes, bool]:
    """Return what comes through a pipe up to a time, and whether that is all."""
    content = b""
    while select.select([reader], [], [], max(0.0, until - time.monotonic()))[0]:
        part = os.read(reader, 1 << 16)
        if not part:
            return content, True
        content += part
    return content, False


def _tell(content: bytes, given: Input, status: int, report: Report) -> None:
    """Enter into a report what a process has written down, and how it ended."""
    import io

    stream, command, what = io.BytesIO(content), (), ""
    while stream.tell() < len(content):
        command, what = pickle.load(stream)
        if what is not None:
            report.n_commands += 1
            if what:
                report.failures.append(Failure(given, ("visvm", *command), what))
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        late = {"SIGXCPU": f"it works for more than {CPU_SECONDS} s", "SIGKILL": "it hangs"}
        ended = late.get(name, f"the process died of {name}")
        report.failures.append(Failure(given, ("visvm", *command), ended))
    elif os.WEXITSTATUS(status):
        report.failures.append(Failure(given, (), "the input could not be made"))


def tried(folder: Path, files: Files, given: Input, seconds: float = SECONDS) -> Report:
    """Try an input of files in a process forked off this one, in the folder it works in."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        code = 1
        try:
            os.close(reader)
            _attempt(folder, files, given, writer)
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    content, whole = _read(reader, time.monotonic() + seconds)
    os.close(reader)
    if not whole:
        os.kill(child, signal.SIGKILL)
    _, status, used = os.wait4(child, 0)
    report = Report(seconds=used.ru_utime + used.ru_stime, n_bytes=used.ru_maxrss * 1024)
    _tell(content, given, status, report)
    return report


def _command_worker(folder: Path, files: Files, pipe) -> None:
    """Try inputs of files, one after the other, and report on each."""
    _import_all()
    with within(folder):
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
            given = pipe.recv()
            before = time.process_time()
            _, wrong = uploads.judged(given[1])
            report = Report(n_commands=1, seconds=time.process_time() - before)
            report.n_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            if wrong:
                report.failures.append(Failure(given, ("visvm", "serve"), wrong))
            pipe.send(report)


# Outside


class Worker:
    """A process that tries inputs, and is started anew if one of them ends it."""

    def __init__(self, target, folder: Path, files: Files) -> None:
        self._given = (target, folder, files)
        self._process = None
        folder.mkdir(exist_ok=True)

    def ask(self, given: Input) -> Report:
        """Try an input."""
        if self._process is None:
            target, *arguments = self._given
            self._pipe, theirs = CONTEXT.Pipe()
            self._process = CONTEXT.Process(target=target, args=(*arguments, theirs), daemon=True)
            self._process.start()
            theirs.close()
        self._pipe.send(given)
        try:
            if self._pipe.poll(2 * SECONDS):
                report = self._pipe.recv()
                if report.n_bytes > MOST:
                    most = f"it takes {report.n_bytes / 1e6:.0f} MB"
                    report.failures.append(Failure(given, (), most))
                return report
            what = "no answer"
        except EOFError:
            what = "the process died"
        self.close()
        return Report([Failure(given, (), what)])

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
    folder.mkdir(parents=True)
    ours, theirs = CONTEXT.Pipe()
    process = CONTEXT.Process(target=_prepare, args=(folder, theirs), daemon=True)
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


def campaign(folder: Path, inputs, keep: Path | None = None):
    """Try inputs in a new folder; yield each with its report, and keep the files of failures."""
    files = material(folder / "commands")
    commands = Worker(_command_worker, folder / "commands", files)
    uploads = Worker(_upload_worker, folder / "uploads", files)
    try:
        for given in inputs:
            report = (uploads if given[0] == "upload" else commands).ask(given)
            if report.failures and keep is not None and given[0] != "upload":
                _keep(keep, given, files)
            yield given, report
    finally:
        commands.close()
        uploads.close()
