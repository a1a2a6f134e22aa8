"""``visvm check``: what is wrong with labelled photos, before they are learned."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from visvm.cli.options import (
    Folder,
    Html,
    Json,
    Nested,
    NoCache,
    Quiet,
    home,
    require_absent,
    require_page,
    require_unread,
)
from visvm.errors import InputError, shown

if TYPE_CHECKING:
    from visvm.learning.findings import Alike, Check, Mislabelled

Compared = Annotated[
    Path | None,
    typer.Option(callback=home, help="Compare with all classes of this model; it stays as it is."),
]
FixList = Annotated[
    Path | None,
    typer.Option(
        metavar="OUT",
        callback=home,
        help="Write a CSV file of all photos to edit and to give to 'visvm learn': labels that "
        "look wrong are corrected, or left out where no other is likely.",
    ),
]
ForceBoth = Annotated[
    bool, typer.Option("--force", help="Replace the page and the fix list if they exist.")
]
LookingWith = Annotated[
    str | None,
    typer.Option(
        help="Encoder to look with. With --model: path of its encoder on this machine.",
        show_default="dinov2-s14",
    ),
]

_ROWS = 20  # of each table on the terminal
_LEAST_ROWS = 5  # of labels that lose, also where none is surely wrong


def check(
    folder: Folder,
    model: Compared = None,
    html: Html = None,
    fix_list: FixList = None,
    force: ForceBoth = False,
    encoder: LookingWith = None,
    nested: Nested = None,
    no_cache: NoCache = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Find wrong labels, photos that are there twice, odd ones and unreadable ones. Learns nothing.

    Every photo is scored as if its own label were not known.
    """
    from visvm.cli.terminal import answer, note, progress_bars
    from visvm.image_classifier import ImageClassifier
    from visvm.learning.fixes import write_fix_list
    from visvm.learning.labelled import read_labelled

    require_page(html, force)
    if fix_list is not None:
        require_absent(fix_list, force)
    written = [out for out in (html, fix_list) if out is not None]
    for out in written:
        require_unread(out, folder, model, encoder)
    _require_table(fix_list)
    if model is None:
        given: dict[str, Any] = {} if encoder is None else {"encoder": encoder}
        classifier = ImageClassifier(**given, cache=not no_cache)
    else:
        classifier = ImageClassifier.load(model, encoder=encoder, cache=not no_cache)
    for out in written:
        require_unread(out, classifier.encoder_name)
    photos = read_labelled(folder, nested=nested)
    with progress_bars(quiet) as progress:
        found = classifier.check(photos.sources, photos.labels, progress=progress)
    if fix_list is not None:  # which may refuse a file's name: then nothing is written
        require_unread(fix_list, *(each for each in photos.sources if isinstance(each, Path)))
        write_fix_list(fix_list, photos, found)
    if html is not None:
        write_check_page(html, folder, found)
    if written and not quiet:
        note(f"written: {', '.join(map(str, written))}")
    answer(found, lambda: show_check(found, folder), as_json=as_json)


def _require_table(output: Path | None) -> None:
    """Refuse a name by which ``learn`` would not know a table."""
    if output is not None and output.suffix.lower() != ".csv":
        advice = f"{shown(output)} would be a CSV file. Call it {shown(output.stem)}.csv."
        raise InputError(advice, code="ending-other")


def show_check(found: "Check", folder: str) -> None:
    """Show what a check of a folder has found, the most urgent last."""
    from visvm.cli.terminal import out, table
    from visvm.learning.findings import sentences
    from visvm.model.formats import counted, percent

    console = out()

    def name(path: str) -> str:
        return shown(path.removeprefix(f"{Path(folder)}/"))

    def show(title: str, columns: list[str], rows: list[tuple[object, ...]]) -> None:
        if rows:
            more = f", the first {_ROWS} of {len(rows)}" if len(rows) > _ROWS else ""
            console.print(table(f"{title}{more}", columns, rows[:_ROWS], right=["images"]))

    few = [(each.label, each.n) for each in found.few]
    show("classes with few photos", ["class", "images"], list(few))
    unreadable = [(name(each.path), each.reason) for each in found.unreadable]
    show("not images", ["file", "why"], list(unreadable))
    unlike = [(name(each.path), each.label, f"{each.distance:.1f} ×") for each in found.unlike]
    show("unlike all others", ["photo", "label", "as far as usual"], list(unlike))
    for exact, title in ((False, "nearly the same photo"), (True, "the same photo")):
        groups = [
            (number, name(photo.path), photo.label)
            for number, group in enumerate(_groups(found, exact), start=1)
            for photo in group.photos
        ]
        show(title, ["group", "photo", "label"], list(groups))
    wrong = [
        (name(each.path), each.label, each.suggested, percent(each.confidence, 0))
        for each in found.mislabelled[: max(len(found.wrong), _LEAST_ROWS)]
    ]
    show(
        "labels that lose, the surest first",
        ["photo", "label", "looks like", "confidence"],
        list(wrong),
    )
    images = f"{counted(found.n, 'image')} of {counted(found.n_classes, 'class')}"
    said = " ".join(sentences(found)) or "Nothing looks wrong."
    console.print(f"{images}: {said}", style="bold", markup=False)


def _groups(found: "Check", exact: bool) -> "Sequence[Alike]":
    """Return groups of photos that are alike, those under different labels first."""
    groups = [group for group in found.duplicates if group.exact == exact]
    return sorted(groups, key=lambda group: not group.across)


def write_check_page(path: Path, folder: str, found: "Check") -> None:
    """Write what a check has found as a page with the photos."""
    from visvm.cli.gallery import PhotoCard, PhotoSection, write_page
    from visvm.learning.findings import sentences
    from visvm.model.formats import counted

    def wrong(each: "Mislabelled") -> PhotoCard:
        looks = f"looks like {each.suggested}"
        return PhotoCard(each.path, f"labelled {each.label}", looks, f"{each.confidence:.0%} sure")

    def alike(exact: bool) -> list[list[PhotoCard]]:
        return [
            [PhotoCard(photo.path, more=f"labelled {photo.label}") for photo in group.photos]
            for group in _groups(found, exact)
        ]

    unsure = [[wrong(each)] for each in found.mislabelled if each.confidence < found.sure]
    unlike = [
        [
            PhotoCard(
                each.path, f"labelled {each.label}", more=f"{each.distance:.1f} × as far as usual"
            )
        ]
        for each in found.unlike
    ]
    unreadable = [(each.path, each.label, each.reason) for each in found.unreadable]
    few = [(each.label, each.n) for each in found.few]
    sections = (
        PhotoSection(
            "Labels that look wrong",
            "Each photo was scored as if it had not been learned, and its own label lost clearly.",
            [[wrong(each)] for each in found.wrong],
        ),
        PhotoSection(
            "The same photo more than once", "The files have the same content.", alike(True)
        ),
        PhotoSection("Nearly the same photo", "Copies, or shots in a row.", alike(False)),
        PhotoSection("Unlike all others", "They may show something else altogether.", unlike),
        PhotoSection("Not images", columns=("file", "label", "why"), rows=unreadable, n_texts=3),
        PhotoSection("Classes with few photos", columns=("class", "images"), rows=few),
        PhotoSection(
            "Less sure", "The label loses, but not clearly: these may just be hard.", unsure
        ),
    )
    lead = f"{counted(found.n, 'photo')} of {counted(found.n_classes, 'class')} in {folder}"
    facts = sentences(found) or ["Nothing looks wrong."]
    write_page(path, "What a check of the labels found", lead, facts, sections)
