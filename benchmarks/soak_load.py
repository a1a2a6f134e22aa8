"""The load of the soak test: questions, changes with a ledger of them, and clients that misbehave.

Every change is sent under an Idempotency-Key and, when the service that got it is gone, sent again
to the other one. So the ledger is exact: after any restart the model must have exactly the classes
and counts that were acknowledged.
"""

import asyncio
import io
import json
import socket
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np
from PIL import Image

from benchmarks.serve import exchange, request
from benchmarks.soak_server import Place, Server

LABELS = [f"class {number:02d}" for number in range(24)]
FULL = ("file-unwritable", "upload-unstored")  # how a full disk is told
IN_FLIGHT = 300
PATIENCE = 300.0  # seconds for one change, which includes all tries


def picture(seed: int) -> bytes:
    """Return a small PNG of one colour with noise."""
    generator = np.random.default_rng(seed)
    pixels = generator.integers(0, 200, 3) + generator.integers(0, 56, (20, 26, 3))
    file = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).save(file, "PNG")
    return file.getvalue()


def large_picture() -> bytes:
    """Return one that is more than the service holds in memory."""
    return picture(1) + bytes(5 << 20)


@dataclass
class Soak:
    """What all parts of the load share."""

    place: Place
    servers: dict[str, Server]
    clients: dict[str, httpx.AsyncClient]
    generator: np.random.Generator
    until: float
    ledger: dict[str, list[int]] = field(default_factory=dict)  # seeds of pictures by class
    latencies: list[float] = field(default_factory=list)  # since the last sample
    statuses: Counter[str] = field(default_factory=Counter)
    changes: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)  # what has happened, and how often
    resting: asyncio.Lock = field(default_factory=asyncio.Lock)  # held while a change is made
    full: bool = False  # the disk
    restarting: set[str] = field(default_factory=set)
    bursting: bool = False
    job: str = ""  # the last one of the first service
    anew: float = 0.0  # bytes of memory of a service that was started at the end
    last_seed: int = 0

    def fault(self, what: str) -> None:
        """Note something that must not happen."""
        began = self.until - time.monotonic()
        self.faults.append(f"{began:.0f} s before the end: {what}")
        print(self.faults[-1], flush=True)

    @property
    def over(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() > self.until

    def pictures(self, n: int) -> list[int]:
        """Return the seeds of pictures that nobody has seen."""
        self.last_seed += n
        return list(range(self.last_seed - n, self.last_seed))


async def ask(soak: Soak, name: str, every: float) -> None:
    """Ask a service about one photo, now and then about eight; forever."""
    asked = 0
    photos = [picture(-number % 2**32) for number in range(1, 33)]
    while not soak.over:
        asked += 1
        n = 8 if asked % 10 == 0 else 1
        chosen = [photos[(asked + each) % len(photos)] for each in range(n)]
        files = [("images", ("p.png", each)) for each in chosen]
        began, alone = time.monotonic(), not soak.bursting
        try:
            answer = await soak.clients[name].post("/api/predict", files=files)
        except httpx.TransportError as error:
            if name not in soak.restarting:
                soak.fault(f"a question to {name} got no answer: {error!r}")
        else:
            soak.statuses[str(answer.status_code)] += 1
            late = answer.status_code == 503 and answer.json()["code"] == "prediction-timeout"
            soak.seen["questions given up after 60 s, for want of CPU"] += late
            expected = answer.status_code == 200 or name in soak.restarting or soak.bursting
            if not (expected or late):
                soak.fault(f"a question to {name}: {answer.text}")
            if n == 1 and name == "first" and alone and answer.status_code == 200:
                soak.latencies.append(time.monotonic() - began)
        await asyncio.sleep(max(0.0, every - (time.monotonic() - began)))


async def begin(soak: Soak) -> None:
    """Teach the first service something, and let the second see it."""
    await teach(soak, 1)
    # where temporary files go is decided once: while there is still room
    await soak.clients["first"].post("/api/predict", files={"images": large_picture()})
    for name in soak.clients:
        await check_ledger(soak, name)


async def teach(soak: Soak, number: int) -> None:
    """Have new photos of a class learned."""
    label, seeds = str(soak.generator.choice(LABELS)), soak.pictures(3)
    if await _make(soak, number, "learn", "/api/learn", label, seeds):
        soak.ledger[label] = soak.ledger.get(label, []) + seeds


async def make_changes(soak: Soak, every: float) -> None:
    """Teach, correct, rename and forget, in turn at both services; forever."""
    number = 1
    while not soak.over:
        number += 1
        began = time.monotonic()
        async with soak.resting:
            await _change(soak, number)
        await asyncio.sleep(max(0.0, every - (time.monotonic() - began)))


async def _change(soak: Soak, number: int) -> None:
    known = [label for label, seeds in soak.ledger.items() if len(seeds) > 3]
    kinds = ["learn", "correct", "rename", "merge", "forget-class", "evaluate"]
    odds = [0.5, 0.25, 0.08, 0.03, 0.04, 0.1] if len(known) > 4 else [1, 0, 0, 0, 0, 0]
    kind = str(soak.generator.choice(kinds, p=odds))
    unused = [label for label in LABELS if label not in soak.ledger]
    one, other = soak.generator.permutation(known if len(known) > 4 else LABELS)[:2].tolist()
    if kind == "learn" or (kind == "rename" and not unused):
        await teach(soak, number)
    elif kind == "correct":  # photos that were learned under the wrong name
        wrong = soak.ledger[one][:2]
        if await _make(soak, number, kind, "/api/forget", one, wrong):
            soak.ledger[one] = soak.ledger[one][2:]
            if await _make(soak, -number, "learn", "/api/learn", other, wrong):
                soak.ledger[other] = soak.ledger[other] + wrong
    elif kind in ("rename", "merge"):
        new = unused[0] if kind == "rename" else other
        given = {"old": one, "new": new, "merge": kind == "merge"}
        if await _make(soak, number, kind, "/api/classes/rename", given):
            soak.ledger[new] = soak.ledger.get(new, []) + soak.ledger.pop(one)
    elif kind == "forget-class":
        if await _make(soak, number, kind, "/api/classes/forget", {"label": one}):
            del soak.ledger[one]
    else:
        await _make(soak, number, kind, "/api/evaluate", one, soak.ledger[one][:4])


async def _make(
    soak: Soak, number: int, kind: str, address: str, given: Any, seeds: list[int] | None = None
) -> bool:
    """Make a change, wherever that can be done; return whether it was made."""
    sent: dict[str, Any] = {"headers": {"Idempotency-Key": f"{kind}-{number}-{soak.last_seed}"}}
    if seeds is None:
        sent["json"] = given
    else:
        sent["files"] = [("images", ("p.png", picture(seed))) for seed in seeds]
        sent["data"] = {"labels": [given]}
    names = ["first", "second"] if number % 3 else ["second", "first"]
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        outcome = await _try(soak, names[0], address, sent)
        names.reverse()
        if outcome == "done":
            soak.changes[kind] += 1
            return True
        if outcome in FULL and soak.full:
            soak.seen[f"refused on a full disk ({outcome})"] += 1
            return False
        if outcome:
            soak.fault(f"{kind} ended as {outcome}")
            return False
        soak.seen["changes sent again, to the other service"] += 1
        await asyncio.sleep(0.2)
    soak.fault(f"{kind} could not be made in {PATIENCE:.0f} s")
    return False


async def _try(soak: Soak, name: str, address: str, sent: dict[str, Any]) -> str:
    """Send a change to a service: done, the code of what failed, or nothing if it is unknown."""
    client = soak.clients[name]
    try:
        answer = await client.post(address, **sent)
        if answer.status_code in (502, 503):
            return ""
        if answer.status_code != 202:
            return str(answer.json()["code"])
        if name == "first":
            soak.job = answer.json()["id"]
        job: dict[str, Any] = {}
        async with client.stream("GET", f"{answer.headers['location']}/events") as events:
            async for line in events.aiter_lines():
                if line.startswith("data: "):
                    job = json.loads(line.removeprefix("data: "))
        if job.get("state") == "failed":
            return str(job["problem"]["code"])
        return "done" if job.get("state") == "done" else ""
    except httpx.TransportError as error:
        if name not in soak.restarting:
            soak.fault(f"a change at {name} got no answer: {error!r}")
        return ""


async def never_read(soak: Soak, every: float) -> None:
    """Open connections that take nothing of their answer, and hold them for 90 s; forever."""
    held: list[tuple[float, socket.socket]] = []
    while not soak.over:
        port = soak.servers["first"].port
        for path in (f"/api/jobs/{soak.job}/events", "/api/model/file"):
            if not soak.job:
                continue
            connection = socket.socket()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            await asyncio.to_thread(connection.connect, ("127.0.0.1", port))
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
            held.append((time.monotonic(), connection))
            soak.seen["clients that never read"] += 1
        while held and time.monotonic() - held[0][0] > 90:
            held.pop(0)[1].close()
        await asyncio.sleep(every)
    for _, connection in held:
        connection.close()


async def burst(soak: Soak) -> None:
    """Have 300 questions in flight at once, each in a connection of its own."""
    soak.bursting = True
    server = soak.servers["first"]
    wire = request(server.address, picture(7))

    def sent() -> socket.socket:
        # at once, however late this process gets its turn: slow clients are disconnected
        connection = socket.create_connection(("127.0.0.1", server.port))
        connection.sendall(wire)
        return connection

    async def one() -> None:
        reader, writer = await asyncio.open_connection(sock=sent())
        status, head = await exchange(reader, writer, b"")
        soak.seen[f"answers {status} in bursts of {IN_FLIGHT}"] += 1
        if status != 200 and not (status == 503 and b"retry-after" in head.lower()):
            soak.fault(f"an answer {status} in a burst")
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    try:
        await asyncio.gather(*(one() for _ in range(IN_FLIGHT)))
    except (OSError, asyncio.IncompleteReadError) as error:
        soak.fault(f"a burst broke off: {error!r}")
    soak.seen[f"bursts of {IN_FLIGHT} in flight"] += 1
    soak.bursting = False


async def check_ledger(soak: Soak, name: str) -> None:
    """See that a service knows exactly what was acknowledged; while no change is made."""
    expected = {label: len(seeds) for label, seeds in soak.ledger.items()}
    until = time.monotonic() + 20  # a service looks at the file every second
    while True:
        model = (await soak.clients[name].get("/api/model")).json()
        found = {each["label"]: each["n_images"] for each in model["classes"]}
        if found == expected:
            soak.seen["ledgers compared"] += 1
            return
        if time.monotonic() > until:
            soak.fault(f"{name} knows {found}, but {expected} was acknowledged")
            return
        await asyncio.sleep(0.2)
