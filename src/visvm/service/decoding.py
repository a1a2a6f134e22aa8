"""Images → pixels in processes of their own, which are killed when one takes too long.

A time-out that only stops waiting would leave the work going on. A few threads hold one process
each; a process that is too slow, or that an image has brought down, is replaced by another, and
only its image is refused.
"""

import json
import os
import queue
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np

from visvm.encoders.encoder import Pixels
from visvm.encoders.transform import Transform
from visvm.errors import ImageError
from visvm.service.decoder import IMAGE, REFUSED, Settings, receive, send
from visvm.service.limits import Limits
from visvm.service.problems import BusyError, stopping

_START_SECONDS, _KILL_SECONDS = 60.0, 0.5
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}  # threads would take memory


class Decoders:
    """Processes that decode, and as many threads that wait for them.

    Attributes
    ----------
    threads : ThreadPoolExecutor
        Where ``decode`` is to be called.
    """

    def __init__(self, n: int, transform: Transform, limits: Limits, name: str) -> None:
        self.threads = ThreadPoolExecutor(n, thread_name_prefix=name)
        settings = Settings(transform, limits.pixels, limits.decode_seconds, limits.decode_bytes)
        self._all = [_Decoder(settings) for _ in range(n)]
        # the last one used comes first: what one process can do starts no second
        self._free: queue.LifoQueue[_Decoder] = queue.LifoQueue()
        for each in self._all:
            self._free.put(each)

    def decode(self, data: bytes) -> Pixels:
        """Return the normalised pixels of an image, (3, size, size).

        Raises
        ------
        ImageError
            It cannot be decoded, or not within the limits of time and memory.
        """
        decoder = self._free.get()
        try:
            return decoder.decode(data)
        finally:
            self._free.put(decoder)

    def kill(self) -> None:
        """Kill the processes, and start no others."""
        for each in self._all:
            each.kill()

    def close(self) -> None:
        """Kill the processes, and stop the threads."""
        self.kill()
        self.threads.shutdown(cancel_futures=True)
        for each in self._all:
            each.end()


class _Decoder:
    """One process, which is started when it is needed; for one thread at a time."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._starting = threading.Lock()
        self._closed = threading.Event()

    def decode(self, data: bytes) -> Pixels:
        if self._process is None or self._process.poll() is not None:
            self._start()
        answer, late = self._ask(data, self._settings.seconds)
        if answer is None:
            self.end()
            if self._closed.is_set():
                raise stopping()
            if late:
                most = f"{self._settings.seconds:g} s"
                raise ImageError(f"takes more than {most} to decode", code="image-timeout")
            raise ImageError("makes its decoder fail", code="image-crash")
        kind, content = answer
        if kind == REFUSED:
            message, code = json.loads(content)
            raise ImageError(message, code=code)
        size = self._settings.transform.preprocessing.size
        return np.frombuffer(content, dtype=np.float32).reshape(3, size, size)

    def kill(self) -> None:
        """End the process, from any thread, and start no other."""
        self._closed.set()
        # a busy machine may take long to start one; it sees the above, and ends it
        if self._starting.acquire(timeout=_KILL_SECONDS):
            try:
                if self._process is not None:
                    self._process.kill()
            finally:
                self._starting.release()

    def end(self) -> None:
        """End the process, and let go what belongs to it."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with suppress(BrokenPipeError):
                process.communicate()  # closes both ends

    def _start(self) -> None:
        self.end()  # somebody may have killed it while it was idle
        command = [sys.executable, "-m", "visvm.service.decoder", self._settings.to_json()]
        with self._starting:
            if self._closed.is_set():
                raise stopping()
            try:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    env=_environment(),
                    start_new_session=True,  # Ctrl+C is for the service
                )
            except OSError as error:
                raise _no_decoder(str(error.strerror)) from error
        if self._closed.is_set():
            self.end()
            raise stopping()
        answer, _ = self._ask(None, _START_SECONDS)
        if answer is None:
            self.end()
            raise stopping() if self._closed.is_set() else _no_decoder("it ended at once")

    def _ask(self, data: bytes | None, seconds: float) -> tuple[tuple[bytes, bytes] | None, bool]:
        """Return the answer to an image, if any, and whether the process was killed for it."""
        process, late = self._process, threading.Event()
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None

        def too_late() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(seconds, too_late)
        timer.start()
        answer = None
        try:
            if data is not None:
                send(process.stdin, IMAGE, data)
            answer = receive(process.stdout)
        except (BrokenPipeError, ValueError):
            pass  # it has ended
        finally:
            timer.cancel()
            timer.join()
        return (None if late.is_set() else answer), late.is_set()


def _environment() -> dict[str, str]:
    """Return the environment of a decoder, which needs no token."""
    kept = {name: value for name, value in os.environ.items() if not name.endswith("_TOKEN")}
    return kept | _ONE_THREAD


def _no_decoder(why: str) -> BusyError:
    detail = f"The service cannot start a decoder ({why}). Try again later."
    return BusyError(detail, 10, code="decoder-unavailable")
