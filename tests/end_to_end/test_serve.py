"""`visvm serve` as a process: kill -9, Ctrl+C, another port, questions while it learns."""

import io
import os
import random
import signal
import socket
import threading
import time

import httpx
import pytest
from PIL import Image

from tests import tiny
from tests.end_to_end.process import Server, end_of, running, teach
from visvm import ImageClassifier

pytestmark = pytest.mark.slow

KILLS = 8


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("serve")
    tiny.write_encoder(folder)
    tiny.write_photos(folder / "base", n=5)
    return folder


@pytest.fixture(scope="module")
def contents(place):
    return [path.read_bytes() for path in sorted((place / "base/red").iterdir())]


@pytest.mark.kill
def test_kill_9_at_any_time_loses_nothing_that_was_acknowledged(place, contents, tmp_path):
    model, acknowledged, chance = tmp_path / "m.visvm", [], random.Random(0)
    for round_ in range(KILLS):
        server = Server(model, place / "tiny.onnx")
        killer = threading.Timer(
            chance.uniform(0.05, 0.6),
            lambda running=server: running.process.send_signal(signal.SIGKILL),
        )
        with server.client() as client:
            known = {each["label"] for each in client.get("/api/model").json()["classes"]}
            assert set(acknowledged) <= known, "an acknowledged session was lost"
            try:
                for number in range(10_000):
                    label = f"class {round_} {number}"
                    job = teach(client, contents, label)
                    if number == round_ % 2:  # the very first session too
                        killer.start()
                    if end_of(client, job)["state"] == "done":
                        acknowledged.append(label)
            except (httpx.TransportError, ValueError):
                pass
        killer.join()
        server.kill()
        assert {each.name for each in tmp_path.iterdir()} <= {
            "m.visvm",
            ".m.visvm.lock",
            ".m.visvm.part",
            ".m.visvm.undo",
            "..m.visvm.undo.part",
        }
    assert len(acknowledged) > KILLS
    kept = ImageClassifier.load(model).classes_
    assert set(acknowledged) <= set(kept)
    # at most one of each round was written and not yet acknowledged
    assert len(kept) <= len(acknowledged) + KILLS


def test_questions_are_answered_while_a_session_is_learned(place, contents, tmp_path):
    with running(tmp_path / "m.visvm", place / "tiny.onnx") as server, server.client() as client:
        end_of(client, teach(client, contents, "red"))
        statuses, stop = [], threading.Event()

        def keep_asking():
            with server.client() as own:
                while not stop.is_set():
                    statuses.append(
                        own.post("/api/predict", files={"images": contents[0]}).status_code
                    )

        askers = [threading.Thread(target=keep_asking) for _ in range(4)]
        for asker in askers:
            asker.start()
        jobs = [teach(client, contents, f"class {number}") for number in range(5)]
        assert [end_of(client, job)["state"] for job in jobs] == ["done"] * 5
        stop.set()
        for asker in askers:
            asker.join()
        assert set(statuses) == {200}
        assert len(client.get("/api/model").json()["classes"]) == 6


def test_what_nobody_waits_for_any_more_is_not_learned(place, contents, tmp_path):
    large = io.BytesIO()
    Image.effect_noise((3000, 3000), 90).save(large, "PNG")  # which takes its time to be looked at
    with running(tmp_path / "m.visvm", place / "tiny.onnx") as server, server.client() as client:
        end_of(client, teach(client, contents, "red"))
        asked = client.build_request(
            "POST", "/api/learn", files={"images": large.getvalue()}, data={"labels": ["ghost"]}
        )
        head = "".join(f"{name}: {value}\r\n" for name, value in asked.headers.items())
        with socket.create_connection(("127.0.0.1", int(server.port))) as connection:
            connection.sendall(f"POST /api/learn HTTP/1.1\r\n{head}\r\n".encode() + asked.read())
        end_of(client, teach(client, contents, "green"))
        until = time.monotonic() + 3
        while time.monotonic() < until:
            assert [each["label"] for each in client.get("/api/model").json()["classes"]] == [
                "green",
                "red",
            ]
            time.sleep(0.2)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_it_in_good_order(place, contents, tmp_path, number):
    server = Server(tmp_path / "m.visvm", place / "tiny.onnx", forked=False)
    with server.client() as client:
        end_of(client, teach(client, contents, "red"))
    server.process.send_signal(number)
    assert server.process.wait(20) == 0
    assert server.process.stdout.read() == ""
    server.process.stdout.close()
    assert ImageClassifier.load(tmp_path / "m.visvm").classes_ == ("red",)


def test_a_token_is_taken_from_the_environment(place, tmp_path):
    token = "a-long-and-random-word"
    with running(
        tmp_path / "m.visvm",
        place / "tiny.onnx",
        "--host",
        "0.0.0.0",
        environment={"VISVM_TOKEN": token},
    ) as server:
        address = f"http://127.0.0.1:{server.port}/api/model"
        assert httpx.get(address).status_code == 401
        assert httpx.get(address, headers={"Authorization": f"Bearer {token}"}).status_code == 200


@pytest.mark.parametrize(
    ("options", "environment", "words"),
    [
        (["--host", "0.0.0.0"], {}, ["VISVM_TOKEN"]),
        (["--host", "0.0.0.0"], {"VISVM_TOKEN": "short"}, ["16"]),
        (["--host", "no.such.host.invalid"], {"VISVM_TOKEN": "x" * 20}, ["no.such.host.invalid"]),
        (["--encoder", "nonsense"], {}, ["nonsense"]),
        (["--ridge", "-1"], {}, ["--ridge must"]),
        (["--components", "0"], {}, ["--components must"]),
        (["--port", "99999"], {}, ["port"]),
    ],
)
def test_what_cannot_be_served_is_reported_in_one_line(
    visvm, monkeypatch, place, tmp_path, options, environment, words
):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    given = [] if "--encoder" in options else ["--encoder", place / "tiny.onnx"]
    code, out, err = visvm("serve", tmp_path / "m.visvm", *given, *options)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert all(word in err for word in words)
    assert not (tmp_path / "m.visvm").exists()


def test_a_taken_port_is_reported(visvm, place, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, _, err = visvm(
            "serve",
            tmp_path / "m.visvm",
            "--encoder",
            place / "tiny.onnx",
            "--port",
            taken.getsockname()[1],
        )
    assert code == 2
    assert "--port" in err
    assert len(err.splitlines()) == 1


@pytest.mark.skipif(os.name != "posix", reason="needs /proc")
def test_uploads_leave_nothing_behind(place, contents, tmp_path):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    with running(
        tmp_path / "m.visvm",
        place / "tiny.onnx",
        environment={"TMPDIR": str(temporary)},
    ) as server:
        with server.client() as client:
            large = contents[0] + b"\0" * (3 << 20)  # more than is held in memory
            assert end_of(client, teach(client, [large, large], "red"))["state"] == "done"
            time.sleep(0.2)
        open_files = [
            os.readlink(f"/proc/{server.process.pid}/fd/{each}")
            for each in os.listdir(f"/proc/{server.process.pid}/fd")
        ]
        assert not [each for each in open_files if str(tmp_path) in each and "deleted" in each]
        assert sum(each.stat().st_size for each in temporary.rglob("*")) < 1 << 20
        assert {each.name for each in tmp_path.iterdir()} == {
            "m.visvm",
            "temporary",
        }
