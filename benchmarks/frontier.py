"""Accuracy against time an image: sizes of the picture, patches, int8, views, ``--quality``.

::

    python benchmarks/frontier.py --data FOLDER                      what is not measured yet
    python benchmarks/frontier.py --data FOLDER --only "CUB-200"     of that, only this
    python benchmarks/frontier.py                                    the page and its figure alone

The first classes (20, on CIFAR-100 10) are learned first, then all others together, by the whole
method as it is by default, except D = 5000; all test images are asked in the end. That is A_B: in
how many sessions the others come changes nothing. Times are those of the encoder alone, in CPU
seconds of one thread on noise: the encoders take turns, and the best of several is kept, so that
other work on the machine hits all alike. Views cost their number times that of one, when learning
or when asking.

CUB's photos are scaled to 224 × 224 in this copy, and CIFAR's are 32 × 32: larger pictures
(``--quality best``) only interpolate here, and show the encoder no more details.
Keeps what it measures in frontier.json; writes FRONTIER.md and frontier.png, all beside this file.
"""

import argparse
import json
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
from visvm.encoders.presets import at_every_quality, at_quality
from visvm.encoders.transform import VIEWS

HERE = Path(__file__).parent
KEPT = HERE / "frontier.json"
ENCODER = "dinov2-s14"
COMPONENTS = 5000
REPEATS = 4


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
CUB_FEW = Setting("CUB-200, 10 training and 5 test images a class", "cub200", 200, 20, 10, 5)
CUB_PART = Setting("CUB-200, first 30 classes", "cub200", 30, 20)
CIFAR = Setting("CIFAR-100, 20 training and 20 test images a class", "cifar100", 100, 10, 20, 20)
SMALL = Way(f"{ENCODER}@140")
FAST = Way(at_quality(ENCODER, "fast"))
FEW_PATCHES = Way(f"{ENCODER}@224:112")
STANDARD = Way(ENCODER)
BEST = Way(at_quality(ENCODER, "best"))
VIEWED = tuple(
    Way(ENCODER, learned, asked)
    for views in ("mirror", "crops")
    for learned, asked in ((views, "one"), ("one", views), (views, views))
)
CLIP = Way("clip-b16-openai")
CLIP_FAST = Way(at_quality(CLIP.encoder, "fast"))
ROWS: dict[Setting, tuple[Way, ...]] = {
    CUB: (STANDARD, FAST, FEW_PATCHES),
    CUB_FEW: (STANDARD, FAST, CLIP),
    CUB_PART: (STANDARD, FAST, SMALL, BEST, *VIEWED),
    CIFAR: (STANDARD, FAST, FEW_PATCHES, CLIP, CLIP_FAST),
}


def right_in_the_end(data: Path, setting: Setting, way: Way) -> np.ndarray:
    """Return which test images are right, (n,), after all classes were learned."""
    train, test, order = setting.parts(data)
    first = order[: setting.n_first]
    model = ImageClassifier(way.encoder, COMPONENTS, transform="squash", views=way.learned)
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
    start = time.process_time()
    encoder.encode(pixels)
    return 1000 * (time.process_time() - start) / len(pixels)


@dataclass(frozen=True)
class Found:
    """What a way gives: percent right, points against the standard way, and their error."""

    n_images: int
    right: float
    gain: float
    error: float


def measured(data: Path | None, setting: Setting, only: str) -> dict[Way, Found]:
    """Return what is kept of a setting, after measuring what is missing, if there is data."""
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    rows = kept.setdefault(setting.title, {})
    standard = None
    for way in ROWS[setting]:
        if data is None or way.title in rows or only not in f"{setting.title}, {way.title}":
            continue
        if standard is None:
            standard = right_in_the_end(data, setting, STANDARD)
        right = standard if way == STANDARD else right_in_the_end(data, setting, way)
        gain = 100 * (right.astype(float) - standard)
        error = gain.std() / np.sqrt(len(gain))
        found = Found(len(right), 100 * right.mean(), gain.mean(), error)
        rows[way.title] = {name: round(number, 4) for name, number in vars(found).items()}
        KEPT.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
        print(setting.title, way.title, rows[way.title], flush=True)
    return {way: Found(**rows[way.title]) for way in ROWS[setting] if way.title in rows}


def costs(way: Way, times: dict[str, float]) -> list[float]:
    """Return the milliseconds to learn and to ask an image."""
    return [times[way.encoder] * len(VIEWS[views]) for views in (way.learned, way.asked)]


def section(setting: Setting, found: dict[Way, Found], times: dict[str, float]) -> list[str]:
    """Return the lines of a setting's table."""
    lines = [
        f"## {setting.title}: {found[STANDARD].n_images} test images",
        "",
        "| encoder and views | A_B, % | against standard | ms to learn | ms to ask |",
        "|---|---:|---:|---:|---:|",
    ]
    for way, each in found.items():
        spent = " | ".join(f"{ms:.0f} ({ms / times[ENCODER]:.2f} ×)" for ms in costs(way, times))
        gain = f"{each.gain:+.2f} ± {each.error:.2f}"
        lines.append(f"| {way.title} | {each.right:.2f} | {gain} | {spent} |")
    return [*lines, ""]


def draw(tables: dict[Setting, dict[Way, Found]], times: dict[str, float]) -> None:
    """Draw accuracy over time an image, a panel for each setting."""
    size = (4.6 * len(tables), 4.6)
    figure, ((*panels,),) = plt.subplots(1, len(tables), figsize=size, squeeze=False)
    every = list(dict.fromkeys(way for ways in ROWS.values() for way in ways))
    for panel, (setting, found) in zip(panels, tables.items(), strict=True):
        for way, each in found.items():
            panel.errorbar(
                np.mean(costs(way, times)),
                each.right,
                each.error,
                fmt="osD^v<>PX*hdp"[every.index(way)],
                capsize=3,
                color=f"C{every.index(way) % 10}",
                label=_short(way),
            )
        panel.set_title(setting.title, fontsize=9)
        panel.set_xlabel("ms an image, mean of learning and asking", fontsize=8)
        panel.set_xscale("log")
        panel.margins(y=0.1)
        panel.legend(fontsize=7, loc="lower right")
    panels[0].set_ylabel("A_B, %")
    figure.tight_layout()
    figure.savefig(HERE / "frontier.png", dpi=110)


def _short(way: Way) -> str:
    if (way.learned, way.asked) != ("one", "one"):
        return f"learned {way.learned}, asked {way.asked}"
    name = way.encoder.replace(f"{ENCODER}@", "@")
    return {STANDARD: f"{name}: standard", FAST: f"{name}: fast"}.get(way, name)


def _about(presets: str, faster: float, tables: dict[Setting, dict[Way, Found]]) -> str:
    costs = " and ".join(
        f"{found[FAST].gain:+.2f} ± {found[FAST].error:.2f} points ({setting.title})"
        for setting, found in tables.items()
        if FAST in found
    )
    return (
        "Written by `python benchmarks/frontier.py --data FOLDER`: the whole method as it is by "
        f"default, except D = {COMPONENTS}, transform squash. ± is the standard error of the "
        "paired difference. Times are CPU time of the encoder alone on one thread of a CPU with "
        "VNNI, measured side by side; in brackets, that of standard is 1. `224:112` are 112 of "
        "the 256 patches of a picture of 224 × 224 (`encoders/patches.py`), `int8` are products of "
        f"whole numbers (`encoders/int8.py`). The presets of `--quality`: {presets}. fast is "
        f"{faster:.2f} times as fast as standard; what it costs in right answers is "
        f"{costs or 'not measured yet'}. On CPUs without VNNI int8 gains less, which `visvm doctor "
        "speed` measures, and its products are the same. The photos of these copies have "
        "224 × 224 and 32 × 32 pixels: larger pictures (`best`) only interpolate here, and what "
        "they give on photos of full size is not measured. What the transforms give: "
        "[TRANSFORMS.md](TRANSFORMS.md)."
    )


def main() -> None:
    """Measure what is missing, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, help="folder with cub200, cifar100")
    parser.add_argument("--only", default="", help="part of the name of a row, with its table")
    given = parser.parse_args()
    every = {setting: measured(given.data, setting, given.only) for setting in ROWS}
    tables = {setting: found for setting, found in every.items() if STANDARD in found}
    names = sorted({FAST.encoder, *(way.encoder for found in tables.values() for way in found)})
    kept = json.loads(KEPT.read_text())
    if missing := [name for name in names if name not in kept.setdefault("ms", {})]:
        print(f"timing anew, because of {', '.join(missing)}")
        kept["ms"] = {name: round(time, 2) for name, time in milliseconds(names).items()}
        KEPT.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    presets = ", ".join(f"{name} `{each}`" for name, each in at_every_quality(ENCODER).items())
    faster = kept["ms"][ENCODER] / kept["ms"][FAST.encoder]
    lines = [
        "# What a picture's size, its patches and views cost and give",
        "",
        _about(presets, faster, tables),
        "",
        "![Accuracy over time an image](frontier.png)",
        "",
    ]
    for setting, found in tables.items():
        lines += section(setting, found, kept["ms"])
    (HERE / "FRONTIER.md").write_text("\n".join(lines))
    draw(tables, kept["ms"])


if __name__ == "__main__":
    main()
