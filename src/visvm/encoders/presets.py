"""Name encoders by how much time an image may take: ``fast``, ``standard`` or ``best``.

A preset is nothing but an ordinary name: ``dinov2-s14`` at ``best`` is ``dinov2-s14@336``. The
encoders of the catalogue are fast by products in int8 and by leaving patches out, others by a
smaller picture.
"""

from typing import Final

from visvm.encoders.catalog import CATALOG
from visvm.encoders.loading import load_encoder, named
from visvm.encoders.resolution import Form
from visvm.errors import EncoderError, InputError
from visvm.progress import Progress, silent

AUTO: Final = "auto"
"""In place of an encoder's name: the first session chooses one by its own photos."""

STANDARD: Final = "standard"
# Side of the picture, in the encoder's own. The number of patches, and with it the time, goes with
# its square: best takes two to four times as long. In the catalogue fast is products in int8 and
# fewer patches. What each takes and costs in right answers is in benchmarks/FRONTIER.md.
SIDES: Final = {"fast": 5 / 8, STANDARD: 1.0, "best": 3 / 2}
QUALITIES: Final = tuple(SIDES)


def check_quality(quality: object) -> None:
    """Refuse what is no preset."""
    if quality not in QUALITIES:
        raise InputError(
            f"The 'quality' parameter must be one of {', '.join(QUALITIES)}. "
            f"Got {quality!r} instead.",
            code="quality-unknown",
        )


def at_quality(name: str, quality: str, progress: Progress = silent) -> str:
    """Return the name of an encoder at a preset.

    Parameters
    ----------
    name : str
        As ``load_encoder`` takes it, without a size.
    quality : "fast", "standard" or "best"
    progress : callable, optional
        As in ``load_encoder``: one that is not of the catalogue is loaded to see its patches.

    Raises
    ------
    InputError
        There is no such preset, or the name has a size already.
    EncoderError
        The encoder takes one size only.

    Examples
    --------
    >>> [at_quality("dinov2-s14", quality) for quality in QUALITIES]
    ['dinov2-s14@224:208:int8', 'dinov2-s14', 'dinov2-s14@336']
    """
    check_quality(quality)
    bare, form = named(name)
    if form != Form():
        raise InputError(
            f"--quality {quality} (quality=…) decides what of a picture is looked at, and so does "
            f"the name {name}. Leave one of them out.",
            code="quality-and-size",
        )
    if quality == STANDARD:
        return bare
    own, patch = _own_size(bare, progress)
    if patch is None:
        raise EncoderError(
            f"{bare} takes pictures of one size only. Leave --quality (quality=…) out, name the "
            "'positions' in the description of an ONNX file, or use another encoder.",
            code="size-unsupported",
        )
    if quality == "fast" and bare in CATALOG and (fast := CATALOG[bare].fast):
        return fast[0].name(bare, own)
    return _of_size(bare, quality, own, patch)


def has_quality(name: str, quality: str) -> bool:
    """Return whether an encoder is that of a preset, or was so in older versions.

    In these, ``fast`` was a smaller picture for the encoders of the catalogue as well, or fewer
    patches.

    Examples
    --------
    >>> [has_quality(f"dinov2-s14@{form}", "fast") for form in ("224:112", "140", "336")]
    [True, True, False]
    """
    bare, form = named(name)
    if name == at_quality(bare, quality):
        return True
    if bare in CATALOG and form in CATALOG[bare].fast:
        return quality == "fast"
    own, patch = _own_size(bare, silent)
    return patch is not None and name == _of_size(bare, quality, own, patch)


def at_every_quality(name: str, progress: Progress = silent) -> dict[str, str]:
    """Return an encoder's names by preset; where it takes one size only, that of ``standard``."""
    if _own_size(named(name)[0], progress)[1] is None:
        return {STANDARD: name}
    return {quality: at_quality(name, quality, progress) for quality in QUALITIES}


def _of_size(bare: str, quality: str, own: int, patch: int) -> str:
    # down, so that a preset takes no longer than it promises
    return f"{bare}@{int(own * SIDES[quality] / patch) * patch}"


def _own_size(bare: str, progress: Progress) -> tuple[int, int | None]:
    """Return the sides of an encoder's own picture and patch; None if it takes no other size."""
    if bare in CATALOG:
        return CATALOG[bare].preprocessing.size, CATALOG[bare].patch
    encoder = load_encoder(bare, progress)
    return encoder.preprocessing.size, getattr(encoder, "patch", None)
