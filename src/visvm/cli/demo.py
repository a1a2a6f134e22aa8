"""The whole idea in a minute: pictures learned class by class through the default encoder, beside a head that forgets.

Run by ``visvm demo`` and ``make demo``. Both heads see the same features; only the way they learn
differs.
"""

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from sklearn.linear_model import SGDClassifier

from visvm.bench.digits import DIGITS, digit_pictures
from visvm.bench.report.formats import percent
from visvm.cli.figures import draw_demo
from visvm.cli.terminal import table
from visvm.encoders.encoder import LayerFeatures, Preprocessing
from visvm.encoders.images import Transform, decode
from visvm.encoders.sources import Source, content_of
from visvm.errors import InputError
from visvm.image_classifier import ImageClassifier
from visvm.learning.labelled import Labelled, read_labelled
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


def run(out: Console, progress: Progress, output: Path, folder: Path | None, encoder: str) -> None:
    """Learn pictures in five sessions, show the accuracy after each, and write the model and a figure.

    Parameters
    ----------
    out : Console
    progress : callable
    output : Path
        Folder for what is written.
    folder : Path, optional
        One's own pictures, one sub-folder per class; scikit-learn's digits if there is none.
    encoder : str
    """
    output.mkdir(parents=True, exist_ok=True)
    stream = _digits(output / "digits") if folder is None else _own(folder)
    what = "scikit-learn's digits" if folder is None else str(folder)
    out.print(
        f"{what}: {len(stream.train.sources)} images to learn, {len(stream.test.sources)} to test with",
        markup=False,
    )
    model = output / ("digits.visvm" if folder is None else "demo.visvm")
    ours = ImageClassifier(encoder)
    theirs, rows, accuracies = (
        _ForgettingHead([label for classes in stream.sessions for label in classes]),
        [],
        [],
    )
    test_features = ours.layer_features(
        stream.test.sources, progress=_as(progress, "encoding test images")
    )
    train_features = ours.layer_features(
        stream.train.sources, progress=_as(progress, "encoding images to learn")
    )
    seen: list[Label] = []
    for classes in stream.sessions:
        seen += classes
        new = stream.train.only(set(classes))
        report = ours.learn(new.sources, new.labels)
        theirs.learn(train_features[_places(stream.train, classes)], new.labels)
        tested, labels = (
            test_features[_places(stream.test, seen)],
            stream.test.only(set(seen)).labels,
        )
        pair = [
            float(np.mean(predicted == np.array(labels)))
            for predicted in (ours.head_.predict(tested), theirs.predict(tested))
        ]
        accuracies.append((len(seen), *pair))
        seconds = f"{report.seconds['learn']:.1f} s"
        rows.append(
            (report.session, ", ".join(map(str, classes)), len(seen), *map(percent, pair), seconds)
        )
    columns = ["session", "new classes", "known", "visvm", "head that forgets", "learned in"]
    out.print(
        table("accuracy on the test images of all classes known", columns, rows, right=columns[2:])
    )
    ours.save(model)
    figure = output / "figure.png"
    samples = [(label, _thumbnail(stream.train.only({label}).sources[0])) for label in seen]
    counts, mine, other = zip(*accuracies, strict=True)
    draw_demo(counts, mine, other, samples, figure)
    example = str(stream.test.sources[0])
    command = "visvm" if shutil.which("visvm") else str(Path(sys.executable).with_name("visvm"))
    out.print(
        f"Both heads saw the same features of the same frozen encoder ({encoder}), session by session; neither kept an image.\n"
        f"model: {model}   figure: {figure}\n\n"
        f"Try it:              {command} predict {model} {example}\n"
        "With your own photos, one folder per class:\n"
        f"                     {command} learn mine.visvm photos/\n"
        f"and any day later:   {command} learn mine.visvm more-photos/",
        markup=False,
    )


class _ForgettingHead:
    """A linear SVM trained by gradient steps on one session after the other, as the last layer of a network is."""

    def __init__(self, classes: Sequence[Label]) -> None:
        self._classes = np.array(classes)
        self._svm = SGDClassifier(random_state=0)
        self._scale = 0.0

    def learn(self, features: LayerFeatures, labels: Sequence[Label]) -> None:
        """Ten passes over a session."""
        self._scale = self._scale or float(features.std())
        for _ in range(10):
            self._svm.partial_fit(features / self._scale, labels, classes=self._classes)

    def predict(self, features: LayerFeatures) -> NDArray[np.generic]:
        """Labels of features."""
        return np.asarray(self._svm.predict(features / self._scale))


def _digits(folder: Path) -> Stream:
    """Scikit-learn's digits as image files, one folder per class."""
    files: dict[str, Labelled] = {}
    for part, begin, end in (("train", 0, _TRAIN), ("test", _TRAIN, _TRAIN + _TEST)):
        paths: list[Path] = []
        labels: list[Label] = []
        for number, (name, content) in enumerate(digit_pictures(begin, end)):
            (folder / part / name).mkdir(parents=True, exist_ok=True)
            paths.append(folder / part / name / f"{number % (end - begin):02}.bmp")
            paths[-1].write_bytes(content)
            labels.append(name)
        files[part] = Labelled([*paths], labels)
    return Stream(_sessions(list(DIGITS)), files["train"], files["test"])


def _own(folder: Path) -> Stream:
    """One's own pictures: of every class the first ones to learn, the next ones to test with."""
    given = read_labelled(folder)
    classes = list(dict.fromkeys(given.labels))
    if len(classes) < 2:
        raise InputError(
            f"the demo needs two classes or more; {folder} has {len(classes)}: add a sub-folder"
        )
    train, test = Labelled([], []), Labelled([], [])
    for label in classes:
        paths = given.only({label}).sources
        if len(paths) < 2:
            raise InputError(
                f"every class must have two images or more, to learn and to test with; {label} has {len(paths)}: add some"
            )
        n_test = min(_TEST, max(1, len(paths) * 3 // 10))
        n_train = min(_TRAIN, len(paths) - n_test)
        for part, chosen in ((train, paths[:n_train]), (test, paths[n_train : n_train + n_test])):
            part.sources.extend(chosen)
            part.labels.extend([label] * len(chosen))
    return Stream(_sessions(classes), train, test)


def _sessions(classes: list[Label]) -> list[list[Label]]:
    return [
        part.tolist()
        for part in np.array_split(np.array(classes), min(_SESSIONS, max(1, len(classes) // 2)))
    ]


def _places(files: Labelled, classes: Sequence[Label]) -> list[int]:
    return [place for place, label in enumerate(files.labels) if label in classes]


def _thumbnail(source: Source) -> NDArray[np.float32]:
    plain = Preprocessing(size=96, resize=96, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
    return decode(content_of(source), Transform("crop", plain)).transpose(1, 2, 0)


def _as(progress: Progress, stage: str) -> Progress:
    return lambda _, done, total: progress(stage, done, total)
