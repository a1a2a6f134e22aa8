"""Recipes → runs: every combination of what a recipe lists, and what cannot be run, and why."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import numpy as np

from visvm.bench.datasets import DATASETS
from visvm.bench.loading import ImageData, load_dataset, read_content, require_present
from visvm.bench.methods import METHODS
from visvm.bench.methods.method import Entry, Need, Setup
from visvm.bench.recipe import Recipe
from visvm.bench.rows import Run
from visvm.bench.streams import Samples, plain_protocol, session_sizes, validation_split
from visvm.bench.vit.trainable import trainable
from visvm.encoders.encoder import Encoder
from visvm.encoders.joint import tail_of
from visvm.encoders.sources import expanded
from visvm.encoders.texts import TextFeatures, mismatch, read_texts
from visvm.encoders.transform import Transform
from visvm.errors import EncoderError, InputError, WeightsError
from visvm.progress import Progress

_UNMET = {
    "text": "the text features of the class names: give --text FILE ('visvm text encode' makes it)",
    "concepts": "phrases about every class among the text features: 'visvm text encode --phrases'",
    "images": "an encoder that it can train: a transformers model with a CLS token, an open_clip "
    "checkpoint, or one of the catalogue with all its patches and not in int8",
    "torch": "torch, which is not installed: pip install 'visvm[torch]'",
}
"""What methods may need that cannot always be had, and why not."""


@dataclass(frozen=True)
class RunGroup:
    """The runs of a recipe that share their features."""

    data: ImageData
    encoder: Encoder
    transform: Transform
    runs: list[Run]
    refused: dict[str, str]  # methods that cannot run with this encoder, and why
    n_shared: int  # test images that are training images too
    texts: TextFeatures | None = None  # of the classes, in their order
    analysis: str = ""  # as in ``Recipe``

    @property
    def n_images(self) -> int:
        """Number of all images."""
        return len(self.data.train.images) + len(self.data.test.images)

    def n_sessions(self, run: Run) -> int:
        """Return how many sessions a run has."""
        return len(session_sizes(run.protocol, len(self.data.classes)))

    def n_classes_left(self) -> dict[str, int]:
        """Return how many classes come in no session of a protocol, where that is any."""
        n = len(self.data.classes)
        protocols = dict.fromkeys(run.protocol for run in self.runs)
        left = {protocol: n - sum(session_sizes(protocol, n)) for protocol in protocols}
        return {protocol: classes for protocol, classes in left.items() if classes}

    def feature_bytes(self) -> int:
        """Return the size of the features of all images."""
        return 4 * self.n_images * sum(self.encoder.layer_dims)

    def setup(self, run: Run) -> Setup:
        """Return what the run's method knows before it starts."""
        encoder, known = self.encoder, DATASETS.get(run.dataset)
        half = "-half" if known is not None and run.protocol == known.b_half else ""
        return Setup(
            encoder.layer_dims,
            encoder.project,
            run.seed,
            tail_of(encoder),
            setting=f"{run.dataset}{half}",
            trainable=trainable(encoder),
        )


def plan(
    recipe: Recipe, root: Path | None, load_encoder: Callable[[str], Encoder], progress: Progress
) -> Iterator[RunGroup]:
    """Work out the runs of a recipe, encoder by encoder and data set by data set.

    The data sets lie in the folder `root`. Nothing is encoded yet.
    """
    check_methods(recipe)
    texts = _read_texts(recipe)
    require_present(recipe.datasets, root)
    loaded = []
    for number, name in enumerate(recipe.datasets):
        progress("reading data sets", number, len(recipe.datasets))
        data = load_dataset(
            name, root, train_per_class=recipe.train_per_class, test_per_class=recipe.test_per_class
        )
        said = None if texts is None else texts.of(data.classes)
        loaded.append((data, _protocols(recipe, name, data), read_content(data), said))
    progress("reading data sets", len(recipe.datasets), len(recipe.datasets))
    for encoder_name in recipe.encoders[1:]:
        # what is wrong with the last one should not come to light after hours
        load_encoder(encoder_name)
    for encoder_name in recipe.encoders:
        encoder = load_encoder(encoder_name)
        transform = Transform(recipe.transform, encoder.preprocessing)
        refused = _refusals(recipe, encoder, texts)
        for data, protocols, content, said in loaded:
            where = {
                "dataset": data.name,
                "data_digest": content.digest,
                "encoder": encoder.name,
                "weights_digest": encoder.digest,
                "transform": recipe.transform,
                "transform_key": transform.key,
            }
            about = {} if said is None else {"text": said.digest, "text_of": _described(said)}
            runs = {run.key: run for run in _runs(recipe, protocols, refused, where, about)}
            chosen, n_shared = list(runs.values()), content.n_shared
            sort = recipe.analysis
            yield RunGroup(data, encoder, transform, chosen, refused, n_shared, said, sort)


def _runs(
    recipe: Recipe,
    protocols: list[str],
    refused: dict[str, str],
    where: dict[str, str],
    about: dict[str, str],
) -> Iterator[Run]:
    """Make a run of every combination, some of which may be the same.

    `about` is what the text features are, for methods that need them.
    """
    for protocol, order_seed, method, seed, options in product(
        protocols,
        recipe.class_order_seeds,
        [method for method in recipe.methods if method not in refused],
        recipe.feature_seeds,
        recipe.variants(),
    ):
        yield Run(
            **where,
            protocol=protocol,
            class_order_seed=order_seed,
            method=method,
            revision=METHODS[method].revision,
            seed=seed,
            options=METHODS[method].changed(options),
            split=recipe.split,
            **(about if "text" in METHODS[method].needs else {}),
        )


def check_methods(recipe: Recipe) -> None:
    """Refuse unknown methods and options, before any work."""
    for method in recipe.methods:
        if method not in METHODS:
            raise InputError(
                f"There is no method {method!r}. Give one of {', '.join(METHODS)}.",
                code="method-unknown",
            )
    known = {name for entry in METHODS.values() for name in entry.options}
    for name in [*recipe.options, *recipe.vary]:
        if name not in known:
            raise InputError(
                f"No method has an option {name!r}. Give one of {', '.join(sorted(known))}.",
                code="option-unknown",
            )
    for name in recipe.vary:
        if not any(name in METHODS[method].options for method in recipe.methods):
            raise InputError(
                f"{name!r} is varied, but no method that is run has this option. Leave it out.",
                code="option-unused",
            )
        if name in recipe.options:
            raise InputError(
                f"{name!r} is both given and varied. Leave one out.", code="option-repeated"
            )


def _read_texts(recipe: Recipe) -> TextFeatures | None:
    """Read the text features that a recipe names, if any method that is run needs them."""
    needed = any("text" in METHODS[method].needs for method in recipe.methods)
    if recipe.text and not needed:
        raise InputError(
            "Text features are given, but no method that is run needs them. Leave them out.",
            code="text-unused",
        )
    return read_texts(expanded(recipe.text)) if recipe.text else None


def _said(texts: TextFeatures | None) -> tuple[Need, ...]:
    """Return the needs that text features meet."""
    if texts is None:
        return ()
    alone = bool((texts.phrases.classes[:, 1] < 0).any())
    return ("text", "concepts") if alone else ("text",)


def _described(texts: TextFeatures) -> str:
    """Say in short what text features encode."""
    if not texts.prompts:
        return "text of unknown prompts"
    first, *others = texts.prompts
    return f"{first} and {len(others)} more" if others else first


def _refusals(recipe: Recipe, encoder: Encoder, texts: TextFeatures | None) -> dict[str, str]:
    """Find methods that cannot work here or with this encoder, and why.

    Whatever else they raise, they raise again when they are run.
    """
    tail = tail_of(encoder)
    through = trainable(encoder)
    setup = Setup(encoder.layer_dims, encoder.project, tail=tail, trainable=through)
    refused, seen = {}, () if through is None else ("images",)
    blank = np.zeros((1, encoder.layer_dims[-1]), dtype=np.float32)
    width = encoder.project(blank).shape[1] if texts is not None else 0
    strange = "" if texts is None else mismatch(texts, width, encoder.digest)
    for entry in (METHODS[method] for method in recipe.methods):
        reason = unmet(entry, *_said(texts), *seen)
        if not reason and strange and "text" in entry.needs:
            reason = f"{entry.name} cannot use them: {strange}"
        if reason:
            refused[entry.name] = reason
            continue
        try:
            entry.make(setup, **entry.changed(recipe.options))
        except (EncoderError, WeightsError) as error:
            refused[entry.name] = str(error)
        except Exception:  # noqa: BLE001 - a failure of its run, as in `execute`
            continue
    return refused


def unmet(entry: Entry, *met: Need) -> str:
    """Say which need of a method cannot be met; empty if all can. Some are met."""
    for need in entry.needs:
        here = need in met or (need == "torch" and find_spec("torch"))
        if need in _UNMET and not here:
            return f"{entry.name} needs {_UNMET[need]}"
    return ""


def _protocols(recipe: Recipe, name: str, data: ImageData) -> list[str]:
    """Write the protocols in full, having refused before hours of work what does not fit."""
    protocols = [_protocol(name, protocol) for protocol in recipe.protocols]
    for protocol in protocols:
        session_sizes(protocol, len(data.classes))
    if recipe.split == "validation":
        nothing = np.empty((len(data.train.targets), 0), dtype=np.float32)
        validation_split(Samples(nothing, data.train.targets))
    return protocols


def _protocol(dataset: str, protocol: str) -> str:
    """Write a protocol in full: what "B0" and "B-half" mean depends on the data set."""
    if protocol not in ("B0", "B-half"):
        return plain_protocol(protocol.replace(", ", ","))
    if dataset not in DATASETS:
        raise InputError(
            f"{protocol!r} has a meaning for {', '.join(DATASETS)} only, not for {dataset}. "
            "Give a protocol like 'B0 Inc10'.",
            code="protocol-undefined",
        )
    known = DATASETS[dataset]
    return known.b0 if protocol == "B0" else known.b_half
