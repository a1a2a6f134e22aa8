"""Does text help? The methods that lean on text beside those that do not, on CIFAR-100 with CLIP.

::

    python benchmarks/text.py table --text F --data FOLDER --learn 80 --ask 20
    python benchmarks/text.py few --text F --data FOLDER --learn 1,2,4,8 --ask 10

No test image is looked at: of every class, the first --learn images of the archive's training part
are learned and the --ask behind the most of them are asked. `table` learns in sessions; `few`
learns all classes at once, from few images of each. With --cached, images that were not encoded
before are left out. zs-clip and vis are those of the benchmark, with a map of 5 000.

Prints Markdown.
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from visvm import load_encoder
from visvm.bench.datasets import DATASETS
from visvm.bench.features import EncodedData, encode_data
from visvm.bench.loading import ImageData, LabelledImages, load_dataset
from visvm.bench.methods import METHODS
from visvm.bench.methods.method import Setup
from visvm.bench.metrics import average_accuracy, forgetting
from visvm.bench.plan import unmet
from visvm.bench.rows import Row, Run
from visvm.bench.runner import measure
from visvm.bench.streams import Samples
from visvm.encoders.cache import FeatureCache, feature_key
from visvm.encoders.encoder import Encoder
from visvm.encoders.joint import tail_of
from visvm.encoders.sources import content_of
from visvm.encoders.texts import read_texts
from visvm.encoders.transform import Transform
from visvm.errors import VisvmError
from visvm.progress import silent

PROTOCOLS = ("B0 Inc10", "B50 Inc10")
TABLE: tuple[tuple[str, dict[str, Any]], ...] = (
    ("zs-clip", {}),
    ("vis", {}),
    ("vis+text", {}),
    ("vis+text", {"reading": "ridge"}),
    ("vis+text", {"reading": "padded"}),
    ("vis+text", {"reading": "shifted"}),
    ("vis+text", {"text_weight": "images"}),
    ("simplecil", {}),
    ("ranpac-head", {}),
    ("slda", {}),
    ("bofa", {}),
    ("engine", {}),
    ("engine", {"statistical_weight": 1.0}),
    ("rapf", {}),
    ("proof", {}),
    ("proof (20 exemplars)", {}),
    ("clg-cbm", {}),
)
FEW = tuple(
    each for each in TABLE if each[0] in ("zs-clip", "vis", "vis+text", "simplecil", "slda")
)
FEW += (("vis+text", {"reading": "shifted", "text_weight": 4.0}), ("bofa", {}))


def encoded(given: argparse.Namespace, most: int) -> tuple[EncodedData, Setup]:
    """Encode the first images of every class; those behind the `most` first are to be asked."""
    data = load_dataset("cifar100", given.data, train_per_class=most + given.ask, test_per_class=1)
    encoder = load_encoder(given.encoder)
    transform = Transform("squash", encoder.preprocessing)
    if given.cached:
        data = replace(data, train=only_cached(data.train, encoder, transform))
    targets = data.train.targets
    rank = np.zeros(len(targets), dtype=np.intp)
    for label in np.unique(targets):
        mine = np.flatnonzero(targets == label)
        rank[mine] = np.arange(len(mine))
    parts = [data.train.at(np.flatnonzero(chosen)) for chosen in (rank < most, rank >= most)]
    with FeatureCache() as cache:
        images = ImageData(data.name, data.classes, *parts)
        found = encode_data(images, encoder, transform, cache, silent)
    texts = read_texts(given.text).of(data.classes)
    setup = Setup(encoder.layer_dims, encoder.project, 0, tail_of(encoder))
    return replace(found, texts=texts), setup


def only_cached(part: LabelledImages, encoder: Encoder, transform: Transform) -> LabelledImages:
    """Keep the images that are in the cache."""
    with FeatureCache() as cache:
        there = [
            cache.get(feature_key(content_of(image), encoder.digest, transform.key)) is not None
            for image in part.images
        ]
    return part.at(np.flatnonzero(there))


def first(data: EncodedData, n: int) -> EncodedData:
    """Keep the first n training images of every class."""
    targets = data.train.targets
    rows = [np.flatnonzero(targets == label)[:n] for label in np.unique(targets)]
    kept = np.sort(np.concatenate(rows))
    return replace(data, train=Samples(data.train.features[kept], targets[kept]))


def rows_of(
    data: EncodedData, setup: Setup, method: str, options: dict[str, Any], protocol: str
) -> list[Row]:
    """Learn a stream; the keys of the run are not needed here."""
    width = {"n_components": 5000} if method in ("vis", "vis+text", "ranpac-head") else {}
    about = dict.fromkeys(("dataset", "data_digest", "encoder", "weights_digest"), "cifar100")
    about |= {"transform": "squash", "transform_key": "", "protocol": protocol}
    run = Run(
        **about,
        class_order_seed=1993,
        method=method,
        revision=METHODS[method].revision,
        options={**width, **options},
    )
    half = "-half" if protocol == DATASETS["cifar100"].b_half else ""
    setup = replace(setup, setting=f"cifar100{half}")
    return list(measure(run, data, setup, set(), 0.0, silent))


def said(options: dict[str, Any]) -> str:
    """Return options as a table has them."""
    return "".join(f", {name.replace('_', ' ')} {value}" for name, value in options.items())


def table(given: argparse.Namespace) -> Iterator[str]:
    """Yield the lines of the table of streams."""
    data, setup = encoded(given, int(given.learn))
    texts = data.texts
    met = ("text", "concepts") if texts is not None and texts.phrases.texts else ("text",)
    n = len(data.test.targets)
    yield f"{given.learn} images of a class learned, {n} asked; D = 5 000. Ā / A_B, F_B."
    yield ""
    heads = " | ".join(f"{protocol} | F_B" for protocol in PROTOCOLS)
    yield f"| method | {heads} | seconds | trained |"
    yield "|---|---|---|---|---|---|---|"
    for method, options in given.rows:
        cells, seconds, trained = [], 0.0, 0
        if reason := unmet(METHODS[method], *met):
            yield f"| {method} | refused: {reason} | | | | | |"
            continue
        for protocol in PROTOCOLS:
            try:
                rows = rows_of(data, setup, method, options, protocol)
            except VisvmError as error:
                cells += [f"failed: {error}", ""]
                continue
            mean = average_accuracy([row.accuracy for row in rows])
            lost = forgetting([row.group_accuracy for row in rows])
            cells += [f"{100 * mean:.2f} / {100 * rows[-1].accuracy:.2f}", f"{100 * lost:.2f}"]
            seconds += sum(row.seconds["learn"] for row in rows)
            trained = rows[-1].trainable_parameters
        yield f"| {method}{said(options)} | {' | '.join(cells)} | {seconds:.0f} | {trained} |"


def few(given: argparse.Namespace) -> Iterator[str]:
    """Yield the lines of the table of few images."""
    counts = [int(part) for part in given.learn.split(",")]
    data, setup = encoded(given, max(counts))
    n, every = len(data.test.targets), f"sessions {len(data.classes)}"
    yield f"All classes at once, {n} images asked (one standard error is {50 / n**0.5:.1f})."
    yield ""
    yield f"| method | {' | '.join(f'{count} a class' for count in counts)} |"
    yield "|---|" + "---|" * len(counts)
    for method, options in given.rows:
        cells = []
        for count in counts:
            (row,) = rows_of(first(data, count), setup, method, options, every)
            cells.append(f"{100 * row.accuracy:.1f}")
        yield f"| {method}{said(options)} | {' | '.join(cells)} |"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["table", "few"])
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--encoder", default="clip-b16-openai")
    parser.add_argument("--learn", default="8")
    parser.add_argument("--ask", type=int, default=10)
    parser.add_argument("--cached", action="store_true")
    parser.add_argument("--methods", help="the first words of rows, separated by commas")
    given = parser.parse_args()
    wanted = given.methods.split(",") if given.methods else [name for name, _ in TABLE]
    given.rows = [each for each in (TABLE if given.what == "table" else FEW) if each[0] in wanted]
    for line in (table if given.what == "table" else few)(given):
        print(line, flush=True)


if __name__ == "__main__":
    main()
