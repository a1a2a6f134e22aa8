"""Changes of a model: each takes one and returns another, so that what raises changes nothing."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from visvm.errors import (
    ModelFileError,
    NeverLearnedError,
    shown,
)
from visvm.head.checks import Labels, suggestion
from visvm.head.head import Head, as_rows
from visvm.head.lift import Features
from visvm.model import file as model_file
from visvm.model import undo
from visvm.model.events import Event
from visvm.model.labels import FORGOTTEN, Label
from visvm.model.results import SessionReport
from visvm.model.state import AnsweredRequest, Calibration, MergedSite, Model

_REQUESTS = 50  # that a model remembers

UNDO = "undo"
"""The command that takes the last change back."""

MOST_KEYS = 16
"""So many sessions, at most, are known when they come again."""


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
    measured none. By the key, if there is one, the session is known when it comes again.
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
            "These are not the photos that were learned under these labels: removing them would "
            "leave impossible sums. Give the very photos that were learned.",
            code=error.code,
        ) from error
    after = replace(model.with_head(head), learned=())
    classes = tuple(dict.fromkeys(labels.tolist()))
    return with_event(after, "forget", n_images=len(labels), classes=classes)


def with_event(model: Model, kind: Any, **facts: Any) -> Model:
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
    until anything else changes them. A command that was killed after its end, and is run again,
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
        after = with_event(after, kind, classes=(old,), name=new)
    if head.sums is not None:
        return after.with_head(head)
    order = np.argsort(np.array(_with_name(model.classes.tolist(), old, new)), kind="stable")
    spread = model.spread
    if spread is not None:
        spread = replace(spread, centres=spread.centres[order])
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
    return with_event(after, "forget-class", n_images=model.counts[label], classes=(label,))


def _renamed_in(sites: Iterable[MergedSite], old: Label, new: Label) -> tuple[MergedSite, ...]:
    return tuple(replace(each, labels=_with_name(each.labels, old, new)) for each in sites)


def _with_name(labels: Iterable[Label], old: Label, new: Label) -> tuple[Label, ...]:
    return tuple(new if label == old else label for label in labels)


# Parts


def for_prediction(model: Model) -> Model:
    """Return what predicting needs: no sums, no names of files."""
    settled = replace(model.head.settled, texts=None)
    return replace(
        model,
        head=replace(model.head, settled=settled, sums=None),
        exported_counts=tuple(model.counts.values()),
        sessions=tuple(replace(each, skipped=()) for each in model.sessions),
        sites=tuple(replace(each, file="") for each in model.sites),
        learned=(),
        sums_on_disk=False,
        requests=(),
        change=None,
    )


def for_site(model: Model, site: str) -> Model:
    """Return what a site needs to learn for a model: encoder, mixer, map and λ; no sums."""
    return Model(model.encoder, Head.blank(model.head.settled.bare), site=site)
