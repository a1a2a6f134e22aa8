"""A check's corrections as a table, which people correct further and ``learn`` takes back.

Every photo is a row of ``path,label,was,why``: the label to learn, the one it had, and why that
may be wrong. A row without a label is not learned. Rows that call for a look come first.
"""

import csv
import io
import os
from dataclasses import replace
from pathlib import Path

from visvm.encoders.files import replacing
from visvm.errors import InputError, shown
from visvm.learning.findings import LIKELY, Check, again_of
from visvm.learning.labelled import FIX_LIST, Labelled
from visvm.model.formats import as_cell, percent
from visvm.model.labels import Label


def write_fix_list(table: Path, given: Labelled, check: Check) -> None:
    """Write the photos that were checked, corrected as far as possible, to a CSV file.

    A label called wrong becomes the suggested one if that is likely, or else none. Files that are
    not images, and second copies of a content under one label, get none. All others keep theirs.
    """
    text = io.StringIO(newline="")
    rows = csv.writer(text)
    rows.writerow(FIX_LIST)
    labels = dict(enumerate(given.labels))
    labels |= {each.place: each.suggested if each.score >= LIKELY else "" for each in check.wrong}
    again = _again(check, labels)
    labels |= dict.fromkeys(again | {each.place for each in check.unreadable}, "")
    whys = _whys(check, again)
    for place in sorted(labels, key=lambda place: place not in whys):
        path = _path_from(given.sources[place], table)
        row = path, labels[place], given.labels[place], "; ".join(whys.get(place, ()))
        rows.writerow(map(as_cell, row))
    try:
        content = text.getvalue().encode()
    except UnicodeEncodeError as error:
        name = shown(str(error.object)[error.start : error.end])
        raise InputError(
            f"A file's name has {name}, which is not text. Rename it.", code="name-not-text"
        ) from error
    with replacing(table) as file:
        file.write(content)


def _again(check: Check, labels: dict[int, Label]) -> set[int]:
    """Return the places of photos whose content comes before under the same corrected label."""
    found: set[int] = set()
    for group in check.duplicates:
        if group.exact:
            photos = [replace(each, label=labels[each.place]) for each in group.photos]
            found |= {each.place for each in again_of(photos) if each.label != ""}
    return found


def _whys(check: Check, again: set[int]) -> dict[int, list[str]]:
    """Return what is to be said of photos, by place."""
    whys: dict[int, list[str]] = {}

    def say(place: int, why: str) -> None:
        whys.setdefault(place, []).append(why)

    for unreadable in check.unreadable:
        say(unreadable.place, f"left out: not an image ({unreadable.reason})")
    for wrong in check.mislabelled:
        sure = wrong.confidence >= check.sure
        out = "left out: " if sure and wrong.score < LIKELY else ""
        how = "looks like" if sure else "perhaps"
        say(wrong.place, f"{out}{how} {wrong.suggested} ({percent(wrong.score, 0)})")
    for group in check.duplicates:
        first, *others = group.photos
        for photo in others:
            same = "the same photo as" if group.exact else "nearly the same photo as"
            out = "left out: " if photo.place in again and group.exact else ""
            say(photo.place, f"{out}{same} {first.path} ({first.label})")
    for unlike in check.unlike:
        say(unlike.place, f"unlike all others, {unlike.distance:.1f} times as far as usual")
    return whys


def _path_from(source: object, table: Path) -> str:
    """Return how a table names a file: by its path below the table's folder, or in full."""
    if not isinstance(source, Path):
        return str(source)
    full, folder = os.path.abspath(source), os.path.abspath(table.parent)
    below = os.path.relpath(full, folder)
    plain = not below.startswith(("..", "~", " ")) and "://" not in below
    return below if plain else full
