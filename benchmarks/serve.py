"""How many images a second `visvm serve` answers, beside the bare encoder.

    python -m benchmarks.serve [--seconds 60] [--clients 200] [--encoder dinov2-s14]

A model learns the digits, is served by a process of its own, and so many clients ask it one photo after the other, each a piece
of a photograph as a JPEG of some 300 pixels. Before and after, in this process, the encoder gets batches of eight of the same
pixels. Both run on the same cores, so the clients' own work counts against the service. Writes SERVE.md beside this file.
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

from tests.end_to_end.screenshots import pieces
from visvm import ImageClassifier, load_encoder
from visvm.digits import digit_pictures
from visvm.encoders.images import Transform, decode
from visvm.encoders.pipeline import BATCH_SIZE

HERE = Path(__file__).parent


def encoder_speed(name: str, photos: list[bytes], seconds: float) -> float:
    """Images a second that the bare encoder takes in batches, best of five parts."""
    encoder = load_encoder(name)
    transform = Transform("crop", encoder.preprocessing)
    batch = np.stack([decode(photo, transform) for photo in photos[:BATCH_SIZE]])
    encoder.encode(batch)
    speeds = []
    for _ in range(5):
        began, n = time.perf_counter(), 0
        while time.perf_counter() - began < seconds / 5:
            encoder.encode(batch)
            n += len(batch)
        speeds.append(n / (time.perf_counter() - began))
    return max(speeds)


def resident_bytes(process: int) -> int:
    """Memory that a process holds."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def load(address: str, photos: list[bytes], n_clients: int, seconds: float, process: int) -> dict:
    """Let so many clients ask for so long."""
    statuses: Counter[str] = Counter()
    times: list[float] = []
    memory: list[int] = []
    until = time.perf_counter() + seconds

    async def client(session: httpx.AsyncClient, number: int) -> None:
        turn = number
        while time.perf_counter() < until:
            began, turn = time.perf_counter(), turn + n_clients
            answer = await session.post("/api/predict", files={"images": ("p.jpg", photos[turn % len(photos)])})
            statuses[str(answer.status_code)] += 1
            if answer.status_code == 503:
                assert int(answer.headers["retry-after"]) > 0
                await asyncio.sleep(1)
            elif time.perf_counter() < until:
                times.append(time.perf_counter() - began)

    async def watch() -> None:
        while time.perf_counter() < until:
            memory.append(resident_bytes(process))
            await asyncio.sleep(0.5)

    pool = httpx.Limits(max_connections=n_clients, max_keepalive_connections=n_clients)
    async with httpx.AsyncClient(base_url=address, timeout=120, limits=pool) as session:
        await asyncio.gather(watch(), *(client(session, number) for number in range(n_clients)))
    return {"statuses": dict(statuses), "times": sorted(times), "memory": memory, "speed": len(times) / seconds}


def serve(model: Path, arguments: argparse.Namespace, photos: list[bytes]) -> dict:
    """Start the service, warm it up, and load it."""
    command = [sys.executable, "-m", "visvm.cli", "serve", str(model), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            found = re.search(r"http://\S+", process.stdout.readline())
            assert found, "the service did not start"
            for _ in range(3):
                httpx.post(f"{found[0]}/api/predict", files={"images": ("p.jpg", photos[0])}, timeout=60).raise_for_status()
            return asyncio.run(load(found[0], photos, arguments.clients, arguments.seconds, process.pid))
        finally:
            process.terminate()


def main() -> None:
    """Measure, print and keep."""
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
        before = encoder_speed(arguments.encoder, photos, 20)
        found = serve(model, arguments, photos)
        after = encoder_speed(arguments.encoder, photos, 20)
    bare = max(before, after)
    times, memory = found["times"], found["memory"]
    sizes = " / ".join(f"{n / 2**20:.0f}" for n in (memory[0], max(memory), memory[-1]))
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}"
    lines = [
        "# `visvm serve` under load",
        "",
        "Written by `python -m benchmarks.serve`, which says what is measured.",
        "",
        f"{arguments.clients} predict requests in flight for {arguments.seconds:g} s, {arguments.encoder}, {machine}.",
        "",
        "| | |",
        "|---|---:|",
        f"| bare encoder, batches of {BATCH_SIZE}, before / after | {before:.2f} / {after:.2f} images a second |",
        f"| the service | {found['speed']:.2f} images a second |",
        f"| ratio (wanted: at most 1.2) | {bare / found['speed']:.3f} |",
        f"| answers by status | {', '.join(f'{status}: {n}' for status, n in sorted(found['statuses'].items()))} |",
        f"| time to answer, median / 99 % | {times[len(times) // 2]:.1f} / {times[int(0.99 * len(times))]:.1f} s |",
        f"| memory of the service, at first / at most / at last | {sizes} MiB |",
    ]
    text = "\n".join(lines) + "\n"
    (HERE / "SERVE.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
