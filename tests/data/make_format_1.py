"""Makes format-1.visvm, a file of format 1 as the first version wrote it, and its encoder.

Run once, by the first version, from the project's folder: ``python -m tests.data.make_format_1
FOLDER``. The files are kept for ever: later versions must read them.
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image

from tests import tiny
from visvm import ImageClassifier


def write_shades(folder: Path, classes, steps) -> Path:
    """Pictures without chance: the class's colour, darker to the right and by step, speckled."""
    rows, columns = np.indices((12, 16))
    for label in classes:
        (folder / label).mkdir(parents=True, exist_ok=True)
        for step in steps:
            light = (1.0 - 0.02 * columns) * (1.0 - 0.05 * step)
            speckles = (
                rows * 7 + columns * 13 + step * 5 + rows * columns * (step + 1)
            ) % 17 * 6 - 48
            pixels = light[:, :, None] * np.array(tiny.COLOURS[label]) + speckles[:, :, None]
            Image.fromarray(np.clip(np.round(pixels), 0, 255).astype(np.uint8)).save(
                folder / label / f"{step}.png"
            )
    return folder


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    tiny.write_encoder(folder)
    given = {"transform": "crop", "cache": False, "layers": (1, 3)}
    model = ImageClassifier(str(folder / "tiny.onnx"), n_components=20, **given)
    model.learn(write_shades(folder / "first", ("red", "green"), range(4)))
    model.learn(write_shades(folder / "second", ("blue", "red"), range(4, 6)))
    model.encoder_name = "tiny.onnx"  # no path of this machine
    model.save(folder / "format-1.visvm")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
