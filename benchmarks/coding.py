"""±1 or one-hot targets: the same answers for the same λ, and which λ each of them chooses.

    python benchmarks/coding.py --data FOLDER                 CUB-200, dinov2-s14 (features are
    cached), about three minutes

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
from visvm.encoders.images import Transform
from visvm.head.selection import RIDGE_CANDIDATES, search_ridge, split_base_session
from visvm.head.solver import solve

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
        encoded = encode_data(
            data, encoder, Transform("squash", encoder.preprocessing), cache, lambda *_: None
        )
    width = encoder.layer_dims[-1]
    model = IncrementalLSSVC(n_components=given.components, ridge=1000.0)
    model.fit(encoded.train.features[:, -width:], encoded.train.targets)

    base = np.isin(encoded.train.targets, class_order(len(data.classes), 1993)[: given.base])
    features = encoded.train.features[base][:, -width:]
    targets = np.unique(encoded.train.targets[base], return_inverse=True)[1]
    split = split_base_session(targets, None, 0)
    trials = {}
    for name, negative in (("±1", -1.0), ("one-hot", 0.0)):
        best, path = search_ridge(
            lambda rows: model.kernel_map_.lift(features[rows]),
            targets,
            np.ones(len(targets)),
            split,
            svm_cost=model.svm_cost,
            negative=negative,
        )
        trials[name] = best.ridge, {trial.ridge: trial.mse for trial in path}

    lifted = model.kernel_map_.lift(encoded.test.features[:, -width:])
    augmented = np.concatenate([lifted, np.ones((len(lifted), 1))], axis=1)
    lines = [
        "# ±1 or one-hot targets",
        "",
        f"Written by `python benchmarks/coding.py`: CUB-200, {given.encoder}, D = {given.components}, all 200 classes learned,",
        f"{len(lifted)} test images; λ chosen on a base session of {given.base} classes. The last column is the largest",
        "difference between classes of what should be one function of x shared by all of them.",
        "",
        "| λ | validation error, ±1 | validation error, one-hot × 4 | other answers | 2·f(one-hot) - f(±1): spread |",
        "|---:|---:|---:|---:|---:|",
    ]
    for ridge in RIDGE_CANDIDATES[5:]:
        signs, one_hot = (
            augmented @ solve(model.statistics_, ridge, model.svm_cost, negative=value)
            for value in (-1.0, 0.0)
        )
        shared = 2.0 * one_hot - signs
        spread = float(np.ptp(shared, axis=1).max())
        other = int((signs.argmax(axis=1) != one_hot.argmax(axis=1)).sum())
        errors = [trials["±1"][1][ridge], 4.0 * trials["one-hot"][1][ridge]]
        lines.append(f"| {ridge:g} | {errors[0]:.5f} | {errors[1]:.5f} | {other} | {spread:.1e} |")
    lines += [
        "",
        *(f"λ chosen with {name} targets: {chosen:g}." for name, (chosen, _) in trials.items()),
    ]
    print("\n".join(lines))
    (HERE / "CODING.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
