"""The whole service, started."""

import asyncio
import ipaddress
import math
import os
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from visvm.errors import InputError
from visvm.image_classifier import ImageClassifier
from visvm.service.app import create_app
from visvm.service.connections import Connection, connection_type
from visvm.service.core import Service
from visvm.service.gate import LOOPBACK, Tokens
from visvm.service.limits import Limits
from visvm.service.store import Signature

_UVICORN: dict[str, Any] = {
    "log_level": "warning",
    "access_log": False,
    "server_header": False,
    "timeout_keep_alive": 30,
    "timeout_graceful_shutdown": 5,
    "lifespan": "off",
    "ws": "none",
}


class Server(uvicorn.Server):
    """uvicorn with limits: of every connection, and of the time it takes to stop.

    `at_end` is called before the process is ended by force.
    """

    def __init__(self, app: Any, limits: Limits, at_end: Callable[[], None] = lambda: None) -> None:
        super().__init__(uvicorn.Config(app, http=connection_type(limits), **_UVICORN))
        self._limits, self._at_end = limits, at_end

    async def on_tick(self, counter: int) -> bool:
        """Look after the connections, twice a second."""
        if counter % 5 == 0:
            now = asyncio.get_running_loop().time()
            for each in list(self.server_state.connections):
                if isinstance(each, Connection):
                    each.check(now)
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop, in good order if that does not take too long.

        A batch of images or a large solution cannot be interrupted. To end in the middle of one
        loses nothing: a change that was acknowledged is on disk, and no other is.
        """
        if not self.should_exit:
            timer = threading.Timer(self._limits.stop_seconds, self._end)
            timer.daemon = True
            timer.start()
            if hasattr(signal, "alarm"):  # where Python itself does not get to it
                signal.alarm(math.ceil(self._limits.stop_seconds) + 1)
        super().handle_exit(sig, frame)

    def _end(self) -> None:
        """End this process at once."""
        self._at_end()
        os._exit(0)


def require_token(host: str, tokens: Tokens) -> None:
    """Refuse to serve other machines without a token for writing."""
    if not _is_loopback(host) and tokens.write is None:
        raise InputError(
            f"Serving other machines ({host}) needs a token. Set VISVM_TOKEN to a long random "
            "word, or leave out --host.",
            code="token-unset",
        )


def run_server(
    path: Path,
    opened: Callable[[], tuple[ImageClassifier, Signature]],
    *,
    host: str,
    port: int,
    tokens: Tokens,
    limits: Limits,
    started: Callable[[str, ImageClassifier], None],
) -> None:
    """Serve the model file at `path` until the process is stopped.

    Parameters
    ----------
    opened : callable
        Returns the model and the signature of its file; called once the address is ours.
    host, port : str, int
        Port 0 takes a free one.
    started : callable
        Called with the address and the model once both can be used.
    """
    require_token(host, tokens)
    listener = _listen(host, port)
    with ExitStack() as undo:
        undo.callback(listener.close)
        classifier, signature = opened()
        service = Service(path, classifier, signature, limits)
        undo.pop_all()
    with closing(service):
        app = create_app(service, tokens, {*LOOPBACK, host})
        server = Server(app, limits, service.kill_decoders)
        name = socket.gethostname() if host in ("0.0.0.0", "::") else host
        shown = f"[{name}]" if ":" in name else name
        started(f"http://{shown}:{listener.getsockname()[1]}", classifier)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with suppress(KeyboardInterrupt):  # how it is meant to be stopped
            server.run(sockets=[listener])


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return socket.create_server((str(address[0]), port), family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        advice = f"Cannot serve on {host}, port {port} ({why}). Choose another --port or --host."
        raise InputError(advice, code="address-unavailable") from error


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
