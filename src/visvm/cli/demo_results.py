"""What the demo measures: three heads beside each other, strangers, and a wrong label."""

import csv
import io
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from visvm.encoders.encoder import LayerFeatures
from visvm.encoders.files import replacing
from visvm.encoders.sources import Source
from visvm.errors import InputError, shown
from visvm.image_classifier import ImageClassifier
from visvm.learning.findings import Mislabelled
from visvm.learning.labelled import Labelled, read_labelled
from visvm.model.formats import as_cell, percent
from visvm.model.labels import Label
from visvm.model.results import Prediction
from visvm.progress import Progress

_SESSIONS = 5
_TRAIN, _TEST = 30, 15  # photos of a class
_STRANGERS = {"a temple": "china.jpg", "a dahlia": "flower.jpg"}


@dataclass(frozen=True)
class Stream:
    """Classes in the order in which they are learned, with their photos."""

    sessions: list[list[Label]]
    train: Labelled
    test: Labelled


class Session(NamedTuple):
    """What a session did; accuracies are on the test photos of all classes known."""

    classes: list[Label]
    n_known: int
    ours: float
    seconds: float
    probe: float
    probe_seconds: float
    n_kept: int  # photos whose features the linear probe has to keep
    forgetting: float


@dataclass(frozen=True)
class Stranger:
    """A photo of nothing that was learned, and what the model says."""

    what: str
    answer: Prediction

    @property
    def said(self) -> str:
        """The answer in words."""
        label = self.answer.label
        return f"none of these (closest: {label})" if self.answer.unknown else f"taken for {label}"


@dataclass(frozen=True)
class Planted:
    """A photo with a label that is wrong on purpose, and what a check says of it."""

    path: str
    true: Label
    label: Label
    found: Mislabelled | None
    rank: int  # among those that look wrong, the surest first, from 1
    n_wrong: int

    @property
    def said(self) -> str:
        """The finding in words."""
        if self.found is None:
            return "not found"
        of = f"number {self.rank} of {self.n_wrong}" if self.n_wrong > 1 else "the only one"
        sure = percent(self.found.confidence, 0)
        return f"found: looks like {self.found.suggested}, {sure} sure ({of} that looks wrong)"


@dataclass(frozen=True)
class Demo:
    """All that the demo has measured."""

    what: str
    encoder: str
    stream: Stream
    sessions: tuple[Session, ...]
    strangers: tuple[Stranger, ...]
    n_refused: int  # test photos that the model would call none of these, too
    planted: Planted

    @cached_property
    def table(self) -> tuple[list[str], list[tuple[object, ...]]]:
        """Columns and rows for people."""
        columns = ["new classes", "known", "visvm", "linear probe", "kept"]
        rows: list[tuple[object, ...]] = [
            (
                *(", ".join(map(str, each.classes)), each.n_known),
                f"{percent(each.ours, 0)}, {each.seconds:.1f} s",
                f"{percent(each.probe, 0)}, {each.probe_seconds:.1f} s",
                *(each.n_kept, percent(each.forgetting, 0)),
            )
            for each in self.sessions
        ]
        columns.append("head that forgets")
        return columns, rows

    @property
    def fairness(self) -> tuple[str, ...]:
        """What is the same for all heads, and what is not."""
        return (
            f"One frozen encoder ({self.encoder}) for all heads.",
            "visvm and the head that forgets see the photos of a session once.",
            "The linear probe, logistic regression on the last block, is trained anew on all",
            "photos so far: quick with so few, but they all have to be kept.",
        )

    @property
    def counts(self) -> str:
        """How many photos there are."""
        n_train, n_test = len(self.stream.train.sources), len(self.stream.test.sources)
        return f"{n_train} photos to learn, {n_test} to test with"

    @property
    def refused(self) -> str:
        """How often "none of these" is said in error."""
        n = len(self.stream.test.sources)
        return f'"None of these" is also said of {self.n_refused} of the {n} test photos, in error.'

    @property
    def answers(self) -> list[str]:
        """What was said of the strangers and of the wrong label."""
        said = [f"A stranger, {each.what}: {each.said}" for each in self.strangers]
        wrong = self.planted
        label = f"A wrong label, {Path(wrong.path).name} ({wrong.true}) as {wrong.label}"
        return [*said, self.refused, f"{label}: {wrong.said}"]

    def n_learned(self, label: Label) -> int:
        """Return how many photos of a class were learned."""
        return self.stream.train.labels.count(label)

    def sample(self, label: Label) -> Source:
        """Return the first photo of a class."""
        return self.stream.train.only({label}).sources[0]


def streamed(folder: Path) -> Stream:
    """Take the first photos of every class in a folder to learn, the next ones to test with."""
    given = read_labelled(folder)
    classes = list(dict.fromkeys(given.labels))
    if len(classes) < 2:
        raise InputError(
            f"The demo needs at least two classes; {shown(folder)} has {len(classes)}. "
            "Add a sub-folder for each class.",
            code="demo-classes-few",
        )
    train, test = Labelled([], []), Labelled([], [])
    for label in classes:
        paths = given.only({label}).sources
        if len(paths) < 2:
            raise InputError(
                f"Class {label} has {len(paths)} image; the demo needs at least two, one to learn "
                "and one to test with. Add some.",
                code="demo-images-few",
            )
        n_test = min(_TEST, max(1, len(paths) * 3 // 10))
        n_train = min(_TRAIN, len(paths) - n_test)
        for part, chosen in ((train, paths[:n_train]), (test, paths[n_train : n_train + n_test])):
            part.sources.extend(chosen)
            part.labels.extend([label] * len(chosen))
    n = min(_SESSIONS, max(1, len(classes) // 2))
    return Stream([part.tolist() for part in np.array_split(np.array(classes), n)], train, test)


def learned(ours: ImageClassifier, stream: Stream, progress: Progress) -> Iterator[Session]:
    """Let all heads learn a stream, and test them after each session."""
    width = ours.load_encoder(progress).layer_dims[-1]

    def final(part: Labelled, stage: str) -> tuple[LayerFeatures, LayerFeatures]:
        """Return the features of photos, and those of the final block alone."""
        say = partial(_staged, progress, stage)
        features = ours.layer_features(part.sources, progress=say)  # from the cache, mostly
        return features, features[:, -width:]

    forgetting = _ForgettingHead([label for classes in stream.sessions for label in classes])
    known: list[Label] = []
    for classes in stream.sessions:
        known += classes
        new, kept = stream.train.only(set(classes)), stream.train.only(set(known))
        report = ours.learn(new.sources, new.labels, progress=progress)
        forgetting.learn(final(new, "encoding photos to learn")[1], new.labels)
        features = final(kept, "encoding photos to learn")[1]
        began = time.perf_counter()
        probe = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
        probe.fit(features, kept.labels)
        seconds = time.perf_counter() - began
        asked = stream.test.only(set(known))
        test, last = final(asked, "encoding test photos")
        answers = ours.head_.predict(test), probe.predict(last), forgetting.predict(last)
        mine, fair, other = (float(np.mean(each == np.array(asked.labels))) for each in answers)
        measured = mine, report.seconds["learn"], fair, seconds, len(kept.labels), other
        yield Session(classes, len(known), *measured)


def _staged(progress: Progress, stage: str, _: str, done: int, total: int) -> None:
    progress(stage, done, total)


class _ForgettingHead:
    """A linear SVM trained by gradient steps, session by session, like a network's last layer."""

    def __init__(self, classes: Sequence[Label]) -> None:
        self._classes = np.array(classes)
        self._svm = SGDClassifier(random_state=0)
        self._scale = 0.0

    def learn(self, features: LayerFeatures, labels: Sequence[Label]) -> None:
        """Pass over a session ten times."""
        self._scale = self._scale or float(features.std())
        for _ in range(10):
            self._svm.partial_fit(features / self._scale, labels, classes=self._classes)

    def predict(self, features: LayerFeatures) -> NDArray[np.generic]:
        """Return the labels of features."""
        return np.asarray(self._svm.predict(features / self._scale))


def strangers(ours: ImageClassifier, progress: Progress) -> tuple[Stranger, ...]:
    """Ask the model about photos that come with scikit-learn, of nothing that it has learned."""
    photos = files("sklearn") / "datasets" / "images"
    answers = ours.predict(
        [Path(str(photos / name)) for name in _STRANGERS.values()], progress=progress
    )
    return tuple(map(Stranger, _STRANGERS, answers))


def refused(ours: ImageClassifier, stream: Stream, progress: Progress) -> int:
    """Count the test photos of which the model says "none of these"."""
    answers = ours.predict(stream.test.sources, progress=progress)
    return sum(each.unknown for each in answers)


def planted(checker: ImageClassifier, given: Labelled, mixed: Path, progress: Progress) -> Planted:
    """Give the last photo the label of the first, write that as a table, and check the labels."""
    labels = [*given.labels[:-1], given.labels[0]]
    text = io.StringIO(newline="")
    rows = csv.writer(text)
    rows.writerow(("path", "label"))
    for source, label in zip(given.sources, labels, strict=True):
        rows.writerow(map(as_cell, (Path(str(source)).absolute(), label)))
    with replacing(mixed) as file:
        file.write(text.getvalue().encode())
    found = checker.check(given.sources, labels, progress=progress)
    last = len(labels) - 1
    places = [each.place for each in found.wrong]
    return Planted(
        *(str(given.sources[-1]), given.labels[-1], labels[-1]),
        found.wrong[places.index(last)] if last in places else None,
        rank=places.index(last) + 1 if last in places else 0,
        n_wrong=len(places),
    )
