"""The services of the soak test: how they are started, watched and stopped."""

import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.serve import resident_bytes


@dataclass(frozen=True)
class Place:
    """Where a soak test works: a small disk of its own."""

    disk: Path
    encoder: Path

    @property
    def model(self) -> Path:
        """The model that is served."""
        return self.disk / "m.visvm"

    @property
    def offset(self) -> Path:
        """How far the clock is off, in seconds."""
        return self.encoder.parent / "offset"

    def fill(self) -> None:
        """Leave no room on the disk."""
        with (self.disk / "filler").open("wb", buffering=0) as file:
            for size in (1 << 16, 1 << 12, 1):
                try:
                    while file.write(bytes(size)) == size:
                        pass
                except OSError:
                    continue

    def free(self) -> None:
        """Make room again."""
        (self.disk / "filler").unlink(missing_ok=True)


class Server:
    """A running `visvm serve`.

    Attributes
    ----------
    address : str
    process : subprocess.Popen
    """

    def __init__(self, place: Place, name: str) -> None:
        command = [sys.executable, "-m", "benchmarks.soak_clock", str(place.offset)]
        options = ["--port", "0", "--encoder", str(place.encoder)]
        if not place.model.exists():
            options += ["--components", "60", "--ridge", "1"]
        temporary = place.disk / "temporary"
        temporary.mkdir(exist_ok=True)
        self._log = place.encoder.parent / f"{name}.log"
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                [*command, "serve", str(place.model), *options],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, "TMPDIR": str(temporary), "OMP_NUM_THREADS": "1"},
            )
        assert self.process.stdout is not None
        found = re.search(r"http://\S+", self.process.stdout.readline())
        if not found:
            raise RuntimeError(f"the service did not start: {self.stop(signal.SIGKILL)[1]}")
        self.address = found[0]

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.address.rsplit(":", 1)[1])

    def usage(self) -> dict[str, float]:
        """Return what the process holds: bytes, descriptors, threads, seconds of CPU."""
        pid = self.process.pid
        own = Path(f"/proc/{pid}")
        fields = (own / "stat").read_text().rpartition(") ")[2].split()
        ticks = os.sysconf("SC_CLK_TCK")
        return {
            "rss": resident_bytes(pid),
            "decoders": sum(_resident(child) for child in _below(pid)),
            "descriptors": len(os.listdir(own / "fd")),
            "threads": int(fields[17]),
            "cpu": (int(fields[11]) + int(fields[12])) / ticks,
        }

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """End it; returns its exit code, and what it has logged, which is to be nothing."""
        self.process.send_signal(number)
        code = self.process.wait(60)
        assert self.process.stdout is not None
        said = self.process.stdout.read()
        self.process.stdout.close()
        return code, said + self._log.read_text()


def _below(pid: int) -> list[int]:
    """Return the children of all threads of a process."""
    found = []
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            found += Path(f"/proc/{pid}/task/{task}/children").read_text().split()
        except FileNotFoundError:  # the thread has ended
            continue
    return [int(each) for each in found]


def _resident(pid: int) -> int:
    try:
        return resident_bytes(pid)
    except (FileNotFoundError, ProcessLookupError):
        return 0
