"""Does text help where photos are few? The text of a class counts as so many photos of it.

::

    python benchmarks/text.py few --text FILE --data FOLDER [--shots 1,2,4,8] [--draws 5]

CIFAR-100 with CLIP. All classes at once, so many photos of each, drawn from the first 100 of the
training part; the first 20 test images of each class are asked. Blocks, mixer and λ are those that
`visvm learn` settles on the photos alone. The same head is then solved with the texts beside it,
at several weights: this is `visvm learn --text`, which has the weight 32. In the table:

- photos: without texts;
- text as W photos: with them;
- leave-one-out: the weight by which most of the photos learned are named, each left out;
- text alone: the class whose text has the greatest cosine, zero-shot CLIP.

All but the first and the last column are differences to the first, in points. Prints the table and
keeps it in TEXT.md beside this file. `visvm bench text --text FILE` is the benchmark of sessions.
"""

import argparse
from pathlib import Path

import numpy as np

from visvm import load_encoder
from visvm.bench.features import encode_data
from visvm.bench.loading import load_dataset
from visvm.bench.streams import Samples
from visvm.encoders.cache import FeatureCache
from visvm.encoders.joint import Tail, tail_of
from visvm.encoders.texts import TextFeatures, read_texts, unit
from visvm.encoders.transform import Transform
from visvm.head.head import Head
from visvm.head.settle import HeadOptions, settle
from visvm.head.texts import TextSamples
from visvm.progress import silent

HERE = Path(__file__).parent
WEIGHTS, WIDTH = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0), 5000
COLUMNS = [*(f"text as {weight:g}" for weight in WEIGHTS), "leave-one-out"]


def right(scores: np.ndarray, targets: np.ndarray) -> float:
    """Return the share of images whose greatest score is that of their class, in percent."""
    return 100.0 * float((scores.argmax(axis=1) == targets).mean())


def trial(
    train: Samples, test: Samples, dims: tuple[int, ...], directions: np.ndarray
) -> list[float]:
    """Return the accuracy with photos alone, with texts by weight, and by the weight chosen.

    Parameters
    ----------
    train, test : Samples
    dims : tuple of int
        Widths of the blocks' features.
    directions : array of shape (C, width)
        Fused features that the texts stand for.
    """
    options = HeadOptions(layer_dims=dims, n_components=WIDTH)
    settled = settle(train.features, train.targets, options)
    photos = Head.blank(settled).learned(train.features, train.targets)
    found, chosen = [right(photos.solved().scores(test.features), test.targets)], (-1.0, 0.0)
    for weight in WEIGHTS:
        texts = TextSamples(tuple(range(len(directions))), directions, weight)
        head = photos.with_texts(texts).solved()
        found.append(right(head.scores(test.features), test.targets))
        left_out = head.leave_one_out_scores(train.features, train.targets)
        chosen = max(chosen, (right(left_out, train.targets), found[-1]), key=lambda pair: pair[0])
    return [*found, chosen[1]]


def drawn(train: Samples, shots: int, seed: int) -> Samples:
    """Draw so many images of every class."""
    generator = np.random.default_rng([shots, seed])
    every = [np.flatnonzero(train.targets == label) for label in np.unique(train.targets)]
    rows = np.concatenate([generator.choice(each, shots, replace=False) for each in every])
    return Samples(train.features[rows], train.targets[rows])


def few(
    train: Samples,
    test: Samples,
    tail: Tail,
    dims: tuple[int, ...],
    texts: TextFeatures,
    given: argparse.Namespace,
) -> list[str]:
    """Return the lines of the table."""
    said = texts.prototypes.astype(np.float64)
    directions = tail.preimage(said)
    projected = unit(tail.project(test.features[:, -dims[-1] :].astype(np.float64)))
    alone = right(projected @ said.T, test.targets)
    lines = [
        f"| photos a class | photos | {' | '.join(COLUMNS)} | text alone |",
        "|---:|---:|" + "---:|" * (len(COLUMNS) + 1),
    ]
    for shots in map(int, given.shots.split(",")):
        found = np.array(
            [
                trial(drawn(train, shots, seed), test, dims, directions)
                for seed in range(given.draws)
            ]
        )
        gains = found[:, 1:] - found[:, :1]
        errors = gains.std(axis=0, ddof=1) / np.sqrt(len(gains))
        cells = [
            f"{mean:+.2f} ± {error:.2f}"
            for mean, error in zip(gains.mean(axis=0), errors, strict=True)
        ]
        lines.append(f"| {shots} | {found[:, 0].mean():.2f} | {' | '.join(cells)} | {alone:.2f} |")
        print(lines[-1], flush=True)
    return lines


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["few"])
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--encoder", default="clip-b16-openai")
    parser.add_argument("--shots", default="1,2,4,8")
    parser.add_argument("--draws", type=int, default=5)
    given = parser.parse_args()
    data = load_dataset("cifar100", given.data, train_per_class=100, test_per_class=20)
    encoder = load_encoder(given.encoder)
    with FeatureCache() as cache:
        transform = Transform("squash", encoder.preprocessing)
        found = encode_data(data, encoder, transform, cache, silent)
    tail, texts = tail_of(encoder), read_texts(given.text).of(data.classes)
    assert tail is not None, "the encoder has no projection"
    lines = few(found.train, found.test, tail, encoder.layer_dims, texts, given)
    about = __doc__.split("::\n")[0].strip(), __doc__.split("\n\n", 3)[3].strip()
    command = f"python benchmarks/text.py few --text FILE --data FOLDER --shots {given.shots} "
    foot = (
        f"{given.encoder}, text: {', '.join(texts.prompts) or 'unknown'}; D = {WIDTH}; means of "
        f"{given.draws} draws of photos, ± the standard error of the paired difference; "
        f"{len(found.test.targets)} images asked. Written by\n`{command}--draws {given.draws}`."
    )
    page = ["# Text of classes", *about, "\n".join(lines), foot]
    (HERE / "TEXT.md").write_text("\n\n".join(page) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
