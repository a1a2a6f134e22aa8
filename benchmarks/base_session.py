"""What could make the method better, judged inside the base session alone: no test image and no later session is looked at.

    python benchmarks/base_session.py --data FOLDER                              all parts, CUB-200,
    both encoders (an hour) python benchmarks/base_session.py features --encoder dinov2-s14 --base
    20    one part, one encoder, one size

- ``ridge``: λ is chosen on the first few of the base classes in several ways; what each gives once all base classes are learned.
- ``features``: the last block as it is, normalised in several ways, as the encoder puts it out (after its last norm; CLIP
  projects, too), and several blocks side by side.
- ``mixer``: does the residual mixer pay? The mixer is trained on a fifth or a half of the base classes only, then *all* base
  classes are learned on the fused features. What held-out images of the other classes gain is what
  a mixer trained once gives to classes that come later; what those of its own classes gain is what
  a validation split of the base session shows. Differences are to no mixer. The residual's length
  is told beside, as a share of the feature's.
- ``rules``: the whole method as it stands, with some of the base classes as its first session: blocks, λ and mixer are settled on
  them, then all base classes are learned. Beside it: no mixer; the mixer trained by SGD; only where
  held-out images of the first session gain by it; with λ as without it.

A fifth of every class is held out, in five different ways or more. Prints tables and keeps them in
BASE_SESSION.md beside this file; of a table that older code made the page says so.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from visvm import load_encoder
from visvm.bench.environment import code_digest
from visvm.bench.loading import LabelledImages, load_dataset
from visvm.bench.streams import class_order
from visvm.encoders.cache import FeatureCache
from visvm.encoders.encoder import Encoder
from visvm.encoders.images import Transform
from visvm.encoders.pipeline import encode_files
from visvm.head.estimators import IncrementalLSSVC, VisClassifier
from visvm.head.fusion import MixerOptions, train_mixer
from visvm.head.kernel_map import KernelMap
from visvm.head.selection import best_layers, search_ridge, split_base_session
from visvm.head.solver import RidgePath

M = TypeVar("M", IncrementalLSSVC, VisClassifier)

HERE = Path(__file__).parent
SPLITS = 5
N_COMPONENTS = 2000

SVM_COST = 10.0
FIRST = (5, 20)  # classes that λ is chosen on
WIDTHS = (2000, 15000)
BETWEEN = tuple(3 * 10.0**power for power in range(1, 10))  # values of λ that the paper leaves out
BEST = "(the best of all λ in the end)"
# how far above the least error λ may be, and what is not tried; of those within reach the largest
# is taken
RULES = {
    f"{words}, {grid}": (share, left_out)
    for grid, left_out in {"the paper's values": BETWEEN, "with values between": ()}.items()
    for words, share in {
        "the least error": 0.0,
        "within 0.5 % of it": 0.005,
        "within 2 % of it": 0.02,
    }.items()
}
BLOCKS = {
    "12": (12,),
    "10, 12": (10, 12),
    "6, 8, 10, 12": (6, 8, 10, 12),
    "9 to 12": (9, 10, 11, 12),
    "all": tuple(range(1, 13)),
}
SEEN = {"a fifth": 5, "half": 2}
MIXED = ("12", "6, 8, 10, 12", "all")
NO_MIXER, AS_IT_STANDS = "no mixer", "mixer (as it stands)"
FIRST_SPLITS = {20: 10, 50: 5}  # classes of the first session, and how often
MIXERS = {
    AS_IT_STANDS: {},
    "mixer of blocks 6, 8, 10, 12 trained by SGD as in the paper": {
        "layers": BLOCKS["6, 8, 10, 12"],
        "optimizer": "sgd",
    },
    "mixer of blocks 6, 8, 10, 12 trained by SGD, rate 0.03, 20 epochs, weight 0": {
        "layers": BLOCKS["6, 8, 10, 12"],
        "optimizer": "sgd",
        "learning_rate": 0.03,
        "epochs": 20,
        "identity_weight": 0.0,
    },
}
TRAININGS = {
    "SGD as in the paper: rate 0.01, 5 epochs, weight 0.01": MixerOptions(optimizer="sgd"),
    "SGD, rate 0.03, 20 epochs, weight 0": MixerOptions(
        optimizer="sgd", epochs=20, learning_rate=0.03, identity_weight=0.0
    ),
    "SGD, rate 0.1, 50 epochs, weight 0": MixerOptions(
        optimizer="sgd", epochs=50, learning_rate=0.1, identity_weight=0.0
    ),
    "Adam, rate 0.001, 5 epochs, weight 0.01 (default)": MixerOptions(),
    "Adam, rate 0.001, 20 epochs, weight 0.01": MixerOptions(epochs=20),
    "Adam, rate 0.001, 5 epochs, weight 0": MixerOptions(identity_weight=0.0),
    "Adam, rate 0.001, 5 epochs, weight 0.1": MixerOptions(identity_weight=0.1),
}


@dataclass(frozen=True)
class Base:
    """A base session: layer features, (n, sum of layer_dims), class numbers, (n,), widths of the layers, the encoder's output."""

    features: np.ndarray
    labels: np.ndarray
    layer_dims: tuple[int, ...]
    output: np.ndarray

    def block(self, number: int) -> np.ndarray:
        """The feature of one block, (n, width)."""
        width = self.layer_dims[-1]
        return self.features[:, (number - 1) * width : number * width].astype(np.float64)

    @property
    def final(self) -> np.ndarray:
        """The feature of the last block, (n, width)."""
        return self.block(len(self.layer_dims))


def unit(features: np.ndarray) -> np.ndarray:
    """Features of one length, that of a vector of ones."""
    return features / np.linalg.norm(features, axis=1, keepdims=True) * np.sqrt(features.shape[1])


def ridge_part(base: Base) -> list[str]:
    """What each way of choosing λ on the first classes gives once all classes are learned."""
    n_classes = int(base.labels.max()) + 1
    settings = [(first, width) for first in FIRST if first < n_classes for width in WIDTHS]
    columns = [_accuracies_by_rule(base, first, width) for first, width in settings]
    heads = [f"first {first}, D = {width}" for first, width in settings]
    lines = [
        "| λ is the largest with | " + " | ".join(heads) + " |",
        "|---|" + "---:|" * len(settings),
    ]
    lines += [
        f"| {rule} | " + " | ".join(column[rule] for column in columns) + " |"
        for rule in (*RULES, BEST)
    ]
    return lines


def _accuracies_by_rule(base: Base, first: int, width: int) -> dict[str, str]:
    """Percent of the held-out images of all classes that are right, and the values of λ that were chosen in the splits."""
    right: dict[str, list[float]] = {}
    chosen: dict[str, list[float]] = {}
    signs = 2.0 * np.eye(int(base.labels.max()) + 1)[base.labels] - 1.0
    for seed in range(SPLITS):
        kernel_map = KernelMap(base.layer_dims[-1], width, seed)
        split = split_base_session(base.labels, None, seed)
        classes = np.random.default_rng(seed).permutation(len(signs[0]))[:first]
        early = split.train[np.isin(base.labels[split.train], classes)]
        labels = np.unique(base.labels[early], return_inverse=True)[1]
        inner = split_base_session(labels, None, seed)
        lift = lambda rows, lift=kernel_map.lift, early=early: lift(base.final[early[rows]])  # noqa: E731
        trials = search_ridge(lift, labels, np.ones(len(labels)), inner, svm_cost=SVM_COST)[1]
        path = RidgePath(
            kernel_map.lift(base.final[split.train]), signs[split.train], np.ones(len(split.train))
        )
        projected = path.project(kernel_map.lift(base.final[split.held_out]))
        found = {
            ridge: 100
            * np.mean(
                path.scores(projected, ridge / SVM_COST).argmax(axis=1)
                == base.labels[split.held_out]
            )
            for ridge in sorted({trial.ridge for trial in trials})
        }
        for rule, (share, left_out) in RULES.items():
            usable = [trial for trial in trials if trial.ridge not in left_out]
            alike = (1.0 + share) * min(trial.mse for trial in usable)
            ridge = max(trial.ridge for trial in usable if trial.mse <= alike)
            right.setdefault(rule, []).append(found[ridge])
            chosen.setdefault(rule, []).append(ridge)
        right.setdefault(BEST, []).append(max(found.values()))
    return {
        rule: f"{np.mean(values):.2f}"
        + (f" ({', '.join(f'{ridge:g}' for ridge in chosen[rule])})" if rule in chosen else "")
        for rule, values in right.items()
    }


def features_part(base: Base) -> list[str]:
    """The last block in several scales, and blocks side by side."""
    # given the samples to learn from, features of all
    kinds: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "last block": lambda _: base.final,
        "last block, unit length": lambda _: unit(base.final),
        "last block, centred": lambda train: base.final - base.final[train].mean(axis=0),
        "last block, centred, unit length": lambda train: unit(
            base.final - base.final[train].mean(axis=0)
        ),
        "last block, standardised": lambda train: (
            (base.final - base.final[train].mean(axis=0)) / base.final[train].std(axis=0)
        ),
        "the encoder's own output": lambda _: base.output,
    }
    for name, blocks in BLOCKS.items():
        if len(blocks) > 1:
            raw = np.concatenate([base.block(block) for block in blocks], axis=1)
            scaled = np.concatenate([unit(base.block(block)) for block in blocks], axis=1)
            kinds[f"blocks {name}"] = lambda _, x=raw: x
            kinds[f"blocks {name}, each of unit length"] = lambda _, x=scaled: x
    lines = ["| features | error | accuracy (%) |", "|---|---:|---:|"]
    for name, make in kinds.items():
        best = []
        for seed in range(SPLITS):
            split = split_base_session(base.labels, None, seed)
            features = make(split.train)
            lift = KernelMap(features.shape[1], N_COMPONENTS, 0).lift
            weight = np.ones(len(base.labels))
            best.append(
                search_ridge(
                    lambda rows, lift=lift, x=features: lift(x[rows]),
                    base.labels,
                    weight,
                    split,
                    svm_cost=SVM_COST,
                )[0]
            )
        error, right = (
            np.mean([trial.mse for trial in best]),
            np.array([100 * trial.accuracy for trial in best]),
        )
        lines.append(
            f"| {name} | {error:.4f} | {right.mean():.2f} ± {right.std(ddof=1) / np.sqrt(SPLITS):.2f} |"
        )
    return lines


def mixer_part(base: Base) -> list[str]:
    """Gains of every training and set of blocks, on classes the mixer saw and on others."""
    n_classes = int(base.labels.max()) + 1
    lines: list[str] = []
    for words, part in SEEN.items():
        seen = [
            np.sort(np.random.default_rng(seed).permutation(n_classes)[: n_classes // part])
            for seed in range(SPLITS)
        ]
        plain = np.array(
            [_judge(base, base.final, classes, seed) for seed, classes in enumerate(seen)]
        )
        lines += [
            (
                f"The mixer sees {words} of the classes. Without one: {plain[:, 0].mean():.1f} % of these are right, "
                f"{plain[:, 1].mean():.1f} % of the others."
            ),
            "",
            "| training | blocks | classes it saw | classes it did not | residual |",
            "|---|---|---:|---:|---:|",
        ]
        for training, options in TRAININGS.items():
            for name in MIXED:
                fused = [
                    _fuse(base, classes, BLOCKS[name], options, seed)
                    for seed, classes in enumerate(seen)
                ]
                gain = (
                    np.array(
                        [_judge(base, each, seen[seed], seed) for seed, each in enumerate(fused)]
                    )
                    - plain
                )
                error = gain.std(axis=0, ddof=1) / np.sqrt(SPLITS)
                cells = [
                    f"{mean:+.2f} ± {wide:.2f}"
                    for mean, wide in zip(gain.mean(axis=0), error, strict=True)
                ]
                residual = np.mean(
                    [np.linalg.norm(each - base.final) for each in fused]
                ) / np.linalg.norm(base.final)
                lines.append(
                    f"| {training} | {name} | {cells[0]} | {cells[1]} | {100 * residual:.1f} % |"
                )
        lines.append("")
    return lines[:-1]


def _judge(base: Base, fused: np.ndarray, seen: np.ndarray, seed: int) -> tuple[float, float]:
    """Percent right of the held-out images of the classes in `seen`, and of the others, among all of them."""
    split = split_base_session(base.labels, None, seed)
    model = IncrementalLSSVC(n_components=N_COMPONENTS, random_state=seed).fit(
        fused[split.train], base.labels[split.train]
    )
    right = model.predict(fused[split.held_out]) == base.labels[split.held_out]
    inside = np.isin(base.labels[split.held_out], seen)
    return 100 * float(right[inside].mean()), 100 * float(right[~inside].mean())


def _fuse(
    base: Base, seen: np.ndarray, blocks: tuple[int, ...], options: MixerOptions, seed: int
) -> np.ndarray:
    """Fused features by a mixer that was trained on the learned images of the classes in `seen`."""
    train = split_base_session(base.labels, None, seed).train
    rows = train[np.isin(base.labels[train], seen)]
    mixer = train_mixer(
        base.features[rows],
        np.searchsorted(seen, base.labels[rows]),
        np.ones(len(rows)),
        layer_dims=base.layer_dims,
        layers=blocks,
        options=options,
        seed=seed,
    )
    return mixer.fuse(base.features)


def rules_part(base: Base) -> list[str]:
    """Whether to mix, and with which λ: what each rule gives to the classes of the first session and to those to come."""
    n_classes = int(base.labels.max()) + 1
    lines: list[str] = []
    for first, splits in FIRST_SPLITS.items():
        if first >= n_classes:
            continue
        found = [_right_by_rule(base, first, seed) for seed in range(splits)]
        plain = np.array([right[NO_MIXER] for right, _ in found])
        lines += [
            f"First session of {first} classes, {splits} splits; λ without and with the mixer: "
            + ", ".join(said for _, said in found)
            + ".",
            "",
            "| rule | classes of the first session (%) | classes to come (%) | gain on these |",
            "|---|---:|---:|---:|",
        ]
        for rule in found[0][0]:
            right = np.array([right[rule] for right, _ in found])
            gain = (right - plain)[:, 1]
            mean, error = right.mean(axis=0), gain.std(ddof=1) / np.sqrt(splits)
            lines.append(
                f"| {rule} | {mean[0]:.2f} | {mean[1]:.2f} | {gain.mean():+.2f} ± {error:.2f} |"
            )
        lines.append("")
    return lines[:-1]


def _right_by_rule(base: Base, first: int, seed: int) -> tuple[dict[str, tuple[float, float]], str]:
    """Percent right of the held-out images of the first classes, and of the others, by rule; and the two λ."""
    split = split_base_session(base.labels, None, seed)
    seen = np.random.default_rng(seed).permutation(int(base.labels.max()) + 1)[:first]
    early = split.train[np.isin(base.labels[split.train], seen)]
    inside = np.isin(base.labels[split.held_out], seen)

    def right(model: IncrementalLSSVC | VisClassifier, features: np.ndarray) -> tuple[float, float]:
        answers = model.solve().predict(features[split.held_out]) == base.labels[split.held_out]
        return 100 * float(answers[inside].mean()), 100 * float(answers[~inside].mean())

    def learned(model: M, features: np.ndarray) -> M:
        model.settle(features[early], base.labels[early])
        return model.accumulate(features[split.train], base.labels[split.train])

    plain = learned(IncrementalLSSVC(random_state=seed), base.final)
    mixed = {
        name: learned(VisClassifier(base.layer_dims, random_state=seed, **options), base.features)
        for name, options in MIXERS.items()
    }
    found = {NO_MIXER: right(plain, base.final)} | {
        name: right(model, base.features) for name, model in mixed.items()
    }
    ours = mixed[AS_IT_STANDS]
    held_out = next(trial.accuracy for trial in plain.ridge_path_ if trial.ridge == plain.ridge_)
    gains = best_layers(ours.layer_path_).accuracy > held_out
    found["mixer where held-out images of the first session gain"] = found[
        AS_IT_STANDS if gains else NO_MIXER
    ]
    chosen = f"{plain.ridge_:g} and {ours.ridge_:g}"
    ours.ridge_ = plain.ridge_
    found["mixer, λ as without it"] = right(ours, base.features)
    return found, chosen


PARTS: dict[str, tuple[str, Callable[[Base], list[str]]]] = {
    "ridge": ("values of λ", ridge_part),
    "features": ("features", features_part),
    "mixer": ("the mixer", mixer_part),
    "rules": ("whether to mix, and which λ", rules_part),
}


def keep(title: str, lines: list[str]) -> None:
    """Print a table, and put it into the page in place of an older one of the same title."""
    print("\n".join([f"## {title}", "", *lines, ""]), flush=True)
    store, page = HERE / "base_session.json", HERE / "BASE_SESSION.md"
    kept = json.loads(store.read_text("utf-8")) if store.exists() else {}
    code = code_digest(keep)  # this file and the head
    tables = kept | {title: {"code": code, "lines": lines}}
    store.write_text(json.dumps(tables, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    text = [
        "# Judged inside the base session",
        "",
        "Written by `python benchmarks/base_session.py`, which says what is measured.",
        f"Where it is not told, D is {N_COMPONENTS}; of the whole method it is 15000.",
        f"± is the standard error over {SPLITS} splits; as they share images, it is too small.",
        "",
    ]
    for name in sorted(tables):
        old = [] if tables[name]["code"] == code else ["(Made by older code.)", ""]
        text += [f"## {name}", "", *old, *tables[name]["lines"], ""]
    page.write_text("\n".join(text), encoding="utf-8")


def base_session(train: LabelledImages, classes: np.ndarray, encoder: Encoder) -> Base:
    """The images of these classes, encoded, and no others; of a base session those to train with."""
    rows = np.flatnonzero(np.isin(train.targets, classes))
    images, transform = (
        [train.images[row] for row in rows],
        Transform("squash", encoder.preprocessing),
    )
    with FeatureCache() as cache:
        encoded = encode_files(images, encoder, transform, cache, lambda *_: None)
    if encoded.unreadable:
        raise SystemExit(
            f"every image must be readable; {encoded.unreadable[0].path} is not: replace it"
        )
    labels = np.searchsorted(np.sort(classes), train.targets[rows])
    output = encoder.project(encoded.features[:, -encoder.layer_dims[-1] :]).astype(np.float64)
    return Base(encoded.features, labels, encoder.layer_dims, output)


def main() -> None:
    """Run the parts that are asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--encoder", action="append")
    parser.add_argument("--base", type=int, action="append", help="classes of the base session")
    given = parser.parse_args()
    data = load_dataset("cub200", given.data)
    order = class_order(len(data.classes), 1993)
    for name in given.encoder or ["dinov2-s14", "clip-b16-openai"]:
        encoder = load_encoder(name)
        for n_classes in given.base or [20, 100]:
            base = base_session(data.train, order[:n_classes], encoder)
            for part in given.parts or PARTS:
                title, work = PARTS[part]
                keep(f"{name}, base of {n_classes} classes: {title}", work(base))


if __name__ == "__main__":
    main()
