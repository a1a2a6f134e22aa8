"""``visvm sort``: photos into a folder for every answer."""

import errno
import hashlib
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from visvm.cli.options import (
    Json,
    ModelPath,
    NoCache,
    Quiet,
    SkipUnreadable,
    Unknown,
    Where,
    home,
)
from visvm.encoders.files import flush_folder, make_folder, written
from visvm.errors import InputError, shown

if TYPE_CHECKING:
    from visvm.model.results import Prediction

NONE = "none of these"
"""The folder of photos that show none of the classes; another if a class has this name."""

Photos = Annotated[Path, typer.Argument(help="Photos.", metavar="FOLDER", callback=home)]
SortedInto = Annotated[
    Path, typer.Argument(help="Where the folders are made.", metavar="OUT", callback=home)
]
Link = Annotated[bool, typer.Option("--link", help="Make symbolic links instead of copies.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would go where.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before it is done.")]

_MOST_BYTES = 200  # of a folder's name
_MOST_OF_FILE = 255  # of a file's name, where the system does not say
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)  # by Windows


@dataclass(frozen=True)
class Move:
    """A photo and where it goes.

    Attributes
    ----------
    path, target : str
    label : str or int
        The answer; the closest class where it is none of these.
    unknown : bool
    there : bool
        Whether it is there already.
    """

    path: str
    target: str
    label: str | int
    unknown: bool
    there: bool


def sort(
    model: ModelPath,
    folder: Photos,
    output: SortedInto,
    link: Link = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    unknown: Unknown = "5%",
    skip_unreadable: SkipUnreadable = False,
    encoder: Where = None,
    no_cache: NoCache = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Copy photos into a folder for every answer. Says what will be done first; replaces nothing.

    If it is interrupted, run it again: what is there already stays as it is.
    """
    from visvm.cli.ask import rate_of
    from visvm.cli.terminal import answer, progress_bars
    from visvm.encoders.images import find_images
    from visvm.model.predictor import ImagePredictor

    rate = rate_of(unknown)
    _check_output(folder, output)
    photos = find_images(folder)
    if not photos:
        fact = f"There are no images at {folder}."
        raise InputError(f"{fact} Correct the path.", code="images-missing")
    predictor = ImagePredictor.load(model, encoder=encoder, cache=not no_cache, for_prediction=True)
    with progress_bars(quiet) as progress:
        found = _answers(
            predictor.predict_stream(photos, top=1, unknown=rate, progress=progress),
            skip_unreadable,
        )
    moves = planned(found, output, predictor.classes_, link=link)
    _check_folders(moves)
    to_do = [move for move in moves if not move.there]
    if not dry_run and to_do and not yes and not _agreed(moves, output, link, as_json):
        return
    if not dry_run:
        carry_out(moves, link=link)
    done = 0 if dry_run else len(to_do)
    facts = {"done": done, "photos": [asdict(move) for move in moves]}
    answer(facts, lambda: _tell(moves, output, link, dry_run), as_json=as_json, quiet=quiet)


def _answers(outcomes: "Iterable[object]", skip_unreadable: bool) -> "list[Prediction]":
    """Return the answers; refuse files that are not images, or leave them out."""
    from visvm.encoders.pipeline import Unreadable, refuse_unreadable
    from visvm.learning.labelled import OR_SKIP
    from visvm.model.results import Prediction

    found = list(outcomes)
    if not skip_unreadable:
        refuse_unreadable([each for each in found if isinstance(each, Unreadable)], OR_SKIP)
    return [each for each in found if isinstance(each, Prediction)]


def _agreed(moves: "Sequence[Move]", output: Path, link: bool, as_json: bool) -> bool:
    """Show what will be done, and ask whether to do it."""
    from visvm.cli.terminal import note

    if not as_json:
        _show(moves, output, link)
    if as_json or not sys.stdin.isatty():
        raise InputError("Nothing was done. Run it with --yes to do it.", code="yes-missing")
    if not typer.confirm("Do it?", err=True):
        note("Nothing was done.")
        return False
    return True


def _check_output(folder: Path, output: Path) -> None:
    """Refuse an output that the photos would come from next time."""
    here, there = os.path.realpath(folder), os.path.realpath(output)
    inside = False
    with suppress(ValueError):  # two drives of Windows
        inside = os.path.commonpath([here, there]) == here
    if inside:
        raise InputError(
            f"{output} is inside {folder}, so sorted photos would be sorted again. "
            "Choose a folder elsewhere.",
            code="output-in-input",
        )
    if _exists(output) and not output.is_dir():
        raise InputError(f"{output} is a file. Choose a folder.", code="output-is-file")


def _check_folders(moves: "Sequence[Move]") -> None:
    """Refuse to write through a link, which somebody else may have made, or into a file."""
    for folder in dict.fromkeys(Path(move.target).parent for move in moves):
        if folder.is_symlink() or (os.path.lexists(folder) and not folder.is_dir()):
            what = "a link" if folder.is_symlink() else "a file"
            raise InputError(
                f"{shown(folder)} is {what}, and photos go into folders. Remove it, or choose "
                "another OUT.",
                code="folder-is-link",
            )


# Where photos go


def planned(
    answers: "Sequence[Prediction]", output: Path, classes: Sequence[str | int], *, link: bool
) -> list[Move]:
    """Return where photos go, in their order; the same photos always go to the same places."""
    folders, taken, most = folder_names(classes), set[str](), _most_bytes(output)
    moves = []
    for each in answers:
        folder = output / (folders[None] if each.unknown else folders[each.label])
        source = Path(each.path)
        target, there = _free(source, folder, taken, link, most)
        taken.add(os.path.normcase(target))
        moves.append(Move(str(source), str(target), each.label, each.unknown, there))
    return moves


def _free(source: Path, folder: Path, taken: set[str], link: bool, most: int) -> tuple[Path, bool]:
    """Return a name that no other photo has, and whether the photo is there already."""
    number = 1
    while True:
        stem, ending = source.stem, ("" if number == 1 else f" ({number})") + source.suffix
        while stem and len(os.fsencode(stem + ending)) > most:
            stem = stem[:-1]
        target = folder / (stem + ending)
        if os.path.normcase(target) not in taken:
            if _is_there(source, target, link):
                return target, True
            if not _exists(target):
                return target, False
        number += 1


def _most_bytes(output: Path) -> int:
    """Return how long a file's name may be there."""
    there = next(each for each in (output, *output.absolute().parents) if os.path.isdir(each))
    with suppress(OSError, ValueError, AttributeError):  # Windows: it has no pathconf
        most = os.pathconf(there, "PC_NAME_MAX")
        return most if most > 0 else _MOST_OF_FILE
    return _MOST_OF_FILE


def _exists(target: Path) -> bool:
    try:
        os.lstat(target)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            fact = f"The path {shown(target)} is too long."
            raise InputError(f"{fact} Choose a shorter OUT.", code="target-too-long") from error
        return False
    return True


def _is_there(source: Path, target: Path, link: bool) -> bool:
    if not os.path.lexists(target) or target.is_symlink() != link:
        return False
    if link:
        return os.readlink(target) == os.path.abspath(source)
    with suppress(OSError):
        return target.stat().st_size == source.stat().st_size and (
            target.read_bytes() == source.read_bytes()
        )
    return False


def folder_names(classes: Sequence[str | int]) -> dict[str | int | None, str]:
    """Return a folder's name for every class, and for none of these (None); no two are the same.

    Examples
    --------
    >>> names = folder_names(["a/b", "a_b", "..", "owl", "CON", NONE])
    >>> list(names.values())
    ['a_b', 'a_b (2)', '_', 'owl', '_CON', 'none of these', 'none of these (2)']
    """
    names: dict[str | int | None, str] = {}
    taken: set[str] = set()
    for label in (*classes, None):
        name, number = _safe(NONE if label is None else str(label)), 1
        while (numbered := name if number == 1 else f"{name} ({number})").casefold() in taken:
            number += 1
        taken.add(numbered.casefold())
        names[label] = numbered
    return names


def _safe(label: str) -> str:
    """Return a name that is a folder's on every system, and in no other folder."""
    name = re.sub(r'[\x00-\x1f\x7f<>:"/\\|?*]', "_", label).strip(". ")
    name = name.encode("utf-8", "replace")[:_MOST_BYTES].decode("utf-8", "ignore").rstrip(". ")
    return f"_{name}" if not name or _RESERVED.fullmatch(name) else name


# Doing it


def carry_out(moves: Sequence[Move], *, link: bool) -> None:
    """Copy or link photos, each in one step that replaces nothing; leave those that are there."""
    for folder in dict.fromkeys(Path(move.target).parent for move in moves if not move.there):
        make_folder(folder)
    for move in moves:
        source, target = Path(move.path), Path(move.target)
        if move.there:
            with suppress(OSError):  # what a kill has left
                _part_of(target).unlink(missing_ok=True)
            continue
        try:
            if link:
                os.symlink(os.path.abspath(source), target)
            else:
                _copy(source, target)
        except FileExistsError as error:
            raise InputError(
                f"{shown(target)} has come meanwhile. Run the same command again.",
                code="file-exists",
            ) from error
        flush_folder(target.parent)


def _part_of(target: Path) -> Path:
    """Return where a copy is written before it takes its place; its name is short."""
    digest = hashlib.sha256(os.fsencode(target.name)).hexdigest()
    return target.with_name(f".{digest[:16]}.part")


def _copy(source: Path, target: Path) -> None:
    """Copy a photo; raise a FileExistsError if the name is taken, even since it was planned."""
    part = _part_of(target)
    with written(part) as file:
        file.write(source.read_bytes())
    try:
        try:
            os.link(part, target)
        except FileExistsError:
            raise
        except OSError:  # a file system without links: take the name, then fill it
            target.open("xb").close()
            part.replace(target)
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


# Telling


def _show(moves: Sequence[Move], output: Path, link: bool) -> None:
    from visvm.cli.terminal import out, table

    counts = Counter(Path(move.target).parent.name for move in moves if not move.there)
    n_there = sum(move.there for move in moves)
    what = "links" if link else "copies"
    rows = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    if rows:
        out().print(
            table(
                f"{what} to make in {shown(output)}", ["folder", "photos"], rows, right=["photos"]
            )
        )
    if n_there:
        out().print(f"{n_there} of {len(moves)} photos are there already", markup=False)


def _tell(moves: Sequence[Move], output: Path, link: bool, dry_run: bool) -> None:
    """Say what was done, or would be."""
    from visvm.cli.terminal import out
    from visvm.model.formats import counted

    if dry_run:
        _show(moves, output, link)
        return
    n, n_there = sum(not move.there for move in moves), sum(move.there for move in moves)
    n_unknown = sum(move.unknown for move in moves)
    n_folders = len({Path(move.target).parent for move in moves})
    out().print(
        f"{shown(output)}: {'linked' if link else 'copied'} {counted(n, 'photo')}; {n_there} there "
        f"already; {n_unknown} of all as none of these; {counted(n_folders, 'folder')}",
        markup=False,
    )
