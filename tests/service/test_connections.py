"""Clients that are slow on purpose, on real sockets: each is given up, and others are served."""

import asyncio
import os
import re
import socket
import threading
import time
from contextlib import ExitStack, contextmanager, suppress

import httpx
import pytest

from tests.service.conftest import photos, problem, serving
from visvm.service.limits import Limits
from visvm.service.server import Server

pytestmark = pytest.mark.slow

QUICK = {"header_seconds": 1.0, "body_seconds": 1.0, "answer_seconds": 1.0}
HALF = b"GET /api/health HTTP/1.1\r\nHost: localh"
UNREAD = b"POST /api/%b HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000\r\n"


@contextmanager
def listening(app, limits):
    """The port of an application on this machine, and its server."""
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listener:
        server, port = Server(app, limits), listener.getsockname()[1]
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield port, server
        finally:
            server.should_exit = True
            thread.join(20)
            assert not thread.is_alive()


@pytest.fixture
def served(taught, encoder, tmp_path):
    """Start a service with these limits, whose model knows three classes."""
    with ExitStack() as stack:

        def start(**limits):
            path = tmp_path / "m.visvm"
            client = stack.enter_context(serving(path, encoder, limits=Limits(**limits)))
            port, server = stack.enter_context(listening(client.app, client.service.limits))
            return port, server, client.service

        yield start


@pytest.fixture
def connect():
    """Connect to a port; all connections are closed at the end."""
    with ExitStack() as stack:

        def make(port, content=b"", **options):
            made = stack.enter_context(socket.create_connection(("127.0.0.1", port), 20))
            for name, value in options.items():
                made.setsockopt(socket.SOL_SOCKET, getattr(socket, name), value)
            made.sendall(content)
            return made

        yield make


def healthy(port):
    """Whether the service answers a client that does as it should, and soon."""
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=5) as client:
        return client.get("/api/health").status_code == 200


def given_up(connection, seconds=10.0):
    """What a connection got until the service closed it."""
    connection.settimeout(seconds)
    got = b""
    with suppress(ConnectionResetError, BrokenPipeError):
        while part := connection.recv(65536):
            got += part
    return got


def dribble(connection, content, every=0.1, seconds=10.0):
    """Send one byte after another until the service has closed the connection; how long it took."""
    began = time.monotonic()
    with suppress(ConnectionError):
        for place in range(int(seconds / every)):
            connection.sendall(content[place % len(content) :][:1])
            time.sleep(every)
        pytest.fail("nobody has closed the connection")
    return time.monotonic() - began


def eventually(what, seconds=10.0):
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_200_halves_of_a_header_are_given_up_and_hold_nobody_up(served, connect):
    port, server, _ = served(**QUICK, peer_connections=100)
    held = [connect(port, HALF) for _ in range(200)]
    assert healthy(port)
    eventually(lambda: len(server.server_state.connections) <= 100, 0.5)
    assert {given_up(each) for each in held} == {b""}
    eventually(lambda: not server.server_state.connections)


def test_a_cap_on_all_connections(served, connect):
    port, server, _ = served(connections=20)
    held = [connect(port, HALF) for _ in range(50)]
    assert healthy(port)
    eventually(lambda: len(server.server_state.connections) <= 20, 0.5)
    assert [given_up(each) for each in held[:30]] == [b""] * 30


@pytest.mark.parametrize("first", [b"", b"GET /api/health HTTP/1.1\r\nHost: localhost\r\n\r\n"])
def test_a_header_of_one_byte_at_a_time_is_given_up(served, connect, first):
    port, _, _ = served(**QUICK)
    connection = connect(port, first)
    if first:
        assert b"200 OK" in connection.recv(65536)
    took = dribble(connection, b"GET /api/health HTTP/1.1\r\nX: " + b"x" * 1000)
    assert 0.5 < took < 5


def test_a_header_without_an_end_is_given_up(served, connect):
    port, _, _ = served()
    connection = connect(port, b"GET / HTTP/1.1\r\nX: ")
    with pytest.raises(ConnectionError):
        connection.sendall(b"x" * (64 << 20))
    assert healthy(port)


def test_what_says_nothing_is_given_up(served, connect):
    port, _, _ = served(**QUICK)
    assert given_up(connect(port)) == b""


def test_an_idle_connection_is_kept_for_a_while(served, connect):
    port, _, _ = served(**QUICK)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
        assert client.get("/api/health").status_code == 200
        (used,) = client._transport._pool.connections
        time.sleep(2.5)  # longer than a header may take
        assert client.get("/api/health").status_code == 200
        assert client._transport._pool.connections == [used]


FORM = b"Content-Type: multipart/form-data; boundary=x\r\n\r\n--x\r\n"


@pytest.mark.parametrize("slowly", [False, True])
def test_a_body_that_stalls_is_given_up(served, connect, slowly):
    port, server, _ = served(**QUICK)
    connection = connect(port, UNREAD % b"predict" + FORM)
    if slowly:
        assert dribble(connection, b"Content-Disposition: " + b"x" * 4000) < 6
    else:
        assert b"408" in given_up(connection).split(b"\r\n")[0]
    eventually(lambda: not server.server_state.connections)


def test_a_body_that_nobody_reads_is_given_up(served, connect):
    port, server, _ = served(**QUICK)
    connection = connect(port, UNREAD % b"unknown" + b"\r\n")
    assert b"405" in connection.recv(65536)
    assert dribble(connection, b"x" * 1000) < 6
    eventually(lambda: not server.server_state.connections)


def test_stalled_bodies_make_room_for_others(served, connect):
    port, _, _ = served(peer_connections=10)
    for _ in range(20):
        connect(port, UNREAD % b"classes/rename" + b"\r\n")
    assert healthy(port)


def test_beyond_the_cap_busy_clients_stay_and_others_come_back_later(connect):
    let_go = threading.Event()

    async def app(scope, receive, send):
        while not let_go.is_set():
            await asyncio.sleep(0.01)
        headers = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"ok"})

    with listening(app, Limits(peer_connections=5)) as (port, _):
        request = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        busy = [connect(port, request) for _ in range(5)]
        time.sleep(0.3)
        refused = given_up(connect(port))
        assert refused.startswith(b"HTTP/1.1 503")
        assert b"Retry-After" in refused
        let_go.set()
        assert all(given_up(each).endswith(b"ok") for each in busy)


def test_a_client_that_never_reads_its_answer_is_given_up(connect):
    ended = threading.Event()

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(10_000):
            await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
        ended.set()

    with listening(app, Limits(**QUICK)) as (port, server):
        connect(port, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", SO_RCVBUF=4096)
        assert ended.wait(10)
        eventually(lambda: not server.server_state.connections)


def test_followers_of_a_job_that_never_read_hold_nothing_up(served, connect, place):
    port, _, _ = served(**QUICK)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=20) as client:
        files = [("images", each) for each in photos(place / "yellow")[0]]
        job = client.post("/api/learn", files=files, data={"labels": ["y"]}).json()["id"]
        follow = f"GET /api/jobs/{job}/events HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        for _ in range(20):
            connect(port, follow, SO_RCVBUF=4096)
        eventually(lambda: client.get(f"/api/jobs/{job}").json()["state"] == "done")
        assert client.get("/api/health").status_code == 200


def open_files():
    found = []
    for each in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # that of the list itself
            found.append(os.readlink(f"/proc/self/fd/{each}"))
    return found


BROKEN = [
    b'--x\r\nContent-Disposition: form-data; name="images"; filename="a"\r\n\r\n'
    + b"y" * 9_000_000,
    b'--x\r\nContent-Disposition: form-data; name="images' + b"z" * 9000 + b'"\r\n\r\nv\r\n--x--',
    b"--x\r\n" + b"A: b\r\n" * 1000 + b"\r\nv\r\n--x--\r\n",
    b'--x\r\nContent-Disposition: form-data; name="nonsense"\r\n\r\nv\r\n--x--\r\n',
    b'--x\r\nContent-Disposition: form-data; name="labels"\r\n\r\n\xff\xfe\r\n--x--\r\n',
    b'--x\r\nContent-Disposition: form-data; name=images; filename="\0"\r\n\r\n\r\n--x--\r\n',
]


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
def test_hostile_forms_and_300_clients_that_leave_are_gone_without_a_trace(
    served, connect, place, tmp_path, monkeypatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    port, server, service = served()
    image = photos(place / "test")[0][0]
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        many = [("images", image)] * 8  # starts all decoders
        assert client.post("/api/predict", files=many).status_code == 200
        before = len(open_files()), threading.active_count()
        for body in BROKEN:
            headers = {"content-type": "multipart/form-data; boundary=x"}
            answer = client.post("/api/learn", content=body, headers=headers)
            assert 400 <= answer.status_code < 500
            assert answer.headers["content-type"] == "application/problem+json"
        asked = client.build_request("POST", "/api/predict", files={"images": image})
        head = "".join(f"{name}: {value}\r\n" for name, value in asked.headers.items())
        wire = f"POST /api/predict HTTP/1.1\r\n{head}\r\n".encode() + asked.read()
        connections = [connect(port, wire) for _ in range(300)]
        for each in connections[::2]:
            each.close()
        answers = [each.recv(65536) for each in connections[1::2]]
        assert {re.match(rb"HTTP/1.1 (\d+)", each)[1] for each in answers} <= {b"200", b"503"}
        for each in connections:
            each.close()
        eventually(lambda: len(server.server_state.connections) <= 1)
        assert client.post("/api/predict", files={"images": image}).status_code == 200
        eventually(lambda: len(open_files()) <= before[0])
        assert threading.active_count() <= before[1] + 1
    assert service.waiting_images == 0
    assert not [each for each in open_files() if str(tmp_path) in each]
    assert {each.name for each in tmp_path.iterdir()} <= {
        "m.visvm",
        ".m.visvm.lock",
        ".m.visvm.undo",
    }


def test_a_stalled_body_is_told_why(taught, encoder, tmp_path):
    def slowly():
        yield b"--x\r\n"
        time.sleep(1.0)
        yield b"--x--\r\n"

    with (
        serving(tmp_path / "m.visvm", encoder, limits=Limits(body_seconds=0.3)) as client,
        listening(client.app, client.service.limits) as (port, _),
    ):
        headers = {"content-type": "multipart/form-data; boundary=x"}
        answer = httpx.post(
            f"http://127.0.0.1:{port}/api/predict", content=slowly(), headers=headers
        )
        problem(answer, 408, "body-stalled", "0.3 s")
