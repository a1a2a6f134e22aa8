"""The file of a model as it was before its last change, kept beside it so that this can be undone.

It is a hard link of the old file, made before the new one takes its place: no copy, no time, and as
much disk as the old file. The new file names it by its digest (``before`` in the header), so that a
file that does not belong to it is never taken for the one before. Where the file system has no hard
links, it is a copy.

The link has the name ``..NAME.undo.part`` until the new file is in its place; a kill in between
leaves both, and ``tidy`` finds out by the digests which of them is of use.
"""

import errno
import os
import shutil
import warnings
from contextlib import suppress
from pathlib import Path

from visvm.encoders.files import flush_folder, part_of, written
from visvm.errors import InputError, ModelFileError, shown
from visvm.model.container import locked, opened, real_path

_FULL = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))


def is_wanted() -> bool:
    """Whether files are kept for undoing: unless ``VISVM_UNDO`` is off."""
    text = os.environ.get("VISVM_UNDO", "on")
    if text not in ("on", "off"):
        raise InputError(
            f"VISVM_UNDO is {text!r}. Set it to on or off, or unset it.", code="undo-setting"
        )
    return text == "on"


def place_of(path: Path) -> Path:
    """Return where the file before the last change is kept."""
    path = real_path(path)
    return path.with_name(f".{path.name}.undo")


def keep(path: Path) -> str | None:
    """Keep a file that is about to be replaced; return its digest, or None where there is none."""
    path = real_path(path)
    digest, part = _digest(path), part_of(place_of(path))
    if digest is None:
        return None
    try:
        part.unlink(missing_ok=True)
        try:
            os.link(path, part)
        except OSError:
            with path.open("rb") as source, written(part) as copy:
                shutil.copyfileobj(source, copy, 2**20)
            shutil.copymode(path, part)
    except OSError as error:
        reason = error.strerror or error
        fact = f"The file before this change cannot be kept beside {shown(path)} ({reason})."
        warnings.warn(f"{fact} The change cannot be undone.", stacklevel=2)
        return None
    flush_folder(path.parent)
    return digest


def make_room(path: Path, error: BaseException | None) -> bool:
    """Remove the older file that is kept, if the disk was full; return whether that was done."""
    kept = place_of(path)
    if getattr(error, "errno", None) not in _FULL or not os.path.lexists(kept):
        return False
    with suppress(OSError):
        kept.unlink()
        return True
    return False


def tidy(path: Path) -> None:
    """Give what was kept its name, and remove what belongs to no change, or to an older one."""
    path, kept = real_path(path), place_of(path)
    part = part_of(kept)
    there = [each for each in (part, kept) if os.path.lexists(each)]
    if not there:
        return
    wanted = _before(path)
    with suppress(OSError):  # where this cannot be written: what is wrong there is never used
        if part in there and wanted is not None and _digest(part) == wanted:
            part.replace(kept)
        elif part in there:
            part.unlink()
        if kept in there and (wanted is None or _digest(kept) != wanted):
            kept.unlink(missing_ok=True)
        flush_folder(path.parent)


def tidy_if_free(path: Path) -> None:
    """Do as ``tidy``, unless another process holds the file, and will."""

    def held() -> None:
        raise TimeoutError

    with suppress(ModelFileError, TimeoutError), locked(path, held):
        tidy(path)


def available(path: Path) -> Path | None:
    """Return the file as it was before the last change, if it is there."""
    wanted = _before(path)
    for each in (place_of(path), part_of(place_of(path))):
        if wanted is not None and _digest(each) == wanted:
            return each
    return None


def discard(path: Path) -> None:
    """Remove what is kept: the last change can no longer be undone."""
    for each in (place_of(path), part_of(place_of(path))):
        each.unlink(missing_ok=True)
    flush_folder(real_path(path).parent)


def _before(path: Path) -> str | None:
    """Return the digest that a file names as that of the one before it."""
    with suppress(ModelFileError), opened(path) as file:
        before = file.header.get("before")
        return before if isinstance(before, str) else None
    return None


def _digest(path: Path) -> str | None:
    """Return the digest of a file that visvm wrote; None where there is none."""
    if os.path.islink(path) or not os.path.isfile(path):
        return None
    with suppress(ModelFileError), opened(path) as file:
        return file.digest
    return None
