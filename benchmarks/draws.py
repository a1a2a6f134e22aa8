"""How much of an accuracy is the draw of R, beside a plain solver.

::

    python benchmarks/draws.py --data FOLDER   3 500 images to encode (cached), then five minutes

The first three sessions of CUB-200 are learned with CLIP.

R is drawn twenty times by visvm (``KernelMap``) and twenty times by numpy's own generator. Both are
solved by a few lines that share nothing with visvm: the kernel matrix in float64, one linear system
a session. The kernel to which D tends needs no draw at all; it stands beside them. Of visvm's first
draw, visvm's own answers are compared with the plain ones, image by image. Prints tables and writes
them to DRAWS.md beside this file.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.linalg
from base_data import base_session

from visvm import IncrementalLSSVC, load_encoder
from visvm.bench.loading import load_dataset
from visvm.bench.streams import class_order
from visvm.head.lift import KernelMap

HERE = Path(__file__).parent
ENDS = (20, 40, 60)  # classes seen after each session
N_DRAWS = 20
SVM_COST = 10.0
RIDGES = (30.0, 100.0, 300.0)
# Ā and A_B of one draw each, by D; its λ is not known
OTHER_SOLVER = {5000: (91.3, 88.0), 15000: (92.1, 88.9)}
Draw = Callable[[int, int, int], np.ndarray]
DRAWS: dict[str, Draw] = {  # by width, D and seed
    "visvm's R": lambda width, n_components, seed: KernelMap(width, n_components, seed).matrix,
    "numpy's R": lambda width, n_components, seed: np.random.default_rng(seed).normal(
        0.0, width**-0.5, (width, n_components)
    ),
}


@dataclass(frozen=True)
class Stream:
    """Features, (n, d), and class numbers, (n,), of training and test images.

    Classes are numbered in the order they come.
    """

    train: np.ndarray
    train_labels: np.ndarray
    test: np.ndarray
    test_labels: np.ndarray

    def kernels(self, matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return inner products of [relu(uR), 1], (n, n) and (n_test, n)."""
        lifted, asked = (np.maximum(features @ matrix, 0.0) for features in (self.train, self.test))
        return lifted @ lifted.T + 1.0, asked @ lifted.T + 1.0

    def limits(self, n_components: int) -> tuple[np.ndarray, np.ndarray]:
        """Return what `kernels` tends to for as many components.

        It is half the arc-cosine kernel of degree 1 (Cho & Saul, 2009).
        """

        def arc_cosine(x: np.ndarray, y: np.ndarray) -> np.ndarray:
            norms = np.outer(np.linalg.norm(x, axis=1), np.linalg.norm(y, axis=1))
            cosine = np.clip(x @ y.T / norms, -1.0, 1.0)
            angle = np.arccos(cosine)
            return norms * (np.sin(angle) + (np.pi - angle) * cosine) / (2.0 * np.pi)

        scale = n_components / self.train.shape[1]
        kernel, cross = (arc_cosine(each, self.train) for each in (self.train, self.test))
        return scale * kernel + 1.0, scale * cross + 1.0

    def answers(self, kernel: np.ndarray, cross: np.ndarray, ridge: float) -> list[np.ndarray]:
        """Answer after every session for every test image of the classes seen."""
        found = []
        for end in ENDS:
            parts = self.train_labels, self.test_labels
            seen, asked = (np.flatnonzero(labels < end) for labels in parts)
            signs = 2.0 * (self.train_labels[seen, None] == np.arange(end)) - 1.0
            system = kernel[np.ix_(seen, seen)] + ridge / SVM_COST * np.eye(len(seen))
            dual = scipy.linalg.solve(system, signs, assume_a="pos")
            found.append((cross[np.ix_(asked, seen)] @ dual).argmax(axis=1))
        return found

    def answers_of_visvm(self, n_components: int, ridge: float) -> list[np.ndarray]:
        """Answer by visvm's own solver, with its first draw."""
        options = {"ridge": ridge, "svm_cost": SVM_COST, "random_state": 0}
        model, found = IncrementalLSSVC(n_components=n_components, **options), []
        for begin, end in zip((0, *ENDS), ENDS, strict=False):
            new = (self.train_labels >= begin) & (self.train_labels < end)
            model.partial_fit(self.train[new], self.train_labels[new])
            found.append(model.predict(self.test[self.test_labels < end]))
        return found

    def accuracies(self, answers: list[np.ndarray]) -> tuple[float, float]:
        """Return Ā and A_B in percent."""
        shares = [
            100.0 * np.mean(each == self.test_labels[self.test_labels < end])
            for end, each in zip(ENDS, answers, strict=True)
        ]
        return float(np.mean(shares)), float(shares[-1])


def row(name: str, found: np.ndarray, wanted: tuple[float, float]) -> str:
    """Write a row of the table; `found` has Ā and A_B of every draw, (n, 2)."""
    average, final = (
        f"{each.mean():.2f} ± {each.std(ddof=1):.2f} ({each.min():.2f} to {each.max():.2f})"
        for each in found.T
    )
    good = found >= np.array(wanted) - 0.05
    counts = ", ".join(map(str, [*good.sum(axis=0), good.all(axis=1).sum()]))
    return f"| {name} | {average} | {final} | {counts} |"


def table(stream: Stream, n_components: int) -> list[str]:
    """Write the draws of one D, beside the kernel without a draw."""
    width, wanted = stream.train.shape[1], OTHER_SOLVER[n_components]
    lines = [
        f"## D = {n_components}",
        "",
        f"Another plain solver, one draw: {wanted[0]} / {wanted[1]}.",
        "",
        f"| R, λ | Ā | A_B | of {N_DRAWS} draws as good in Ā, in A_B, in both |",
        "|---|---:|---:|---:|",
    ]
    for name, draw in DRAWS.items():
        found: dict[float, list[tuple[float, float]]] = {ridge: [] for ridge in RIDGES}
        for seed in range(N_DRAWS):
            kernels = stream.kernels(draw(width, n_components, seed))
            for ridge in RIDGES:
                found[ridge].append(stream.accuracies(stream.answers(*kernels, ridge)))
        lines += [row(f"{name}, λ = {ridge:g}", np.array(found[ridge]), wanted) for ridge in RIDGES]
    limits = stream.limits(n_components)
    for ridge in RIDGES:
        average, final = stream.accuracies(stream.answers(*limits, ridge))
        lines.append(
            f"| no draw: the kernel itself, λ = {ridge:g} | {average:.2f} | {final:.2f} | |"
        )
    first = stream.kernels(DRAWS["visvm's R"](width, n_components, 0))
    pairs = [
        pair
        for ridge in RIDGES
        for pair in zip(
            stream.answers(*first, ridge), stream.answers_of_visvm(n_components, ridge), strict=True
        )
    ]
    other = sum(int((plain != ours).sum()) for plain, ours in pairs)
    asked = sum(len(plain) for plain, _ in pairs)
    return [
        *lines,
        "",
        f"visvm's own solver, with its first draw: {other} of {asked} answers are others.",
        "",
    ]


def main() -> None:
    """Encode, draw, and write the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path)
    given = parser.parse_args()
    data, encoder = load_dataset("cub200", given.data), load_encoder("clip-b16-openai")
    order = class_order(len(data.classes), 1993)[: ENDS[-1]]
    train, test = (base_session(images, order, encoder) for images in (data.train, data.test))
    arrival = np.argsort(order)  # of the classes in alphabetical order: when each comes
    stream = Stream(train.final, arrival[train.labels], test.final, arrival[test.labels])
    lines = [
        "# The draw of R",
        "",
        (
            "Written by `python benchmarks/draws.py`: CUB-200, clip-b16-openai, last block, first "
            "three sessions of 20 classes of B0"
        ),
        (
            "Inc20; Ā and A_B in percent: mean ± standard deviation (least to most) of "
            f"{N_DRAWS} draws, all asked about the same"
        ),
        (
            f"{len(stream.test_labels)} test images. As good: the same when rounded to a tenth, or "
            "better."
        ),
        "",
        *(line for n_components in OTHER_SOLVER for line in table(stream, n_components)),
    ]
    text = "\n".join(lines)
    print(text)
    (HERE / "DRAWS.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
