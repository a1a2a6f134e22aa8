"""Recipes → rows: encode once, then every method, session by session, each measured and written down at once.

A run that was interrupted is learned again from its first session, since methods keep no state on
the disk, but only the rows that are missing are measured and added.
"""

import inspect
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from visvm.bench.datasets import DATASETS
from visvm.bench.environment import code_digest, describe_environment, load_average
from visvm.bench.features import EncodedData, encode_data, seconds_per_image
from visvm.bench.loading import ImageData, load_dataset, read_content, require_present
from visvm.bench.methods import METHODS
from visvm.bench.methods.method import Setup
from visvm.bench.metrics import score
from visvm.bench.recipe import Recipe
from visvm.bench.rows import Results, Row, Run
from visvm.bench.streams import (
    ClassStream,
    Samples,
    class_order,
    plain_protocol,
    session_sizes,
    validation_split,
)
from visvm.encoders.cache import FeatureCache
from visvm.encoders.encoder import Encoder
from visvm.encoders.images import Transform
from visvm.errors import EncoderError, InputError, VisvmError, WeightsError
from visvm.head.memory import peak_bytes, reset_peak
from visvm.progress import Progress


@dataclass(frozen=True)
class Job:
    """The runs of a recipe that share their features.

    Parameters
    ----------
    data : ImageData
    encoder : Encoder
    transform : Transform
    runs : list of Run
    refused : dict of str
        Methods that cannot run with this encoder, and why.
    n_shared : int
        Test images that are training images too.
    """

    data: ImageData
    encoder: Encoder
    transform: Transform
    runs: list[Run]
    refused: dict[str, str]
    n_shared: int

    def n_sessions(self, run: Run) -> int:
        """How many sessions a run has."""
        return len(session_sizes(run.protocol, len(self.data.classes)))

    def n_classes_left(self) -> dict[str, int]:
        """How many classes come in no session of a protocol, where that is any."""
        n_classes = len(self.data.classes)
        left = {
            run.protocol: n_classes - sum(session_sizes(run.protocol, n_classes))
            for run in self.runs
        }
        return {protocol: n for protocol, n in left.items() if n}

    def feature_bytes(self) -> int:
        """Size of the features of all images."""
        return (
            4
            * (len(self.data.train.images) + len(self.data.test.images))
            * sum(self.encoder.layer_dims)
        )

    def setup(self, run: Run) -> Setup:
        """What the run's method is told before it starts."""
        return Setup(self.encoder.layer_dims, self.encoder.project, run.seed)


def plan(
    recipe: Recipe, root: Path | None, load_encoder: Callable[[str], Encoder], progress: Progress
) -> Iterator[Job]:
    """Work out the runs of a recipe, data set by data set and encoder by encoder; nothing is encoded yet.

    Parameters
    ----------
    recipe : Recipe
    root : Path, optional
        Folder of the data sets.
    load_encoder : callable
        Gives the encoder of a name.
    progress : callable
    """
    check_methods(recipe)
    require_present(recipe.datasets, root)
    loaded = []
    for number, name in enumerate(recipe.datasets):
        progress("reading data sets", number, len(recipe.datasets))
        data = load_dataset(
            name, root, train_per_class=recipe.train_per_class, test_per_class=recipe.test_per_class
        )
        protocols = [_protocol(name, protocol) for protocol in recipe.protocols]
        for protocol in protocols:
            # refuses what does not fit, before hours of work
            session_sizes(protocol, len(data.classes))
        if recipe.split == "validation":
            # likewise
            validation_split(
                Samples(
                    np.empty((len(data.train.targets), 0), dtype=np.float32), data.train.targets
                )
            )
        loaded.append((data, protocols, read_content(data)))
    progress("reading data sets", len(recipe.datasets), len(recipe.datasets))
    for encoder_name in recipe.encoders[1:]:
        # what is wrong with the last one should not come to light after hours
        load_encoder(encoder_name)
    for encoder_name in recipe.encoders:
        encoder = load_encoder(encoder_name)
        transform = Transform(recipe.transform, encoder.preprocessing)
        refused = _refusals(recipe, encoder)
        for data, protocols, content in loaded:
            runs = {
                run.key: run
                for protocol in protocols
                for class_order_seed in recipe.class_order_seeds
                for method in recipe.methods
                if method not in refused
                for seed in recipe.feature_seeds
                for options in recipe.variants()
                for run in [
                    Run(
                        dataset=data.name,
                        data_digest=content.digest,
                        encoder=encoder.name,
                        weights_digest=encoder.digest,
                        transform=recipe.transform,
                        transform_key=transform.key,
                        protocol=protocol,
                        class_order_seed=class_order_seed,
                        method=method,
                        code_digest=code_digest(METHODS[method]),
                        seed=seed,
                        options=changed_options(method, options),
                        split=recipe.split,
                    )
                ]
            }
            yield Job(data, encoder, transform, list(runs.values()), refused, content.n_shared)


def missing_runs(job: Job, results: Results) -> list[Run]:
    """Runs of a job that do not have all their rows yet."""
    return [run for run in job.runs if len(results.accuracies(run)) < job.n_sessions(run)]


@dataclass(frozen=True)
class Failure:
    """A run that could not be finished, and why."""

    run: Run
    reason: str


def execute(
    job: Job, results: Results, cache: FeatureCache | None, progress: Progress
) -> Iterator[Row | Failure]:
    """Do what is missing of a job; every row is on the disk when it is given. A run that fails does not stop the others.

    Parameters
    ----------
    job : Job
    results : Results
    cache : FeatureCache, optional
    progress : callable
    """
    missing = missing_runs(job, results)
    if not missing:
        return
    encoded = encode_data(job.data, job.encoder, job.transform, cache, progress)
    encode_seconds = seconds_per_image(job.data, job.encoder, job.transform)
    for number, run in enumerate(missing):
        progress(f"runs on {job.data.name} with {job.encoder.name}", number, len(missing))
        rows = measure(
            run, encoded, job.setup(run), set(results.accuracies(run)), encode_seconds, progress
        )
        while True:
            try:
                row = next(rows, None)
            except VisvmError as error:
                yield Failure(run, str(error))
                break
            except Exception as error:  # noqa: BLE001 - a method may be anybody's code: its failure must not cost other runs
                yield Failure(run, _described(error))
                break
            if row is None:
                break
            row = replace(row, n_shared=job.n_shared)
            try:
                results.append(row)
            except (
                InputError
            ) as error:  # a disk that is full is another error, and no failure of the method
                yield Failure(run, str(error))
                break
            yield row
    progress(f"runs on {job.data.name} with {job.encoder.name}", len(missing), len(missing))


def measure(
    run: Run,
    data: EncodedData,
    setup: Setup,
    known: set[int],
    encode_seconds: float,
    progress: Progress,
) -> Iterator[Row]:
    """Learn a stream and measure after every session that is not among the known ones.

    Parameters
    ----------
    run : Run
    data : EncodedData
    setup : Setup
    known : set of int
        Sessions that need no row.
    encode_seconds : float
        What encoding an image takes, to be written down beside the rest.
    progress : callable
    """
    train, test = (data.train, data.test) if run.split == "test" else validation_split(data.train)
    order = class_order(len(data.classes), run.class_order_seed)
    sizes = session_sizes(run.protocol, len(order))
    stream = ClassStream(train, test, order, sizes)
    method = METHODS[run.method](setup, **run.options)
    environment = describe_environment()
    for session in stream:
        progress("sessions of this run", session.number - 1, len(sizes))
        counted = reset_peak()
        start = time.perf_counter()
        method.learn(session.features, session.labels)
        learned = time.perf_counter()
        if session.number in known:
            continue
        features, labels = stream.test()
        begin = time.perf_counter()
        predicted = method.predict(features)
        end = time.perf_counter()
        _check_predictions(predicted, len(labels), sum(stream.sizes), run.method)
        scores = vars(score(labels, predicted, stream.sizes))
        if session.number < len(sizes):
            scores["confusions"] = []
        yield Row(
            run=run,
            session=session.number,
            n_sessions=len(sizes),
            new_classes=[data.classes[place] for place in session.classes],
            session_sizes=stream.sizes,
            n_train=len(session.labels),
            n_test=len(labels),
            **scores,
            **vars(method.costs()),
            seconds={"learn": learned - start, "predict": end - begin, "encode": encode_seconds},
            peak_memory=peak_bytes() if counted else None,
            load_average=load_average(),
            environment=environment,
            measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )
    progress("sessions of this run", len(sizes), len(sizes))


def _described(error: Exception) -> str:
    """What was raised, and where, in one line."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    said = " ".join(f"{type(error).__name__}: {error}".split())
    return f"{said} ({frame.filename}:{frame.lineno}, in {frame.name})"


def default_options(method: str) -> dict[str, Any]:
    """The options of a method with their defaults."""
    parameters = inspect.signature(METHODS[method]).parameters.values()
    return {
        each.name: each.default
        for each in parameters
        if each.kind is inspect.Parameter.KEYWORD_ONLY
    }


def changed_options(method: str, options: dict[str, Any]) -> dict[str, Any]:
    """Those of the options that the method has, as far as they differ from its defaults; 1.0 is written as 1."""
    defaults = default_options(method)
    changed = {
        name: value
        for name, value in options.items()
        if name in defaults and defaults[name] != value
    }
    return {
        name: int(value) if isinstance(value, float) and value.is_integer() else value
        for name, value in changed.items()
    }


def _check_predictions(predicted: Any, n: int, n_classes: int, method: str) -> None:
    """Refuse what numpy would make some accuracy of, though it is no answer."""
    if not (
        isinstance(predicted, np.ndarray)
        and predicted.shape == (n,)
        and predicted.dtype.kind in "iu"
    ):
        array = (
            f"an array of {predicted.dtype}, shape {predicted.shape}"
            if isinstance(predicted, np.ndarray)
            else repr(predicted)
        )
        wanted = f"a whole number for every image, as an array of shape ({n},)"
        raise InputError(f"{method} must predict {wanted}; got {array[:80]}: correct the method")
    if n and not 0 <= predicted.min() <= predicted.max() < n_classes:
        given = f"{predicted.min()} to {predicted.max()}"
        raise InputError(
            f"{method} must predict classes it has seen, 0 to {n_classes - 1}; got {given}: correct the method"
        )


def check_methods(recipe: Recipe) -> None:
    """Refuse methods and options there are not, before any work."""
    for method in recipe.methods:
        if method not in METHODS:
            raise InputError(
                f"a method must be one of {', '.join(METHODS)}; got {method!r}: correct it"
            )
    known: set[str] = set().union(*map(default_options, METHODS))
    for name in [*recipe.options, *recipe.vary]:
        if name not in known:
            raise InputError(
                f"an option must be one of {', '.join(sorted(known))}; got {name!r}: correct it"
            )
    for name in recipe.vary:
        if not any(name in default_options(method) for method in recipe.methods):
            raise InputError(
                f"what is varied must be an option of a method that is run; {name!r} is none of any: correct it"
            )
        if name in recipe.options:
            raise InputError(f"{name} must be given or varied, not both: leave one out")


def _refusals(recipe: Recipe, encoder: Encoder) -> dict[str, str]:
    """Methods that say they cannot work with this encoder; whatever else they raise, they raise again when they are run."""
    refused = {}
    for method in recipe.methods:
        try:
            METHODS[method](
                Setup(encoder.layer_dims, encoder.project),
                **changed_options(method, recipe.options),
            )
        except (EncoderError, WeightsError) as error:
            refused[method] = str(error)
        except Exception:  # noqa: BLE001 - a failure of its run, as in `execute`
            continue
    return refused


def _protocol(dataset: str, protocol: str) -> str:
    """A protocol in full: what "B0" and "B-half" mean depends on the data set."""
    if protocol not in ("B0", "B-half"):
        return plain_protocol(protocol.replace(", ", ","))
    if dataset not in DATASETS:
        raise InputError(
            f"{protocol!r} is defined for {', '.join(DATASETS)}; {dataset} is none: give such as 'B0 Inc10'"
        )
    known = DATASETS[dataset]
    return known.b0 if protocol == "B0" else known.b_half
