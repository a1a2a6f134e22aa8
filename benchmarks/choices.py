"""What a base session decides, and could do otherwise, judged inside base sessions alone.

::

    python benchmarks/choices.py whitening --data FOLDER    CUB-200, both encoders
    python benchmarks/choices.py life --data FOLDER         CUB-200 and CIFAR-100
    python benchmarks/choices.py encoder --data FOLDER      CUB-200 and CIFAR-100, both encoders

No test image is looked at: training images are held out and asked in the end.

- ``encoder``: a first session with ``--encoder auto`` tries both encoders on a third of its photos.
  Then each of them learns all of these, and is asked others of the same classes.
- ``whitening``: the last block's feature is multiplied by (s·I + (1 - s)·S_w)^-1/2, with S_w the
  covariance within classes of the first session, brought to a mean of one along its diagonal.
  s = 1 leaves it as it is. Ten draws of the classes that come first, of the images held out and of
  R; differences are paired.
- ``life``: λ is settled on a first session of a few classes, and kept, or chosen anew from the sums
  by their evidence: whenever the images have doubled (``renew_ridge``), or once, in the end. Beside
  it stands the best λ from 100 up. The rule was found on draws 0 to 4 of CUB, so
  draws 5 to 9 judge it.

Prints tables and keeps them in CHOICES.md beside this file. In ``whitening`` and ``life`` a fifth
of every class is held out.
"""

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from base_data import Base, base_session
from pages import put_section

from visvm import ImageClassifier, IncrementalLSSVC, load_encoder
from visvm.bench.loading import LabelledImages, load_dataset
from visvm.bench.streams import class_order
from visvm.encoders.sources import Source
from visvm.head.evidence import ridge_by_evidence
from visvm.head.head import Head
from visvm.head.selection import RIDGE_CANDIDATES, split_base_session
from visvm.head.settle import Settled
from visvm.learning.choosing import STANDARD_ERRORS
from visvm.model.results import EncoderChoice

HERE = Path(__file__).parent
KEPT = HERE / "choices.json"
PAGE = HERE / "CHOICES.md"
DRAWS = 10
SVM_COST = 10.0
SHRINKAGES = (0.8, 0.9, 0.95, 1.0)
WIDTH = 5000
LIFE_DRAWS = range(5, 10)
LIFE_WIDTH = 2000
NEVER = "settled in the first session"
PRODUCT = "anew at each doubling"
IN_THE_END = "anew once, in the end"
BEST = "the best λ from 100 up"
# data set, encoder, classes, training images a class
STREAMS: dict[str, tuple[str, str, int, int | None]] = {
    "CUB-200": ("cub200", "dinov2-s14", 100, None),
    "CIFAR-100": ("cifar100", "dinov2-s14", 100, 20),
    "CIFAR-100 with CLIP": ("cifar100", "clip-b16-openai", 100, 100),
}
AUTO_CLASSES, AUTO_LEARNED, AUTO_DRAWS = 10, 20, 3
AUTO_PHOTOS = (("CUB-200", "cub200", 10), ("CIFAR-100", "cifar100", 30))  # asked of each class


def mean_and_error(values: Sequence[float]) -> str:
    """Return a mean with its standard error, signed."""
    return f"{np.mean(values):+.2f} ± {np.std(values, ddof=1) / np.sqrt(len(values)):.2f}"


# Whitening


def whitened(features: np.ndarray, rows: np.ndarray, labels: np.ndarray, s: float) -> np.ndarray:
    """Return all features in the shrunken metric within the classes of these rows, (n, d)."""
    if s == 1.0:
        return features
    first = features[rows]
    means = np.stack([first[labels[rows] == each].mean(axis=0) for each in np.unique(labels[rows])])
    rest = first - means[np.unique(labels[rows], return_inverse=True)[1]]
    within = np.cov(rest.T, bias=True)
    within *= len(within) / np.trace(within)
    values, vectors = np.linalg.eigh(s * np.eye(len(within)) + (1 - s) * within)
    return features @ (vectors / np.sqrt(values)) @ vectors.T


def whitening_part(base: Base, n_first: int) -> dict[str, list[float]]:
    """Return percent right in every draw, by shrinkage, and for the one with the least error."""
    n_classes, right = int(base.labels.max()) + 1, {}
    for draw in range(DRAWS):
        split = split_base_session(base.labels, None, draw)
        classes = np.random.default_rng(draw).permutation(n_classes)[:n_first]
        early = np.isin(base.labels[split.train], classes)
        first, later = split.train[early], split.train[~early]
        errors, found = {}, {}
        for s in SHRINKAGES:
            X = whitened(base.final, first, base.labels, s)
            model = IncrementalLSSVC(n_components=WIDTH, random_state=draw)
            model.fit(X[first], base.labels[first])
            errors[s] = min(trial.mse for trial in model.ridge_path_)
            model.partial_fit(X[later], base.labels[later])
            found[s] = 100 * model.score(X[split.held_out], base.labels[split.held_out])
            right.setdefault(f"{s:g}", []).append(found[s])
        right.setdefault("chosen", []).append(found[min(errors, key=lambda s: errors[s])])
        print(n_first, draw, {s: round(each, 2) for s, each in found.items()}, flush=True)
    return right


def whitening_table(columns: dict[str, dict[str, list[float]]]) -> list[str]:
    """Return the lines of the table: gains over no whitening, draw by draw."""
    lines = [f"| s | {' | '.join(columns)} |", "|---|" + "---:|" * len(columns)]
    plain = {name: f"{np.mean(right['1']):.2f} % right" for name, right in columns.items()}
    lines.append(f"| 1 (none) | {' | '.join(plain.values())} |")
    for s in ("0.95", "0.9", "0.8", "chosen"):
        gains = [
            mean_and_error(np.subtract(right[s], right["1"]).tolist()) for right in columns.values()
        ]
        what = "the one with the least error in the first session" if s == "chosen" else s
        lines.append(f"| {what} | {' | '.join(gains)} |")
    return lines


# λ through life


@dataclass(frozen=True)
class Stream:
    """One draw: sessions of training images, images held out, and the map."""

    base: Base
    sessions: list[np.ndarray]
    held_out: np.ndarray
    draw: int

    @classmethod
    def drawn(cls, base: Base, n_first: int, draw: int) -> "Stream":
        """Draw the order of the classes and the images held out.

        The first session has `n_first` classes; as many come at a time until ten are known, and
        then ten at a time.
        """
        n_classes, split = int(base.labels.max()) + 1, split_base_session(base.labels, None, draw)
        rank = np.argsort(np.random.default_rng(draw).permutation(n_classes))[base.labels]
        cuts = [0, *range(n_first, 10, n_first), *range(10, n_classes + 1, 10)]
        sessions = [
            split.train[(rank[split.train] >= begin) & (rank[split.train] < end)]
            for begin, end in pairwise(cuts)
        ]
        return cls(base, sessions, split.held_out, draw)

    def heads(self) -> Iterator[Head]:
        """Learn session by session; yield the head after each, not solved."""
        model = IncrementalLSSVC(n_components=LIFE_WIDTH, random_state=self.draw, renew_ridge=True)
        features, labels = self.base.final, self.base.labels
        model.settle(features[self.sessions[0]], labels[self.sessions[0]])
        head = model.head_
        for rows in self.sessions:
            head = head.learned(features[rows], labels[rows])
            yield head

    def right(self, head: Head) -> float:
        """Return percent right of the held-out images of the classes known."""
        labels = self.base.labels[self.held_out]
        asked = self.held_out[np.isin(labels, head.classes)]
        answers = head.classes[head.scores(self.base.final[asked]).argmax(axis=1)]
        return 100 * float(np.mean(answers == self.base.labels[asked]))


def life_draw(stream: Stream) -> dict[str, tuple[float, float, float]]:
    """Return percent right in the end, on average over sessions, and the last λ, by rule.

    Of rules that choose in the end there is no average: the first number stands in its place.
    """
    settled: dict[str, Settled] = {}
    shares: dict[str, list[float]] = {rule: [] for rule in (NEVER, PRODUCT)}
    for head in stream.heads():
        found: dict[float, float] = {}  # one solution for all rules that have the same λ

        def right(ridge: float, head: Head = head, found: dict[float, float] = found) -> float:
            if ridge not in found:
                given = Head.of(replace(head.settled, ridge=ridge), head.statistics)
                found[ridge] = stream.right(given.solved())
            return found[ridge]

        for rule, rights in shares.items():
            now = settled.get(rule, head.settled)
            if rule == PRODUCT:
                now = Head.of(now, head.statistics).renewed().settled
            settled[rule] = now
            rights.append(right(now.ridge))
    ends = {rule: (rights[-1], float(np.mean(rights))) for rule, rights in shares.items()}
    result = {rule: (*end, settled[rule].ridge) for rule, end in ends.items()}
    anew = ridge_by_evidence(head.statistics, settled[NEVER].ridge, SVM_COST)
    best = max((*RIDGE_CANDIDATES[-5:], 3e4), key=right)
    late = {IN_THE_END: anew, BEST: best}
    return result | {rule: (right(ridge), right(ridge), ridge) for rule, ridge in late.items()}


def life_part(
    column: str, load: Callable[[], Base], n_first: int, measure: bool
) -> dict[str, np.ndarray]:
    """Return percent right in the end, on average, and λ, (draws, 3), by rule.

    Draws that were measured before are read from choices.json beside this file; without any, and
    if they are not to be measured, nothing is returned.
    """
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    draws: list[dict[str, list[float]]] = kept.setdefault(column, [])
    while measure and len(draws) < len(LIFE_DRAWS):
        found = life_draw(Stream.drawn(load(), n_first, LIFE_DRAWS[len(draws)]))
        draws.append({rule: np.round(numbers, 4).tolist() for rule, numbers in found.items()})
        KEPT.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
        print(column, len(draws), draws[-1], flush=True)
    rules = draws[0] if draws else ()
    return {rule: np.array([draw[rule] for draw in draws]) for rule in rules}


def life_table(
    columns: dict[str, dict[str, np.ndarray]], rules: Sequence[str], place: int
) -> list[str]:
    """Return the lines of a table: percent right, and gains over λ as settled."""
    lines = [f"| λ | {' | '.join(columns)} |", "|---|" + "---:|" * len(columns)]
    for rule in rules:
        cells = []
        for found in columns.values():
            own, never = found[rule], found[NEVER]
            middle = f"λ {np.median(own[:, 2]):g}"
            gain = mean_and_error((own - never)[:, place].tolist())
            cells.append(
                f"{np.mean(own[:, place]):.2f} ({middle})"
                if rule == NEVER
                else f"{gain} ({middle})"
            )
        lines.append(f"| {rule} | {' | '.join(cells)} |")
    return lines


# What is measured


def encoded(data: Path, dataset: str, encoder: str, n_classes: int, per_class: int | None) -> Base:
    """Return training images of the first classes of the order."""
    loaded = load_dataset(dataset, data, train_per_class=per_class)
    classes = np.array(class_order(len(loaded.classes), 1993)[:n_classes])
    return base_session(loaded.train, classes, load_encoder(encoder))


def whitening(data: Path) -> None:
    """Measure whitening, and keep its table."""
    bases = {
        "DINOv2": encoded(data, "cub200", "dinov2-s14", 100, None),
        "CLIP": encoded(data, "cub200", "clip-b16-openai", 50, 20),
    }
    columns = {
        f"{name}, {first} of {int(base.labels.max()) + 1} classes first": whitening_part(
            base, first
        )
        for name, base in bases.items()
        for first in (10, 20)
    }
    text = (
        "Mild whitening by the first session, then all classes learned: gain in points on "
        f"held-out training images, {DRAWS} draws, D = {WIDTH}, CUB-200 (CLIP: 20 images a "
        "class). Written by `python benchmarks/choices.py whitening --data FOLDER`."
    )
    put_section(PAGE, "Whitening", [text, "", *whitening_table(columns)])


def life(data: Path, only: str) -> None:
    """Measure λ through life, and keep its tables."""
    columns = {}
    for name, stream in STREAMS.items():
        load = cache(partial(encoded, data, *stream))
        for first in (2, 5):
            column = f"{name}, first {first} classes"
            found = life_part(column, load, first, only in column)
            if found:
                columns[f"{column}, {len(found[NEVER])} draws"] = found
    text = (
        "λ settled on a first session of a few classes, or chosen anew from the sums by their "
        f"evidence: held-out training images right, D = {LIFE_WIDTH}; in brackets the median λ in "
        "the end. As many classes as in the first session come at a time until ten are known, then "
        "ten at a time: 2 400 images of CUB's first 100 classes and 1 600 of CIFAR's 100 with "
        "DINOv2-S, 8 000 of CIFAR's 100 with CLIP. Written by `python benchmarks/choices.py life "
        "--data FOLDER`."
    )
    through = (NEVER, PRODUCT)
    lines = ["In the end:", "", *life_table(columns, (*through, IN_THE_END, BEST), 0)]
    lines += ["", "On average over the sessions:", "", *life_table(columns, through, 1)]
    put_section(PAGE, "λ through life", [text, "", *lines])


def encoder(data: Path) -> None:
    """Measure what ``--encoder auto`` takes, and keep its table."""
    text = (
        f"What `--encoder auto` takes with both encoders fetched: {AUTO_CLASSES} classes, "
        f"{AUTO_LEARNED} training photos of each learned, and what the whole method (D = {WIDTH}, "
        "squash) has with either encoder on other training photos of these classes. DINOv2-S stays "
        f"unless CLIP is ahead by more than {STANDARD_ERRORS} standard errors. Written by `python "
        "benchmarks/choices.py encoder --data FOLDER`."
    )
    lines = [
        "| photos | tried on | right in the trial, % | taken | asked | right there, % |",
        "|---|---:|---|---|---:|---|",
    ]
    for title, dataset, asked in AUTO_PHOTOS:
        loaded = load_dataset(dataset, data, train_per_class=AUTO_LEARNED + asked).train
        for draw in range(AUTO_DRAWS):
            choice, n_asked, found = auto_draw(loaded, draw)
            cells = [f"{title}, draw {draw}", choice.n, percents(choice.accuracies)]
            cells += [f"`{choice.encoder}`, {choice.why}", n_asked, percents(found)]
            lines.append(f"| {' | '.join(map(str, cells))} |")
            print(lines[-1], flush=True)
    put_section(PAGE, "Which encoder", [text, "", *lines])


def auto_draw(images: LabelledImages, draw: int) -> tuple[EncoderChoice, int, dict[str, float]]:
    """Return the choice, how many other photos were asked, and what each encoder has right."""
    generator = np.random.default_rng(draw)
    chosen = generator.permutation(int(images.targets.max()) + 1)[:AUTO_CLASSES]
    rows = [np.flatnonzero(images.targets == each) for each in chosen]
    learned = images.at(np.concatenate([each[:AUTO_LEARNED] for each in rows]))
    asked = images.at(np.concatenate([each[AUTO_LEARNED:] for each in rows]))
    how: Any = {"n_components": WIDTH, "transform": "squash"}
    choice = ImageClassifier("auto", **how).learn(*_pair(learned)).encoder
    assert choice is not None
    found = {}
    for name in choice.accuracies:
        model = ImageClassifier(name, **how)
        model.learn(*_pair(learned))
        found[name] = model.evaluate(*_pair(asked)).accuracy
    return choice, len(asked.targets), found


def _pair(images: LabelledImages) -> tuple[list[Source], list[int]]:
    return list(images.images), images.targets.tolist()


def percents(shares: Mapping[str, float]) -> str:
    """Return shares by name in percent."""
    return ", ".join(f"{name} {100 * share:.1f}" for name, share in shares.items())


def main() -> None:
    """Measure one part, and keep its table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("part", choices=("whitening", "life", "encoder"))
    parser.add_argument("--data", type=Path, required=True, help="folder with cub200, cifar100")
    parser.add_argument("--only", default="", help="part of the name of a column of life")
    given = parser.parse_args()
    if given.part == "life":
        life(given.data, given.only)
    else:
        {"whitening": whitening, "encoder": encoder}[given.part](given.data)


if __name__ == "__main__":
    main()
