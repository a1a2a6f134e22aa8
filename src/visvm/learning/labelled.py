"""Folders, CSV files and lists → image files with their labels, and these → layer features."""

import csv
import hashlib
import io
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from visvm.encoders.cache import FeatureCache, opened_cache
from visvm.encoders.encoder import Encoder, LayerFeatures
from visvm.encoders.files import read_file
from visvm.encoders.pipeline import encode_files, refuse_unreadable
from visvm.encoders.sources import (
    ImageLike,
    RemoteFile,
    Source,
    as_source,
    expanded,
    in_memory,
    is_uri,
    listed,
)
from visvm.encoders.transform import Transform
from visvm.errors import ImageError, InputError, shown
from visvm.learning.folders import read_folder
from visvm.model.formats import of_cell
from visvm.model.labels import Label, check_label
from visvm.progress import Progress


class DataFrameLike(Protocol):
    """A table with named columns, such as a DataFrame of pandas or polars."""

    @property
    def columns(self) -> Any:
        """Their names."""

    def __getitem__(self, name: str, /) -> Any:
        """Return a column."""


Images = str | Path | DataFrameLike | Image.Image | NDArray[Any] | Sequence[ImageLike]
"""A folder with one sub-folder per class, a CSV file or a table of path,label, or images."""

TestImages = str | Path | tuple[Sequence[ImageLike], Sequence[Label]]
"""A folder or a CSV file of images to test with, or images with their labels."""

FIX_LIST = ("path", "label", "was", "why")
"""The first row of what ``visvm check --fix-list`` writes; rows without a label are left out."""

OR_SKIP = ", or skip unreadable files with --skip-unreadable (skip_unreadable=True)"


@dataclass(frozen=True)
class Labelled:
    """Image files, or their contents, and their labels, one each."""

    sources: list[Source]
    labels: list[Label]

    def only(self, classes: set[Label]) -> "Labelled":
        """Return those of the given classes."""
        return self.at([place for place, label in enumerate(self.labels) if label in classes])

    def at(self, places: Sequence[int]) -> "Labelled":
        """Return those in the given places."""
        return Labelled(
            [self.sources[place] for place in places], [self.labels[place] for place in places]
        )

    def name_of(self, place: int) -> str:
        """Return what to call an image: its path, or its number where there is only content."""
        source = self.sources[place]
        return f"photo {place + 1}" if in_memory(source) else str(source)

    @property
    def key(self) -> str | None:
        """Tell these files and labels from others; None where there are contents among them.

        It is the SHA-256 of paths, sizes, times and labels. Nobody can read them from it; but one
        who guesses all of them right, to the nanosecond, can see that they were right.
        """
        digest = hashlib.sha256()
        for source, label in zip(self.sources, self.labels, strict=True):
            if not isinstance(source, (Path, RemoteFile)):
                return None
            where = os.path.abspath(source) if isinstance(source, Path) else str(source)
            digest.update(json.dumps([where, label, _version(source)]).encode())
        return digest.hexdigest()


def _version(source: Path | RemoteFile) -> str:
    """Return what changes when a file does: its size and time; nothing if it is gone."""
    if isinstance(source, RemoteFile):
        return source.version
    try:
        stat = source.stat()
    except OSError:
        return ""
    return f"{stat.st_size} {stat.st_mtime_ns}"


@dataclass(frozen=True)
class LabelledFeatures:
    """Layer features of all views, (n, V, width), with labels, and files that cannot be read."""

    features: LayerFeatures
    labels: list[Label]
    skipped: tuple[str, ...]
    paths: tuple[str, ...] = ()  # of those that can

    def only(self, classes: set[Label]) -> "LabelledFeatures":
        """Return those of the given classes."""
        kept = np.array([label in classes for label in self.labels], dtype=bool)
        labels = [label for label in self.labels if label in classes]
        paths = tuple(path for path, keep in zip(self.paths, kept, strict=True) if keep)
        return LabelledFeatures(self.features[kept], labels, self.skipped, paths)


def encode_labelled(
    given: Labelled,
    encoder: Encoder,
    views: Sequence[Transform],
    cache: bool | Path | FeatureCache,
    stage: str,
    progress: Progress,
    *,
    skip_unreadable: bool,
) -> LabelledFeatures:
    """Encode labelled files together; refuse those that are not images, or to skip all of them."""
    with opened_cache(cache) as opened:
        encoded = encode_files(given.sources, encoder, views, opened, progress, stage)
    if not skip_unreadable:
        refuse_unreadable(encoded.unreadable, OR_SKIP)
    labels = [given.labels[place] for place in encoded.places]
    if given.labels and not labels:
        raise none_readable()
    skipped = tuple(str(unreadable.path) for unreadable in encoded.unreadable)
    paths = tuple(given.name_of(place) for place in encoded.places)
    return LabelledFeatures(encoded.features, labels, skipped, paths)


def none_readable() -> ImageError:
    """Return the error for files none of which is an image."""
    return ImageError("None of the files is an image. Give some that are.", code="images-none")


def read_labelled(
    images: Images, labels: Sequence[Label] | None = None, *, nested: bool | None = None
) -> Labelled:
    """Find out which files are meant, and what they show.

    Parameters
    ----------
    images : path, or sequence of paths or contents
        A folder with one sub-folder per class, also as a URI, or a CSV file of path,label (relative
        to its own folder), or a DataFrame with these columns (relative to the working folder); or,
        with `labels`, files, URIs or images in memory.
    labels : sequence of str or int, optional
        One for every file.
    nested : bool, optional
        Of a folder whose images lie in folders of folders: whether the whole path names the class,
        such as dogs/pug, or its first folder. None refuses such a folder.
    """
    if isinstance(images, (str, Path)):
        if labels is not None:
            raise InputError(
                f"Labels were given with the single path {shown(images)}. Give a list of files "
                "with them, or a folder without.",
                code="labels-without-list",
            )
        if isinstance(images, str) and is_uri(images):
            return _from_folder(images, nested)
        return _from_path(expanded(images), nested)
    if hasattr(images, "columns"):
        if labels is not None:
            raise InputError(
                "Labels were given with a table. Put them into its column 'label'.",
                code="labels-without-list",
            )
        images, labels = _columns(cast("DataFrameLike", images))
    sources = [as_source(image, number) for number, image in enumerate(listed(images), 1)]
    return _from_list(sources, labels)


def read_tests(test: TestImages | None, nested: bool | None) -> Labelled | None:
    """Find out which images are to be tested with, if any."""
    if isinstance(test, tuple):
        return read_labelled(*test, nested=nested)
    return None if test is None else read_labelled(test, nested=nested)


def _columns(table: DataFrameLike) -> tuple[list[Any], list[Any]]:
    """Return the columns of a table that are needed."""
    names = [str(name) for name in table.columns]
    if not {"path", "label"} <= set(names):
        raise InputError(
            f"The table has the columns {', '.join(names)}. Call two of them path and label.",
            code="table-columns",
        )
    return listed(table["path"]), listed(table["label"])


def _from_path(path: Path, nested: bool | None) -> Labelled:
    if os.path.isdir(path):  # which, unlike the method, is False for a name too long to exist
        return _from_folder(path, nested)
    if path.suffix.lower() == ".csv":
        return _from_csv(path)
    what = "is neither a folder nor a CSV file" if os.path.exists(path) else "does not exist"
    raise InputError(
        f"{shown(path)} {what}. Give a folder with one sub-folder per class, or a CSV file of "
        "path,label.",
        code="path-missing",
    )


def _from_list(sources: list[Source], labels: Sequence[Label] | None) -> Labelled:
    if labels is None:
        raise InputError(
            "The list of files came without labels. Give one for each, or a folder per class.",
            code="labels-missing",
        )
    if isinstance(labels, str):
        raise InputError(
            f"The labels are the single text {labels!r}. Give a list, one for every file.",
            code="labels-not-a-list",
        )
    if not sources:
        raise InputError("The list of files is empty. Give at least one.", code="images-empty")
    if len(sources) != len(labels):
        raise InputError(
            f"There are {len(sources)} files and {len(labels)} labels. Give one label for every "
            "file.",
            code="labels-count",
        )
    checked = [
        check_label(label, f"file {_named(sources[place], place)}")
        for place, label in enumerate(labels)
    ]
    if len({isinstance(label, str) for label in checked}) > 1:
        raise InputError(
            "Some labels are text and others are numbers. Convert them to one kind.",
            code="labels-mixed",
        )
    return Labelled(sources, checked)


def _named(source: Source, place: int) -> str:
    return str(place + 1) if in_memory(source) else shown(Path(str(source)))


def _from_folder(folder: str | Path, nested: bool | None) -> Labelled:
    found = read_folder(folder, nested)
    names = {name: check_label(name, _where(folder, name)) for _, name in found}
    return Labelled([image for image, _ in found], [names[name] for _, name in found])


def _where(folder: str | Path, name: str) -> str:
    is_remote = isinstance(folder, str) and is_uri(folder)
    return (
        f"the folder {name} of {folder}" if is_remote else f"the folder {shown(Path(folder, name))}"
    )


def _from_csv(table: Path) -> Labelled:
    try:
        text = io.StringIO(read_file(table).decode("utf-8-sig"), newline="")
        rows = [(number, row) for number, row in enumerate(csv.reader(text), start=1) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(
            f"{shown(table)} cannot be read: {error}. Give a CSV file of path,label in UTF-8.",
            code="table-unreadable",
        ) from error
    head = [cell.strip().lower() for cell in rows[0][1]] if rows else []
    if head == list(FIX_LIST):
        rows = [
            (number, [of_cell(cell) for cell in row[:2]])
            for number, row in rows[1:]
            if "".join(row[1:2]).strip()
        ]
    elif head == ["path", "label"]:
        rows = rows[1:]
    if not rows:
        raise InputError(
            f"{shown(table)} has no rows. Give one path,label for every image.", code="table-empty"
        )
    for number, row in rows:
        if len(row) != 2 or not all(cell.strip() for cell in row) or "\0" in row[0]:
            raise InputError(
                f"Row {number} of {shown(table)} is {','.join(row)!r}. Make it path,label.",
                code="table-row",
            )
    paths = [_listed(row[0].strip(), table) for _, row in rows]
    labels = [check_label(row[1], f"row {number} of {shown(table)}") for number, row in rows]
    return Labelled(paths, labels)


def _listed(path: str, table: Path) -> Source:
    """Return the file that a table names: a URI, or a path, from the table's own folder."""
    return as_source(path) if is_uri(path) else table.parent / expanded(path)
