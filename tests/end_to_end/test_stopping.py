"""`visvm serve` ends soon, whatever it does, and what was asked twice is done once."""

import os
import random
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from tests import tiny
from tests.end_to_end.process import (
    Server,
    end_of,
    hang_in_encode,
    hang_in_solve,
    hold_python,
    teach,
)
from visvm import ImageClassifier
from visvm.service.limits import Limits

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name != "posix", reason="needs signals")]

SECONDS = 60  # within which it must have ended: what hangs does so for 300


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stopping")
    tiny.write_encoder(folder)
    tiny.write_photos(folder / "base", n=5)
    return folder


@pytest.fixture(scope="module")
def contents(place):
    return [path.read_bytes() for path in sorted((place / "base/red").iterdir())]


@pytest.mark.parametrize(
    ("prepare", "number"), [(hang_in_encode, signal.SIGTERM), (hang_in_solve, signal.SIGINT)]
)
def test_it_ends_soon_whatever_is_encoded_or_learned(place, contents, tmp_path, prepare, number):
    assert Limits().stop_seconds < 10
    environment = {"HANG": str(tmp_path / "hang")}
    server = Server(
        tmp_path / "m.visvm", place / "tiny.onnx", environment=environment, prepare=prepare
    )
    with server.client() as client:
        assert end_of(client, teach(client, contents, "red"))["state"] == "done"
        (tmp_path / "hang").touch()
        job = teach(client, contents, "green")
        time.sleep(0.5)
        assert client.get(f"/api/jobs/{job}").json()["state"] == "running"
        server.process.send_signal(number)
        assert server.process.wait(SECONDS) == 0
    server.process.stdout.close()
    assert ImageClassifier.load(tmp_path / "m.visvm").classes_ == ("red",)


def test_it_ends_soon_where_no_thread_of_it_can_run(place, tmp_path):
    server = Server(tmp_path / "m.visvm", place / "tiny.onnx", prepare=hold_python)
    with server.client() as client:
        client.get("/api/health").raise_for_status()
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(SECONDS) == -signal.SIGALRM
    server.process.stdout.close()


def test_it_ends_soon_whatever_is_decoded_and_leaves_no_process(place, contents, tmp_path):
    server = Server(tmp_path / "m.visvm", place / "tiny.onnx")
    with server.client() as client:
        end_of(client, teach(client, contents, "red"))
        client.post("/api/predict", files=[("images", contents[0])] * 4).raise_for_status()
        children = children_of(server.process.pid)
        assert len(children) == 3
        for each in children:
            os.kill(each, signal.SIGSTOP)

        def ask():
            with suppress(httpx.TransportError):
                files = {"images": contents[0]}
                httpx.post(f"{server.address}/api/predict", files=files, timeout=60)

        askers = [threading.Thread(target=ask) for _ in range(12)]
        for each in askers:
            each.start()
        time.sleep(1.0)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(SECONDS) == 0
        for each in askers:
            each.join(SECONDS)
    server.process.stdout.close()
    until = time.monotonic() + SECONDS
    while [each for each in children if os.path.exists(f"/proc/{each}")]:
        assert time.monotonic() < until
        time.sleep(0.05)


def children_of(process):
    """Processes that any thread of a process has started."""
    lists = Path(f"/proc/{process}/task").glob("*/children")
    return [int(each) for found in lists for each in found.read_text().split()]


@pytest.mark.kill
def test_a_client_that_sends_again_after_kill_9_learns_once(place, contents, tmp_path):
    model, chance = tmp_path / "m.visvm", random.Random(0)
    rounds = 4
    for number in range(rounds):
        label = f"class {number}"
        server = Server(model, place / "tiny.onnx")
        killer = threading.Timer(
            chance.uniform(0.0, 0.25), server.process.send_signal, (signal.SIGKILL,)
        )
        with server.client() as client:
            try:
                if number:
                    killer.start()
                end_of(client, teach(client, contents, label, key=f"key-{number}"))
            except (httpx.TransportError, ValueError):
                pass
        if number:
            killer.join()
        server.kill()
        server = Server(model, place / "tiny.onnx")
        with server.client() as client:
            job = end_of(client, teach(client, contents, label, key=f"key-{number}"))
            assert job["state"] == "done"
            assert job["result"]["new_classes"] == [label]
            assert teach(client, contents, label, key=f"key-{number}") == job["id"]
        server.kill()
    learned = ImageClassifier.load(model)
    assert learned.class_counts_ == (len(contents),) * rounds
    assert len(learned.history_) == rounds
