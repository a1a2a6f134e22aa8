"""Forms as browsers send them, read piece by piece: however many images one has, they share one file without a name.

A file for each, as web frameworks have it, would need a thousand open files for a thousand photos.
"""

import logging
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import ClientDisconnect, Request

from visvm.service.limits import Limits
from visvm.service.problems import RefusedError

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

_IN_MEMORY = 4 << 20  # a form up to this size never touches the disk
_BYTES_A_CHARACTER = 4
_HEADER_BYTES = 8192

logging.getLogger("python_multipart").setLevel(logging.CRITICAL)  # it would log what is in a form


class Upload:
    """The content of one image, named by its place in the form and never by the client.

    Parameters
    ----------
    form : Form
        Which holds it.
    begin : int
        Where it begins there.
    name : str
    """

    def __init__(self, form: "Form", begin: int, name: str) -> None:
        self._form = form
        self._begin = begin
        self._name = name
        self.n_bytes = 0

    def __str__(self) -> str:
        return self._name

    def read_bytes(self) -> bytes:
        """The content."""
        return self._form.read(self._begin, self.n_bytes)


@dataclass
class Form:
    """What a form held: images and texts by the name of their field.

    Once closed, the images are gone.
    """

    images: dict[str, list[Upload]]
    texts: dict[str, list[str]]
    _file: SpooledTemporaryFile[bytes] = field(
        default_factory=lambda: SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115
    )
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def close(self) -> None:
        """Let the images go."""
        self._file.close()

    def read(self, begin: int, n_bytes: int) -> bytes:
        """A part of what was written; for any thread."""
        with self._lock:
            self._file.seek(begin)
            return self._file.read(n_bytes)

    def write(self, data: bytes) -> None:
        """Add to the end."""
        self._file.write(data)

    def tell(self) -> int:
        """Where the end is."""
        return self._file.tell()


async def read_form(
    request: Request, limits: Limits, files: Sequence[str], texts: Sequence[str] = ()
) -> Form:
    """Read a form of images and texts.

    Parameters
    ----------
    request : Request
    limits : Limits
    files, texts : sequences of str
        The fields that there may be.

    Raises
    ------
    RefusedError
        It is no such form, or too large; nothing of it is kept.
    """
    kind, options = parse_options_header(request.headers.get("content-type", "none"))
    if kind != b"multipart/form-data":
        raise RefusedError(
            415, "images must come as multipart/form-data; the content type is another: send a form"
        )
    reader = _Reader(limits, files, texts)
    with ExitStack() as closing:
        closing.callback(reader.form.close)
        try:
            parser = MultipartParser(options.get(b"boundary", b""), reader.callbacks())
            async for data in request.stream():
                parser.write(data)
        except (FormParserError, ClientDisconnect) as error:
            raise RefusedError(
                400, "a form must be whole, as browsers send it; this one is not: send it again"
            ) from error
        except OSError as error:
            raise RefusedError(
                507,
                f"an upload must find room on the server; it does not ({error.strerror}): try later",
            ) from error
        if not reader.whole or not options.get(b"boundary"):
            raise RefusedError(
                400, "a form must be whole; this one ends before its end: send it again"
            )
        closing.pop_all()
    return reader.form


class _Reader:
    """Takes in what the parser finds."""

    def __init__(self, limits: Limits, files: Sequence[str], texts: Sequence[str]) -> None:
        self.form = Form({name: [] for name in files}, {name: [] for name in texts})
        self.whole = False
        self._limits = limits
        self._header, self._value, self._disposition = b"", b"", b""
        self._field = ""
        self._image: Upload | None = None
        self._text = bytearray()

    def callbacks(self) -> "MultipartCallbacks":
        """What the parser is to call."""
        return {
            "on_part_begin": self._on_part_begin,
            "on_header_field": self._on_header_field,
            "on_header_value": self._on_header_value,
            "on_header_end": self._on_header_end,
            "on_headers_finished": self._on_headers_finished,
            "on_part_data": self._on_part_data,
            "on_part_end": self._on_part_end,
            "on_end": self._on_end,
        }

    def _on_part_begin(self) -> None:
        self._disposition, self._image, self._text = b"", None, bytearray()

    def _on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]
        if len(self._value) > _HEADER_BYTES:
            raise RefusedError(
                413,
                f"a header of a form must have at most {_HEADER_BYTES} bytes; one has more: shorten it",
            )

    def _on_header_end(self) -> None:
        if self._header.lower() == b"content-disposition":
            self._disposition = self._value
        self._header, self._value = b"", b""

    def _on_headers_finished(self) -> None:
        _, options = parse_options_header(self._disposition)
        self._field = options.get(b"name", b"").decode("utf-8", "replace")
        images, texts = self.form.images, self.form.texts
        is_file = b"filename" in options
        if self._field not in (images if is_file else texts):
            allowed = ", ".join(
                [*(f"{name} (files)" for name in images), *(f"{name} (text)" for name in texts)]
            )
            given = repr(self._field[:40]) + (" (a file)" if is_file else " (text)")
            raise RefusedError(
                422, f"a form may have the fields {allowed}; it has {given}: leave it out"
            )
        if not is_file:
            if sum(map(len, texts.values())) >= 2 * self._limits.files:
                raise RefusedError(
                    413,
                    f"a form may have {2 * self._limits.files} labels; it has more: send fewer at a time",
                )
            return
        if sum(map(len, images.values())) >= self._limits.files:
            raise RefusedError(
                413,
                f"a form may have {self._limits.files} images; it has more: send fewer at a time",
            )
        place = len(images[self._field]) + 1
        name = f"{'test photo' if self._field.startswith('test') else 'photo'} {place}"
        self._image = Upload(self.form, self.form.tell(), name)
        images[self._field].append(self._image)

    def _on_part_data(self, data: bytes, start: int, end: int) -> None:
        if self._image is not None:
            self.form.write(data[start:end])
            self._image.n_bytes += end - start
            return
        self._text += data[start:end]
        most = self._limits.label_length
        if len(self._text) > _BYTES_A_CHARACTER * most:
            raise RefusedError(
                422, f"a label must have at most {most} characters; one has more: shorten it"
            )

    def _on_part_end(self) -> None:
        if self._image is None:
            try:
                self.form.texts[self._field].append(self._text.decode())
            except UnicodeDecodeError as error:
                raise RefusedError(
                    422, "a label must be text in UTF-8; one is not: convert it"
                ) from error

    def _on_end(self) -> None:
        self.whole = True
