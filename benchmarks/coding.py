"""±1 or one-hot targets: the same answers for the same λ, and which λ each of them chooses.

::

    python benchmarks/coding.py --data FOLDER   CUB-200, dinov2-s14 (cached), about three minutes

All classes are learned on the lifted features of the final block. With the same λ the scores of the
±1 targets are twice those of the one-hot targets minus one function of x that all classes share, so
the class with the highest score is the same. What can differ is the λ that the validation error of
the base session picks. Prints a table and writes it to CODING.md beside this file.
"""

import argparse
from pathlib import Path

import numpy as np

from visvm import IncrementalLSSVC, load_encoder
from visvm.bench.features import encode_data
from visvm.bench.loading import load_dataset
from visvm.bench.streams import class_order
from visvm.encoders.cache import FeatureCache
from visvm.encoders.transform import Transform
from visvm.head.selection import RIDGE_CANDIDATES, search_ridge, split_base_session
from visvm.head.solver import solve
from visvm.progress import silent

HERE = Path(__file__).parent


def main() -> None:
    """Compare the two codings at every λ."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path)
    parser.add_argument("--encoder", default="dinov2-s14")
    parser.add_argument("--components", type=int, default=5000)
    parser.add_argument(
        "--base", type=int, default=20, help="classes of the base session, on which λ is chosen"
    )
    given = parser.parse_args()
    data = load_dataset("cub200", given.data)
    encoder = load_encoder(given.encoder)
    with FeatureCache() as cache:
        transform = Transform("squash", encoder.preprocessing)
        encoded = encode_data(data, encoder, transform, cache, silent)
    width = encoder.layer_dims[-1]
    train, test = (part.features[:, -width:] for part in (encoded.train, encoded.test))
    model = IncrementalLSSVC(n_components=given.components, ridge=1000.0)
    model.fit(train, encoded.train.targets)
    base = np.isin(encoded.train.targets, class_order(len(data.classes), 1993)[: given.base])
    paths = {
        name: choose_ridge(model, train[base], encoded.train.targets[base], negative)
        for name, negative in (("±1", -1.0), ("one-hot", 0.0))
    }
    lines = [
        "# ±1 or one-hot targets",
        "",
        (
            f"Written by `python benchmarks/coding.py`: CUB-200, {given.encoder}, "
            f"D = {given.components}, all 200 classes learned,"
        ),
        (
            f"{len(test)} test images; λ chosen on a base session of {given.base} classes. "
            "The last column is the largest"
        ),
        "difference between classes of what should be one function of x shared by all of them.",
        "",
        *table(model, test, paths["±1"][1], paths["one-hot"][1]),
        "",
        *(f"λ chosen with {name} targets: {chosen:g}." for name, (chosen, _) in paths.items()),
    ]
    print("\n".join(lines))
    (HERE / "CODING.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def choose_ridge(
    model: IncrementalLSSVC, features: np.ndarray, targets: np.ndarray, negative: float
) -> tuple[float, dict[float, float]]:
    """Choose λ on a base session; return it, and the validation error of every λ tried."""
    labels = np.unique(targets, return_inverse=True)[1]
    best, path = search_ridge(
        lambda rows: model.kernel_map_.lift(features[rows]),
        labels,
        np.ones(len(labels)),
        split_base_session(labels, None, 0),
        svm_cost=model.svm_cost,
        negative=negative,
    )
    return best.ridge, {trial.ridge: trial.mse for trial in path}


def table(
    model: IncrementalLSSVC,
    test: np.ndarray,
    signs_errors: dict[float, float],
    one_hot_errors: dict[float, float],
) -> list[str]:
    """Compare errors, answers and scores at every λ."""
    lifted = model.kernel_map_.lift(test)
    augmented = np.concatenate([lifted, np.ones((len(lifted), 1))], axis=1)
    lines = [
        (
            "| λ | validation error, ±1 | validation error, one-hot × 4 | other answers "
            "| 2·f(one-hot) - f(±1): spread |"
        ),
        "|---:|---:|---:|---:|---:|",
    ]
    for ridge in RIDGE_CANDIDATES[5:]:
        signs, one_hot = (
            augmented @ solve(model.statistics_, ridge, model.svm_cost, negative=value)
            for value in (-1.0, 0.0)
        )
        spread = float(np.ptp(2.0 * one_hot - signs, axis=1).max())
        other = int((signs.argmax(axis=1) != one_hot.argmax(axis=1)).sum())
        errors = f"{signs_errors[ridge]:.5f} | {4.0 * one_hot_errors[ridge]:.5f}"
        lines.append(f"| {ridge:g} | {errors} | {other} | {spread:.1e} |")
    return lines


if __name__ == "__main__":
    main()
