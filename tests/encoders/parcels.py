"""Wheels made on the spot, and a package index on loopback that can misbehave."""

import hashlib
import os
import threading
import zipfile
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version as installed

from visvm.encoders import download

WHEEL = "some_parcel-1.0-py3-none-any.whl"


def write_wheel(path, files, metadata=""):
    """A wheel that pip takes; importing what is in it would fail."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, content in files.items():
            wheel.writestr(name, content)
        wheel.writestr("parcel/__init__.py", "raise RuntimeError('no code of the parcel is run')")
        about = f"Metadata-Version: 2.1\nName: some-parcel\nVersion: 1.0\n{metadata}"
        wheel.writestr("some_parcel-1.0.dist-info/METADATA", about)
        wheel.writestr("some_parcel-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr("some_parcel-1.0.dist-info/RECORD", "")
    return path


class Index(ThreadingHTTPServer):
    """Serves one wheel; the fields say what to do wrong."""

    def __init__(self, wheel):
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/simple"
        self.content = wheel.read_bytes()
        self.sha = hashlib.sha256(self.content).hexdigest()
        self.sends = len(self.content)  # bytes after which an answer breaks off
        self.stalls = False  # send half, and wait until the client goes away
        self.stalled, self.gone = threading.Event(), threading.Event()

    def handle_error(self, request, client_address):
        pass  # a client that was killed


class Handler(BaseHTTPRequestHandler):
    server: Index

    def log_message(self, *arguments):
        pass

    def do_GET(self):
        server = self.server
        if self.path.endswith(".whl"):
            self.start("application/octet-stream", len(server.content))
            half = len(server.content) // 2
            self.wfile.write(server.content[: half if server.stalls else server.sends])
            if server.stalls:
                self.wfile.flush()
                server.stalled.set()
                self.connection.settimeout(60)
                with suppress(ConnectionError):
                    self.connection.recv(1)  # nothing, once the other end is closed
                server.gone.set()
            self.close_connection = True
        elif self.path == "/simple/some-parcel/":
            mark = f"#sha256={server.sha}" if server.sha else ""
            page = f'<!DOCTYPE html><a href="/files/{WHEEL}{mark}">{WHEEL}</a>'.encode()
            self.start("text/html", len(page))
            self.wfile.write(page)
        else:
            self.send_error(404)

    def start(self, kind, length):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(length))
        self.end_headers()


@contextmanager
def serving(wheel):
    index = Index(wheel)
    thread = threading.Thread(target=index.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield index
    finally:
        index.shutdown()
        thread.join()
        index.server_close()


def tell_pips_version(patch):
    """Tell the version of pip without a process: for tests of what comes after.

    `patch` is a function such as ``setattr``.
    """
    plain, told = download._pip, (0, [f"pip {installed('pip')} from here"])

    def run(arguments, *rest):
        return told if arguments == ["--version"] else plain(arguments, *rest)

    patch(download, "_pip", run)


def only_these_settings(monkeypatch, **settings):
    """Set pip up with these settings alone."""
    for name in list(os.environ):
        if name.upper().startswith("PIP_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    defaults = {"CONFIG_FILE": os.devnull, "NO_CACHE_DIR": "1", "RETRIES": "0", "TIMEOUT": "60"}
    for name, value in (defaults | settings).items():
        monkeypatch.setenv(f"PIP_{name}", str(value))
