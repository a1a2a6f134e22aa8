"""A name or a path → images with their classes.

Known are the data sets of the paper, scikit-learn's digits, and folders of your own.

Nothing is ever downloaded; ``visvm doctor data`` shows what is there.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
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

_SEE_DOCTOR: Final = "see 'visvm doctor data'"

Verdict = Literal["absent", "complete", "other counts", "unreadable"]


@dataclass(frozen=True)
class LabelledImages:
    """Images and their classes."""

    images: Sequence[Source]  # files, or the contents of files
    targets: NDArray[np.intp]  # (n,), places in the list of classes

    def at(self, places: NDArray[np.intp]) -> "LabelledImages":
        """Return the images at these places, in their order."""
        images = self.images
        if isinstance(images, cifar.BmpImages):
            return LabelledImages(cifar.BmpImages(images.pixels[places]), self.targets[places])
        return LabelledImages([images[place] for place in places], self.targets[places])


@dataclass(frozen=True)
class ImageData:
    """A data set that has been read; image files are only listed."""

    name: str  # as it was given
    classes: list[str]
    train: LabelledImages  # every class has images here and in `test`
    test: LabelledImages


def data_root(given: Path | None) -> Path:
    """Return the folder of data sets: the one given, or else that of ``VISVM_DATA``."""
    root = find_data_root(given)
    if root is None:
        raise InputError(
            "No folder of data sets is set. "
            f"Give --data FOLDER or set {ROOT_VARIABLE}; {_SEE_DOCTOR}.",
            code="data-folder-unset",
        )
    return root


def find_data_root(given: Path | None) -> Path | None:
    """Return the same, or None where none is set; refuse one that does not exist."""
    chosen = given or os.environ.get(ROOT_VARIABLE)
    if not chosen:
        return None
    root = expanded(chosen)
    if not os.path.isdir(root):
        option = ROOT_VARIABLE if given is None else "--data"
        raise InputError(
            f"{option} says {shown(root)}, which is not a folder. Correct it; {_SEE_DOCTOR}.",
            code="data-folder-missing",
        )
    return root


def load_dataset(
    name_or_path: str,
    root: Path | None,
    *,
    train_per_class: int | None = None,
    test_per_class: int | None = None,
) -> ImageData:
    """Find a data set and read it; image files are only listed.

    Parameters
    ----------
    name_or_path : str
        A name of ``DATASETS``, which gives the classes of the benchmark; "digits", scikit-learn's;
        or the path of a folder with ``train/CLASS/IMAGES`` and ``test/CLASS/IMAGES``, which gives
        all its classes.
    root : Path, optional
        The folder of data sets, as in ``data_root``; a path needs none.
    train_per_class, test_per_class : int, optional
        Keep only so many images of each class, the first ones: in the order of the file for
        CIFAR-100, by path otherwise.
    """
    for option, limit in (("train_per_class", train_per_class), ("test_per_class", test_per_class)):
        if limit is not None and limit < 1:
            raise InputError(
                f"The '{option}' parameter of load_dataset must be at least 1, or None for all. "
                f"Got {limit} instead.",
                code="images-limit-invalid",
            )
    if name_or_path in DATASETS:
        data = _of_the_benchmark(DATASETS[name_or_path], data_root(root))
    else:
        data = _digits() if name_or_path == "digits" else _of_your_own(name_or_path)
    train, test = _first(data.train, train_per_class), _first(data.test, test_per_class)
    return replace(data, train=train, test=test)


def require_present(names: Sequence[str], root: Path | None) -> None:
    """Refuse data sets of the benchmark that are missing, all of them at once."""
    wanted = [DATASETS[name] for name in names if name in DATASETS]
    absent = [known.name for known in wanted if _locate(known, data_root(root)) is None]
    if len(absent) > 1:
        raise InputError(
            f"{', '.join(absent)} are not in {shown(data_root(root))}. "
            f"Put them there, or name others with --datasets; {_SEE_DOCTOR}.",
            code="dataset-missing",
        )


class Content(NamedTuple):
    """What reading every image of a data set gives."""

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
    """What is there of a data set, for ``visvm doctor data``."""

    dataset: DataSet
    folder: str | None = None  # where it was found
    n_classes: int | None = None  # class folders found, of which the benchmark takes the first
    n_train: int | None = None  # images found of the benchmark's classes
    n_test: int | None = None
    verdict: Verdict = "absent"  # complete is what agrees with one of the published splits
    reason: str | None = None  # why it is unreadable


def examine_data(root: Path | None) -> list[DataState]:
    """See which of the nine are there; files are counted, and only CIFAR-100's are opened."""
    return [_examine(known, root) for known in DATASETS.values()]


def _examine(known: DataSet, root: Path | None) -> DataState:
    folder = None if root is None else _locate(known, root)
    if folder is None:
        return DataState(known)
    try:
        found = _read(known.name, folder)
    except VisvmError as error:
        return DataState(known, str(folder), verdict="unreadable", reason=str(error))
    used = _only(found, known.n_classes)
    n_train, n_test = len(used.train.images), len(used.test.images)
    whole = len(used.classes) == known.n_classes
    published = any(
        split.train.admits(n_train) and split.test.admits(n_test) for split in known.splits
    )
    verdict: Verdict = "complete" if whole and published else "other counts"
    return DataState(known, str(folder), len(found.classes), n_train, n_test, verdict)


def _of_the_benchmark(known: DataSet, root: Path) -> ImageData:
    folder = _locate(known, root)
    if folder is None:
        raise InputError(
            f"{known.name} is not at {shown(root)}/{known.layout}. Put it there; {_SEE_DOCTOR}.",
            code="dataset-missing",
        )
    found = _read(known.name, folder)
    if len(found.classes) < known.n_classes:
        raise InputError(
            f"{shown(folder)} has {len(found.classes)} classes; {known.name} needs at least "
            f"{known.n_classes}. Complete it; {_SEE_DOCTOR}.",
            code="dataset-incomplete",
        )
    return _only(found, known.n_classes)


def _digits() -> ImageData:
    """Make a data set of scikit-learn's digits: 100 of each to learn from, 50 to test with."""

    def part(first: int, last: int) -> LabelledImages:
        names, contents = zip(*digit_pictures(first, last), strict=True)
        return LabelledImages(contents, np.array([DIGITS.index(name) for name in names]))

    return ImageData("digits", list(DIGITS), part(0, 100), part(100, 150))


def _of_your_own(given: str) -> ImageData:
    folder = expanded(given)
    if not os.path.isdir(folder):
        raise InputError(
            f"{given!r} is neither a data set nor a folder. Give one of {', '.join(DATASETS)}, "
            "digits, or a folder with train and test in it.",
            code="dataset-unknown",
        )
    return _read(given, folder)


def _locate(known: DataSet, root: Path) -> Path | None:
    return next((root / folder for folder in known.folders if os.path.isdir(root / folder)), None)


def _read(name: str, folder: Path) -> ImageData:
    """Read all classes of a data set."""
    if name == "cifar100":
        classes = cifar.read_class_names(folder / "meta")
        parts = [cifar.read_split(folder / part) for part in ("train", "test")]
        images = [LabelledImages(cifar.BmpImages(pixels), labels) for pixels, labels in parts]
        return ImageData(name, classes, *images)
    for part in ("train", "test"):
        if not os.path.isdir(folder / part):
            raise InputError(
                f"{shown(folder)} has no folder {part}. A data set needs train and test.",
                code="split-folder-missing",
            )
    train, test = read_labelled(folder / "train"), read_labelled(folder / "test")
    learned, tested = set(map(str, train.labels)), set(map(str, test.labels))
    if odd := sorted(learned ^ tested):
        raise InputError(
            f"In {shown(folder)}, {len(odd)} classes are not in both train and test, such as "
            f"{odd[0]!r}. Add their images, or remove them.",
            code="split-classes-differ",
        )
    classes = sorted(learned)
    return ImageData(name, classes, _numbered(train, classes), _numbered(test, classes))


def _numbered(labelled: Labelled, classes: list[str]) -> LabelledImages:
    places = {label: place for place, label in enumerate(classes)}
    targets = [places[str(label)] for label in labelled.labels]
    return LabelledImages(labelled.sources, np.array(targets, dtype=np.intp))


def _only(data: ImageData, n_classes: int) -> ImageData:
    """Keep so many classes, the first ones."""
    if len(data.classes) <= n_classes:  # CIFAR-100's pixels need no copy
        return data
    parts = [part.at(np.flatnonzero(part.targets < n_classes)) for part in (data.train, data.test)]
    return ImageData(data.name, data.classes[:n_classes], *parts)


def _first(part: LabelledImages, per_class: int | None) -> LabelledImages:
    """Keep so many images of each class, the first ones, in their order."""
    if per_class is None:
        return part
    classes = np.unique(part.targets)
    kept = [np.flatnonzero(part.targets == target)[:per_class] for target in classes]
    return part.at(np.sort(np.concatenate(kept)))


def _content(image: Source) -> bytes:
    try:
        return content_of(image)
    except OSError as error:
        raise ImageError(
            f"{shown(error.filename)} cannot be read: {error.strerror}. Replace it.",
            code="image-unreadable",
        ) from error
