"""How well images of no class learned are told from known ones, and how often those are refused.

::

    python benchmarks/unknown.py --data FOLDER [--draws 3]

Half of a data set's classes are learned, from their training images; their test images are the
known ones. Near strangers are the test images of the other half, far ones those of the other data
set, and noise, blank pictures and pages of text. Of each detector: AUROC, the chance that a known
image looks more familiar than a stranger. Of ours also the share of each kind that is refused at
5 %. The baselines see the same features and the same head: the largest probability (softmax,
calibrated), the largest raw score, the energy, and the cosine to the nearest learned image (k = 1,
which visvm could not do: it keeps none).

Encoded features are taken from the cache. Prints the tables of all encoders and data sets, and
keeps them in UNKNOWN.md beside this file.
"""

import argparse
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw
from scipy.special import logsumexp, softmax
from sklearn.metrics import roc_auc_score

from visvm import IncrementalLSSVC, load_encoder
from visvm.bench.loading import LabelledImages, load_dataset
from visvm.encoders.cache import FeatureCache
from visvm.encoders.encoder import Encoder
from visvm.encoders.pipeline import encode_files
from visvm.encoders.transform import Transform
from visvm.head.calibration import inverse_temperature, log_likelihoods
from visvm.head.familiarity import (
    UNKNOWN,
    known_shares,
    learned_spread,
    strangeness,
    tallied,
    unlearned_strangeness,
)
from visvm.head.head import Head

HERE = Path(__file__).parent
WIDTH = 5000
MOST_FAR = 500
MADE = 50  # pictures of noise, as many blank ones, as many of text
FEW = 5  # photos a class in the second table
NEAR = "near: the other half of the classes"

Part = tuple[np.ndarray, np.ndarray]  # features, (n, width), and classes, (n,)
Images = tuple[int | None, int]  # of each class, to learn and to ask about; None: all
SIZES: dict[str, dict[str, Images]] = {
    "dinov2-s14": {"cub200": (None, 10), "cifar100": (20, 10)},
    "clip-b16-openai": {"cub200": (10, 5), "cifar100": (20, 10)},
}
DETECTORS = ("ours", "largest probability", "largest raw score", "energy", "nearest learned image")


def encoded(encoder: Encoder, images: LabelledImages) -> np.ndarray:
    """Return the feature of the last block, (n, width)."""
    transform = Transform("squash", encoder.preprocessing)
    with FeatureCache() as cache:
        found = encode_files(images.images, encoder, [transform], cache, lambda *_: None)
    return found.features[:, 0, -encoder.layer_dims[-1] :].astype(np.float64)


def made_pictures(n: int, seed: int = 0) -> list[bytes]:
    """Return noise, blank pictures and pages of text, n of each, as files."""
    generator, files = np.random.default_rng(seed), []
    for number in range(3 * n):
        if number < n:
            picture = Image.fromarray(generator.integers(0, 256, (224, 224, 3), dtype=np.uint8))
        else:
            colour = tuple(generator.integers(0, 256, 3).tolist())
            picture = Image.new("RGB", (224, 224), colour if number < 2 * n else "white")
        if number >= 2 * n:
            draw = ImageDraw.Draw(picture)
            for line in range(18):
                letters = generator.integers(97, 123, 36).astype(np.uint8).tobytes().decode()
                draw.text((6, 6 + 12 * line), letters, fill="black")
        file = io.BytesIO()
        picture.save(file, "PNG")
        files.append(file.getvalue())
    return files


def some_of(images: np.ndarray) -> np.ndarray:
    """Return at most 500 of them, of all classes."""
    return images[:: -(-len(images) // MOST_FAR)]


def halves(labels: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return which labels are among the classes."""
    return np.isin(labels, classes)


class Detectors:
    """All detectors on one head, each a function of features; higher is more familiar."""

    def __init__(self, X: np.ndarray, y: np.ndarray, seed: int) -> None:
        model = IncrementalLSSVC(n_components=WIDTH, random_state=seed).fit(X, y)
        self.head: Head = model.head_
        chosen = np.random.default_rng(seed).permutation(len(X))[:500]
        unseen = self.head.leave_one_out_scores(X[chosen], y[chosen])
        targets = np.searchsorted(self.head.classes, y[chosen])
        sums, places = self.head.statistics, np.arange(len(self.head.classes))
        back, counts = self.head.settled.lift.kernel_map.back, sums.class_counts
        self.spread = learned_spread(sums, back, places)
        parts = self.head.looks(X[chosen])[1][:, None], unseen, targets, counts
        self.noted = tallied(unlearned_strangeness(self.spread, sums, *parts))
        self.beta = inverse_temperature(log_likelihoods(unseen, targets))
        self.unit = X / np.linalg.norm(X, axis=1, keepdims=True)
        self.accuracy = 0.0

    def known(self, X: np.ndarray) -> np.ndarray:
        """Return the share that ``Prediction.known`` is."""
        return known_shares(self.strangeness(X), self.noted)

    def strangeness(self, X: np.ndarray) -> np.ndarray:
        """Return how far images are from all classes."""
        scores, features = self.head.looks(X)
        return strangeness(self.spread.squares(features), scores)

    def all(self, X: np.ndarray) -> dict[str, np.ndarray]:
        """Return what each detector says of the images, (n,)."""
        scores, unit = self.head.scores(X), X / np.linalg.norm(X, axis=1, keepdims=True)
        by: dict[str, Callable[[], np.ndarray]] = {
            "ours": lambda: -self.strangeness(X),
            "largest probability": lambda: softmax(self.beta * scores, axis=1).max(axis=1),
            "largest raw score": lambda: scores.max(axis=1),
            "energy": lambda: logsumexp(self.beta * scores, axis=1),
            "nearest learned image": lambda: (unit @ self.unit.T).max(axis=1),
        }
        return {name: by[name]() for name in DETECTORS}


def auroc(known: np.ndarray, strange: np.ndarray) -> float:
    """Return the chance that a known image looks more familiar than a stranger."""
    truth = np.concatenate([np.ones(len(known)), np.zeros(len(strange))])
    return float(roc_auc_score(truth, np.concatenate([known, strange])))


def first_of_each(labels: np.ndarray, most: int) -> np.ndarray:
    """Return the places of the first so many of each class."""
    return np.concatenate([np.flatnonzero(labels == each)[:most] for each in np.unique(labels)])


def measure(
    train: Part,
    test: Part,
    far: dict[str, np.ndarray],
    most: int | None,
    seed: int,
) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
    """Return AUROC by kind of stranger and detector, and the share refused by kind."""
    classes = np.random.default_rng(seed).permutation(np.unique(train[1]))
    own = halves(train[1], classes[: len(classes) // 2])
    X, y = train[0][own], train[1][own]
    if most is not None:
        rows = first_of_each(y, most)
        X, y = X[rows], y[rows]
    detectors, known = Detectors(X, y, seed), halves(test[1], classes[: len(classes) // 2])
    strangers = {NEAR: test[0][~known], **far}
    inside = detectors.all(test[0][known])
    table = {
        kind: {name: auroc(inside[name], out) for name, out in detectors.all(images).items()}
        for kind, images in strangers.items()
    }
    asked = {"known": test[0][known], **strangers}
    refused = {
        kind: float((detectors.known(images) < UNKNOWN).mean()) for kind, images in asked.items()
    }
    return table, refused


def section(title: str, outcomes: list[tuple[dict, dict]]) -> list[str]:
    """Return the lines of one table, means over draws."""
    lines = [f"## {title}", "", f"| strangers | {' | '.join(DETECTORS)} | refused by ours |"]
    lines.append("|---|" + "---:|" * (len(DETECTORS) + 1))
    for kind in outcomes[0][0]:
        cells = [np.mean([table[kind][name] for table, _ in outcomes]) for name in DETECTORS]
        share = np.mean([refused[kind] for _, refused in outcomes])
        lines.append(f"| {kind} | {' | '.join(f'{x:.3f}' for x in cells)} | {share:.0%} |")
    share = np.mean([refused["known"] for _, refused in outcomes])
    return [*lines, "", f"Known images refused at {UNKNOWN:.0%}: {share:.1%}.", ""]


def loaded(encoder: Encoder, name: str, data: Path, images: Images) -> tuple[Part, Part]:
    """Return features and classes of the first images of each class: to learn, and to ask."""
    most_train, most_test = images
    found = load_dataset(name, data, train_per_class=most_train, test_per_class=most_test)
    return tuple((encoded(encoder, each), each.targets) for each in (found.train, found.test))


def sections(encoder_name: str, data: Path, draws: int) -> tuple[list[str], list[str]]:
    """Return the lines on an encoder, and where a baseline tells siblings better."""
    encoder, lines, behind = load_encoder(encoder_name), [], []
    sizes = SIZES[encoder_name]
    parts = {name: loaded(encoder, name, data, images) for name, images in sizes.items()}
    pictures = made_pictures(MADE)
    made = encoded(encoder, LabelledImages(pictures, np.zeros(len(pictures), dtype=np.intp)))
    for name, (train, test) in parts.items():
        far = {f"far: {other}": some_of(parts[other][1][0]) for other in parts if other != name}
        for place, kind in enumerate(("noise", "blank", "text")):
            far[f"far: {kind}"] = made[MADE * place : MADE * (place + 1)]
        for most in (sizes[name][0], FEW):
            runs = [measure(train, test, far, most, draw) for draw in range(draws)]
            many = "all training images" if most is None else f"{most} images a class"
            title = f"{name}, {encoder_name}, {many}"
            lines += section(title, runs)
            behind += beaten(title, runs)
            print("\n".join(lines[-11:]), flush=True)
    return lines, behind


def beaten(title: str, outcomes: list[tuple[dict, dict]]) -> list[str]:
    """Return the baseline that tells siblings best, with figures, where it does so better."""
    found = np.array([[table[NEAR][name] for name in DETECTORS] for table, _ in outcomes])
    means = found.mean(axis=0)
    best = int(means[1:].argmax()) + 1
    if means[0] >= means[best]:
        return []
    return [f"{title}: {DETECTORS[best]} {means[best]:.3f}, ours {means[0]:.3f}"]


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--draws", type=int, default=3)
    given = parser.parse_args()
    lines = ["# None of these", "", __doc__.split("::", 1)[0].strip(), ""]
    lines += ["Half of" + __doc__.split("Half of", 1)[1].split("Encoded", 1)[0].rstrip(), ""]
    lines += [f"AUROC, means over {given.draws} draws of the classes; D = {WIDTH}. Of each class"]
    lines += ["there are as many images as the titles say; 5 to 10 of each are asked about."]
    lines += [f"Written by `python benchmarks/unknown.py --data FOLDER --draws {given.draws}`.", ""]
    tables, behind = [], []
    for encoder_name in SIZES:
        more, worse = sections(encoder_name, given.data, given.draws)
        tables, behind = tables + more, behind + worse
    least = "In every table ours tells near strangers at least as well as the best baseline."
    if behind:
        least = f"A baseline tells near strangers better here: {'; '.join(behind)}."
    lines += [least, "", *tables]
    (HERE / "UNKNOWN.md").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
