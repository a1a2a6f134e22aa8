"""Does the mixer pay? The parts ``mixer`` and ``rules`` of ``base_session.py``."""

from typing import TypeVar

import numpy as np
from base_data import Base

from visvm.head.estimators import IncrementalLSSVC, VisClassifier
from visvm.head.fusion import MixerOptions, train_mixer
from visvm.head.selection import best_layers, split_base_session

M = TypeVar("M", IncrementalLSSVC, VisClassifier)

SPLITS = 5
N_COMPONENTS = 2000
BLOCKS = {
    "12": (12,),
    "10, 12": (10, 12),
    "6, 8, 10, 12": (6, 8, 10, 12),
    "9 to 12": (9, 10, 11, 12),
    "all": tuple(range(1, 13)),
}
SEEN = {"a fifth": 5, "half": 2}
MIXED = ("12", "6, 8, 10, 12", "all")
NO_MIXER, DEFAULT = "no mixer", "mixer (default)"
FIRST_SPLITS = {20: 10, 50: 5}  # classes of the first session, and how often
MIXERS = {
    DEFAULT: {},
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


def mixer_part(base: Base) -> list[str]:
    """Tabulate gains of every training and set of blocks, on classes it saw and on others."""
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
                f"The mixer sees {words} of the classes. Without one: {plain[:, 0].mean():.1f} % "
                f"of these are right, {plain[:, 1].mean():.1f} % of the others."
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
                judged = [_judge(base, each, seen[seed], seed) for seed, each in enumerate(fused)]
                gain = np.array(judged) - plain
                error = gain.std(axis=0, ddof=1) / np.sqrt(SPLITS)
                saw, others = (
                    f"{mean:+.2f} ± {wide:.2f}"
                    for mean, wide in zip(gain.mean(axis=0), error, strict=True)
                )
                length = np.mean([np.linalg.norm(each - base.final) for each in fused])
                residual = f"{100 * length / np.linalg.norm(base.final):.1f} %"
                lines.append(f"| {training} | {name} | {saw} | {others} | {residual} |")
        lines.append("")
    return lines[:-1]


def _judge(base: Base, fused: np.ndarray, seen: np.ndarray, seed: int) -> tuple[float, float]:
    """Return percent right of the held-out images of the classes in `seen`, and of the others."""
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
    """Fuse features by a mixer trained on the learned images of the classes in `seen`."""
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
    """Tabulate what each rule gives to the classes of the first session and to those to come."""
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
    """Return percent right of the first classes and of the others, by rule; and the two λ."""
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
    ours = mixed[DEFAULT]
    held_out = next(trial.accuracy for trial in plain.ridge_path_ if trial.ridge == plain.ridge_)
    gains = best_layers(ours.layer_path_).accuracy > held_out
    found["mixer where held-out images of the first session gain"] = found[
        DEFAULT if gains else NO_MIXER
    ]
    chosen = f"{plain.ridge_:g} and {ours.ridge_:g}"
    ours.ridge_ = plain.ridge_
    found["mixer, λ as without it"] = right(ours, base.features)
    return found, chosen
