"""How well wrong labels are found, and how well the accuracy that ``learn`` estimates holds.

::

    python benchmarks/check.py --data FOLDER [--datasets SET[:ENCODER],…] [--draws 3]

The first part exchanges labels, and ranks photos by how likely theirs is wrong (`INTRODUCTION`).
The second part learns CUB-200 in ten sessions and compares the accuracy that ``learn`` estimates
from the session's own photos with that on the test photos of the same classes (DINOv2).

Encoded features come from the cache. Prints the tables and keeps them in CHECK.md beside this file.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from suggest import named

from visvm import ImageClassifier, load_encoder
from visvm.bench.loading import LabelledImages, load_dataset
from visvm.encoders.cache import FeatureCache
from visvm.encoders.encoder import Encoder
from visvm.encoders.pipeline import encode_files
from visvm.encoders.transform import Transform
from visvm.head.doubts import (
    CONFIDENT,
    SHRINKAGE,
    Doubts,
    affinities,
    doubts_of,
    unlearned_affinities,
)
from visvm.head.head import Head
from visvm.head.nearness import moments_of
from visvm.head.settle import HeadOptions, settle
from visvm.learning.findings import LIKELY

HERE = Path(__file__).parent
WIDTH = 5000  # D of the model that learns in sessions
MODEL_WIDTH = 15_000  # of a model whose sums are checked with
SHARE = 0.05  # of labels that are exchanged
FOLDS = 5
SHRINKAGES = (0.5, 0.7, 0.8, SHRINKAGE, 0.95, 1.0)
CONFIDENCES = (0.8, 0.9, 0.95, CONFIDENT, 0.999)

INTRODUCTION = """One training label in twenty is exchanged for another class's, and photos are
ranked by how likely their label is wrong: by `visvm check`; by cleanlab's self-confidence, the
probability of the given label, of scikit-learn's logistic regression in five folds (cleanlab itself
is not needed: its score is that probability); and by the least-squares head with each photo left
out. `visvm check --model` ranks as `visvm check` does, by means and scatter that it computes from
the model's sums (here D = 15000), so that photos of all classes known count; its seconds are mostly
those of making the sums. Seconds are those of the processor, without encoding. CUB-200 has wrong
labels of its own, which count as right here.

## Wrong labels
"""


def encoded(encoder: Encoder, images: LabelledImages) -> np.ndarray:
    """Return the feature of the last block, (n, width)."""
    transform = Transform("squash", encoder.preprocessing)
    with FeatureCache() as cache:
        found = encode_files(images.images, encoder, [transform], cache)
    return found.features[:, 0, -encoder.layer_dims[-1] :]


def exchanged(targets: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return labels of which some are another class's, and which those are, (n,)."""
    generator, n_classes = np.random.default_rng(seed), int(targets.max()) + 1
    chosen = generator.permutation(len(targets))[: round(SHARE * len(targets))]
    given, wrong = targets.copy(), np.zeros(len(targets), dtype=bool)
    given[chosen] = (given[chosen] + generator.integers(1, n_classes, len(chosen))) % n_classes
    wrong[chosen] = True
    return given, wrong


def checked(X: np.ndarray, given: np.ndarray, shrinkage: float = SHRINKAGE) -> Doubts:
    """Return what ``visvm check`` makes of labels."""
    every = np.ones(len(X), dtype=bool)
    return doubts_of(unlearned_affinities(X, given, every, shrinkage), given)


def by_least_squares(X: np.ndarray, given: np.ndarray) -> np.ndarray:
    """Return the doubt of the least-squares head, each photo left out, (n,)."""
    head = head_of(X, given, None).solved()
    pieces = [slice(begin, begin + 1000) for begin in range(0, len(X), 1000)]
    scores = [head.leave_one_out_scores(X[each], given[each]) for each in pieces]
    return doubts_of(np.concatenate(scores), given).confidence


def by_sums(X: np.ndarray, given: np.ndarray) -> np.ndarray:
    """Return the doubt of ``visvm check --model``, from the sums of the model, (n,)."""
    head = head_of(X, given, MODEL_WIDTH)
    means, scatter = moments_of(head.statistics, head.settled.lift.kernel_map.back)
    features, every = head.recovered(X), np.ones(len(X), dtype=bool)
    moments = means, scatter, head.statistics.class_counts
    return doubts_of(affinities(features, features, given, every, moments), given).confidence


def head_of(X: np.ndarray, given: np.ndarray, width: int | None) -> Head:
    """Return the head that has learned these features, not solved."""
    options = HeadOptions(n_components=width, fused=False, ridge=100.0, random_state=0)
    if width is None:
        options = HeadOptions(n_components=None, fused=False, random_state=0)
    return Head.blank(settle(X, given, options)).learned(X, given)


def by_regression(X: np.ndarray, given: np.ndarray) -> np.ndarray:
    """Return one minus the self-confidence of logistic regression in five folds, (n,)."""
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=200))
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
    chances = cross_val_predict(model, X, given, cv=folds, method="predict_proba")
    return 1.0 - chances[np.arange(len(given)), given]


RANKINGS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "visvm check (each photo left out)": lambda X, given: checked(X, given).confidence,
    "visvm check --model, of a model that learned them": by_sums,
    "the least-squares head, each photo left out": by_least_squares,
    "logistic regression in 5 folds, self-confidence (cleanlab)": by_regression,
}


def found_labels(name: str, X: np.ndarray, targets: np.ndarray, draws: int) -> list[str]:
    """Return the lines on one data set."""
    lines = [f"### {name}: {len(X)} photos of {targets.max() + 1} classes", ""]
    lines += ["| ranking | average precision | seconds |", "|---|---:|---:|"]
    labels = [exchanged(targets, seed) for seed in range(draws)]
    for ranking, rank in RANKINGS.items():
        precisions, begin = [], time.process_time()
        for given, wrong in labels:
            precisions.append(average_precision_score(wrong, rank(X, given)))
        seconds = (time.process_time() - begin) / draws
        spread = f" ± {np.std(precisions):.3f}" if draws > 1 else ""
        lines.append(f"| {ranking} | {np.mean(precisions):.3f}{spread} | {seconds:.1f} |")
        print(lines[-1], flush=True)
    return [*lines, "", *limits(X, labels), *called_wrong(X, targets, labels), ""]


def limits(X: np.ndarray, labels: list[tuple[np.ndarray, np.ndarray]]) -> list[str]:
    """Return the lines on the shrinkage of the scatter; that in use is in bold."""
    precisions = [
        np.mean(
            [
                average_precision_score(wrong, checked(X, given, each).confidence)
                for given, wrong in labels
            ]
        )
        for each in SHRINKAGES
    ]
    titles = [f"**{each}**" if each == SHRINKAGE else f"{each}" for each in SHRINKAGES]
    return [
        f"| scatter shrunk by | {' | '.join(titles)} |",
        "|---|" + "---:|" * len(titles),
        f"| average precision | {' | '.join(f'{each:.3f}' for each in precisions)} |",
        "",
    ]


def called_wrong(
    X: np.ndarray, targets: np.ndarray, labels: list[tuple[np.ndarray, np.ndarray]]
) -> list[str]:
    """Return the lines on labels called wrong, and what a fix list makes of them."""
    lines = ["| called wrong from a confidence of | photos | exchanged ones among them |"]
    lines += ["|---|---:|---:|"]
    n, put, right = sum(wrong.sum() for _, wrong in labels), 0, 0
    found = [(checked(X, given), wrong) for given, wrong in labels]
    for least in CONFIDENCES:
        called = [(each.loses & (each.confidence >= least), wrong) for each, wrong in found]
        many = sum(each.sum() for each, _ in called)
        true = sum((each & wrong).sum() for each, wrong in called)
        title = f"**{least}**" if least == CONFIDENT else f"{least}"
        lines.append(f"| {title} | {many} | {true} of {n} |")
    for each, _ in found:
        fixed = each.loses & (each.confidence >= CONFIDENT) & (each.score >= LIKELY)
        put, right = put + fixed.sum(), right + (each.suggested == targets)[fixed].sum()
    said = f"gives {put} of those called wrong another label, the true one to {right}"
    return [*lines, "", f"In all {len(labels)} draws, the fix list {said}; it leaves the rest out."]


def sessions(data: Path, n_sessions: int) -> list[str]:
    """Return the lines on CUB-200: what learn estimates, and what tests say."""
    dataset = load_dataset("cub200", data)
    order = np.random.default_rng(1993).permutation(200)
    classifier = ImageClassifier("dinov2-s14", transform="squash", n_components=WIDTH)
    lines = [
        "| session | classes known | estimated | tested, its classes | tested, all classes |",
        "|---:|---:|---:|---:|---:|",
    ]
    apart = []
    for number in range(n_sessions):
        new, known = order[20 * number : 20 * (number + 1)], order[: 20 * (number + 1)]
        paths, labels = of_classes(dataset.train, new)
        estimate = classifier.learn(paths, labels).estimate
        assert estimate is not None
        shares = [
            classifier.evaluate(*of_classes(dataset.test, classes)).accuracy
            for classes in (new, known)
        ]
        apart.append(100 * (estimate.accuracy - shares[0]))
        cells = " | ".join(f"{100 * share:.1f}" for share in (estimate.accuracy, *shares))
        lines.append(f"| {number + 1} | {len(known)} | {cells} |")
        print(lines[-1], flush=True)
    most = max(apart, key=abs)
    said = f"on average {np.mean(apart):+.1f} points, {np.mean(np.abs(apart)):.1f} without the sign"
    return [*lines, "", f"Estimated less tested, its classes: {said}; at most {most:+.1f}."]


def of_classes(images: LabelledImages, classes: np.ndarray) -> tuple[list, list[int]]:
    """Return the images of some classes, and their labels."""
    places = np.flatnonzero(np.isin(images.targets, classes))
    return [images.images[place] for place in places], images.targets[places].tolist()


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--datasets", default="cub200:dinov2-s14,cifar100:clip-b16-openai")
    parser.add_argument("--train-per-class", type=int, default=20, help="of CIFAR-100")
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--sessions", type=int, default=10, help="of the second part; 0: none")
    given = parser.parse_args()
    how = f"--datasets {given.datasets} --train-per-class {given.train_per_class}"
    how += f" --draws {given.draws} --sessions {given.sessions}"
    lines = ["# Wrong labels, and accuracy without test photos", ""]
    lines += [f"Written by `python benchmarks/check.py --data FOLDER {how}`.", "", INTRODUCTION]
    for name, encoder in named(given.datasets):
        sizes = {"train_per_class": given.train_per_class} if name == "cifar100" else {}
        train = load_dataset(name, given.data, **sizes).train
        features = encoded(load_encoder(encoder), train)
        lines += found_labels(f"{name}, {encoder}", features, train.targets, given.draws)
    if given.sessions:
        lines += ["## Accuracy without test photos: CUB-200, 20 classes a session, in %", ""]
        lines += [*sessions(given.data, given.sessions), ""]
    (HERE / "CHECK.md").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
