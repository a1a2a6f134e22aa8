"""Accuracy by the number of labels, where visvm chooses the photos to label, and where not.

::

    python benchmarks/suggest.py --data FOLDER [--classes 60] [--draws 6]

A model that has learned two photos a class is given 20 more labels at a time, out of 20 training
photos of each class; accuracy is measured on the test photos. In the second stream only a
third of the classes are known at first, and the others are found among the photos to label. The
same draws of classes, photos and map go to every rule:

- random: photos by chance;
- margin: those whose two highest scores are closest;
- leverage: greedily those that take most from the sum of all leverages;
- suggest: what ``visvm suggest`` does, the product of doubt and that (``head/suggest.py``).

Encoded features are taken from the cache. Prints the tables, and keeps them in SUGGEST.md and
suggest.png beside this file.
"""

import argparse
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from visvm import IncrementalLSSVC, load_encoder
from visvm.bench.loading import LabelledImages, load_dataset
from visvm.encoders.cache import FeatureCache
from visvm.encoders.pipeline import encode_files
from visvm.encoders.transform import Transform
from visvm.head.calibration import log_likelihoods
from visvm.head.head import Head
from visvm.head.solver import leverage
from visvm.head.suggest import first_choices
from visvm.model.advice import suggested
from visvm.model.state import Calibration, EncoderId, Model

HERE = Path(__file__).parent
RULES = ("random", "margin", "leverage", "suggest")
COLOURS = dict(zip(RULES, ("#8d99ae", "#e09f3e", "#55a630", "#22577a"), strict=True))
FIRST, POOL, BATCH, ROUNDS, WIDTH = 2, 20, 20, 6, 2000


def encoded(data: LabelledImages, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the features of the last block, (n, width), and the classes, (n,)."""
    encoder = load_encoder(name)
    transform = Transform("squash", encoder.preprocessing)
    with FeatureCache() as cache:
        found = encode_files(data.images, encoder, [transform], cache)
    return found.features[:, 0, -encoder.layer_dims[-1] :].astype(np.float64), data.targets


def named(datasets: str) -> list[tuple[str, str]]:
    """Return data sets and their encoders, DINOv2 by default, of a text such as "a:encoder,b"."""
    parts = [each.partition(":") for each in datasets.split(",")]
    return [(name, encoder or "dinov2-s14") for name, _, encoder in parts]


def model_of(head: Head, X: np.ndarray, y: np.ndarray) -> Model:
    """Return a model with this head, its scores calibrated on what it has learned."""
    noted = log_likelihoods(head.leave_one_out_scores(X, y), np.searchsorted(head.classes, y))
    return Model(EncoderId("", "", "squash"), head, Calibration(noted, len(head.classes)))


def next_labels(model: Model, X: np.ndarray, rule: str, seed: int) -> list[int]:
    """Return which photos to label next, of those that have no label, (n, width)."""
    head, width = model.head, X.shape[1]
    if rule == "suggest":
        return suggested(model, X, width, BATCH)[0]
    if rule == "random":
        return np.random.default_rng(seed).choice(len(X), BATCH, replace=False).tolist()
    if rule == "margin":
        best = np.sort(head.scores(X), axis=1)
        return np.argsort(best[:, -1] - best[:, -2])[:BATCH].tolist()
    lifted, ridge = head.settled.lift(X)[None], head.settled.ridge
    covariance = len(X) * leverage(head.statistics, lifted, ridge, head.settled.options.svm_cost)[0]
    return first_choices(covariance, np.ones(len(X)), X, BATCH).tolist()


def curves(
    train: tuple[np.ndarray, np.ndarray],
    test: tuple[np.ndarray, np.ndarray],
    n: int,
    known: int,
    draw: int,
) -> np.ndarray:
    """Return the accuracy after each round by each rule, (rules, rounds + 1), of one draw."""
    X, y = train
    generator = np.random.default_rng([n, draw])
    classes = generator.choice(np.unique(y), n, replace=False)
    places = [generator.permutation(np.flatnonzero(y == each)) for each in classes]
    pool = np.concatenate([each[:POOL] for each in places])
    asked = np.isin(test[1], classes)
    asked_X, asked_y = test[0][asked], test[1][asked]
    first = np.concatenate([each[:FIRST] for each in places[:known]])
    begun = IncrementalLSSVC(n_components=WIDTH, random_state=draw).fit(X[first], y[first]).head_
    result = np.empty((len(RULES), ROUNDS + 1))
    for row, rule in enumerate(RULES):
        head, labelled = begun, first
        for number in range(ROUNDS + 1):
            right = head.classes[head.scores(asked_X).argmax(axis=1)] == asked_y
            result[row, number] = right.mean()
            if number < ROUNDS:
                left = np.setdiff1d(pool, labelled)
                model = model_of(head, X[labelled], y[labelled])
                more = left[next_labels(model, X[left], rule, number)]
                labelled = np.concatenate([labelled, more])
                head = head.learned(X[more], y[more]).solved()
    return result


def section(title: str, found: np.ndarray, known: int) -> list[str]:
    """Return the lines of one table: means over draws of found, (draws, rules, rounds + 1)."""
    labels = FIRST * known + BATCH * np.arange(ROUNDS + 1)
    lines = [f"## {title}", "", f"| rule | {' | '.join(map(str, labels))} | mean, against random |"]
    lines.append("|---|" + "---:|" * (len(labels) + 1))
    gains = 100 * (found[:, :, 1:] - found[:, :1, 1:]).mean(axis=2)
    for row, rule in enumerate(RULES):
        cells = " | ".join(f"{100 * each:.1f}" for each in found[:, row].mean(axis=0))
        error = gains[:, row].std(ddof=1) / np.sqrt(len(gains))
        lines.append(f"| {rule} | {cells} | {gains[:, row].mean():+.2f} ± {error:.2f} |")
    ahead = gains[:, RULES.index("suggest")] - gains[:, RULES.index("margin")]
    error = ahead.std(ddof=1) / np.sqrt(len(ahead))
    return [*lines, "", f"suggest against margin: {ahead.mean():+.2f} ± {error:.2f} points.", ""]


def draw_figure(streams: dict[str, tuple[np.ndarray, int]]) -> None:
    """Draw accuracy over labels, one panel a stream."""
    figure, axes = plt.subplots(1, len(streams), figsize=(10, 4), layout="constrained")
    for axis, (title, (found, known)) in zip(axes, streams.items(), strict=True):
        labels = FIRST * known + BATCH * np.arange(ROUNDS + 1)
        for row, rule in enumerate(RULES):
            mean = 100 * found[:, row].mean(axis=0)
            axis.plot(labels, mean, ".-", label=rule, color=COLOURS[rule])
        axis.set(title=title, xlabel="photos labelled", ylabel="accuracy (%)")
        axis.grid(alpha=0.3)
    axes[0].legend()
    figure.savefig(HERE / "suggest.png", dpi=110)


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--encoder", default="dinov2-s14")
    parser.add_argument("--classes", type=int, default=60)
    parser.add_argument("--draws", type=int, default=6)
    given = parser.parse_args()
    data = load_dataset("cub200", given.data)
    train, test = (encoded(each, given.encoder) for each in (data.train, data.test))
    streams = {}
    said = __doc__.split("::", 1)[0].strip(), __doc__.split("6]\n", 1)[1].split("Encoded", 1)[0]
    lines = ["# What to label next", "", said[0], "", said[1].strip(), ""]
    for title, known in (
        ("All classes are known", given.classes),
        ("A third of the classes are known", given.classes // 3),
    ):
        found = []
        for draw in range(given.draws):
            found.append(curves(train, test, given.classes, known, draw))
            print(title, draw, (100 * found[-1].mean(axis=1)).round(2), flush=True)
        streams[title] = (np.array(found), known)
        lines += section(title, *streams[title])
    draw_figure(streams)
    how = f"--classes {given.classes} --draws {given.draws}"
    lines += ["![Accuracy by the number of labels](suggest.png)", ""]
    lines += [f"CUB-200-2011, {given.encoder}, D = {WIDTH}; means over {given.draws} draws, ± the"]
    lines += ["standard error of the paired difference. Written by"]
    lines += [f"`python benchmarks/suggest.py --data FOLDER {how}`.", ""]
    print("\n".join(lines))
    (HERE / "SUGGEST.md").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
