"""What each transform makes of photographs of several shapes, and what a first session chooses.

::

    python benchmarks/transforms.py --data FOLDER    11 000 images to encode (cached): 15 minutes

Thirty classes of CUB-200, only training images: ten photographs of each are learned, ten others
asked. ``shapes.py`` says how they get their shapes. Prints a table and writes TRANSFORMS.md.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from shapes import SHAPES, shaped

from visvm import ImageClassifier
from visvm.bench.streams import class_order
from visvm.encoders.transform import DEFAULT_TRANSFORM, TRANSFORMS
from visvm.learning.choosing import STANDARD_ERRORS, right_unlearned, winner

HERE = Path(__file__).parent
N_CLASSES, N_LEARNED, N_ASKED = 30, 10, 10
SAMPLED = (3, 10, 30)  # classes of a trial
THRESHOLDS = (0.5, 1.0, 1.5, 2.0, 3.0)
N_DRAWS = 8


def photos(data: Path) -> tuple[list[Path], list[str]]:
    """Return the files and their labels: those to learn and those to ask with alternate."""
    classes = sorted((data / "cub200/train").iterdir())
    chosen = [classes[number] for number in class_order(len(classes), 1993)[:N_CLASSES]]
    files = [file for folder in chosen for file in sorted(folder.iterdir())[: N_LEARNED + N_ASKED]]
    return files, [file.parent.name for file in files]


class Photos:
    """Photographs of one shape: contents, and final features by transform, (n, 384)."""

    def __init__(self, contents: Sequence[bytes], labels: Sequence[str]) -> None:
        self.contents, self.labels = contents, np.array(labels)
        self.learned = np.arange(len(contents)) % (N_LEARNED + N_ASKED) < N_LEARNED
        self.features = {
            kind: ImageClassifier(transform=kind).layer_features(contents)[:, -384:]
            for kind in TRANSFORMS
        }

    def part(self, learned: bool) -> tuple[list[bytes], list[str]]:
        """Return contents and labels of those to learn, or of those to ask with."""
        places = np.flatnonzero(self.learned == learned)
        return [self.contents[place] for place in places], self.labels[places].tolist()

    def accuracies(self) -> dict[str, float]:
        """Return the accuracy of every transform, from 0 to 1."""
        found = {}
        for kind in TRANSFORMS:
            model = ImageClassifier(n_components=5000, transform=kind)
            model.learn(*self.part(True))
            found[kind] = model.evaluate(*self.part(False)).accuracy
        return found

    def row(self, accuracies: dict[str, float]) -> list[str]:
        """Return cells: accuracy by transform, and what the first session takes."""
        choice = ImageClassifier(n_components=5000).learn(*self.part(True)).transform
        assert choice is not None
        tried = ", ".join(f"{kind} {100 * share:.0f}" for kind, share in choice.accuracies.items())
        cells = [f"{100 * accuracies[kind]:.1f}" for kind in TRANSFORMS]
        return [*cells, choice.transform, f"{choice.n} photos: {tried}"]


def rules(
    rights: Callable[[str, str, np.ndarray], np.ndarray],
    accuracies: dict[tuple[str, str], float],
    targets: np.ndarray,
) -> list[list[str]]:
    """Return, by size of the sample, the mean accuracy that each threshold's choices have."""
    lines = []
    for n_classes in SAMPLED:
        means = dict.fromkeys(THRESHOLDS, 0.0)
        for draw in range(N_DRAWS):
            generator = np.random.default_rng([n_classes, draw])
            classes = generator.permutation(N_CLASSES)[:n_classes]
            rows = np.concatenate(
                [generator.permutation(np.flatnonzero(targets == each))[:5] for each in classes]
            )
            for shape in SHAPES:
                tried = {kind: rights(shape, kind, rows) for kind in TRANSFORMS}
                for threshold in THRESHOLDS:
                    chosen = accuracies[shape, winner(tried, DEFAULT_TRANSFORM, threshold)]
                    means[threshold] += 100 * chosen / N_DRAWS / len(SHAPES)
        lines.append([f"{5 * n_classes}", *(f"{mean:.2f}" for mean in means.values())])
        print(" ".join(lines[-1]), flush=True)
    return lines


def main() -> None:
    """Measure every shape, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with cub200/train")
    files, labels = photos(parser.parse_args().data)
    shapes = {name: Photos(shaped(files, make), labels) for name, make in SHAPES.items()}
    accuracies: dict[tuple[str, str], float] = {}
    lines = []
    for name, each in shapes.items():
        found = each.accuracies()
        accuracies |= {(name, kind): found[kind] for kind in TRANSFORMS}
        lines.append([name, *each.row(found)])
        print(" ".join(lines[-1]), flush=True)
    targets = np.unique(labels, return_inverse=True)[1]
    judged = rules(
        lambda shape, kind, rows: right_unlearned(
            shapes[shape].features[kind][rows], targets[rows], 0
        ),
        accuracies,
        targets,
    )
    best = np.mean([max(accuracies[name, kind] for kind in TRANSFORMS) for name in SHAPES])
    default = np.mean([accuracies[name, DEFAULT_TRANSFORM] for name in SHAPES])
    told = "\n".join(f"- **{name}**: {make.__doc__}" for name, make in SHAPES.items())
    (HERE / "TRANSFORMS.md").write_text(
        "# How photographs become square\n\n"
        f"Written by `python benchmarks/transforms.py --data FOLDER`: {N_CLASSES} classes of "
        f"CUB-200 with DINOv2-S, {N_LEARNED} training photographs of each learned and {N_ASKED} "
        "others asked; accuracy in %. `chosen` is what a first session with "
        f"`--transform auto` takes: {DEFAULT_TRANSFORM}, unless another transform is ahead by more "
        f"than {STANDARD_ERRORS} standard errors on a sixth of its photos.\n\n"
        f"{_table(['photographs', *TRANSFORMS, 'chosen', 'right in its trial, %'], lines)}\n\n"
        f"{told}\n\n"
        "## By how many standard errors another transform must be ahead\n\n"
        f"Accuracy in %, mean of the shapes above and of {N_DRAWS} draws, when the transform is "
        f"chosen by samples of five photographs a class. Always {DEFAULT_TRANSFORM}: "
        f"{100 * default:.2f}; always the best: {100 * best:.2f}.\n\n"
        f"{_table(['photographs tried', *map(str, THRESHOLDS)], judged)}\n"
    )


def _table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rows = [header, ["---"] * len(header), *lines]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


if __name__ == "__main__":
    main()
