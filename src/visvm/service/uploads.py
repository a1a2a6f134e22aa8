"""Images and labels of a form, checked: every image is decoded once to see that it can be."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import TypeVar

from visvm.encoders.encoder import Pixels
from visvm.encoders.images import Transform, decode
from visvm.errors import ImageError, InputError
from visvm.model.labels import Label, as_number, check_label
from visvm.service.forms import Upload
from visvm.service.limits import Limits

T = TypeVar("T")


def check_labels(
    texts: Sequence[str], uploads: Sequence[Upload], field: str, numbers: bool, limits: Limits
) -> list[Label]:
    """One label for every image of a field: as many as there are, or one for all."""
    n_images = len(uploads)
    if not uploads:
        raise InputError(
            f"there must be at least one image; there is none: give some in the field {field}"
        )
    if len(texts) == 1:
        texts = [texts[0]] * n_images
    if len(texts) != n_images:
        raise InputError(
            f"there must be one label for every image, or one for all; got {n_images} images and {len(texts)} labels"
        )
    return [
        check_text(text, str(upload), numbers, limits)
        for text, upload in zip(texts, uploads, strict=True)
    ]


def check_text(text: str, where: str, numbers: bool, limits: Limits) -> Label:
    """A label as the model has it: text, or a number where its classes are numbers."""
    if len(text) > limits.label_length:
        raise InputError(
            f"a label must have at most {limits.label_length} characters; that of {where} has {len(text)}: shorten it"
        )
    return check_label(as_number(text) if numbers else text, where)


async def decode_all(
    uploads: Sequence[Upload], transform: Transform, limits: Limits, pool: Executor
) -> list[Pixels]:
    """Pixels of all images, decoded beside the event loop; those that cannot be read are named together."""
    return await _each(
        lambda upload: decode(upload.read_bytes(), transform, limits.pixels), uploads, pool
    )


async def check_images(
    uploads: Sequence[Upload], transform: Transform, limits: Limits, pool: Executor
) -> None:
    """Refuse images that ``decode_all`` would refuse, without keeping their pixels."""
    await _each(
        lambda upload: decode(upload.read_bytes(), transform, limits.pixels).size, uploads, pool
    )


async def _each(work: Callable[[Upload], T], uploads: Sequence[Upload], pool: Executor) -> list[T]:
    loop = asyncio.get_running_loop()

    def attempt(upload: Upload) -> T | ImageError:
        try:
            return work(upload)
        except ImageError as error:
            return error

    outcomes = await asyncio.gather(
        *(loop.run_in_executor(pool, attempt, upload) for upload in uploads)
    )
    wrong = [
        f"{upload} ({each})"
        for upload, each in zip(uploads, outcomes, strict=True)
        if isinstance(each, ImageError)
    ]
    if wrong:
        named = "; ".join(wrong[:20]) + (f" and {len(wrong) - 20} more" if len(wrong) > 20 else "")
        raise ImageError(
            f"every file must be an image; {len(wrong)} cannot be read: {named}: leave them out"
        )
    return [each for each in outcomes if not isinstance(each, ImageError)]
