"""The exported ONNX file beside `visvm predict`: same labels, probabilities, size, time, precision.

    python benchmarks/export.py --data DATA [--classes 100] [--images 1000] [--smaller 300]

Learns CUB-200 birds from ten of the training photos of each class, and asks about ten others, so
that features which are in the cache serve: only the exported files encode anew.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image

from visvm import ImageClassifier

LEARNED = ASKED = 10  # photos of a class
BATCH = 16


def photos(data, n_classes):
    """Return the photos to learn and those to ask about, by class."""
    folders = sorted(path for path in (data / "cub200/train").iterdir() if path.is_dir())
    files = [sorted(folder.iterdir()) for folder in folders[:n_classes]]
    learned = [path for each in files for path in each[:LEARNED]]
    return learned, [path for each in files for path in each[LEARNED : LEARNED + ASKED]]


def answers(path, asked):
    """Return all outputs of a file for photos, and the seconds that one took."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_outputs()]
    found, start = [], time.perf_counter()
    for first in range(0, len(asked), BATCH):
        batch = [np.asarray(Image.open(path).convert("RGB")) for path in asked[first:][:BATCH]]
        found.append(session.run(names, {"image": np.stack(batch)}))
    seconds = (time.perf_counter() - start) / len(asked)
    parts = zip(*found, strict=True)
    return dict(zip(names, map(np.concatenate, parts), strict=True)), seconds


def compare(made, path, asked):
    """Print how the answers of a file compare with those of ``predict``."""
    labels = list(made.classes_)
    wanted = made.predict(asked, top=len(labels))
    found, seconds = answers(path, asked)
    named = [labels[place] for place in found["top"][:, 0]]
    order = [[labels.index(label) for label, _ in each.top] for each in wanted]
    shares = np.array([[share for _, share in each.top] for each in wanted])
    away = np.abs(np.take_along_axis(found["probabilities"], np.array(order), axis=1) - shares)
    truth = [each.parent.name for each in asked]
    right = [np.mean([a == b for a, b in zip(given, truth, strict=True)])
             for given in ([each.label for each in wanted], named)]  # fmt: skip
    known = np.abs(found["known"] - [each.known for each in wanted]).max()
    same = sum(each.label == label for each, label in zip(wanted, named, strict=True))
    print(
        f"{path.stem}: {path.stat().st_size / 1e6:.1f} MB; {same} of {len(asked)} labels equal; "
        f"probabilities within {away.max():.1e}, known within {known:.1e}; accuracy "
        f"{100 * right[1]:.2f} % ({100 * (right[1] - right[0]):+.2f}); "
        f"{1e3 * seconds:.0f} ms a photo"
    )
    for each, label in zip(wanted, named, strict=True):
        if each.label != label:
            margin = each.top[0][1] - each.top[1][1]
            print(f"  {each.path}: {label} instead of {each.label}, whose margin was {margin:.4f}")


def side_by_side(made, path, asked, rounds=3):
    """Print the time of the file as a multiple of that of ``predict``, in turns."""
    bare = ImageClassifier.of(made.model_, cache=False)
    bare.predict(asked[:2])
    ratios = []
    for _ in range(rounds):
        start = time.perf_counter()
        bare.predict(asked)
        ours = (time.perf_counter() - start) / len(asked)
        ratios.append(answers(path, asked)[1] / ours)
    print(f"{path.stem}: {np.median(ratios):.3f} × the time of visvm predict (median of {rounds})")


def main():
    """Print everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--images", type=int, default=1000, help="asked of the float32 file")
    parser.add_argument("--smaller", type=int, default=300, help="asked of the smaller files")
    parser.add_argument("--timed", type=int, default=16, help="photos timed side by side")
    options = parser.parse_args()
    learned, asked = photos(options.data, options.classes)
    made = ImageClassifier(transform="squash", layers=(9, 12), ridge=100.0)
    made.learn(learned, [path.parent.name for path in learned])
    with tempfile.TemporaryDirectory() as folder:
        for precision in ("float32", "float16", "int8"):
            path = Path(folder) / f"{precision}.onnx"
            made.export_onnx(path, precision=precision)
            n = options.images if precision == "float32" else options.smaller
            if n:
                compare(made, path, asked[:: max(1, len(asked) // n)][:n])
            if options.timed:
                side_by_side(made, path, asked[: options.timed])


if __name__ == "__main__":
    main()
