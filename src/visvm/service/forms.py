"""Forms as browsers send them, read piece by piece.

All images of a form share one nameless file. A file for each, as web frameworks have it, would need
a thousand open files for a thousand photos.
"""

import hashlib
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

from visvm.model.labels import Label
from visvm.service.jobs import Asked
from visvm.service.limits import Limits
from visvm.service.problems import RefusedError

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

_IN_MEMORY = 4 << 20  # bytes that are held before anything is written to disk
_BYTES_A_CHARACTER = 4
_HEADER_BYTES = 8192

logging.getLogger("python_multipart").setLevel(logging.CRITICAL)  # it would log what is in a form


class Spool:
    """A file without a name, for any thread: in memory while it is small."""

    def __init__(self) -> None:
        self._file = SpooledTemporaryFile[bytes](_IN_MEMORY)
        self._lock = threading.Lock()
        self.end = 0

    def write(self, data: bytes) -> int:
        """Add to the end; returns where it begins."""
        with self._lock:
            begin = self._file.seek(self.end)
            self.end += self._file.write(data)
        return begin

    def read(self, begin: int, n_bytes: int) -> bytes:
        """Return a part of what was written."""
        with self._lock:
            self._file.seek(begin)
            return self._file.read(n_bytes)

    def close(self) -> None:
        """Let the content go."""
        self._file.close()


@dataclass(eq=False)
class Upload:
    """The content of one image, named by its place in the form and never by the client."""

    name: str
    spool: Spool
    begin: int
    n_bytes: int = 0

    def __str__(self) -> str:
        return self.name

    def read_bytes(self) -> bytes:
        """Return the content."""
        return self.spool.read(self.begin, self.n_bytes)


@dataclass
class PostedForm:
    """Images and texts by the name of their field."""

    images: dict[str, list[Upload]]
    texts: dict[str, list[str]]
    labels: dict[str, list[Label]] = field(default_factory=dict)  # of images, once checked
    spool: Spool = field(default_factory=Spool)  # where the images are
    digest: "hashlib._Hash" = field(default_factory=hashlib.sha256)  # of all fields, as they came
    asked: Asked | None = None
    held: ExitStack = field(default_factory=ExitStack)  # closes it; the images are gone then

    def __post_init__(self) -> None:
        self.held.callback(lambda: self.spool.close())

    def labelled(self, field: str) -> tuple[list[Upload], list[Label]]:
        """Return the images of a field, and their labels."""
        return self.images[field], self.labels[field]


def no_room(error: OSError) -> RefusedError:
    """Return the error for an upload that cannot be kept."""
    detail = f"The server has no room for the upload ({error.strerror}). Try again later."
    return RefusedError(507, detail, code="upload-unstored")


async def read_form(
    request: Request, limits: Limits, files: Sequence[str], texts: Sequence[str] = ()
) -> PostedForm:
    """Read a form that may have these fields of files and texts.

    Raises
    ------
    RefusedError
        It is not such a form, or too large; nothing of it is kept.
    """
    kind, options = parse_options_header(request.headers.get("content-type", "none"))
    if kind != b"multipart/form-data":
        detail = "Images are taken as multipart/form-data only. Send a form."
        raise RefusedError(415, detail, code="form-missing")
    reader = _Reader(limits, files, texts)
    with reader.form.held:
        try:
            parser = MultipartParser(options.get(b"boundary", b""), reader.callbacks())
            async for data in request.stream():
                parser.write(data)
            if not reader.whole or not options.get(b"boundary"):
                raise FormParserError("incomplete")
        except (FormParserError, ClientDisconnect) as error:
            detail = "The form is damaged or incomplete. Send it again."
            raise RefusedError(400, detail, code="form-broken") from error
        except OSError as error:
            raise no_room(error) from error
        reader.form.held = reader.form.held.pop_all()
    return reader.form


class _Reader:
    """Takes in what the parser finds."""

    def __init__(self, limits: Limits, files: Sequence[str], texts: Sequence[str]) -> None:
        self.form = PostedForm({name: [] for name in files}, {name: [] for name in texts})
        self.whole = False
        self._limits = limits
        self._header, self._value, self._disposition = b"", b"", b""
        self._field = ""
        self._image: Upload | None = None
        self._text, self._part = bytearray(), hashlib.sha256()

    def callbacks(self) -> "MultipartCallbacks":
        """Return what the parser is to call."""
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

    def _on_end(self) -> None:
        self.whole = True

    def _on_part_begin(self) -> None:
        self._disposition, self._image, self._text = b"", None, bytearray()
        self._part = hashlib.sha256()

    def _on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]
        if len(self._value) > _HEADER_BYTES:
            detail = f"A header of the form has more than {_HEADER_BYTES} bytes. Shorten it."
            raise RefusedError(413, detail, code="form-header-long")

    def _on_header_end(self) -> None:
        if self._header.lower() == b"content-disposition":
            self._disposition = self._value
        self._header, self._value = b"", b""

    def _on_headers_finished(self) -> None:
        _, options = parse_options_header(self._disposition)
        self._field = options.get(b"name", b"").decode("utf-8", "replace")
        is_file = b"filename" in options
        fields = self.form.images if is_file else self.form.texts
        if self._field not in fields:
            raise self._unknown_field(is_file)
        most = self._limits.files if is_file else 2 * self._limits.files
        if sum(map(len, fields.values())) >= most:
            what = "images" if is_file else "labels"
            detail = f"The form has more than {most} {what}. Send fewer at a time."
            raise RefusedError(413, detail, code=f"{what}-too-many")
        if is_file:
            place = len(self.form.images[self._field]) + 1
            name = f"{'test photo' if self._field.startswith('test') else 'photo'} {place}"
            self._image = Upload(name, self.form.spool, self.form.spool.end)
            self.form.images[self._field].append(self._image)

    def _unknown_field(self, is_file: bool) -> RefusedError:
        files, texts = self.form.images, self.form.texts
        known = [f"{name} (files)" for name in files] + [f"{name} (text)" for name in texts]
        given = f"{self._field[:40]!r} ({'a file' if is_file else 'text'})"
        detail = f"The form has the unknown field {given}. Its fields are {', '.join(known)}."
        return RefusedError(422, detail, code="field-unknown")

    def _on_part_data(self, data: bytes, start: int, end: int) -> None:
        self._part.update(data[start:end])
        if self._image is not None:
            self.form.spool.write(data[start:end])
            self._image.n_bytes += end - start
            return
        self._text += data[start:end]
        if len(self._text) > _BYTES_A_CHARACTER * self._limits.label_length:
            detail = f"A label has more than {self._limits.label_length} characters. Shorten it."
            raise RefusedError(422, detail, code="label-too-long")

    def _on_part_end(self) -> None:
        name = hashlib.sha256(self._field.encode("utf-8", "replace"))
        self.form.digest.update(name.digest() + self._part.digest())
        if self._image is None:
            try:
                self.form.texts[self._field].append(self._text.decode())
            except UnicodeDecodeError as error:
                detail = "A label is not text in UTF-8. Convert it."
                raise RefusedError(422, detail, code="label-not-utf-8") from error
