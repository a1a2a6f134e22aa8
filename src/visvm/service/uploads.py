"""Requests → images: read within limits, decoded once to see that they can be, named by their place and never by the client."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TypeVar

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from visvm.encoders.encoder import Pixels
from visvm.encoders.images import Transform, decode
from visvm.errors import ImageError, InputError
from visvm.labelled import Label, as_known, check_label
from visvm.service.limits import Limits
from visvm.service.problems import RefusedError

T = TypeVar("T")


class Upload:
    """The content of one image, in memory if it is small, else in a file without a name that ends with it."""

    def __init__(self, file: UploadFile, name: str) -> None:
        self._file = file.file
        self._name = name

    def __str__(self) -> str:
        return self._name

    def read_bytes(self) -> bytes:
        """The content."""
        self._file.seek(0)
        return self._file.read()


@dataclass
class Form:
    """What a form held: images and texts by the name of their field; `held` closes the images."""

    images: dict[str, list[Upload]]
    texts: dict[str, list[str]]
    held: ExitStack = field(default_factory=ExitStack)


async def read_form(request: Request, limits: Limits, files: Sequence[str], texts: Sequence[str] = ()) -> Form:
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
        It is no such form, or too large.
    """
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        given = "none" if "content-type" not in request.headers else "another"
        raise RefusedError(415, f"images must come as multipart/form-data; the content type is {given}: send a form")
    try:
        parsed = await request.form(
            max_files=limits.files, max_fields=2 * limits.files, max_part_size=8 * limits.label_length + 1024
        )
    except HTTPException as error:  # of Starlette, which alone knows what is wrong
        told = error.detail.rstrip(".")
        status = 413 if "Too many" in told or "exceeded" in told else 400
        raise RefusedError(
            status, f"the form must be whole and within limits; it is not ({told}): send less, or repair it"
        ) from error
    except ClientDisconnect as error:
        raise RefusedError(400, "the form must be whole; the connection was closed within it: send it again") from error
    form = Form({name: [] for name in files}, {name: [] for name in texts})
    items = parsed.multi_items()
    for _, value in items:
        if isinstance(value, UploadFile):
            form.held.callback(value.file.close)
    for name, value in items:
        if name not in (files if isinstance(value, UploadFile) else texts):
            form.held.close()
            known = ", ".join((*files, *texts))
            raise RefusedError(
                422, f"a form may have the fields {known}; it has {_short(name)}, or as another kind: leave it out"
            )
        if isinstance(value, UploadFile):
            kept = form.images[name]
            kept.append(Upload(value, f"{'test photo' if name.startswith('test') else 'photo'} {len(kept) + 1}"))
        else:
            form.texts[name].append(value)
    return form


def check_labels(texts: Sequence[str], n_images: int, classes: Sequence[Label], limits: Limits) -> list[Label]:
    """One label for every image: as many as there are, or one for all."""
    if not n_images:
        raise InputError("there must be at least one image; there is none: give some in the field images")
    if len(texts) == 1:
        texts = [texts[0]] * n_images
    if len(texts) != n_images:
        raise InputError(
            f"there must be one label for every image, or one for all; got {n_images} images and {len(texts)} labels"
        )
    return [check_text(label, f"photo {place}", classes, limits) for place, label in enumerate(texts, start=1)]


def check_text(text: str, where: str, classes: Sequence[Label], limits: Limits) -> Label:
    """A label as the model has it."""
    if len(text) > limits.label_length:
        raise InputError(
            f"a label must have at most {limits.label_length} characters; that of {where} has {len(text)}: shorten it"
        )
    return check_label(as_known(classes, [text])[0], where)


async def decode_all(uploads: Sequence[Upload], transform: Transform, limits: Limits, pool: Executor) -> list[Pixels]:
    """Pixels of all images, decoded beside the event loop; those that cannot be read are named together."""
    return await _each(lambda upload: decode(upload.read_bytes(), transform, limits.pixels), uploads, pool)


async def check_images(uploads: Sequence[Upload], transform: Transform, limits: Limits, pool: Executor) -> None:
    """Refuse images that ``decode_all`` would refuse, without keeping their pixels."""
    await _each(lambda upload: decode(upload.read_bytes(), transform, limits.pixels).size, uploads, pool)


async def _each(work: Callable[[Upload], T], uploads: Sequence[Upload], pool: Executor) -> list[T]:
    loop = asyncio.get_running_loop()

    def attempt(upload: Upload) -> T | ImageError:
        try:
            return work(upload)
        except ImageError as error:
            return error

    outcomes = await asyncio.gather(*(loop.run_in_executor(pool, attempt, upload) for upload in uploads))
    wrong = [f"{upload} ({each})" for upload, each in zip(uploads, outcomes, strict=True) if isinstance(each, ImageError)]
    if wrong:
        named = "; ".join(wrong[:20]) + (f" and {len(wrong) - 20} more" if len(wrong) > 20 else "")
        raise ImageError(f"every file must be an image; {len(wrong)} cannot be read: {named}: leave them out")
    return [each for each in outcomes if not isinstance(each, ImageError)]


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:40]}…")
