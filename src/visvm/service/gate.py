"""Who may ask, what every answer carries, and what is noted of a request: nothing but its route, sizes and times."""

import asyncio
import hmac
import logging
import os
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from urllib.parse import urlsplit

from prometheus_client import Counter, Histogram
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from visvm.errors import InputError
from visvm.service.limits import Limits
from visvm.service.problems import MEDIA_TYPE, BusyError, Problem, RefusedError, problem_of

log = logging.getLogger("visvm.service")

LOOPBACK = ("localhost", "127.0.0.1", "::1")
_LEAST_TOKEN = 16
_BODIES = 4  # as much as so many of the largest bodies may come at once
_SAFE = ("GET", "HEAD", "OPTIONS")
_READING_POSTS = ("/api/predict", "/api/evaluate")
_CANCEL = re.compile(r"/api/jobs/[^/]+/cancel")
_PLAIN_BYTES = 64 << 10  # of a body that is no form
_ASK_FOR_TOKEN = {"WWW-Authenticate": "Bearer"}
NEEDS_WRITING = "a change needs the token for writing; that for reading was given: ask whoever runs the service for the other"

PAGE = str(files("visvm.service") / "page")
_OPEN = {"/", "/api/health", "/api/ready", *(f"/{name}" for name in os.listdir(PAGE))}

_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
        "form-action 'none'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


@dataclass(frozen=True)
class Tokens:
    """Who holds `write` may change the model, who holds `read` may ask it; without any, everybody may do both."""

    write: str | None = None
    read: str | None = None

    def __post_init__(self) -> None:
        for token in (self.write, self.read):
            if token is not None and (
                len(token) < _LEAST_TOKEN
                or not token.isascii()
                or not token.isprintable()
                or " " in token
            ):
                raise InputError(
                    f"a token must be at least {_LEAST_TOKEN} ASCII characters without spaces; one of {len(token)} was given: "
                    "choose a longer, random one"
                )
        if self.write is not None and self.write == self.read:
            raise InputError(
                "the two tokens must differ; they are the same: choose another for reading"
            )

    @property
    def wanted(self) -> bool:
        """Whether a token is needed at all."""
        return self.write is not None or self.read is not None

    def rights(self, header: str) -> tuple[bool, bool]:
        """Whether the holder of what an Authorization header says may read, and write."""
        if not self.wanted:
            return True, True
        scheme, _, given = header.partition(" ")
        given = given.strip() if scheme.lower() == "bearer" else ""
        matches = [
            hmac.compare_digest((token or "").encode(), given.encode())
            for token in (self.write, self.read)
        ]
        write, read = (
            match and token is not None
            for match, token in zip(matches, (self.write, self.read), strict=True)
        )
        return write or read, write


class Gate:
    """ASGI middleware around the whole application.

    Parameters
    ----------
    app : ASGI application
    tokens : Tokens
    hosts : iterable of str
        Names under which the service may be called while it asks for no token, lest a foreign page
        that has given its own name our address (DNS rebinding) be taken for ours.
    limits : Limits
    requests, seconds : Prometheus metrics
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        tokens: Tokens,
        hosts: Iterable[str],
        limits: Limits,
        requests: Counter,
        seconds: Histogram,
    ) -> None:
        self._app = app
        self._tokens = tokens
        self._hosts = frozenset(hosts)
        self.limits = limits
        self.incoming = 0  # bytes of bodies that are being answered
        self._requests = requests
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, answer = time.perf_counter(), _Answer(send)
        body = _Body(scope, receive, self)
        try:
            self._admit(scope)
            body.expect()
            await self._app(scope, body, answer)
        except Exception as error:  # noqa: BLE001 - the outermost frame of a request
            told = problem_of(error)
            if answer.status is None:
                extra = error.headers if isinstance(error, RefusedError) else {}
                await problem_response(told, extra)(scope, receive, answer)
        finally:
            self.incoming -= body.n_bytes
        self._note(scope, body.n_bytes, answer, time.perf_counter() - began)

    def _admit(self, scope: Scope) -> None:
        headers, path, method = Headers(scope=scope), scope["path"], scope["method"]
        host = headers.get("host", "")
        if not self._tokens.wanted and (_hostname(host) or "") not in self._hosts:
            names = ", ".join(sorted(self._hosts))
            raise RefusedError(
                403,
                f"the service must be called by {names}; it was called by another name: use one of these",
            )
        if method not in _SAFE:
            origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
            if (origin is not None and _netloc(origin) != host) or site not in (
                "same-origin",
                "none",
            ):
                raise RefusedError(
                    403,
                    "a change must be asked for by the service's own page or by a program; another page asked: use ours",
                )
        read, write = self._tokens.rights(headers.get("authorization", ""))
        scope["visvm.write"] = write
        if path in _OPEN and method in _SAFE:
            return
        if not read:
            raise RefusedError(
                401,
                "a token must be given; none, or a wrong one, was: send it as a bearer token",
                _ASK_FOR_TOKEN,
            )
        # of a job, who may cancel it is seen later
        reads = method in _SAFE or path in _READING_POSTS or _CANCEL.fullmatch(path)
        if not write and not reads:
            raise RefusedError(403, NEEDS_WRITING)

    def _note(self, scope: Scope, n_bytes: int, answer: "_Answer", seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "other")
        method = (
            scope["method"]
            if scope["method"] in (*_SAFE, "POST", "PUT", "PATCH", "DELETE")
            else "other"
        )
        self._requests.labels(method, route, str(answer.status)).inc()
        self._seconds.labels(route).observe(seconds)
        log.info(
            "%s %s %s, %d bytes in, %d out, %.3f s",
            method,
            route,
            answer.status,
            n_bytes,
            answer.n_bytes,
            seconds,
        )


def _hostname(host: str) -> str | None:
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def _netloc(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def problem_response(told: Problem, headers: dict[str, str] | None = None) -> Response:
    """A problem as an answer."""
    return Response(told.model_dump_json(), told.status, headers, MEDIA_TYPE)


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


class _Body:
    """Passes a body on while it is within limits of size and time."""

    def __init__(self, scope: Scope, receive: Receive, gate: Gate) -> None:
        self._scope = scope
        self._receive = receive
        self._gate = gate
        self._headers = Headers(scope=scope)
        form = self._headers.get("content-type", "").startswith("multipart/")
        self._most = (
            gate.limits.upload_bytes if form else min(_PLAIN_BYTES, gate.limits.upload_bytes)
        )
        self._complete = False
        self.n_bytes = 0

    def expect(self) -> None:
        """Refuse a body that is announced as too large."""
        length = self._headers.get("content-length", "")
        if length.isdigit() and int(length) > self._most:
            raise self._too_large()

    async def __call__(self) -> Message:
        if self._complete:
            return await self._receive()
        try:
            return await self._next()
        except RefusedError as error:
            self._scope["visvm.refused"] = error
            raise

    async def _next(self) -> Message:
        seconds = self._gate.limits.body_seconds
        try:
            message = await asyncio.wait_for(self._receive(), seconds)
        except TimeoutError as error:
            raise RefusedError(
                408, f"a body must come without pauses of {seconds:g} s; it did not: send it again"
            ) from error
        n_bytes = len(message.get("body", b""))
        self.n_bytes += n_bytes
        self._gate.incoming += n_bytes
        self._complete = message["type"] != "http.request" or not message.get("more_body", False)
        if self.n_bytes > self._most:
            raise self._too_large()
        if self._gate.incoming > _BODIES * self._gate.limits.upload_bytes:
            raise BusyError(
                "uploads must not come all at once; too many do: try again in a few seconds", 5
            )
        return message

    def _too_large(self) -> RefusedError:
        return RefusedError(
            413,
            f"such a request must have at most {self._most:,} bytes; this one has more: send less at a time",
        )
