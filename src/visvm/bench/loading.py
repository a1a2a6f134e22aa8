"""A name or a path → images with their classes: the data sets of the paper, folders of one's own, scikit-learn's digits.

Nothing is ever downloaded; ``visvm doctor data`` shows what is there and what is not.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from visvm.bench import cifar
from visvm.bench.datasets import DATASETS, DataSet
from visvm.bench.digits import DIGITS, digit_pictures
from visvm.encoders.sources import Source, content_of, expanded
from visvm.errors import ImageError, InputError, VisvmError, shown
from visvm.learning.labelled import Labelled, read_labelled

ROOT_VARIABLE: Final = "VISVM_DATA"

Verdict = Literal["absent", "complete", "other counts", "unreadable"]


@dataclass(frozen=True)
class LabelledImages:
    """Images and their classes.

    Parameters
    ----------
    images : sequence of Path or bytes
        Files, or the contents of files.
    targets : array of shape (n,)
        Places in the list of classes.
    """

    images: Sequence[Source]
    targets: NDArray[np.intp]


@dataclass(frozen=True)
class ImageData:
    """A data set that has been read: all but the pixels of image files.

    Parameters
    ----------
    name : str
        As it was asked for.
    classes : list of str
    train, test : LabelledImages
        Every class has images in both.
    """

    name: str
    classes: list[str]
    train: LabelledImages
    test: LabelledImages


def data_root(given: Path | None) -> Path:
    """The folder of data sets: the one given, or else that of ``VISVM_DATA``."""
    root = find_data_root(given)
    if root is None:
        raise InputError(
            f"data sets need a folder; none is set: give --data FOLDER, or set {ROOT_VARIABLE}; see 'visvm doctor data'"
        )
    return root


def find_data_root(given: Path | None) -> Path | None:
    """As ``data_root``, but None where none is set; one that is set must exist."""
    chosen = given or os.environ.get(ROOT_VARIABLE)
    if not chosen:
        return None
    root = expanded(chosen)
    if not os.path.isdir(root):
        option = f"the value of {ROOT_VARIABLE}" if given is None else "--data"
        raise InputError(
            f"{option} must be a folder of data sets; {shown(root)} is none: correct it, see 'visvm doctor data'"
        )
    return root


def load_dataset(
    name_or_path: str,
    root: Path | None,
    *,
    train_per_class: int | None = None,
    test_per_class: int | None = None,
) -> ImageData:
    """Find a data set and read it; image files are listed, not opened.

    Parameters
    ----------
    name_or_path : str
        A name of ``DATASETS``, which gives the classes of the benchmark; "digits", scikit-learn's;
        or the path of a folder with ``train/CLASS/IMAGES`` and ``test/CLASS/IMAGES``, which gives
        all of its classes.
    root : Path, optional
        The folder of data sets, as in ``data_root``; a path needs none.
    train_per_class, test_per_class : int, optional
        Keep only the first so many images of each class: in the order of the file for CIFAR-100, by
        path otherwise.
    """
    for option, limit in (("train_per_class", train_per_class), ("test_per_class", test_per_class)):
        if limit is not None and limit < 1:
            raise InputError(
                f"{option} must be at least 1; got {limit}: give more, or leave it out for all images"
            )
    known = DATASETS.get(name_or_path)
    if known is not None:
        data = _of_the_benchmark(known, data_root(root))
    else:
        data = _digits() if name_or_path == "digits" else _of_ones_own(name_or_path)
    return ImageData(
        data.name,
        data.classes,
        _first(data.train, train_per_class),
        _first(data.test, test_per_class),
    )


def require_present(names: Sequence[str], root: Path | None) -> None:
    """Refuse data sets of the benchmark that are not there, all of them at once."""
    wanted = [DATASETS[name] for name in names if name in DATASETS]
    absent = [known.name for known in wanted if _locate(known, data_root(root)) is None]
    if len(absent) > 1:
        raise InputError(
            f"data sets must lie under {shown(data_root(root))}; {', '.join(absent)} are not there: put them there, see "
            "'visvm doctor data', or name others with --datasets"
        )


class Content(NamedTuple):
    """What reading every image of a data set tells."""

    digest: str  # SHA-256 over the class names, and the class and content of every image in turn
    n_shared: int  # test images whose content is also that of a training image


def read_content(data: ImageData) -> Content:
    """Read all images once."""
    digest = hashlib.sha256(json.dumps(data.classes).encode())
    train: set[bytes] = set()
    n_shared = 0
    for part in (data.train, data.test):
        digest.update(f"\n{len(part.images)}\n".encode())
        for image, target in zip(part.images, part.targets, strict=True):
            content = _content(image)
            digest.update(f"{target} {len(content)}\n".encode())
            digest.update(content)
            known = hashlib.blake2b(content, digest_size=16).digest()
            if part is data.train:
                train.add(known)
            else:
                n_shared += known in train
    return Content(digest.hexdigest(), n_shared)


@dataclass(frozen=True)
class DataState:
    """What is there of a data set, for ``visvm doctor data``.

    Parameters
    ----------
    dataset : DataSet
    folder : str or None
        Where it was found.
    n_classes : int or None
        Class folders found, of which the benchmark takes the first; None where it is absent or
        unreadable.
    n_train, n_test : int or None
        Images found of the benchmark's classes.
    verdict : "absent", "complete", "other counts" or "unreadable"
        Complete is what agrees with one of the published splits.
    reason : str or None
        Why it is unreadable.
    """

    dataset: DataSet
    folder: str | None
    n_classes: int | None
    n_train: int | None
    n_test: int | None
    verdict: Verdict
    reason: str | None


def examine_data(root: Path | None) -> list[DataState]:
    """See which of the nine are there; files are counted, not opened, but for CIFAR-100's."""
    return [_examine(known, root) for known in DATASETS.values()]


def _examine(known: DataSet, root: Path | None) -> DataState:
    folder = None if root is None else _locate(known, root)
    if folder is None:
        return DataState(known, None, None, None, None, "absent", None)
    try:
        found = _read(known.name, folder)
    except VisvmError as error:
        return DataState(known, str(folder), None, None, None, "unreadable", str(error))
    used = _only(found, known.n_classes)
    n_train, n_test = len(used.train.images), len(used.test.images)
    whole = len(used.classes) == known.n_classes
    published = any(
        split.train.admits(n_train) and split.test.admits(n_test) for split in known.splits
    )
    verdict: Verdict = "complete" if whole and published else "other counts"
    return DataState(known, str(folder), len(found.classes), n_train, n_test, verdict, None)


def _of_the_benchmark(known: DataSet, root: Path) -> ImageData:
    folder = _locate(known, root)
    if folder is None:
        raise InputError(
            f"{known.name} must lie at {shown(root)}/{known.layout}; it is not there: put it there, see 'visvm doctor data'"
        )
    found = _read(known.name, folder)
    if len(found.classes) < known.n_classes:
        raise InputError(
            f"{known.name} must have at least {known.n_classes} classes; {shown(folder)} has {len(found.classes)}: complete it, "
            "see 'visvm doctor data'"
        )
    return _only(found, known.n_classes)


def _digits() -> ImageData:
    """Scikit-learn's digits: 100 of each to learn from, 50 to test with."""

    def part(first: int, last: int) -> LabelledImages:
        pictures = list(digit_pictures(first, last))
        return LabelledImages(
            [content for _, content in pictures],
            np.array([DIGITS.index(name) for name, _ in pictures]),
        )

    return ImageData("digits", list(DIGITS), part(0, 100), part(100, 150))


def _of_ones_own(given: str) -> ImageData:
    folder = expanded(given)
    if not os.path.isdir(folder):
        raise InputError(
            f"a data set must be one of {', '.join(DATASETS)}, digits, or a folder with train and test in it; "
            f"{given!r} is neither: correct it"
        )
    return _read(given, folder)


def _locate(known: DataSet, root: Path) -> Path | None:
    return next((root / folder for folder in known.folders if os.path.isdir(root / folder)), None)


def _read(name: str, folder: Path) -> ImageData:
    """All classes of a data set."""
    return _read_cifar(name, folder) if name == "cifar100" else _read_folders(name, folder)


def _read_cifar(name: str, folder: Path) -> ImageData:
    classes = cifar.read_class_names(folder / "meta")
    parts = [cifar.read_split(folder / part) for part in ("train", "test")]
    return ImageData(
        name,
        classes,
        *(LabelledImages(cifar.BmpImages(pixels), labels) for pixels, labels in parts),
    )


def _read_folders(name: str, folder: Path) -> ImageData:
    for part in ("train", "test"):
        if not os.path.isdir(folder / part):
            raise InputError(
                f"{shown(folder)} must have the folders train and test; it has no {part}: make it"
            )
    train, test = read_labelled(folder / "train"), read_labelled(folder / "test")
    odd = sorted(set(map(str, train.labels)) ^ set(map(str, test.labels)))
    if odd:
        raise InputError(
            f"train and test must have the same classes; in {shown(folder)} {len(odd)} are only in one, such as {odd[0]!r}: "
            "complete them"
        )
    classes = sorted(set(map(str, train.labels)))
    return ImageData(name, classes, _numbered(train, classes), _numbered(test, classes))


def _numbered(labelled: Labelled, classes: list[str]) -> LabelledImages:
    places = {label: place for place, label in enumerate(classes)}
    return LabelledImages(
        labelled.sources, np.array([places[str(label)] for label in labelled.labels], dtype=np.intp)
    )


def _only(data: ImageData, n_classes: int) -> ImageData:
    """The first so many classes."""
    if len(data.classes) <= n_classes:
        return data
    parts = [
        _taken(part, np.flatnonzero(part.targets < n_classes)) for part in (data.train, data.test)
    ]
    return ImageData(data.name, data.classes[:n_classes], *parts)


def _first(part: LabelledImages, per_class: int | None) -> LabelledImages:
    """The first so many images of each class, in their order."""
    if per_class is None:
        return part
    kept = [
        np.flatnonzero(part.targets == target)[:per_class] for target in np.unique(part.targets)
    ]
    return _taken(part, np.sort(np.concatenate(kept)))


def _taken(part: LabelledImages, places: NDArray[np.intp]) -> LabelledImages:
    images = part.images
    if isinstance(images, cifar.BmpImages):
        return LabelledImages(cifar.BmpImages(images.pixels[places]), part.targets[places])
    return LabelledImages([images[place] for place in places], part.targets[places])


def _content(image: Source) -> bytes:
    try:
        return content_of(image)
    except OSError as error:
        raise ImageError(
            f"every image must be readable; {error.filename} is not ({error.strerror}): replace it"
        ) from error
