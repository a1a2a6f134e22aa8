"""Which encoder ``--encoder auto`` takes, and which would have been better, on real photos.

::

    python benchmarks/auto.py --data FOLDER    7 000 images to encode by each (cached)

For every draw among 100 classes a first session learns with ``encoder="auto"``, which tries
DINOv2-S and CLIP on a third of its training images. Then each encoder learns all of these by itself
and is asked the test images. Both must be fetched. Prints a table and writes AUTO.md beside it.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from visvm import ImageClassifier
from visvm.bench.loading import LabelledImages, load_dataset
from visvm.bench.streams import class_order
from visvm.model.results import EncoderChoice

HERE = Path(__file__).parent
COMPONENTS = 5000


@dataclass(frozen=True)
class Setting:
    """What is drawn, and how often."""

    title: str
    dataset: str
    n_classes: int
    n_draws: int
    train_per_class: int
    test_per_class: int


SETTINGS = (
    Setting("CUB-200", "cub200", 10, 3, 12, 10),
    Setting("CIFAR-100", "cifar100", 10, 5, 12, 20),
    Setting("CIFAR-100", "cifar100", 100, 1, 12, 20),
)


def of_classes(images: LabelledImages, classes: np.ndarray) -> tuple[list[object], list[int]]:
    """Return the images of some classes, and their classes."""
    rows = np.flatnonzero(np.isin(images.targets, classes))
    return [images.images[row] for row in rows], images.targets[rows].tolist()


def draws(data: Path, setting: Setting) -> Iterator[tuple[EncoderChoice, dict[str, float]]]:
    """Yield, for every draw of classes, the choice and the accuracy that each encoder has."""
    loaded = load_dataset(
        setting.dataset,
        data,
        train_per_class=setting.train_per_class,
        test_per_class=setting.test_per_class,
    )
    for draw in range(setting.n_draws):
        known = class_order(len(loaded.classes), 1993)[:100]
        classes = np.random.default_rng(draw).permutation(known)[: setting.n_classes]
        learned, asked = (of_classes(part, classes) for part in (loaded.train, loaded.test))
        how = {"n_components": COMPONENTS, "transform": "squash"}
        choice = ImageClassifier("auto", **how).learn(*learned).encoder
        assert choice is not None
        found = {}
        for name in choice.accuracies:
            model = ImageClassifier(name, **how)
            model.learn(*learned)
            found[name] = model.evaluate(*asked).accuracy
        yield choice, found


def percents(shares: dict[str, float]) -> str:
    """Return shares by name in percent."""
    return ", ".join(f"{name} {100 * share:.1f}" for name, share in shares.items())


def main() -> None:
    """Measure every setting, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with cub200, cifar100")
    data = parser.parse_args().data
    lines = [
        "| photos | classes | tried on | right in the trial, % | taken | right on test images, % |",
        "|---|---:|---:|---|---|---|",
    ]
    for setting in SETTINGS:
        for choice, found in draws(data, setting):
            cells = [setting.title, setting.n_classes, choice.n, percents(choice.accuracies)]
            cells += [f"`{choice.encoder}`, {choice.why}", percents(found)]
            lines.append(f"| {' | '.join(map(str, cells))} |")
            print(lines[-1], flush=True)
    per_class = f"{SETTINGS[0].train_per_class} training images of each class"
    (HERE / "AUTO.md").write_text(
        "# Which encoder `--encoder auto` takes\n\n"
        f"Written by `python benchmarks/auto.py --data FOLDER`: {per_class}, D = {COMPONENTS}, "
        "transform squash. A first session tries both encoders on a third of its images, each "
        "scored as if it had not been learned; DINOv2-S stays unless CLIP is ahead by more than "
        "1.5 standard errors.\n\n" + "\n".join(lines) + "\n"
    )


if __name__ == "__main__":
    main()
