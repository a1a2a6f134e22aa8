"""Who may ask, what every answer carries, and what is logged: only routes, sizes and times.

The order of the checks: the host (``trusted_hosts``), where the request comes from (``own_page``),
the token (``Rights``), and only then a large body (``Body.allow``). FastAPI reads JSON before it
asks for rights, so that of a body without a token up to 64 KiB are read, and nothing is done.
"""

import asyncio
import hmac
import logging
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from visvm.errors import InputError
from visvm.service.connections import PROGRESS_BYTES
from visvm.service.core import Metrics
from visvm.service.limits import Limits
from visvm.service.problems import BusyError, RefusedError, refusal

log = logging.getLogger("visvm.service")

LOOPBACK = ("localhost", "127.0.0.1", "::1")
_LEAST_TOKEN = 16
_BODIES = 4  # so many of the largest bodies may come at once
_SAFE = ("GET", "HEAD", "OPTIONS")
_PLAIN_BYTES = 64 << 10  # of a body that no route has allowed to be larger

_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
        "font-src 'self'; connect-src 'self'; form-action 'none'; frame-ancestors 'none'; "
        "base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(self), geolocation=(), microphone=()",
}


@dataclass(frozen=True)
class Tokens:
    """The token that allows changes, and one that only allows questions; without any, all may."""

    write: str | None = None
    read: str | None = None

    def __post_init__(self) -> None:
        for token in (self.write, self.read):
            if token is not None and not re.fullmatch(f"[!-~]{{{_LEAST_TOKEN},}}", token):
                needed = f"at least {_LEAST_TOKEN} ASCII characters without spaces"
                fact = f"A token needs {needed}; one has {len(token)} characters."
                raise InputError(f"{fact} Choose a long random one.", code="token-weak")
        if self.write is not None and self.write == self.read:
            advice = "Both tokens are the same. Choose another one for reading."
            raise InputError(advice, code="tokens-equal")

    @property
    def wanted(self) -> bool:
        """Whether a token is needed at all."""
        return self.write is not None or self.read is not None

    def rights(self, given: str) -> tuple[bool, bool]:
        """Return whether the holder of a token may read, and write."""
        write, read = (
            hmac.compare_digest((token or "").encode(), given.encode()) and token is not None
            for token in (self.write, self.read)
        )
        return write or read, write


class Rights:
    """The FastAPI dependencies of routes that not everybody may call.

    `reader` admits who may ask, and its value is whether they may also change the model; `writer`
    admits who may.
    """

    def __init__(self, tokens: Tokens) -> None:
        bearer = HTTPBearer(scheme_name="token", auto_error=False)

        async def holder(
            given: Annotated[HTTPAuthorizationCredentials | None, Security(bearer)],
        ) -> bool:
            may_read, may_write = tokens.rights(given.credentials.strip() if given else "")
            if not may_read:
                detail = "The token is missing or wrong. Send it as a bearer token."
                headers = {"WWW-Authenticate": "Bearer"}
                raise RefusedError(401, detail, code="token-required", headers=headers)
            return may_write

        async def anybody() -> bool:
            return True

        self.reader = reader = Depends(holder if tokens.wanted else anybody)

        async def writer(may_write: Annotated[bool, reader]) -> None:
            require_writing(may_write)

        self.writer = Depends(writer)


def require_writing(may_write: bool) -> None:
    """Refuse a change, or the model file, to a client that may only ask."""
    if not may_write:
        detail = "This token only allows reading. Ask the operator for the one that allows changes."
        raise RefusedError(403, detail, code="token-read-only")


async def own_page(request: Request) -> None:
    """Refuse changes that another web page asks for (CSRF)."""
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site", "none")
    host = request.headers.get("host", "")
    foreign = origin is not None and origin.partition("://")[2] != host
    if request.method not in _SAFE and (foreign or site not in ("same-origin", "none")):
        detail = "Another web page sent this request. Use the service's own page, or a program."
        raise RefusedError(403, detail, code="origin-foreign")


def trusted_hosts(app: ASGIApp, hosts: Iterable[str]) -> ASGIApp:
    """Answer only requests for these names: a foreign page may give its own name our address.

    Starlette's middleware decides (from 1.7 on also on IPv6); it is wrapped as it would answer in
    plain text.
    """
    names = sorted(f"[{host}]" if ":" in host else host for host in hosts)

    async def checked(scope: Scope, receive: Receive, send: Send) -> None:
        async def admitted(scope: Scope, receive: Receive, _: Send) -> None:
            await app(scope, receive, send)

        async def refuse(_: Message) -> None:
            detail = f"The service was called by an unknown name. Use one of {', '.join(names)}."
            raise RefusedError(403, detail, code="host-unknown")

        await TrustedHostMiddleware(admitted, names, www_redirect=False)(scope, receive, refuse)

    return checked


class Gate:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, *, limits: Limits, metrics: Metrics) -> None:
        self._app = app
        self.limits = limits
        self.incoming = 0  # bytes of bodies that are being answered
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and answer the errors it raises."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, answer = time.perf_counter(), _Answer(send)
        body = scope["visvm.body"] = Body(scope, receive, self)
        try:
            await self._app(scope, body, answer)
        except Exception as error:  # noqa: BLE001 - the outermost frame of a request
            refused = refusal(error)
            if answer.status is None:
                await refused(scope, receive, answer)
        finally:
            self.incoming -= body.n_bytes
        self._note(scope, body.n_bytes, answer, time.perf_counter() - began)

    def _note(self, scope: Scope, n_bytes: int, answer: "_Answer", seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "other")
        known = (*_SAFE, "POST", "PUT", "PATCH", "DELETE")
        method = scope["method"] if scope["method"] in known else "other"
        self._metrics.requests.labels(method, route, str(answer.status)).inc()
        self._metrics.seconds.labels(route).observe(seconds)
        log.info(
            "%s %s %s, %d bytes in, %d out, %.3f s",
            *(method, route, answer.status, n_bytes, answer.n_bytes, seconds),
        )


class _Answer:
    """Passes an answer on with our headers, and remembers its status."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status: int | None = None
        self.n_bytes = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers[name] = value
            headers.setdefault("Cache-Control", "no-store")
        self.n_bytes += len(message.get("body", b""))
        await self._send(message)


class Body:
    """Passes a body on while it is within limits of size and time."""

    def __init__(self, scope: Scope, receive: Receive, gate: Gate) -> None:
        self._receive = receive
        self._gate = gate
        length = Headers(scope=scope).get("content-length", "")
        self._announced = int(length) if length.isdecimal() else 0
        self._most = min(_PLAIN_BYTES, gate.limits.upload_bytes)
        self._complete = False
        self._seen, self._due = 0, 0.0  # bytes, and when there must be more of them
        self.n_bytes = 0

    def allow(self, n_bytes: int) -> None:
        """Let the body be larger, as its sender was found to have the right to."""
        self._most = n_bytes

    async def __call__(self) -> Message:
        """Return the next part of the body."""
        if self._complete:
            return await self._receive()
        if self._announced > self._most:
            raise self._too_large()
        seconds, now = self._gate.limits.body_seconds, asyncio.get_running_loop().time()
        if not self._due or self.n_bytes - self._seen >= PROGRESS_BYTES:
            self._seen, self._due = self.n_bytes, now + seconds
        try:
            async with asyncio.timeout_at(self._due):
                message = await self._receive()
        except TimeoutError as error:
            detail = f"Next to nothing of the body came for {seconds:g} s. Send the request again."
            raise RefusedError(408, detail, code="body-stalled") from error
        n_bytes = len(message.get("body", b""))
        self.n_bytes += n_bytes
        self._gate.incoming += n_bytes
        self._complete = message["type"] != "http.request" or not message.get("more_body", False)
        if self.n_bytes > self._most:
            raise self._too_large()
        if self._gate.incoming > _BODIES * self._gate.limits.upload_bytes:
            detail = "Too many uploads come at once. Try again in a few seconds."
            raise BusyError(detail, 5, code="uploads-too-many")
        return message

    def _too_large(self) -> RefusedError:
        detail = f"The request has more than {self._most:,} bytes. Send less at a time."
        return RefusedError(413, detail, code="body-too-large")
