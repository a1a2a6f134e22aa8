"""Changes of a model: each takes one and returns another, so that what raises changes nothing."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Set
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from visvm.errors import (
    IncompatibleModelError,
    InputError,
    ModelFileError,
    NeverLearnedError,
    shown,
)
from visvm.head.checks import Labels, suggestion
from visvm.head.head import Head, as_rows
from visvm.head.lift import Features
from visvm.head.statistics import Statistics
from visvm.model import file as model_file
from visvm.model import undo
from visvm.model.checks import check_sums
from visvm.model.events import Event
from visvm.model.labels import FORGOTTEN, Label, check_label, is_forgotten
from visvm.model.results import SessionReport
from visvm.model.sites import SiteStatistics, require_merged_sites, require_new_sites
from visvm.model.state import AnsweredRequest, Calibration, EncoderId, MergedSite, Model

_REQUESTS = 50  # that a model remembers

UNDO = "undo"
"""The command that takes the last change back."""

MOST_KEYS = 16
"""So many sessions, at most, are known when they are given again."""


def now() -> str:
    """Return the present time in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def require_sums(model: Model, what: str) -> None:
    """Refuse to do `what` with a model that has no sums."""
    if model.head.sums is None:
        how = "loaded" if model.sums_on_disk else "exported"
        raise ModelFileError(
            f"This model was {how} for predicting and cannot {what}. Use the whole model.",
            code="sums-missing",
        )


# Sessions


def learned(
    model: Model, calibration: Calibration, report: SessionReport, key: str | None
) -> Model:
    """Return the model after a session, as it was learned in ``visvm.learning``.

    Its head is that after the session; the calibration is that of `model` where the session
    measured none. By the key, if there is one, the session is known when it is given again.
    """
    sites = model.sites
    if calibration is not model.calibration:
        sites = tuple(
            replace(each, calibration_weight=0.5 * each.calibration_weight) for each in sites
        )
    sessions = (*model.sessions, report)
    after = replace(model, calibration=calibration, sessions=sessions, sites=sites, change=None)
    return after if key is None else replace(after, learned=(*model.learned, key)[-MOST_KEYS:])


def forgotten(model: Model, features: Features, labels: Labels) -> Model:
    """Return the model that has never learned these images; sessions and calibration stay.

    `features`, (n, V, n_inputs), are those of all views that were learned.
    """
    require_sums(model, "forget")
    try:
        head = model.head.forgotten(*as_rows(features, labels)).solved()
    except NeverLearnedError as error:
        if error.code != "samples-never-learned":
            raise
        raise NeverLearnedError(
            "These are not the photos that were learned under these labels: no photos could have "
            "the sums left without them. Give the very photos that were learned.",
            code=error.code,
        ) from error
    after = replace(model.with_head(head), learned=())
    classes = tuple(dict.fromkeys(labels.tolist()))
    return _with_event(after, "forget", n_images=len(labels), classes=classes)


def _with_event(model: Model, kind: Any, **facts: Any) -> Model:
    """Return the model with a change in its history; parameters as in ``Event``."""
    event = Event(kind, now(), len(model.sessions), **facts)
    return replace(model, events=(*model.events, event))


def undone(model: Model, before: Model) -> Model:
    """Return what a model was before its last change, and which is known to be undone.

    Its encoder is where it is by now, and requests that were answered are answered for good.
    """
    encoder = before.encoder
    if encoder.digest == model.encoder.digest:
        encoder = replace(encoder, name=model.encoder.name)
    return noted(replace(before, encoder=encoder, requests=model.requests), UNDO)


def before_last(path: Path, model: Model) -> Model:
    """Return what a model in a file was before its last change."""
    kept = undo.available(path)
    if kept is None:
        raise ModelFileError(
            f"There is nothing to undo: the file from before the last change of {shown(path)} is "
            "not beside it. Only the last change can be undone, once.",
            code="undo-none",
        )
    return undone(model, model_file.read(kept))


def answered(model: Model, request: AnsweredRequest) -> Model:
    """Return the model that also remembers which request changed it."""
    return replace(model, requests=(*model.requests, request)[-_REQUESTS:])


def noted(model: Model, *command: object) -> Model:
    """Return the model that also remembers the command that has made it what it is.

    What is remembered is a digest of the command and of the coefficients that it left, so it holds
    until anything else changes them. A command that was killed after its end, and is given again,
    is known by it.
    """
    return replace(model, change=_change(model, command))


def is_made(model: Model, *command: object) -> bool:
    """Whether this very command was the last to change the model."""
    return model.change is not None and model.change == _change(model, command)


def _change(model: Model, command: tuple[object, ...]) -> str:
    digest = hashlib.sha256(json.dumps([command, model.head.classes.tolist()]).encode())
    if model.head.coefficients is not None:
        digest.update(np.ascontiguousarray(model.head.coefficients).data)
    return digest.hexdigest()


# Sums of others


class _Classifier(Protocol):
    """What has a model, or None before the first session."""

    model_: Model | None


def site_of(other: _Classifier | SiteStatistics) -> SiteStatistics:
    """Return the sums of a classifier, or sums as they are."""
    if isinstance(other, SiteStatistics):
        return other
    if not hasattr(other, "model_"):
        raise InputError(
            f"{other!r:.80} cannot be merged. Load it as an ImageClassifier or SiteStatistics, or "
            "use merge_files.",
            code="merge-kind",
        )
    if other.model_ is None:
        fact = "One of the models to merge has learned nothing. Let it learn first."
        raise IncompatibleModelError(fact, code="merge-empty")
    require_sums(other.model_, "merge")
    return SiteStatistics(other.model_)


def merged(model: Model, others: Iterable[SiteStatistics], *, consume: bool = False) -> Model:
    """Return the model that has learned what others have, too; their order does not matter.

    Parameters
    ----------
    model : Model
    others : iterable of SiteStatistics
        One is held at a time.
    consume : bool, default=False
        Add to the sums of `model` itself, which is of no use afterwards: a matrix less in memory.
    """
    require_sums(model, "merge")
    own = {SiteStatistics(model).site} if model.counts else set()
    grown = replace(model, site=model.site if own else None)
    sums = model.head.statistics if consume else model.head.statistics.copy()
    for other in others:
        try:
            grown = _with_sums_of(grown, sums, other, own)
        except IncompatibleModelError as error:
            raise IncompatibleModelError(f"{other.named}{error}", code=error.code) from error
        del other  # before the next one is read
    return grown.with_head(Head.of(model.head.settled, sums).solved())


def _with_sums_of(model: Model, sums: Statistics, other: SiteStatistics, own: set[str]) -> Model:
    """Add the sums of a site to `sums`, which are the model's own, and note whose they are."""
    if not other.counts:
        raise IncompatibleModelError(
            "There is nothing to merge: one of the models has learned nothing. "
            "Let it learn first, or leave it out.",
            code="merge-empty",
        )
    _require_same_encoder(model.encoder, other.model.encoder)
    for label in other.counts.keys() - set(sums.classes.tolist()):
        if not is_forgotten(label):
            check_label(label, f"a class of {other.named.removesuffix(': ') or 'the other model'}")
    added = other.entries(now())
    require_new_sites(added, own, {each.id for each in model.sites})
    here = Head.of(model.head.settled, sums)
    here.check_merge(other.model.head)
    check_sums(other.model.head, here)
    known = {label for label in sums.classes.tolist() if not is_forgotten(label)}
    sums.merge(other.model.head.statistics)
    new = []
    for each in other.model.sessions:
        if any(each.is_same_as(mine) for mine in model.sessions):
            continue
        new.append(replace(each.among(known), site=each.site or other.site))
        known |= {*each.new_classes, *each.returning_classes}
    grown = replace(
        model,
        calibration=model.calibration.plus(other.model.calibration),
        sessions=_numbered((*model.sessions, *new)),
        sites=(*model.sites, *added),
    )
    return _with_event(grown, "merge", n_images=other.n_images, site=other.site)


def _require_same_encoder(mine: EncoderId, theirs: EncoderId) -> None:
    pairs = {
        "encoder weights": (mine.digest, theirs.digest),
        "transforms": (mine.transform, theirs.transform),
        "views": (mine.views, theirs.views),
    }
    for what, (here, there) in pairs.items():
        if here != there:
            raise IncompatibleModelError(
                f"The models have different {what} ({here:.12} here, {there:.12} there). "
                "Grow both from copies of one model.",
                code="merge-encoder",
            )


def unmerged(model: Model, other: SiteStatistics) -> Model:
    """Return the model without a site, as if it had never been merged."""
    require_sums(model, "unmerge")
    gone = other.entries(now())
    require_merged_sites(gone, model.sites)
    mine = next(each for each in model.sites if each.id == other.site)
    theirs = Head.of(
        other.model.head.settled, other.model.head.statistics.renamed(np.array(mine.labels))
    )
    try:
        head = model.head.unmerged(theirs).solved()
    except NeverLearnedError as error:
        raise NeverLearnedError(
            f"Some images of site {other.site} were already forgotten one by one ({error}). "
            "Learn them again first.",
            code="site-incomplete",
        ) from error
    ids = {each.id for each in gone}
    left = replace(
        model.with_head(head),
        sessions=_numbered(_without(ids, model.sessions)),
        sites=tuple(each for each in model.sites if each.id not in ids),
        learned=(),
    )
    measured = model.calibration.plus(other.model.calibration, -mine.calibration_weight)
    n_classes = min(model.calibration.n_classes, len(left.classes))
    left = replace(left, calibration=replace(measured, n_classes=n_classes))
    return _with_event(left, "unmerge", n_images=other.n_images, site=other.site)


def _without(sites: Set[str], sessions: Iterable[SessionReport]) -> Iterator[SessionReport]:
    """Give the sessions that are left without those of sites: what those had brought is new."""
    seen: set[Label] = set()  # in the sessions that are left
    gone: set[Label] = set()  # only in the others
    for each in sessions:
        classes = {*each.new_classes, *each.returning_classes}
        if each.site in sites:
            gone |= classes - seen
            continue
        brought = tuple(label for label in each.returning_classes if label not in seen)
        seen |= classes
        gone -= classes
        yield replace(
            each,
            new_classes=(*each.new_classes, *brought),
            returning_classes=tuple(
                label for label in each.returning_classes if label not in brought
            ),
            n_classes=max(each.n_classes - len(gone), len(classes)),
        )


def _numbered(sessions: Iterable[SessionReport]) -> tuple[SessionReport, ...]:
    """Return the sessions, numbered from 1."""
    return tuple(replace(each, session=number) for number, each in enumerate(sessions, start=1))


# Classes


def renamed(model: Model, old: Label, new: Label, *, merge: bool = False) -> Model:
    """Return the model in which a class has another name.

    Parameters
    ----------
    model : Model
    old, new : str or int
    merge : bool, default=False
        If the new name is a class already, make both one, as if learned under one label.
    """
    if model.sums_on_disk or (merge and new in model.counts):
        require_sums(model, "put classes together" if merge else "rename a class")
    head = model.head.renamed(old, new, merge=merge)
    counts = dict(zip(_with_name(model.counts, old, new), model.counts.values(), strict=True))
    kept = [counts[label] for label in head.classes.tolist()] if head.sums is None else []

    def names(labels: tuple[Label, ...]) -> tuple[Label, ...]:
        return tuple(dict.fromkeys(_with_name(labels, old, new)))

    sessions = tuple(
        replace(
            each,
            new_classes=names(each.new_classes),
            returning_classes=names(each.returning_classes),
            estimate=None if each.estimate is None else each.estimate.renamed(old, new),
        )
        for each in model.sessions
    )
    after = replace(
        model,
        exported_counts=tuple(kept),
        sessions=sessions,
        sites=_renamed_in(model.sites, old, new),
    )
    if old != new:
        kind = "merge-classes" if new in model.counts else "rename-class"
        after = _with_event(after, kind, classes=(old,), name=new)
    if head.sums is not None:
        return after.with_head(head)
    order = np.argsort(np.array(_with_name(model.classes.tolist(), old, new)), kind="stable")
    spread = None if model.spread is None else model.spread.reordered(order)
    return replace(after, head=head, spread=spread)


def class_forgotten(model: Model, label: Label) -> Model:
    """Return the model that never answers with a class again; other classes' scores stay."""
    require_sums(model, "forget")
    known = model.classes.tolist()
    if label not in known:
        raise NeverLearnedError(
            f"There is no class {label!r}. {suggestion(label, model.classes)}", code="class-unknown"
        )
    hidden = FORGOTTEN[0] if isinstance(label, str) else FORGOTTEN[1]
    after = replace(
        model.with_head(model.head.renamed(label, hidden, merge=True)),
        sites=_renamed_in(model.sites, label, hidden),
        learned=(),
    )
    return _with_event(after, "forget-class", n_images=model.counts[label], classes=(label,))


def _renamed_in(sites: Iterable[MergedSite], old: Label, new: Label) -> tuple[MergedSite, ...]:
    return tuple(replace(each, labels=_with_name(each.labels, old, new)) for each in sites)


def _with_name(labels: Iterable[Label], old: Label, new: Label) -> tuple[Label, ...]:
    return tuple(new if label == old else label for label in labels)


# Parts


def for_prediction(model: Model) -> Model:
    """Return what predicting needs: no sums, no names of files."""
    return replace(
        model,
        head=replace(model.head, sums=None),
        exported_counts=tuple(model.counts.values()),
        sites=tuple(replace(each, file="") for each in model.sites),
        learned=(),
        sums_on_disk=False,
        requests=(),
        change=None,
    )


def for_site(model: Model, site: str) -> Model:
    """Return what a site needs to learn for a model: encoder, mixer, map and λ; no sums."""
    return Model(model.encoder, Head.blank(model.head.settled.bare), site=site)
