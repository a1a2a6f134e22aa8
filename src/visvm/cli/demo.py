"""The whole idea in a minute: pictures learned class by class, beside a head that forgets.

Run by ``visvm demo`` and ``make demo``. Both heads see the same features; only the way they learn
differs.
"""

import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from sklearn.linear_model import SGDClassifier

from visvm.bench.digits import DIGITS, digit_pictures
from visvm.cli.options import can_draw
from visvm.cli.terminal import table
from visvm.encoders.encoder import LayerFeatures, Preprocessing
from visvm.encoders.files import make_folder
from visvm.encoders.images import decode
from visvm.encoders.sources import Source, content_of
from visvm.encoders.transform import Transform
from visvm.errors import InputError, shown
from visvm.image_classifier import ImageClassifier
from visvm.learning.labelled import Labelled, read_labelled
from visvm.model.formats import percent
from visvm.model.labels import Label
from visvm.progress import Progress

_SESSIONS = 5
_TRAIN, _TEST = 30, 15  # images of a class


@dataclass(frozen=True)
class Stream:
    """Classes in the order in which they are learned, with their images."""

    sessions: list[list[Label]]
    train: Labelled
    test: Labelled


class _Session(NamedTuple):
    classes: list[Label]
    n_known: int
    ours: float  # accuracy on the test images of all classes known
    theirs: float
    seconds: float


def run(out: Console, progress: Progress, output: Path, folder: Path | None, encoder: str) -> None:
    """Learn pictures in five sessions, show the accuracy after each, and write model and figure.

    The pictures are those in `folder`, one sub-folder per class; by default scikit-learn's digits.
    Everything is written to the folder `output`.
    """
    make_folder(output)
    stream = _digits(output / "digits") if folder is None else _own(folder)
    what = "scikit-learn's digits" if folder is None else str(folder)
    counts = f"{len(stream.train.sources)} images to learn, {len(stream.test.sources)} to test with"
    out.print(f"{what}: {counts}", markup=False)
    model = output / ("digits.visvm" if folder is None else "demo.visvm")
    figure = output / "figure.png"
    ours = ImageClassifier(encoder)
    sessions = list(_learn(ours, stream, progress))
    columns = ["session", "new classes", "known", "visvm", "head that forgets", "learned in"]
    rows = [
        (
            *(number, ", ".join(map(str, each.classes)), each.n_known),
            *(percent(each.ours), percent(each.theirs), f"{each.seconds:.1f} s"),
        )
        for number, each in enumerate(sessions, start=1)
    ]
    title = "accuracy on the test images of all classes known"
    out.print(table(title, columns, rows, right=columns[2:]))
    ours.save(model)
    _, known, mine, other, _ = zip(*sessions, strict=True)
    labels = [label for classes in stream.sessions for label in classes]
    samples = [(label, _thumbnail(stream.train.only({label}).sources[0])) for label in labels]
    drawn = "no figure: pip install 'visvm[plot]' draws one"
    if can_draw():
        from visvm.cli.figures import draw_demo

        draw_demo(known, mine, other, samples, figure)
        drawn = f"figure: {figure}"
    command = "visvm" if shutil.which("visvm") else str(Path(sys.executable).with_name("visvm"))
    out.print(
        f"Both heads saw the same features of the same frozen encoder ({encoder}), session by "
        "session; neither kept an image.\n"
        f"model: {model}   {drawn}\n\n"
        f"Try it:              {command} predict {model} {stream.test.sources[0]!s}\n"
        "With your own photos, one folder per class:\n"
        f"                     {command} learn mine.visvm photos/\n"
        f"and any day later:   {command} learn mine.visvm more-photos/",
        markup=False,
    )


def _learn(ours: ImageClassifier, stream: Stream, progress: Progress) -> Iterator[_Session]:
    """Let both heads learn a stream, and test them after each session."""

    def encode(part: Labelled, stage: str) -> LayerFeatures:
        return ours.layer_features(part.sources, progress=lambda _, *steps: progress(stage, *steps))

    test = encode(stream.test, "encoding test images")
    train = encode(stream.train, "encoding images to learn")
    theirs = _ForgettingHead([label for classes in stream.sessions for label in classes])
    known: list[Label] = []
    for classes in stream.sessions:
        known += classes
        new = stream.train.only(set(classes))
        report = ours.learn(new.sources, new.labels)
        theirs.learn(train[np.isin(stream.train.labels, classes)], new.labels)
        asked = np.isin(stream.test.labels, known)
        right = np.array(stream.test.labels)[asked]
        mine = float(np.mean(ours.head_.predict(test[asked]) == right))
        other = float(np.mean(theirs.predict(test[asked]) == right))
        yield _Session(classes, len(known), mine, other, report.seconds["learn"])


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


def _digits(folder: Path) -> Stream:
    """Write scikit-learn's digits as image files, one folder per class."""
    parts = []
    for part, begin, end in (("train", 0, _TRAIN), ("test", _TRAIN, _TRAIN + _TEST)):
        files = Labelled([], [])
        for number, (name, content) in enumerate(digit_pictures(begin, end)):
            path = folder / part / name / f"{number % (end - begin):02}.bmp"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            files.sources.append(path)
            files.labels.append(name)
        parts.append(files)
    return Stream(_sessions(list(DIGITS)), *parts)


def _own(folder: Path) -> Stream:
    """Take the first pictures of every class in a folder to learn, the next ones to test with."""
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
    return Stream(_sessions(classes), train, test)


def _sessions(classes: list[Label]) -> list[list[Label]]:
    n = min(_SESSIONS, max(1, len(classes) // 2))
    return [part.tolist() for part in np.array_split(np.array(classes), n)]


def _thumbnail(source: Source) -> NDArray[np.float32]:
    plain = Preprocessing(size=96, resize=96, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
    return decode(content_of(source), Transform("crop", plain)).transpose(1, 2, 0)
