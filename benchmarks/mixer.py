"""Does the residual mixer pay? Judged inside the base session alone: no test image and no later session is looked at.

    python benchmarks/mixer.py --data FOLDER                        CUB-200, both encoders (features are cached)
    python benchmarks/mixer.py --data FOLDER --encoder dinov2-s14

The base session is split twice. Images: four fifths of every class are learned, one fifth is judged by. Classes: the mixer is
trained on one half of the base classes only, then *all* base classes are learned on the fused features. What the held-out images
of the other half gain is what a mixer trained once would give to classes that come later; what those of its own half gain is
what a validation split of the base session shows. Five divisions of the classes each; paired differences to no mixer, in points,
with their standard error. Prints a table and writes it to MIXER.md beside this file.
"""

import argparse
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from visvm import load_encoder
from visvm.bench.features import encode_data
from visvm.bench.loading import load_dataset
from visvm.bench.streams import class_order
from visvm.encoders.cache import FeatureCache
from visvm.encoders.images import Transform
from visvm.head.classifier import IncrementalLSSVC
from visvm.head.fusion import MixerOptions, train_mixer
from visvm.head.selection import split_base_session

HERE = Path(__file__).parent
DIVISIONS = 5
N_COMPONENTS = 3000

BLOCKS = {"12": (12,), "6, 8, 10, 12": (6, 8, 10, 12), "9 to 12": (9, 10, 11, 12), "all": tuple(range(1, 13))}
TRAININGS = {
    "paper: rate 0.01, 5 epochs, weight 0.01": MixerOptions(),
    "rate 0.03, 20 epochs, weight 0": MixerOptions(epochs=20, learning_rate=0.03, identity_weight=0.0),
    "rate 0.03, 20 epochs, weight 0.01": MixerOptions(epochs=20, learning_rate=0.03),
    "rate 0.1, 50 epochs, weight 0": MixerOptions(epochs=50, learning_rate=0.1, identity_weight=0.0),
    "rate 0.1, 50 epochs, weight 0.01": MixerOptions(epochs=50, learning_rate=0.1),
}


@dataclass(frozen=True)
class Base:
    """A base session: layer features, class numbers, and the widths of the layers."""

    features: np.ndarray
    labels: np.ndarray
    layer_dims: tuple[int, ...]


@dataclass(frozen=True)
class Gain:
    """Mean difference in points to no mixer, and its standard error, on the classes a mixer saw and on the others."""

    seen: tuple[float, float]
    unseen: tuple[float, float]


def judge(base: Base, fused: np.ndarray, half: np.ndarray, seed: int) -> tuple[float, float]:
    """Accuracy on held-out images of the classes in `half`, and of the others, among all of them."""
    split = split_base_session(base.labels, None, seed)
    model = IncrementalLSSVC(n_components=N_COMPONENTS, random_state=seed).fit(fused[split.train], base.labels[split.train])
    right = model.predict(fused[split.held_out]) == base.labels[split.held_out]
    inside = np.isin(base.labels[split.held_out], half)
    return float(right[inside].mean()), float(right[~inside].mean())


def fuse(base: Base, half: np.ndarray, blocks: tuple[int, ...], options: MixerOptions, seed: int) -> np.ndarray:
    """Fused features by a mixer that was trained on the learned images of the classes in `half`."""
    train = split_base_session(base.labels, None, seed).train
    rows = train[np.isin(base.labels[train], half)]
    targets = np.searchsorted(half, base.labels[rows])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a rate that was too high and was lowered
        mixer = train_mixer(
            base.features[rows],
            targets,
            np.ones(len(rows)),
            layer_dims=base.layer_dims,
            layers=blocks,
            options=options,
            seed=seed,
        )
    return mixer.fuse(base.features)


def study(base: Base) -> tuple[tuple[float, float], dict[tuple[str, str], Gain]]:
    """Accuracy without a mixer, on either half, and the gains of every training and set of blocks."""
    n_classes = int(base.labels.max()) + 1
    final = base.features[:, -base.layer_dims[-1] :]
    halves = [np.sort(np.random.default_rng(seed).permutation(n_classes)[: n_classes // 2]) for seed in range(DIVISIONS)]
    plain = np.array([judge(base, final, half, seed) for seed, half in enumerate(halves)])
    gains = {}
    for training, options in TRAININGS.items():
        for name, blocks in BLOCKS.items():
            mixed = np.array(
                [judge(base, fuse(base, half, blocks, options, seed), half, seed) for seed, half in enumerate(halves)]
            )
            difference = 100 * (mixed - plain)
            error = difference.std(axis=0, ddof=1) / np.sqrt(DIVISIONS)
            seen, unseen = zip(difference.mean(axis=0).tolist(), error.tolist(), strict=True)
            gains[training, name] = Gain(seen, unseen)
    return tuple(100 * plain.mean(axis=0)), gains


def write(lines: list[str]) -> None:
    """Print lines, and add them to the page."""
    print("\n".join(lines), flush=True)
    with (HERE / "MIXER.md").open("a", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


def main() -> None:
    """Run the study."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path)
    parser.add_argument("--encoder", action="append")
    parser.add_argument("--base", type=int, action="append", help="classes of the base session")
    given = parser.parse_args()
    (HERE / "MIXER.md").write_text("# Does the mixer pay?\n\nWritten by `python benchmarks/mixer.py`.\n", encoding="utf-8")
    data = load_dataset("cub200", given.data)
    order = class_order(len(data.classes), 1993)
    for name in given.encoder or ["dinov2-s14", "clip-b16-openai"]:
        encoder = load_encoder(name)
        with FeatureCache() as cache:
            train = encode_data(data, encoder, Transform("squash", encoder.preprocessing), cache, lambda *_: None).train
        for n_classes in given.base or [20, 100]:
            rows = np.flatnonzero(np.isin(train.targets, order[:n_classes]))
            labels = np.searchsorted(np.sort(order[:n_classes]), train.targets[rows])
            base = Base(train.features[rows], labels, encoder.layer_dims)
            plain, gains = study(base)
            lines = [
                "",
                f"## {name}, CUB-200, base session of {n_classes} classes, D = {N_COMPONENTS}",
                "",
                f"Without a mixer: {plain[0]:.1f} % on the half a mixer sees, {plain[1]:.1f} % on the other.",
                "",
                "| training | blocks | classes it saw | classes it did not |",
                "|---|---|---:|---:|",
            ]
            for (training, blocks), gain in gains.items():
                cells = [f"{mean:+.2f} ± {error:.2f}" for mean, error in (gain.seen, gain.unseen)]
                lines.append(f"| {training} | {blocks} | {cells[0]} | {cells[1]} |")
            write(lines)


if __name__ == "__main__":
    main()
