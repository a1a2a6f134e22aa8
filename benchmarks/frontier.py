"""Accuracy against time an image: sizes of the picture, views, and the presets of ``--quality``.

::

    python benchmarks/frontier.py --data FOLDER       CUB-200 and CIFAR-100, DINOv2-S

The first 20 classes (on CIFAR-100 10) are learned first, then all others together,
by the whole method as it is by default; all test images are asked in the end. That is A_B: in how
many sessions the others come changes nothing. Times are those of the encoder alone, on noise: the
sizes take turns, and the best of several is kept, so that other work on the machine hits all
alike. Views cost their number times that of one, when learning or when asking.

Larger pictures (``--quality best``) are not measured: CUB's photos are scaled to 224 × 224 in this
copy, and CIFAR's are 32 × 32, so that larger ones show the encoder no more details.
Writes FRONTIER.md and frontier.png beside this file.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from visvm import ImageClassifier, load_encoder
from visvm.bench.loading import LabelledImages, load_dataset
from visvm.bench.streams import class_order
from visvm.encoders.encoder import Encoder
from visvm.encoders.presets import at_every_quality
from visvm.encoders.transform import VIEWS

HERE = Path(__file__).parent
ENCODER = "dinov2-s14"
REPEATS = 8


@dataclass(frozen=True)
class Setting:
    """What is learned and asked: classes in the order of the benchmark, images of each."""

    title: str
    dataset: str
    n_classes: int
    n_first: int
    train_per_class: int | None = None
    test_per_class: int | None = None

    def parts(self, data: Path) -> tuple[LabelledImages, LabelledImages, np.ndarray]:
        """Return images to learn and to ask with, and the classes in their order."""
        loaded = load_dataset(
            self.dataset,
            data,
            train_per_class=self.train_per_class,
            test_per_class=self.test_per_class,
        )
        order = np.array(class_order(len(loaded.classes), 1993)[: self.n_classes])
        return loaded.train, loaded.test, order


@dataclass(frozen=True)
class Way:
    """How photos are shown."""

    encoder: str
    learned: str = "one"
    asked: str = "one"

    @property
    def title(self) -> str:
        """What a table calls it."""
        return f"`{self.encoder}`, learned {self.learned}, asked {self.asked}"


CUB = Setting("CUB-200, all classes", "cub200", 200, 20)
CUB_PART = Setting("CUB-200, first 50 classes", "cub200", 50, 20)
CIFAR = Setting("CIFAR-100, 10 training and 5 test images a class", "cifar100", 100, 10, 10, 5)
SMALL = Way(f"{ENCODER}@140")
STANDARD = Way(ENCODER)
MIRRORED = (Way(ENCODER, "mirror"), Way(ENCODER, "one", "mirror"), Way(ENCODER, "mirror", "mirror"))
ROWS: dict[Setting, tuple[Way, ...]] = {
    CUB: (SMALL, STANDARD),
    CUB_PART: (SMALL, STANDARD, *MIRRORED),
    CIFAR: (SMALL, STANDARD),
}


def right_in_the_end(data: Path, setting: Setting, way: Way) -> np.ndarray:
    """Return which test images are right, (n,), after all classes were learned."""
    train, test, order = setting.parts(data)
    first = order[: setting.n_first]
    model = ImageClassifier(way.encoder, transform="squash", views=way.learned)
    for classes in (first, np.setdiff1d(order, first)):
        rows = np.flatnonzero(np.isin(train.targets, classes))
        model.learn([train.images[row] for row in rows], train.targets[rows].tolist())
    rows = np.flatnonzero(np.isin(test.targets, order))
    answers = model.predict([test.images[row] for row in rows], top=1, views=way.asked)
    return np.array([each.label for each in answers]) == test.targets[rows]


def milliseconds(names: Sequence[str]) -> dict[str, float]:
    """Return what an image takes each encoder, in batches of eight: the best of several turns."""
    encoders = {name: load_encoder(name) for name in names}
    best = dict.fromkeys(names, np.inf)
    for _ in range(REPEATS):
        for name, encoder in encoders.items():
            best[name] = min(best[name], _once(encoder))
    return best


def _once(encoder: Encoder) -> float:
    size = encoder.preprocessing.size
    pixels = np.random.default_rng(0).normal(size=(8, 3, size, size)).astype(np.float32)
    start = time.perf_counter()
    encoder.encode(pixels)
    return 1000 * (time.perf_counter() - start) / len(pixels)


def section(data: Path, setting: Setting, times: dict[str, float]) -> tuple[list[str], dict]:
    """Return the lines of a setting's table, and (time, accuracy) by way."""
    found = {way: right_in_the_end(data, setting, way) for way in ROWS[setting]}
    lines = [
        f"## {setting.title}: {len(found[STANDARD])} test images",
        "",
        "| encoder and views | A_B, % | against standard | time to learn | time to ask |",
        "|---|---:|---:|---:|---:|",
    ]
    points = {}
    for way, right in found.items():
        gain = right.astype(float) - found[STANDARD]
        error = 100 * gain.std() / np.sqrt(len(gain))
        costs = [
            times[way.encoder] / times[ENCODER] * len(VIEWS[views])
            for views in (way.learned, way.asked)
        ]
        lines.append(
            f"| {way.title} | {100 * right.mean():.2f} | {100 * gain.mean():+.2f} ± {error:.2f} | "
            f"{costs[0]:.2f} × | {costs[1]:.2f} × |"
        )
        points[way] = (times[ENCODER] * max(costs), 100 * right.mean())
        print(lines[-1], flush=True)
    return [*lines, ""], points


def draw(points: dict[Setting, dict[Way, tuple[float, float]]]) -> None:
    """Draw accuracy over time an image, a panel for each setting."""
    figure, panels = plt.subplots(1, len(points), figsize=(4.4 * len(points), 3.8))
    for panel, (setting, found) in zip(panels, points.items(), strict=True):
        names: dict[tuple[float, float], list[str]] = {}
        for way, point in found.items():
            panel.plot(*point, "o", color="C1" if "mirror" in (way.learned, way.asked) else "C0")
            name = f"learned {way.learned}, asked {way.asked}"
            if (way.learned, way.asked) == ("one", "one"):
                name = way.encoder.partition("@")[2] or "224"
            names.setdefault(point, []).append(name)
        for (cost, accuracy), each in names.items():
            right = cost > np.mean(list(names), axis=0)[0]
            panel.annotate(
                "\n".join(each),
                (cost, accuracy),
                (-6, 0) if right else (6, -7),
                textcoords="offset points",
                fontsize=7,
                ha="right" if right else "left",
                va="center",
            )
        panel.set_title(setting.title, fontsize=9)
        panel.set_xlabel("ms an image, learning or asking, whichever is more", fontsize=8)
        panel.margins(x=0.35, y=0.15)
    panels[0].set_ylabel("A_B, %")
    figure.tight_layout()
    figure.savefig(HERE / "frontier.png", dpi=110)


def _about(presets: str) -> str:
    return (
        "Written by `python benchmarks/frontier.py --data FOLDER`: the whole method by default, "
        "with DINOv2-S and the transform squash. ± is the standard error of the paired difference. "
        "Times are ratios to one view at the encoder's own size, of the encoder alone, measured "
        f"side by side. The presets of `--quality`: {presets}. The photos of these copies have "
        "224 × 224 and 32 × 32 pixels: what larger pictures (`best`) give on photos of full size "
        "cannot be seen here, and is not measured."
    )


def main() -> None:
    """Measure every setting, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with cub200, cifar100")
    data = parser.parse_args().data
    names = sorted({way.encoder for ways in ROWS.values() for way in ways})
    times = milliseconds(names)
    presets = ", ".join(f"{name} `{each}`" for name, each in at_every_quality(ENCODER).items())
    lines = [
        "# What a picture's size and views cost and give",
        "",
        _about(presets),
        "",
        "![Accuracy over time an image](frontier.png)",
        "",
    ]
    points = {}
    for setting in ROWS:
        table, points[setting] = section(data, setting, times)
        lines += table
    (HERE / "FRONTIER.md").write_text("\n".join(lines))
    draw(points)


if __name__ == "__main__":
    main()
