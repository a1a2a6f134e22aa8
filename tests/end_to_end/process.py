"""`visvm serve` as a process of its own."""

import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from functools import partial

import httpx

from tests.forked import Command


def browser_path():
    """Where a browser is on this machine, or None."""
    return next(
        (
            found
            for name in ("chromium", "chromium-browser", "google-chrome")
            if (found := shutil.which(name))
        ),
        None,
    )


def in_a_shell(*arguments, environment=None):
    """`visvm`, started anew."""
    return subprocess.Popen(
        [sys.executable, "-m", "visvm", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **(environment or {})},
    )


class Server:
    """A running service: forked, which is quick, or started as a shell would.

    Attributes
    ----------
    address : str
    """

    def __init__(self, model, encoder, *options, environment=None, forked=True, **more):
        command = ["serve", str(model), "--port", "0", "--encoder", str(encoder)]
        if not model.exists():
            command += ["--components", "60", "--ridge", "1"]
        start = Command if forked else in_a_shell
        self.process = start(*command, *options, environment=environment, **more)
        line = self.process.stdout.readline()
        found = re.search(r"http://\S+", line)
        assert found, line + self.process.stdout.read()
        self.address = found[0]
        self.port = self.address.rsplit(":", 1)[1]

    def kill(self, number=signal.SIGKILL):
        self.process.send_signal(number)
        self.process.wait(30)
        self.process.stdout.close()

    def client(self):
        return httpx.Client(base_url=self.address, timeout=60)


def hang(kind, name):
    """Let a method hang once there is a file ``HANG``, as long as with a large model.

    A service that is to stop then waits for it for a second, not for eight.
    """
    from visvm.service import limits

    limits.Limits = partial(limits.Limits, stop_seconds=1.0)
    plain = getattr(kind, name)

    def replaced(self, *arguments):
        if os.path.exists(os.environ["HANG"]):
            time.sleep(300)
        return plain(self, *arguments)

    setattr(kind, name, replaced)


def hang_in_encode():
    from visvm.encoders.onnx import OnnxEncoder

    hang(OnnxEncoder, "encode")


def hold_python():
    """Let Python's lock be held at the end, as a package's own code may, for as long as `hang`."""
    from visvm.service import core, limits

    limits.Limits = partial(limits.Limits, stop_seconds=1.0)
    core.Service.close = lambda _: ctypes.PyDLL(None).sleep(300)


def hang_in_solve():
    from visvm.head.head import Head

    hang(Head, "solved")


@contextmanager
def running(model, encoder, *options, **more):
    """A service that is stopped at the end, as Ctrl+C would."""
    server = Server(model, encoder, *options, **more)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.kill(signal.SIGINT)


def teach(client, contents, label, key=None):
    """Send photos of one class to be learned, under a key; gives the job."""
    answer = client.post(
        "/api/learn",
        files=[("images", ("p.png", each)) for each in contents],
        data={"labels": [label]},
        headers=None if key is None else {"Idempotency-Key": key},
    )
    assert answer.status_code == 202, answer.text
    return answer.json()["id"]


def end_of(client, job):
    """How a job ended."""
    until = time.monotonic() + 60
    while (found := client.get(f"/api/jobs/{job}").json())["state"] in ("waiting", "running"):
        assert time.monotonic() < until
        time.sleep(0.005)
    return found
