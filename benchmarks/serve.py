"""How many images a second `visvm serve` answers, beside the bare encoder.

    python -m benchmarks.serve [--seconds 60] [--clients 200] [--encoder dinov2-s14]

A model learns the digits and is served by a process of its own. Each client asks it one photo after
another: pieces of a photograph, as JPEGs of about 300 pixels. In turn with that, the bare encoder
gets batches of eight of the same pixels for as long. Of three turns, the best of each counts. The
clients run on the same cores, and their work counts against the service. Writes SERVE.md beside
this file.
"""

import argparse
import asyncio
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import httpx
import numpy as np

from tests.tiny import pieces
from visvm import ImageClassifier, load_encoder
from visvm.bench.digits import digit_pictures
from visvm.encoders.images import decode
from visvm.encoders.pipeline import BATCH_SIZE
from visvm.encoders.transform import Transform

HERE = Path(__file__).parent
TURNS = 3


def encoder_speed(name: str, photos: list[bytes], seconds: float) -> float:
    """Return how many images a second the bare encoder takes in batches."""
    encoder = load_encoder(name)
    transform = Transform("crop", encoder.preprocessing)
    batch = np.stack([decode(photo, transform) for photo in photos[:BATCH_SIZE]])
    encoder.encode(batch)
    began, n = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        encoder.encode(batch)
        n += len(batch)
    return n / (time.perf_counter() - began)


def resident_bytes(process: int) -> int:
    """Return the memory that a process holds."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def request(address: str, photo: bytes) -> bytes:
    """Return a predict request as it goes over the wire."""
    built = httpx.Request("POST", f"{address}/api/predict", files={"images": ("p.jpg", photo)})
    head = "".join(f"{name}: {value}\r\n" for name, value in built.headers.items())
    return f"POST /api/predict HTTP/1.1\r\n{head}\r\n".encode() + built.read()


async def exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, wire: bytes
) -> tuple[int, bytes]:
    """Send a request and return the status and head of its answer.

    By hand, as a client library would take as long as the service does.
    """
    writer.write(wire)
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
    await reader.readexactly(int(length[1]))
    return int(head.split(b" ", 2)[1]), head


async def load(
    address: str, photos: list[bytes], n_clients: int, seconds: float, process: int
) -> dict:
    """Let clients ask, and return what they saw."""
    statuses: Counter[int] = Counter()
    times: list[float] = []
    memory: list[int] = []
    wires = [request(address, photo) for photo in photos]
    host, port = address.removeprefix("http://").split(":")
    until = time.perf_counter() + seconds

    async def client(number: int) -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        turn = number
        while time.perf_counter() < until:
            began, turn = time.perf_counter(), turn + n_clients
            status, head = await exchange(reader, writer, wires[turn % len(wires)])
            statuses[status] += 1
            if status == 503:
                assert b"retry-after" in head.lower()
                await asyncio.sleep(1)
            elif time.perf_counter() < until:
                times.append(time.perf_counter() - began)
        writer.close()

    async def watch() -> None:
        while time.perf_counter() < until:
            memory.append(resident_bytes(process))
            await asyncio.sleep(0.5)

    await asyncio.gather(watch(), *(client(number) for number in range(n_clients)))
    return {
        "statuses": dict(statuses),
        "times": sorted(times),
        "memory": memory,
        "speed": len(times) / seconds,
    }


def serve(model: Path, arguments: argparse.Namespace, photos: list[bytes]) -> dict:
    """Start the service, warm it up, and put it under load."""
    command = [sys.executable, "-m", "visvm", "serve", str(model), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            found = re.search(r"http://\S+", process.stdout.readline())
            assert found, "the service did not start"
            for _ in range(3):
                httpx.post(
                    f"{found[0]}/api/predict", files={"images": ("p.jpg", photos[0])}, timeout=60
                ).raise_for_status()
            return asyncio.run(
                load(found[0], photos, arguments.clients, arguments.seconds, process.pid)
            )
        finally:
            process.terminate()


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--encoder", default="dinov2-s14")
    arguments = parser.parse_args()
    photos = pieces("china.jpg", 32, 0) + pieces("flower.jpg", 32, 1)
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "digits.visvm"
        classifier = ImageClassifier(arguments.encoder)
        names, contents = zip(*digit_pictures(0, 10), strict=True)
        classifier.learn(list(contents), list(names))
        classifier.save(model)
        bare, rounds = [], []
        for _ in range(TURNS):
            bare.append(encoder_speed(arguments.encoder, photos, arguments.seconds))
            rounds.append(serve(model, arguments, photos))
    text = report(arguments, bare, rounds)
    (HERE / "SERVE.md").write_text(text, encoding="utf-8")
    print(text)


def report(arguments: argparse.Namespace, bare: list[float], rounds: list[dict]) -> str:
    """Return SERVE.md."""
    found = max(rounds, key=lambda each: each["speed"])
    statuses = sum((Counter(each["statuses"]) for each in rounds), Counter())
    times, memory = found["times"], found["memory"]
    waits = f"{times[len(times) // 2]:.1f} / {times[int(0.99 * len(times))]:.1f} s"
    sizes = " / ".join(f"{n / 2**20:.0f}" for n in (memory[0], max(memory), memory[-1]))
    rows = {
        f"bare encoder, batches of {BATCH_SIZE}, images a second": _speeds(bare),
        "the service, images a second": _speeds([each["speed"] for each in rounds]),
        "ratio of the best (wanted: at most 1.2)": f"{max(bare) / found['speed']:.3f}",
        "answers by status, in all": ", ".join(
            f"{key}: {n}" for key, n in sorted(statuses.items())
        ),
        "time to answer, median / 99 %": waits,
        "memory of the service, at first / at most / at last": f"{sizes} MiB",
    }
    machine = f"{arguments.encoder}, {os.cpu_count()} cores, Python {platform.python_version()}"
    lines = [
        "# `visvm serve` under load",
        "",
        "Written by `python -m benchmarks.serve`, which says what is measured.",
        "",
        f"{arguments.clients} predict requests in flight for {arguments.seconds:g} s, {machine}.",
        "",
        "| | |",
        "|---|---:|",
        *(f"| {name} | {value} |" for name, value in rows.items()),
    ]
    return "\n".join(lines) + "\n"


def _speeds(speeds: list[float]) -> str:
    return " / ".join(f"{speed:.2f}" for speed in speeds)


if __name__ == "__main__":
    main()
