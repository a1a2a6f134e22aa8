"""Folders, CSV files and lists → image files with their labels."""

import csv
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from visvm.encoders.images import find_images, is_image_name
from visvm.encoders.sources import Source, as_source, expanded, is_uri, list_classes
from visvm.errors import InputError, shown
from visvm.model.labels import Label, check_label

Images = str | Path | Sequence[str | Source]
"""A folder with one sub-folder per class, a CSV file of path,label, or image files or their contents."""


@dataclass(frozen=True)
class Labelled:
    """Image files, or their contents, and their labels, one each."""

    sources: list[Source]
    labels: list[Label]

    def only(self, classes: set[Label]) -> "Labelled":
        """Those of the given classes."""
        kept = [
            (source, label)
            for source, label in zip(self.sources, self.labels, strict=True)
            if label in classes
        ]
        return Labelled([source for source, _ in kept], [label for _, label in kept])


def read_labelled(images: Images, labels: Sequence[Label] | None = None) -> Labelled:
    """Find out which files are meant, and what they show.

    Parameters
    ----------
    images : path, or sequence of paths or contents
        A folder with one sub-folder per class, also as a URI, or a CSV file of path,label (relative
        to its own folder); or, with `labels`, files or URIs.
    labels : sequence of str or int, optional
        One for every file.
    """
    if isinstance(images, str) and is_uri(images):
        if labels is not None:
            raise InputError(
                f"labels belong to a list of files; got the single place {images}: give a list, or no labels"
            )
        return _from_uri(images)
    if isinstance(images, (str, Path)):
        path = expanded(images)
        if labels is not None:
            raise InputError(
                f"labels belong to a list of files; got the single path {shown(path)}: give a list, or no labels"
            )
        if os.path.isdir(path):  # which, unlike the method, is False for a name too long to exist
            return _from_folder(path)
        if path.suffix.lower() == ".csv":
            return _from_csv(path)
        if not os.path.exists(path):
            raise InputError(
                f"{shown(path)} must be a folder with one sub-folder per class, or a CSV file; it does not exist"
            )
        raise InputError(
            f"{shown(path)} must be a folder with one sub-folder per class, or a CSV file of path,label; it is neither"
        )
    sources = [as_source(image) for image in images]
    if labels is None:
        raise InputError(
            "a list of files must come with labels, one each; got none: give them, or a folder per class"
        )
    if isinstance(labels, str):
        raise InputError(
            f"labels must be a list, one for every file; got the single label {labels!r}: repeat it in a list"
        )
    if not sources:
        raise InputError("there must be at least one file; the list is empty: give some")
    if len(sources) != len(labels):
        raise InputError(
            f"there must be one label for every file; got {len(sources)} files and {len(labels)} labels"
        )
    checked = [
        check_label(label, f"file {_named(sources[place], place)}")
        for place, label in enumerate(labels)
    ]
    if len({isinstance(label, str) for label in checked}) > 1:
        raise InputError("labels must be all text or all whole numbers; got both: convert them")
    return Labelled(sources, checked)


def _named(source: Source, place: int) -> str:
    return str(place + 1) if isinstance(source, bytes) else shown(Path(str(source)))


def _from_folder(folder: Path) -> Labelled:
    try:
        children = sorted(folder.iterdir())
    except OSError as error:
        raise InputError(
            f"{shown(folder)} must be a folder that can be read; it is not: {error.strerror}"
        ) from error
    classes = [
        child for child in children if child.is_dir() and not child.name.startswith((".", "__"))
    ]
    loose = [child for child in children if child.is_file() and is_image_name(child)]
    if not classes:
        what = f"{len(loose)} images and no sub-folder" if loose else "nothing"
        raise InputError(
            f"{shown(folder)} must have one sub-folder per class, named after it; it has {what}: sort the images into folders"
        )
    if loose:
        raise InputError(
            f"images must lie in the sub-folder of their class; {shown(loose[0])} does not: move it"
        )
    paths: list[Source] = []
    labels: list[Label] = []
    for child in classes:
        found = find_images(child)
        if not found:
            raise InputError(
                f"every class must have images; the folder {shown(child)} has none: add some, or remove the folder"
            )
        paths += found
        labels += [check_label(child.name, f"the folder {shown(child)}")] * len(found)
    return Labelled(paths, labels)


def _from_uri(uri: str) -> Labelled:
    sources: list[Source] = []
    labels: list[Label] = []
    for name, files in list_classes(uri).items():
        sources += files
        labels += [check_label(name, f"the folder {name} of {uri}")] * len(files)
    return Labelled(sources, labels)


def _from_csv(table: Path) -> Labelled:
    try:
        with table.open(newline="", encoding="utf-8-sig") as file:
            rows = [(number, row) for number, row in enumerate(csv.reader(file), start=1) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(
            f"{shown(table)} must be a CSV file of path,label in UTF-8; it cannot be read: {error}"
        ) from error
    if rows and [cell.strip().lower() for cell in rows[0][1]] == ["path", "label"]:
        rows = rows[1:]
    if not rows:
        raise InputError(f"{shown(table)} must have a row path,label for every image; it has none")
    for number, row in rows:
        if len(row) != 2 or not all(cell.strip() for cell in row) or "\0" in row[0]:
            raise InputError(
                f"every row of {shown(table)} must be path,label; row {number} is {','.join(row)!r}"
            )
    paths: list[Source] = [table.parent / expanded(row[0].strip()) for _, row in rows]
    return Labelled(
        paths, [check_label(row[1], f"row {number} of {shown(table)}") for number, row in rows]
    )
