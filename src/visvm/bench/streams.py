"""Classes in sessions: which come when, and what may be seen of them.

The order of the classes is ``RandomState(seed).permutation(n)``, as in the toolboxes whose numbers
are compared. A stream hands out one session's training images at a time, as arrays of their own,
and test images only of classes that have been learned, so that nothing a method is given leads to
test data or to what is still to come.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from visvm.bench.pictures import Pictures
from visvm.encoders.encoder import LayerFeatures
from visvm.errors import InputError, VisvmError

ClassNumbers = NDArray[np.intp]
"""Class numbers, (n,)."""

_BASE_AND_INCREMENT = re.compile(r"B-?(\d+)[ ,]*Inc-?(\d+)", re.IGNORECASE)
_LIST = re.compile(r"(?:sessions )?(\d+(?:,\d+)*)")
_FOLDS = 5  # one fifth of the training images makes a validation set


def class_order(n_classes: int, seed: int) -> list[int]:
    """Return the order in which classes arrive.

    Examples
    --------
    >>> class_order(100, 1993)[:5]
    [68, 56, 78, 8, 23]
    """
    return [int(place) for place in np.random.RandomState(seed).permutation(n_classes)]


def session_sizes(protocol: str, n_classes: int) -> list[int]:
    """Return how many classes each session brings.

    Parameters
    ----------
    protocol : str
        ``"B50 Inc10"``: 50 classes, then 10 a session, the remainder last; B0 means that the first
        session is one increment. Or a list, ``"sessions 20,20,5"``; classes beyond its sum are left
        out.
    n_classes : int
        Of the data set.

    Examples
    --------
    >>> session_sizes("B0 Inc30", 100), session_sizes("sessions 5,1,1", 100)
    ([30, 30, 30, 10], [5, 1, 1])
    >>> session_sizes("B50 Inc20", 100)
    [50, 20, 20, 10]
    """
    text = " ".join(protocol.split())
    if found := _LIST.fullmatch(text):
        sizes = [int(size) for size in found[1].split(",")]
        if min(sizes) < 1 or sum(sizes) > n_classes:
            raise InputError(
                f"{text!r} does not fit {n_classes} classes. "
                f"Give every session at least one class, and all together at most {n_classes}.",
                code="protocol-misfit",
            )
        return sizes
    if (found := _BASE_AND_INCREMENT.fullmatch(text)) is None:
        raise InputError(
            f"{text!r} is not a protocol. "
            "Write it like 'B0 Inc10', 'B50 Inc10' or 'sessions 20,10,10'.",
            code="protocol-unknown",
        )
    base, increment = int(found[1]), int(found[2])
    if increment < 1 or max(base, increment) > n_classes:
        reason = (
            f"The sessions of {text!r} bring no class. Raise the number after Inc."
            if increment < 1
            else f"{text!r} does not fit {n_classes} classes. Lower its numbers."
        )
        raise InputError(reason, code="protocol-misfit")
    rest = n_classes - (base or increment)
    sizes = [base or increment, *[increment] * (rest // increment), rest % increment]
    return [size for size in sizes if size]


def plain_protocol(protocol: str) -> str:
    """Return the one way to write a protocol, so that one run has one name.

    Examples
    --------
    >>> plain_protocol("b-0 inc-10"), plain_protocol("5,3")
    ('B0 Inc10', 'sessions 5,3')
    """
    text = " ".join(protocol.split())
    if found := _BASE_AND_INCREMENT.fullmatch(text):
        return f"B{int(found[1])} Inc{int(found[2])}"
    return f"sessions {found[1]}" if (found := _LIST.fullmatch(text)) else text


@dataclass(frozen=True)
class Samples:
    """Layer features, (n, width), and their classes, (n,), as places in the sorted class names."""

    features: LayerFeatures
    targets: ClassNumbers
    pictures: Pictures | None = None  # where a method is to see them

    def at(self, rows: NDArray[np.intp]) -> "Samples":
        """Copy some of them."""
        seen = None if self.pictures is None else self.pictures.at(rows)
        return Samples(self.features[rows], self.targets[rows], seen)


def validation_split(samples: Samples, seed: int = 0) -> tuple[Samples, Samples]:
    """Split off one fifth of every class to judge by; the rest is to learn from."""
    order = np.random.default_rng(seed).permutation(len(samples.targets))
    order = order[np.argsort(samples.targets[order], kind="stable")]
    counts = np.bincount(samples.targets)
    # place within the class
    rank = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    if counts[counts > 0].min() < 2:
        raise InputError(
            "A class has a single training image, which cannot be split 4:1. "
            "Add images until every class has two training images or more.",
            code="class-too-small",
        )
    held_out = rank % _FOLDS == np.minimum(counts, _FOLDS)[samples.targets[order]] - 1
    parts = np.sort(order[~held_out]), np.sort(order[held_out])
    train, validation = (samples.at(rows) for rows in parts)
    return train, validation


@dataclass(frozen=True)
class Session:
    """What arrives at once."""

    number: int  # from 1
    classes: list[int]  # as places in the sorted class names
    features: LayerFeatures  # (n, width)
    labels: ClassNumbers  # (n,), by order of arrival: those of the first session begin with 0
    pictures: Pictures | None = None


class ClassStream:
    """Training images session by session, and test images of what has been learned.

    Classes come in this order, so many in each session.

    Examples
    --------
    >>> samples = Samples(np.eye(3, dtype=np.float32), np.array([0, 1, 2]))
    >>> stream = ClassStream(samples, samples, order=[2, 0, 1], sizes=[1, 2])
    >>> [(session.classes, session.labels.tolist(), len(stream.test()[1])) for session in stream]
    [([2], [0], 1), ([0, 1], [1, 2], 3)]
    """

    def __init__(
        self, train: Samples, test: Samples, order: Sequence[int], sizes: Sequence[int]
    ) -> None:
        self._train = train
        self._test = test
        self._order = list(order[: sum(sizes)])
        self._sizes = list(sizes)
        self._number = 0  # sessions handed out

    @property
    def sizes(self) -> list[int]:
        """Number of classes of each session handed out so far."""
        return self._sizes[: self._number]

    def __iter__(self) -> Iterator[Session]:
        for size in self._sizes[self._number :]:
            begin = sum(self.sizes)
            self._number += 1
            new, classes = self._take(self._train, begin, begin + size), self._order
            given = (new.features, new.targets, new.pictures)
            yield Session(self._number, classes[begin : begin + size], *given)

    def test(self) -> tuple[LayerFeatures, ClassNumbers]:
        """Return features, (n, width), and classes, (n,), of all classes handed out so far."""
        seen = self.tested()
        return seen.features, seen.targets

    def tested(self) -> Samples:
        """Return the test images of all classes handed out so far, with their class numbers."""
        if not self._number:
            raise VisvmError(
                "No session has been learned, so there is nothing to test. Learn a session first.",
                code="session-missing",
            )
        return self._take(self._test, 0, sum(self.sizes))

    def _take(self, samples: Samples, begin: int, end: int) -> Samples:
        """Copy the images of the classes that arrive from `begin` to `end`, with class numbers."""
        number = np.full(int(samples.targets.max()) + 1, -1, dtype=np.intp)
        number[self._order[begin:end]] = np.arange(begin, end)
        rows = np.flatnonzero(number[samples.targets] >= 0)
        return replace(samples.at(rows), targets=number[samples.targets[rows]])
