"""Firefox, driven by its own protocol: Marionette, which it speaks without any driver."""

import json
import re
import shutil
import socket
import subprocess
import time
from contextlib import closing, contextmanager

PREFERENCES = {
    "marionette.port": 0,
    "datareporting.policy.dataSubmissionEnabled": False,
    "browser.shell.checkDefaultBrowser": False,
    "app.update.disabledForTesting": True,
    "ui.prefersReducedMotion": 1,
}
WRAPPED = """
  const given = [...arguments];
  const done = given.pop();
  (async () => { SCRIPT })().then(done, (error) => done(`failed: ${error}`));
"""


def firefox_path():
    """Where Firefox is on this machine, or None."""
    return shutil.which("firefox-esr") or shutil.which("firefox")


class Firefox:
    """One window; scripts run in it, and may be asynchronous."""

    def __init__(self, wire):
        self._socket, self._left, self._number = wire, b"", 0
        self._socket.settimeout(120)
        self._receive()  # who it is
        self.send("WebDriver:NewSession", {"capabilities": {"alwaysMatch": {}}})
        self.send("WebDriver:SetTimeouts", {"script": 60_000, "pageLoad": 60_000})

    def _receive(self):
        while b":" not in self._left:
            self._left += self._socket.recv(1 << 16)
        size, _, rest = self._left.partition(b":")
        while len(rest) < int(size):
            rest += self._socket.recv(1 << 16)
        self._left = rest[int(size) :]
        return json.loads(rest[: int(size)])

    def send(self, name, parameters):
        """Send a command, and wait for its answer."""
        self._number += 1
        body = json.dumps([0, self._number, name, parameters]).encode()
        self._socket.sendall(str(len(body)).encode() + b":" + body)
        _, _, error, result = self._receive()
        assert error is None, error
        return result

    def open(self, address):
        self.send("WebDriver:Navigate", {"url": address})

    def run(self, script, *arguments):
        """Run the body of an asynchronous function; gives what it returns."""
        sent = {"script": WRAPPED.replace("SCRIPT", script), "args": list(arguments)}
        found = self.send("WebDriver:ExecuteAsyncScript", sent)
        assert not str(found["value"]).startswith("failed: "), found["value"]
        return found["value"]

    def until(self, script, *arguments):
        """Wait until a script returns something true."""
        end = time.monotonic() + 60
        while not self.run(script, *arguments):
            assert time.monotonic() < end, (script, arguments)
            time.sleep(0.1)


@contextmanager
def started(folder):
    """Start Firefox with a profile of its own, and stop it at the end."""
    lines = [f"user_pref({json.dumps(k)}, {json.dumps(v)});" for k, v in PREFERENCES.items()]
    (folder / "user.js").write_text("\n".join(lines))
    command = [firefox_path(), "--headless", "--marionette", "--no-remote", "--profile", folder]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        active, end = folder / "MarionetteActivePort", time.monotonic() + 60
        while not (active.exists() and re.fullmatch(r"\d+", active.read_text())):
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.1)
        with closing(socket.create_connection(("127.0.0.1", int(active.read_text())))) as wire:
            yield Firefox(wire)
    finally:
        process.terminate()
        process.wait(30)
