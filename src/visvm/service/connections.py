"""How long a client may take, and how many may connect: before any request is looked at.

uvicorn waits for ever for the rest of a header, of a body that nobody reads any more, and for
clients that do not take their answer. Here each of these has its time, and where there are too many
connections, the one that has kept us waiting longest makes room for the next.
"""

import asyncio
from typing import ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from visvm.service.limits import Limits

_HEADER_BYTES = 64 << 10
PROGRESS_BYTES = 4096  # of a body; less than that does not count as going on
_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nConnection: close\r\n"
    b"Content-Length: 0\r\n\r\n"
)


class Connection(HttpToolsProtocol):
    """A connection that is given up when its client takes too long.

    It waits for a header, which has a fixed time; then for a body, of which parts must keep coming,
    also where nobody reads it any more; then it answers; then it is idle, until the next header.
    """

    limits: ClassVar[Limits]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection in, and another one out if there are too many."""
        super().connection_made(transport)
        self.peer = self.client[0] if self.client else ""
        self._since = self.loop.time()  # when the client was last seen to go on
        self._received = 0  # bytes since then
        self._idle = False
        self._whole = True  # all of the last request has come
        self._blocked: float | None = None  # since when it takes no more of its answer
        self._closing: float | None = None
        self._make_room()

    def _make_room(self) -> None:
        everybody = [
            each
            for each in self.connections
            if isinstance(each, Connection) and not each.transport.is_closing()
        ]
        alike = [each for each in everybody if each.peer == self.peer]
        for crowd, most in (
            (alike, self.limits.peer_connections),
            (everybody, self.limits.connections),
        ):
            if len(crowd) <= most:
                continue
            waiting = [each for each in crowd if each is not self and each.lets_wait]
            if not waiting:
                self.transport.write(_BUSY)
                self.transport.close()
                return
            min(waiting, key=lambda each: each._since).transport.abort()

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def lets_wait(self) -> bool:
        """Whether it is the client that has to go on."""
        if not self._answering or self._blocked is not None:
            return True
        return self.cycle.more_body and not self.cycle.body

    def check(self, now: float) -> None:
        """Give the connection up if the client has let us wait for too long."""
        if self.transport.is_closing():
            self._closing = self._closing or now
        stuck = self._closing or self._blocked
        if stuck is not None:
            late = now - stuck > self.limits.answer_seconds
        elif self._answering or self._idle:  # for which the gate and uvicorn have their times
            late = False
        else:
            limits = self.limits
            most = limits.header_seconds if self._whole else limits.body_seconds
            late = now - self._since > most
        if late:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take in a part of a request."""
        if self._idle:
            self._idle, self._since = False, self.loop.time()
        self._received += len(data)
        super().data_received(data)
        if not self._answering and self._whole:
            if self._received > _HEADER_BYTES:
                self.transport.abort()
        elif self._received >= PROGRESS_BYTES:
            self._received, self._since = 0, self.loop.time()

    def on_headers_complete(self) -> None:
        """Begin with a request, whose body may be still to come."""
        self._whole, self._received, self._since = False, 0, self.loop.time()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Note that all of a request has come."""
        self._whole = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Wait for the next request, or for the rest of this one."""
        self._idle, self._received, self._since = self._whole, 0, self.loop.time()
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Note that the client takes no more of its answer."""
        self._blocked = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """Note that it does again."""
        self._blocked = None
        super().resume_writing()


def connection_type(limits: Limits) -> type[Connection]:
    """Return connections with these limits, for uvicorn."""
    return type("LimitedConnection", (Connection,), {"limits": limits})
