"""Runs → rows: encode once, then learn with every method, measuring after every session.

An interrupted run is learned again from its first session, but only the rows that are missing are
measured and added. What methods train through the encoder is kept on the disk until their run is
whole, so that it need not be trained again.
"""

import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from dataclasses import replace as altered
from datetime import UTC, datetime
from typing import Any, TypeVar

import numpy as np
from msgspec.structs import replace

from visvm.bench.environment import code_digest, describe_environment, load_average
from visvm.bench.features import EncodedData, encode_data, seconds_per_image
from visvm.bench.kept import Kept
from visvm.bench.methods import METHODS
from visvm.bench.methods.method import Method, Setup
from visvm.bench.methods.text import project_final
from visvm.bench.metrics import score
from visvm.bench.plan import RunGroup
from visvm.bench.rows import Results, Row, Run
from visvm.bench.streams import (
    ClassStream,
    Samples,
    Session,
    class_order,
    session_sizes,
    validation_split,
)
from visvm.bench.texts import ClassTexts, require_kinship
from visvm.encoders.cache import FeatureCache
from visvm.encoders.texts import TextFeatures
from visvm.errors import InputError, VisvmError
from visvm.head.memory import peak_bytes, reset_peak
from visvm.progress import Progress

T = TypeVar("T")


def missing_runs(group: RunGroup, results: Results) -> list[Run]:
    """Return the runs of a group that do not have all their rows yet."""
    return [run for run in group.runs if len(results.accuracies(run)) < group.n_sessions(run)]


@dataclass(frozen=True)
class Failure:
    """A run that could not be finished, and why."""

    run: Run
    reason: str


def execute(
    group: RunGroup, results: Results, cache: FeatureCache | None, progress: Progress
) -> Iterator[Row | Failure]:
    """Do what is missing of a group. A run that fails does not stop the others.

    Every row is on the disk when it is given.
    """
    missing = missing_runs(group, results)
    if not missing:
        return
    encoded = encode_data(group.data, group.encoder, group.transform, cache, progress)
    encoded = altered(encoded, texts=group.texts)
    encode_seconds = seconds_per_image(group.data, group.encoder, group.transform)
    stage = f"runs on {group.data.name} with {group.encoder.name}"
    for number, run in enumerate(missing):
        progress(stage, number, len(missing))
        known = set(results.accuracies(run))
        kept = Kept(results.path.parent / ".trained" / run.key)
        setup = altered(group.setup(run), kept=kept)
        for outcome in _attempt(run, encoded, setup, known, encode_seconds, progress):
            if isinstance(outcome, Row):
                outcome = replace(outcome, n_shared=group.n_shared)
                try:
                    results.append(outcome)
                except InputError as error:  # a full disk is another error, and not the method's
                    outcome = Failure(run, str(error))
            yield outcome
            if isinstance(outcome, Failure):
                break
        else:
            kept.clear()
    progress(stage, len(missing), len(missing))


def _attempt(run: Run, *given: Any) -> Iterator[Row | Failure]:
    """Measure a run; whatever it raises is its failure."""
    try:
        yield from measure(run, *given)
    except VisvmError as error:
        yield Failure(run, str(error))
    except Exception as error:  # noqa: BLE001 - a method may be anybody's code
        yield Failure(run, _described(error))


def measure(
    run: Run,
    data: EncodedData,
    setup: Setup,
    known: set[int],
    encode_seconds: float,
    progress: Progress,
) -> Iterator[Row]:
    """Learn a stream, and measure after every session that is not among the known ones."""
    entry = METHODS[run.method]
    train, test = _samples(run, data, "images" in entry.needs)
    order = class_order(len(data.classes), run.class_order_seed)
    sizes = session_sizes(run.protocol, len(order))
    stream = ClassStream(train, test, order, sizes)
    if data.texts is not None and "text" in entry.needs:
        setup = _with_texts(setup, data.texts, train, order, stream)
    method = entry.make(setup, **run.options)
    environment, code = describe_environment(), code_digest(type(method))
    for session in stream:
        progress("sessions of this run", session.number - 1, len(sizes))
        counted = reset_peak()
        learn_seconds = _learned(method, session, setup)
        if session.number in known:
            continue
        tested = stream.tested()
        seen = _present(tested.features, tested.pictures)
        predict_seconds, predicted = _timed(method.predict, *seen)
        _check_predictions(predicted, len(tested.targets), sum(stream.sizes), run.method)
        scores = vars(score(tested.targets, predicted, stream.sizes))
        if session.number < len(sizes):
            scores["confusions"] = []
        yield Row(
            run=run,
            session=session.number,
            n_sessions=len(sizes),
            new_classes=[data.classes[place] for place in session.classes],
            session_sizes=stream.sizes,
            n_train=len(session.labels),
            n_test=len(tested.targets),
            **scores,
            **vars(method.costs()),
            seconds={"learn": learn_seconds, "predict": predict_seconds, "encode": encode_seconds},
            peak_memory=peak_bytes() if counted else None,
            load_average=load_average(),
            environment=environment,
            measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
            code_digest=code,
        )
    progress("sessions of this run", len(sizes), len(sizes))


def _samples(run: Run, data: EncodedData, pictures: bool) -> tuple[Samples, Samples]:
    """Return what a run learns and is tested with, with pictures or without."""
    halves = (data.train, data.test) if run.split == "test" else validation_split(data.train)
    if pictures:
        return halves
    return altered(halves[0], pictures=None), altered(halves[1], pictures=None)


def _learned(method: Method, session: Session, setup: Setup) -> float:
    """Return the seconds a session took to learn, with those of what an earlier run had trained."""
    setup.kept.seconds = 0.0
    given = _present(session.features, session.labels, session.pictures)
    seconds, _ = _timed(method.learn, *given)
    return seconds + setup.kept.seconds


def _with_texts(
    setup: Setup, texts: TextFeatures, train: Samples, order: list[int], stream: ClassStream
) -> Setup:
    """Return the setup with the texts of classes that have arrived, which must fit the images."""
    require_kinship(texts, train, lambda rows: project_final(rows, setup))
    return altered(setup, texts=ClassTexts(texts, order, lambda: sum(stream.sizes)))


def _present(*given: Any) -> list[Any]:
    """Return what a method is given: features and labels, and pictures where it needs them."""
    return [each for each in given if each is not None]


def _timed(work: Callable[..., T], *given: Any) -> tuple[float, T]:
    """Return how many seconds a call took, and what it gave."""
    start = time.perf_counter()
    found = work(*given)
    return time.perf_counter() - start, found


def _described(error: Exception) -> str:
    """Say what was raised, and where, in one line."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    said = " ".join(f"{type(error).__name__}: {error}".split())
    return f"{said} ({frame.filename}:{frame.lineno}, in {frame.name})"


def _check_predictions(predicted: Any, n: int, n_classes: int, method: str) -> None:
    """Refuse what numpy would make some accuracy of, though it is no answer."""
    is_array = isinstance(predicted, np.ndarray)
    if not (is_array and predicted.shape == (n,) and predicted.dtype.kind in "iu"):
        got = f"an array of {predicted.dtype}, shape {predicted.shape}" if is_array else predicted
        raise InputError(
            f"{method} predicted {' '.join(str(got).split())[:80]}. Correct it to predict "
            f"a whole number for every image, as an array of shape ({n},).",
            code="predictions-invalid",
        )
    if n and not 0 <= predicted.min() <= predicted.max() < n_classes:
        raise InputError(
            f"{method} predicted classes {predicted.min()} to {predicted.max()}. "
            f"Correct it to predict classes it has seen, 0 to {n_classes - 1}.",
            code="predictions-invalid",
        )
