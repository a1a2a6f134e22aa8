"""One session: images → a model that has learned them, and a report of it."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from visvm.encoders.pipeline import refuse_unreadable
from visvm.encoders.transform import Transform
from visvm.errors import InputError
from visvm.head.calibration import log_likelihoods
from visvm.head.checks import check_one_kind
from visvm.head.doubts import affinities
from visvm.head.familiarity import DISTANCES, scatter_within, tallied, unlearned_strangeness
from visvm.head.head import Head
from visvm.head.lift import Features
from visvm.head.memory import peak_bytes
from visvm.head.nearness import Spread
from visvm.head.products import Array, Indices
from visvm.head.scatter import ThinScatter
from visvm.head.settle import Settled
from visvm.head.statistics import Statistics
from visvm.head.texts import TextSamples
from visvm.learning.estimating import Unlearned, copies_among, estimated
from visvm.learning.labelled import (
    OR_SKIP,
    Labelled,
    LabelledFeatures,
    encode_labelled,
    none_readable,
)
from visvm.learning.local import LocalEngine
from visvm.learning.remembering import contents_to_remember, remembered
from visvm.learning.texts import require_kin
from visvm.learning.work import Engine, Learned, Work
from visvm.model import changes
from visvm.model.estimate import SessionEstimate
from visvm.model.labels import Label, is_forgotten, some_of
from visvm.model.results import (
    RidgeChoice,
    SessionReport,
    session_test,
)
from visvm.model.state import Calibration, EncoderId, Model
from visvm.progress import Progress

Nearness = tuple[Spread, Statistics, Array, Indices, Array]
"""How images scatter; of images: sums, features, classes; and how many there are of each class."""

_FEW_ARE_ENOUGH = 128  # photos by which accuracy is estimated, where they cost a solve each


def learn_session(
    model: Model | None,
    work: Work,
    *,
    test: Labelled | None,
    engine: Engine | None,
    progress: Progress,
    texts: TextSamples | None = None,
) -> tuple[Model, SessionReport]:
    """Learn one session; return the model after it, and its report.

    Parameters
    ----------
    model : Model or None
        Before the session; None before the first one.
    work : Work
    test : Labelled or None
        Images to test with after the session; those of classes not yet known are left out.
    engine : Engine or None
        None learns in this process.
    texts : TextSamples or None
        Of classes, for this session and all later ones.
    """
    clock, known = _Clock(work.chosen_since), set(model.classes.tolist() if model else ())
    key, contents = work.images.key, contents_to_remember(model, work)  # before files may change
    if model is not None:
        check_one_kind(model.head.classes, np.array(work.images.labels[:1]))
    held_out = None
    if test is not None:
        held_out = _held_out(test, known, work, progress)
        clock.lap("test")
    learned, summed = _accumulated(work, engine, clock, progress)
    progress("learning", 0, 1)
    head = summed if model is None else summed.renewed()
    head = head if texts is None else _with_texts(head, texts)
    with head.factor_kept():
        head = head.solved()
        progress("learning", 1, 1)
        after = (_unlearned(work, head) if model is None else model).with_head(head)
        calibration, estimate = _calibrated(after, work, learned, progress)
    clock.lap("learn")
    photos, estimate = remembered(after.photos, contents, learned, estimate)
    report = _report(work, learned, head, known, len(after.sessions) + 1)
    choice = _ridge_choice(summed.settled, head.settled)
    report = replace(report, ridge_choice=choice, estimate=estimate)
    if held_out is not None:
        report = _tested(report, model, after, held_out.only({*known, *report.new_classes}))
        clock.lap("test")
    report = replace(report, seconds=clock.seconds, peak_memory=peak_bytes())
    return changes.learned(replace(after, photos=photos), calibration, report, key), report


def _with_texts(head: Head, texts: TextSamples) -> Head:
    """Return the head with texts of classes, not solved; refuse those of another encoder."""
    require_kin(texts, head)
    return head.with_texts(texts)


def _held_out(
    test: Labelled, known: set[Label], work: Work, progress: Progress
) -> LabelledFeatures:
    """Encode test images of the classes that will be known; refuse them if there are none."""
    wanted = test.only({*known, *work.images.labels})
    if not wanted.labels:
        classes = list(dict.fromkeys(test.labels))
        raise InputError(
            f"The test images are of classes that are not learned ({some_of(classes)}). "
            "Give test images of the classes learned.",
            code="test-classes-unknown",
        )
    stage = "encoding test images"
    return _encoded(wanted, work, [work.transform], stage, progress, work.skip_unreadable)


def _unlearned(work: Work, head: Head) -> Model:
    """Return the model before its first session, with what that has settled."""
    encoder = EncoderId(
        work.encoder.name, work.encoder.digest, work.transform.kind, views=work.views
    )
    return Model(encoder, Head.blank(head.settled))


def _tested(
    report: SessionReport, before: Model | None, after: Model, tested: LabelledFeatures
) -> SessionReport:
    """Return the report with a comparison of both models on labelled features."""
    test, guesses = None, None
    if before is not None and len(before.classes) and tested.labels:
        guesses = before.predict(tested.features).tolist()
    if tested.labels:
        found = after.predict(tested.features).tolist()
        test = session_test(tested.labels, found, set(report.new_classes), guesses)
    return replace(report, skipped=report.skipped + tested.skipped, test=test)


def require_settled(model: Model | None) -> Model:
    """Return the model for which sums are to be made; refuse to make them for none."""
    if model is None:
        raise InputError(
            "Sums need the mixer and the map of a model, and this one has learned nothing. "
            "Use one that 'visvm export MODEL --for-site' (export_for_site) wrote.",
            code="sums-unsettled",
        )
    return model


def learn_sums(model: Model, work: Work, *, engine: Engine | None, progress: Progress) -> Model:
    """Return the sums of images, for a model elsewhere: nothing is solved, nothing calibrated."""
    clock, key = _Clock(), work.images.key
    start = Head.blank(model.head.settled.bare)
    work = replace(work, start=start, calibration=frozenset())
    learned, head = _accumulated(work, engine, clock, progress)
    report = _report(work, learned, head, set(), 1)
    report = replace(report, seconds=clock.seconds, peak_memory=peak_bytes())
    learned_as = () if key is None else (key,)
    return Model(model.encoder, head, sessions=(report,), site=model.site, learned=learned_as)


def _accumulated(
    work: Work, engine: Engine | None, clock: "_Clock", progress: Progress
) -> tuple[Learned, Head]:
    """Have the images added to the sums; return what became of them, and the head, not solved."""
    engine = LocalEngine() if engine is None else engine
    if isinstance(engine, type) or not callable(getattr(engine, "learn", None)):
        raise InputError(
            f"The engine is {engine!r:.80}. Give a LocalEngine() or a RayEngine(), or none.",
            code="engine-kind",
        )
    learned = engine.learn(work, progress)
    clock.lap("encode")
    clock.move(learned.learn_seconds, "encode", "learn")
    if not work.skip_unreadable:
        refuse_unreadable(list(learned.unreadable.values()), OR_SKIP)
    if learned.head is None or len(learned.unreadable) == len(work.images.labels):
        raise none_readable()
    return learned, learned.head


def _report(
    work: Work, learned: Learned, head: Head, known: set[Label], number: int
) -> SessionReport:
    """Report the session of this number, before which these classes were known."""
    labels = [
        label for place, label in enumerate(work.images.labels) if place not in learned.unreadable
    ]
    classes, sampled = dict.fromkeys(labels), 0 < len(work.sample) < len(work.images.labels)
    return SessionReport(
        session=number,
        learned_at=changes.now(),
        n_images=len(labels),
        new_classes=tuple(label for label in classes if label not in known),
        returning_classes=tuple(label for label in classes if label in known),
        n_classes=sum(not is_forgotten(label) for label in head.classes.tolist()),
        ridge=head.settled.ridge,
        layers=head.settled.layers,
        skipped=tuple(str(each.path) for each in learned.unreadable.values()),
        base=len(work.sample) > 0,
        settled_on=len(work.sample) if sampled else None,
        transform=work.choice,
        encoder=work.encoder_choice,
    )


def _ridge_choice(before: Settled, after: Settled) -> RidgeChoice | None:
    """Say by what λ was chosen anew, if it was."""
    if after.ridge_basis is None or after.ridge_basis == before.ridge_basis:
        return None
    return RidgeChoice(before.ridge, after.ridge_basis.n_images, after.ridge_basis.n_classes)


def _calibrated(
    model: Model, work: Work, learned: Learned, progress: Progress
) -> tuple[Calibration, SessionEstimate | None]:
    """Measure, by some images of a session, how far scores can be trusted, and how right they are.

    Where sums are dense, a few are enough for the latter; the former is measured only where many
    classes have come since the last time, or λ is another.
    """
    head, named, old = model.head, model.answerable, model.calibration
    n_classes = int(named.sum())
    thin = isinstance(head.statistics.scatter, ThinScatter)
    start = work.start
    other = start is not None and head.settled.ridge != start.settled.ridge
    wanted = thin or other or n_classes > 1.2 * old.n_classes
    progress("calibrating", 0, 1)
    places = sorted(work.calibration - set(learned.unreadable))
    if not wanted:
        places = np.random.default_rng(0).permutation(places)[:_FEW_ARE_ENOUGH].tolist()
    features = _all_features(places, work, learned, progress)
    places = [place for place in places if place in features]
    if not places:
        return old, None
    labels = work.labels(places)
    rows = np.array([features[place] for place in places])
    scores = head.leave_one_out_scores(rows, labels)[:, named]
    targets = np.searchsorted(model.classes, labels)
    parts = _nearness(model, rows, targets)
    near = None if parts is None else _affinities(parts)
    found = Unlearned(labels, scores, targets, near)
    if wanted:
        distances = np.zeros(len(DISTANCES))
        if parts is not None:
            distances = tallied(unlearned_strangeness(*parts[:3], scores, *parts[3:]))
        # What was measured among fewer classes counts half from session to session.
        new = Calibration(log_likelihoods(scores, targets), n_classes, distances)
        measured = replace(new.plus(old, 0.5), n_classes=n_classes)
    else:
        measured = old
    n_again = copies_among(work.images)
    n_learned = 0
    if start is not None and _is_cheap(start):
        held = start.holds(rows[:, 0])
        n_learned = 0 if held is None else int(held.sum())
    estimate = estimated(found, model.class_counts, n_again, n_learned)
    progress("calibrating", 1, 1)
    return measured, estimate


def _nearness(model: Model, rows: Features, targets: Indices) -> Nearness | None:
    """Return by what learned images, (n, V, n_inputs), are compared with classes, if anything."""
    if model.spread is None:
        return None
    recovered = model.head.recovered(rows.reshape(-1, rows.shape[-1]))
    recovered = recovered.reshape(*rows.shape[:2], -1)
    counts = np.array(model.class_counts, dtype=np.float64)
    return model.spread, model.head.statistics, recovered, targets, counts


def _affinities(parts: Nearness) -> Array:
    """Return how close learned images are to every class, as if unlearned, (n, C)."""
    spread, sums, features, targets, counts = parts
    every = np.ones(len(targets), dtype=bool)
    moments = spread.centres, scatter_within(spread, sums), counts
    return affinities(features[:, 0], features.mean(axis=1), targets, every, moments)


def _is_cheap(start: Head) -> bool:
    """Whether it costs at most some seconds to see which photos were learned before."""
    scatter = start.statistics.scatter
    return isinstance(scatter, ThinScatter) and scatter.n_rows**2 * start.settled.lift.width < 2e10


def _all_features(
    places: list[int], work: Work, learned: Learned, progress: Progress
) -> dict[int, Any]:
    """Return features of all views, (V, width), by place; encode what was encoded elsewhere."""
    missing = [place for place in places if place not in learned.features]
    if not missing:
        return learned.features
    there = work.images.at(missing)
    stage = "encoding for calibration"
    encoded = _encoded(there, work, work.transforms, stage, progress, skip_unreadable=True)
    if encoded.skipped:  # gone meanwhile: the others will do
        gone = set(encoded.skipped)
        missing = [place for place in missing if str(work.images.sources[place]) not in gone]
    return learned.features | dict(zip(missing, encoded.features, strict=True))


def _encoded(
    given: Labelled,
    work: Work,
    views: Sequence[Transform],
    stage: str,
    progress: Progress,
    skip_unreadable: bool,
) -> LabelledFeatures:
    parts = given, work.encoder, views, work.cache
    return encode_labelled(*parts, stage, progress, skip_unreadable=skip_unreadable)


class _Clock:
    """Seconds by stage, that of choosing first, if there was one and since when."""

    def __init__(self, chosen_since: float | None = None) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter() if chosen_since is None else chosen_since
        if chosen_since is not None:
            self.lap("choose")

    def lap(self, stage: str) -> None:
        """Count the time since the last lap to a stage."""
        now = time.perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._last
        self._last = now

    def move(self, seconds: float, stage: str, other: str) -> None:
        """Count some of a stage's time to another one."""
        self.seconds[stage] -= seconds
        self.seconds[other] = self.seconds.get(other, 0.0) + seconds
