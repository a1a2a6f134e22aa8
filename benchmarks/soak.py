"""Whether `visvm serve` grows, slows down or loses anything in an hour.

    python -m benchmarks.soak [--minutes 70] [--every 15] [--out benchmarks]
    python -m benchmarks.soak --report benchmarks/soak.jsonl     # draws the page anew

Linux only. Two services of one model file run with the small encoder of the tests, on a disk of
64 MB (tmpfs, in a mount namespace of its own). The first is never restarted: it is the one that is
watched. All the time both are asked (`soak_load.py` says how), and taught, corrected and made to
rename and forget classes; clients open connections and never read. On a timetable, 300 questions
come at once; the second service is stopped or killed and started anew; the disk is full for a
while; the clock is set back by two days, and the model file gets a date in the future, as it would
have then. After every restart and every full disk, both services must know exactly what was
acknowledged. At the end both are stopped, and a new one must know it too; the memory that it takes
after a burst and a few changes is what the model needs by now, however long a service has run.

Writes soak.jsonl (one line for every `--every` seconds), soak.png and SOAK.md. Exit code 1 if
anything went wrong.
"""

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import numpy as np

from benchmarks import soak_load as load
from benchmarks.soak_report import write_report
from benchmarks.soak_server import Place, Server
from tests import tiny
from visvm.model.file import read

HERE = Path(__file__).parent
DISK = "64m"
SET_BACK = 2 * 24 * 3600
Event = Callable[[load.Soak], Coroutine[Any, Any, None]]


async def stop(soak: load.Soak, name: str, number: int) -> None:
    """End a service, which is to have said nothing but that it waited for the other one."""
    code, said = await asyncio.to_thread(soak.servers[name].stop, number)
    waited = [line for line in said.splitlines() if line.startswith("Another process is changing")]
    soak.seen["starts that waited for the other service, and said so"] += len(waited)
    if len(waited) < len(said.splitlines()) or code not in (0, -signal.SIGKILL):
        soak.fault(f"the {name} service ended with {code}: {said}")


async def restart(soak: load.Soak, number: int) -> None:
    """Stop or kill the second service in the middle of its work, and start it anew."""
    soak.restarting.add("second")
    await stop(soak, "second", number)
    soak.servers["second"] = await asyncio.to_thread(Server, soak.place, "second")
    await soak.clients["second"].aclose()
    soak.clients["second"] = _client(soak.servers["second"])
    soak.restarting.discard("second")
    soak.seen[f"restarts after {signal.Signals(number).name}"] += 1
    async with soak.resting:
        for name in soak.clients:
            await load.check_ledger(soak, name)


async def fill_disk(soak: load.Soak, seconds: float) -> None:
    """Leave no room for a while: changes are refused, questions answered; then all goes on."""
    async with soak.resting:
        soak.full = True
        soak.place.fill()
    files = {"images": load.large_picture()}
    answer = await soak.clients["first"].post("/api/predict", files=files)
    if answer.status_code != 507:
        soak.fault(f"a large upload to a full disk: {answer.status_code} {answer.text}")
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        await asyncio.sleep(1)
    async with soak.resting:
        soak.place.free()
        soak.full = False
        for name in soak.clients:
            await load.check_ledger(soak, name)
    soak.seen["times the disk was full"] += 1


async def set_clock_back(soak: load.Soak) -> None:
    """Set the clock of both services back, for good."""
    async with soak.resting:
        soak.place.offset.write_text(str(-SET_BACK))
        future = time.time() + SET_BACK
        os.utime(soak.place.model, (future, future))
        for name in soak.clients:
            await load.check_ledger(soak, name)
    soak.seen["times the clock was set back"] += 1


def timetable(seconds: float) -> list[tuple[float, Event]]:
    """Return what happens when, in seconds from the start."""
    full = min(60.0, seconds / 12)
    planned: list[tuple[float, Event]] = [
        (0.24, lambda soak: fill_disk(soak, full)),
        (0.5, set_clock_back),
        (0.64, lambda soak: fill_disk(soak, full)),
    ]
    numbers = (signal.SIGTERM, signal.SIGKILL)
    for turn in range(16):
        planned.append((0.03 + 0.06 * turn, lambda soak, n=numbers[turn % 2]: restart(soak, n)))
        planned.append((0.055 + 0.06 * turn, load.burst))
    return [(part * seconds, event) for part, event in sorted(planned, key=lambda each: each[0])]


async def follow(soak: load.Soak, planned: list[tuple[float, Event]]) -> None:
    """Do what the timetable says."""
    began = time.monotonic()
    for at, event in planned:
        await asyncio.sleep(max(0.0, at - (time.monotonic() - began)))
        if not soak.over:
            await event(soak)


async def watch(soak: load.Soak, every: float, rows: Path) -> None:
    """Write a line about the first service every few seconds."""
    began = time.monotonic()
    with rows.open("w", encoding="utf-8") as file:
        while not soak.over:
            await asyncio.sleep(every)
            times, soak.latencies = sorted(soak.latencies), []
            row = {
                "minutes": round((time.monotonic() - began) / 60, 3),
                **soak.servers["first"].usage(),
                "n": len(times),
                "p50": times[len(times) // 2] if times else None,
                "p99": times[int(0.99 * len(times))] if times else None,
                "file": soak.place.model.stat().st_size if soak.place.model.exists() else 0,
                "changes": soak.changes.total(),
                "questions": soak.statuses.total(),
                "full": soak.full,
                "burst": soak.bursting,
                "load": os.getloadavg()[0],
                "faults": len(soak.faults),
            }
            file.write(json.dumps(row) + "\n")
            file.flush()


def _client(server: Server) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=server.address, timeout=180
    )  # the service itself gives up after 60 s


async def run(soak: load.Soak, minutes: float, every: float, rows: Path) -> None:
    """Keep both services busy until the time is up, and see what is left."""
    await load.begin(soak)
    await asyncio.gather(
        load.ask(soak, "first", 0.25),
        load.ask(soak, "second", 1.0),
        load.make_changes(soak, 1.5),
        load.never_read(soak, 5.0),
        follow(soak, timetable(60 * minutes)),
        watch(soak, every, rows),
    )
    soak.restarting.update(soak.servers)
    for name in soak.servers:
        began = time.monotonic()
        await stop(soak, name, signal.SIGTERM)
        soak.seen[f"seconds the {name} service took to stop"] = round(time.monotonic() - began)
    soak.servers["first"] = Server(soak.place, "first")
    soak.clients["first"] = _client(soak.servers["first"])
    await load.check_ledger(soak, "first")
    # what the model itself takes by now, which is no leak
    await load.burst(soak)
    for _ in range(5):
        await load.teach(soak, 1)
    soak.anew = soak.servers["first"].usage()["rss"]
    soak.servers["first"].stop(signal.SIGKILL)
    read(soak.place.model)  # checks every digest
    left = sorted(each.name for each in soak.place.disk.iterdir())
    if not set(left) <= {"m.visvm", ".m.visvm.lock", ".m.visvm.undo", "temporary"}:
        soak.fault(f"files were left: {left}")


def main() -> int:
    """Measure, print and write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=70)
    parser.add_argument("--every", type=float, default=15, help="seconds between two lines")
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--report", type=Path, help="only write the page from these lines")
    given = parser.parse_args()
    if given.report is not None:
        print(write_report(given.report))
        return 0
    if "VISVM_SOAK" not in os.environ:  # a disk of one's own needs a mount namespace
        alone = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
        command = [*alone, sys.executable, "-m", "benchmarks.soak", *sys.argv[1:]]
        return subprocess.run(
            command, env={**os.environ, "VISVM_SOAK": "1"}, check=False
        ).returncode
    for number in (signal.SIGINT, signal.SIGTERM):  # also in the background: leave nothing behind
        signal.signal(number, signal.default_int_handler)
    rows = given.out / "soak.jsonl"
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        disk = folder / "disk"
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "soak", disk], check=True)
        stack.callback(subprocess.run, ["umount", "--lazy", disk], check=True)
        place = Place(disk, tiny.write_encoder(folder))
        place.offset.write_text("0")
        servers: dict[str, Server] = {}
        stack.callback(lambda: [each.process.kill() for each in servers.values()])
        for name in ("first", "second"):
            servers[name] = Server(place, name)
        clients = {name: _client(server) for name, server in servers.items()}
        until = time.monotonic() + 60 * given.minutes
        soak = load.Soak(place, servers, clients, np.random.default_rng(0), until)
        asyncio.run(run(soak, given.minutes, given.every, rows))
        facts = {
            "minutes": given.minutes,
            "disk": DISK,
            "statuses": soak.statuses,
            "changes": soak.changes,
            "seen": soak.seen,
            "sessions": len(read(place.model).sessions),
            "anew": soak.anew,
            "faults": soak.faults,
        }
        with rows.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"facts": facts}) + "\n")
    print(write_report(rows))
    return bool(soak.faults)


if __name__ == "__main__":
    raise SystemExit(main())
