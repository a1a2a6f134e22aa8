"""What each transform makes of photographs of several shapes, and what a first session chooses.

::

    python benchmarks/transforms.py --data FOLDER    11 000 images to encode (cached): 15 minutes

Thirty classes of CUB-200, only training images: ten photographs of each are learned, ten others
asked. ``shapes.py`` says how they get their shapes. Prints a table and writes TRANSFORMS.md.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from shapes import SHAPES, shaped

from visvm import ImageClassifier
from visvm.bench.streams import class_order
from visvm.encoders.images import DEFAULT_TRANSFORM, TRANSFORMS

HERE = Path(__file__).parent
N_CLASSES, N_LEARNED, N_ASKED = 30, 10, 10


def photos(data: Path) -> tuple[list[Path], list[str]]:
    """Return the files and their labels: those to learn and those to ask with alternate."""
    classes = sorted((data / "cub200/train").iterdir())
    chosen = [classes[number] for number in class_order(len(classes), 1993)[:N_CLASSES]]
    files = [file for folder in chosen for file in sorted(folder.iterdir())[: N_LEARNED + N_ASKED]]
    return files, [file.parent.name for file in files]


def row(name: str, contents: Sequence[bytes], labels: Sequence[str]) -> list[str]:
    """Return a line of the table: accuracy by transform, and what the first session takes."""
    learned = np.arange(len(contents)) % (N_LEARNED + N_ASKED) < N_LEARNED
    parts = [
        ([contents[place] for place in places], [labels[place] for place in places])
        for places in (np.flatnonzero(learned), np.flatnonzero(~learned))
    ]
    accuracies = {}
    for kind in TRANSFORMS:
        model = ImageClassifier(n_components=5000, transform=kind)
        model.learn(*parts[0])
        accuracies[kind] = model.evaluate(*parts[1]).accuracy
    choice = ImageClassifier(n_components=5000).learn(*parts[0]).transform
    assert choice is not None
    tried = ", ".join(f"{kind} {100 * share:.0f}" for kind, share in choice.accuracies.items())
    cells = [f"{100 * accuracies[kind]:.1f}" for kind in TRANSFORMS]
    return [name, *cells, choice.transform, f"{choice.n} photos: {tried}"]


def main() -> None:
    """Measure every shape, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with cub200/train")
    files, labels = photos(parser.parse_args().data)
    header = ["photographs", *TRANSFORMS, "chosen", "right in its trial, %"]
    lines = [header, ["---", *["---:"] * len(TRANSFORMS), "---", "---"]]
    for name, make in SHAPES.items():
        lines.append(row(name, shaped(files, make), labels))
        print(" ".join(lines[-1]), flush=True)
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    told = "\n".join(f"- **{name}**: {make.__doc__}" for name, make in SHAPES.items())
    (HERE / "TRANSFORMS.md").write_text(
        "# How photographs become square\n\n"
        f"Written by `python benchmarks/transforms.py --data FOLDER`: {N_CLASSES} classes of "
        f"CUB-200 with DINOv2-S, {N_LEARNED} training photographs of each learned and {N_ASKED} "
        "others asked; accuracy in %. `chosen` is what a first session with "
        f"`--transform auto` takes: {DEFAULT_TRANSFORM}, unless another transform is ahead by more "
        f"than two standard errors on a sixth of its photos.\n\n{table}\n\n{told}\n"
    )


if __name__ == "__main__":
    main()
