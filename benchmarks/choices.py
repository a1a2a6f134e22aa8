"""Two things that a base session could do otherwise, judged inside base sessions alone.

::

    python benchmarks/choices.py whitening --data FOLDER    CUB-200, both encoders
    python benchmarks/choices.py life --data FOLDER         CUB-200 and CIFAR-100, DINOv2

No test image is looked at. A fifth of every class is held out and asked in the end.

- ``whitening``: the last block's feature is multiplied by (s·I + (1 - s)·S_w)^-1/2, with S_w the
  covariance within classes of the first session, brought to a mean of one along its diagonal.
  s = 1 leaves it as it is. Ten draws of the classes that come first, of the images held out and of
  R; differences are paired.
- ``life``: λ is settled on a first session of a few classes, and kept, or chosen anew once, when
  all classes were learned, from what the sums can tell: by generalised cross-validation (GCV) or by
  the evidence. Beside it stands the best of all λ for the held-out images.

Prints tables and keeps them in CHOICES.md beside this file.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from base_data import Base, base_session

from visvm import IncrementalLSSVC, load_encoder
from visvm.bench.loading import load_dataset
from visvm.bench.streams import class_order
from visvm.head.lift import KernelMap
from visvm.head.selection import RIDGE_CANDIDATES, split_base_session

HERE = Path(__file__).parent
DRAWS = 10
SVM_COST = 10.0
SHRINKAGES = (0.8, 0.9, 0.95, 1.0)
WIDTH = 5000
BEST = "the best of all λ"


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


class KernelRidge:
    """Kernel ridge on the rows learned so far: error, GCV and answers for every λ."""

    def __init__(self, lifted: np.ndarray, signs: np.ndarray) -> None:
        self.mean, self.target_mean = lifted.mean(axis=0), signs.mean(axis=0)
        self.rows, self.targets = lifted - self.mean, signs - self.target_mean
        values, self.vectors = np.linalg.eigh(self.rows @ self.rows.T)
        self.values = np.maximum(values, 0.0)
        self.inside = self.vectors.T @ self.targets

    def gcv(self, ridge: float) -> float:
        """Return the generalised cross-validation error of the ±1 targets."""
        # the share of each direction that is missed; the first is the mean's, which is fitted
        left = (ridge / SVM_COST) / (self.values[1:] + ridge / SVM_COST)
        n = len(self.rows)
        return float(((left[:, None] * self.inside[1:]) ** 2).sum() / n / (left.sum() / n) ** 2)

    def surprise(self, ridge: float) -> float:
        """Return minus the log evidence, but for constants: noise and weights are Gaussian."""
        values = self.values[1:] + ridge / SVM_COST
        explained = (self.inside[1:] ** 2 / values[:, None]).sum()
        n_classes = self.targets.shape[1]
        return float(n_classes * (len(values) * np.log(explained) + np.log(values).sum()))

    def answers(self, lifted: np.ndarray, ridge: float) -> np.ndarray:
        """Return the column of the highest score, (m,)."""
        weights = self.vectors @ (self.inside / (self.values + ridge / SVM_COST)[:, None])
        scores = (lifted - self.mean) @ (self.rows.T @ weights) + self.target_mean
        return np.asarray(scores.argmax(axis=1))


def life_part(base: Base, n_first: int) -> dict[str, list[tuple[float, float]]]:
    """Return percent right of all classes, and λ, in every draw and by rule."""
    n_classes = int(base.labels.max()) + 1
    found: dict[str, list[tuple[float, float]]] = {}
    for draw in range(DRAWS):
        split = split_base_session(base.labels, None, draw)
        order = np.random.default_rng(draw).permutation(n_classes)
        rank = np.argsort(order)[base.labels]
        train = split.train[np.argsort(rank[split.train], kind="stable")]
        begin = train[rank[train] < n_first]
        model = IncrementalLSSVC(n_components=WIDTH, random_state=draw)
        model.fit(base.final[begin], base.labels[begin])
        lifted = KernelMap(base.layer_dims[-1], WIDTH, draw).lift(base.final)
        path = KernelRidge(lifted[train], 2.0 * np.eye(n_classes)[base.labels[train]] - 1.0)
        asked, truth = lifted[split.held_out], base.labels[split.held_out]

        def right(ridge: float, path=path, asked=asked, truth=truth) -> float:
            return 100 * float(np.mean(path.answers(asked, ridge) == truth))

        errors = {ridge: path.gcv(ridge) for ridge in RIDGE_CANDIDATES if ridge >= 1e-2}
        least = min(errors, key=lambda ridge: errors[ridge])
        largest = max(ridge for ridge in errors if errors[ridge] <= 1.02 * errors[least])
        rules = {
            "settled in the first session": model.ridge_,
            "anew: the least GCV": least,
            "anew: the largest λ within 2 % of it": largest,
            "anew: the highest evidence": min(errors, key=path.surprise),
            BEST: max(errors, key=right),
        }
        for rule, ridge in rules.items():
            found.setdefault(rule, []).append((right(ridge), ridge))
        print(
            n_first, draw, {r: (round(v[-1][0], 2), v[-1][1]) for r, v in found.items()}, flush=True
        )
    return found


def life_table(columns: dict[str, dict[str, list[tuple[float, float]]]]) -> list[str]:
    """Return the lines of the table: percent right, and gains over λ as settled."""
    lines = [f"| λ | {' | '.join(columns)} |", "|---|" + "---:|" * len(columns)]
    for rule in next(iter(columns.values())):
        cells = []
        for found in columns.values():
            own, settled = np.array(found[rule]), np.array(found["settled in the first session"])
            gain = mean_and_error((own - settled)[:, 0].tolist())
            middle = f"λ {np.median(own[:, 1]):g}"
            first = rule == "settled in the first session"
            cells.append(f"{np.mean(own[:, 0]):.2f} ({middle})" if first else f"{gain} ({middle})")
        lines.append(f"| {rule} | {' | '.join(cells)} |")
    return lines


# What is measured


def encoded(data: Path, dataset: str, encoder: str, n_classes: int, per_class: int | None) -> Base:
    """Return training images of the first classes of the order."""
    loaded = load_dataset(dataset, data, train_per_class=per_class)
    classes = np.array(class_order(len(loaded.classes), 1993)[:n_classes])
    return base_session(loaded.train, classes, load_encoder(encoder))


def keep(part: str, title: str, lines: Sequence[str]) -> None:
    """Put a table in the place of the one of the same part."""
    page = HERE / "CHOICES.md"
    text = page.read_text() if page.exists() else "# What a base session could do otherwise\n"
    head, *sections = text.split("\n## ")
    kept = {each.split("\n", 1)[0]: each for each in sections}
    kept[part] = f"{part}\n\n{title}\n\n" + "\n".join(lines) + "\n"
    page.write_text("\n## ".join([head, *(kept[name] for name in sorted(kept))]))
    print("\n".join(lines))


def main() -> None:
    """Measure one part, and keep its table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("part", choices=("whitening", "life"))
    parser.add_argument("--data", type=Path, required=True, help="folder with cub200, cifar100")
    given = parser.parse_args()
    if given.part == "whitening":
        bases = {
            "DINOv2": encoded(given.data, "cub200", "dinov2-s14", 100, None),
            "CLIP": encoded(given.data, "cub200", "clip-b16-openai", 50, 20),
        }
        columns = {
            f"{name}, {first} of {int(base.labels.max()) + 1} classes first": whitening_part(
                base, first
            )
            for name, base in bases.items()
            for first in (10, 20)
        }
        title = (
            "Mild whitening by the first session, then all classes learned: gain in points on "
            f"held-out training images, {DRAWS} draws, D = {WIDTH}, CUB-200 (CLIP: 20 images a "
            "class). Written by `python benchmarks/choices.py whitening --data FOLDER`."
        )
        keep("Whitening", title, whitening_table(columns))
        return
    bases = {
        "CUB-200": encoded(given.data, "cub200", "dinov2-s14", 100, None),
        "CIFAR-100": encoded(given.data, "cifar100", "dinov2-s14", 100, 20),
    }
    columns = {
        f"{name}, first {first} classes": life_part(base, first)
        for name, base in bases.items()
        for first in (2, 5)
    }
    title = (
        "λ settled on a first session of a few classes, or chosen anew from the sums in the end: "
        f"held-out training images right in the end, {DRAWS} draws, DINOv2, D = {WIDTH}; in "
        "brackets the median λ. Written by `python benchmarks/choices.py life --data FOLDER`."
    )
    keep("λ through life", title, life_table(columns))


if __name__ == "__main__":
    main()
