"""Images and labels of a form, checked. Every image is decoded once.

What is kept of an image that waits to be learned is the square that its encoder sees, as an
uncompressed file: 0.2 MB in place of a photo, and nothing to decode again. So photos that cannot be
read are named while the client still waits, and no more than one is in memory at a time.
"""

import asyncio
import io
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import chain, islice
from typing import TypeVar

import numpy as np
from PIL import Image

from visvm.encoders.encoder import Pixels
from visvm.encoders.transform import Transform
from visvm.errors import ImageError, InputError
from visvm.model.labels import Label, as_number, check_label
from visvm.service.decoding import Decoders
from visvm.service.forms import PostedForm, Spool, Upload, no_room
from visvm.service.limits import Limits

_NAMED = 20  # unreadable photos that a message names

T = TypeVar("T")


def read_labels(
    form: PostedForm, images: str, labels: str, numbers: bool, limits: Limits
) -> list[Label]:
    """Return one label for every image of a field: as many as were given, or one for all."""
    uploads, texts = require_images(form, images), form.texts[labels]
    if len(texts) not in (1, len(uploads)):
        raise InputError(
            f"The form has {len(uploads)} images and {len(texts)} labels. "
            "Give one label for every image, or one for all.",
            code="labels-mismatch",
        )
    each = texts if len(texts) == len(uploads) else texts * len(uploads)
    pairs = zip(each, uploads, strict=True)
    return [read_label(text, str(upload), numbers, limits) for text, upload in pairs]


def require_images(form: PostedForm, field: str) -> list[Upload]:
    """Return the images of a field, of which there must be one at least."""
    if not form.images[field]:
        detail = f"There is no image. Give at least one image in the field {field}."
        raise InputError(detail, code="images-missing")
    return form.images[field]


def read_label(text: str, where: str, numbers: bool, limits: Limits) -> Label:
    """Return a label as the model has it: text, or a number where its classes are numbers."""
    if len(text) > limits.label_length:
        most, fact = limits.label_length, f"The label of {where} has {len(text)} characters."
        raise InputError(f"{fact} Shorten it to {most} characters.", code="label-too-long")
    return check_label(as_number(text) if numbers else text, where)


async def decode_all(uploads: Sequence[Upload], decoders: Decoders) -> list[Pixels]:
    """Return the pixels of images, decoded beside the event loop.

    Raises
    ------
    ImageError
        Some cannot be read; it names them together.
    """

    def pixels_of(upload: Upload) -> Pixels:
        return decoders.decode(upload.read_bytes())

    return await _each(pixels_of, uploads, decoders)


async def check_photos(form: PostedForm, decoders: Decoders) -> None:
    """See that all images of a form can be decoded, and keep them; raises as ``decode_all``."""

    def check(upload: Upload) -> None:
        decoders.decode(upload.read_bytes())

    await _each(check, list(chain(*form.images.values())), decoders)


async def keep_squares(form: PostedForm, transform: Transform, decoders: Decoders) -> None:
    """Put squares in the place of all images of a form; raises as ``decode_all`` does."""
    squares = Spool()

    def square_of(upload: Upload) -> Upload:
        content = as_file(decoders.decode(upload.read_bytes()), transform)
        return Upload(upload.name, squares, squares.write(content), len(content))

    with ExitStack() as undo:
        undo.callback(squares.close)
        try:
            made = await _each(square_of, list(chain(*form.images.values())), decoders)
        except OSError as error:
            raise no_room(error) from error
        undo.pop_all()
    left = iter(made)
    form.images = {name: list(islice(left, len(all_))) for name, all_ in form.images.items()}
    form.spool.close()
    form.spool = squares


def as_file(pixels: Pixels, transform: Transform) -> bytes:
    """Return an image file that decodes to these pixels, (3, size, size), by this transform.

    The square lies in the middle of the picture that the transform cuts it out of.
    """
    p = transform.preprocessing
    square = np.rint(255 * (pixels.transpose(1, 2, 0) * p.std + p.mean)).astype(np.uint8)
    width, height = transform.scaled(p.size, p.size)
    picture, file = Image.new("RGB", (width, height)), io.BytesIO()
    picture.paste(Image.fromarray(square), ((width - p.size) // 2, (height - p.size) // 2))
    picture.save(file, "BMP")
    return file.getvalue()


async def _each(
    work: Callable[[Upload], T], uploads: Sequence[Upload], decoders: Decoders
) -> list[T]:
    loop = asyncio.get_running_loop()

    def attempt(upload: Upload) -> T | ImageError:
        try:
            return work(upload)
        except ImageError as error:
            return error

    running = (loop.run_in_executor(decoders.threads, attempt, upload) for upload in uploads)
    outcomes = await asyncio.gather(*running)
    wrong = [
        f"{upload} ({each})"
        for upload, each in zip(uploads, outcomes, strict=True)
        if isinstance(each, ImageError)
    ]
    if wrong:
        n, more = len(wrong), len(wrong) - _NAMED
        named = "; ".join(wrong[:_NAMED]) + (f" and {more} more" if more > 0 else "")
        what, it = ("1 photo", "it") if n == 1 else (f"{n} photos", "them")
        detail = f"{what} cannot be read: {named}. Leave {it} out."
        raise ImageError(detail, code="images-unreadable")
    return [each for each in outcomes if not isinstance(each, ImageError)]
