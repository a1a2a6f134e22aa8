"""What goes over the wire, with examples."""

from dataclasses import asdict
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from visvm import __version__
from visvm.learning.findings import Check, sentences
from visvm.model.advice import Suggestion
from visvm.model.estimate import estimate_notes
from visvm.model.events import Event
from visvm.model.header import report_as_dict
from visvm.model.labels import Label
from visvm.model.results import Evaluation, Prediction, SessionReport
from visvm.service.jobs import Job, JobKind, JobQueue, State
from visvm.service.limits import Limits
from visvm.service.problems import Problem
from visvm.service.store import ModelStore

_CONFUSIONS = 100  # pairs of classes that an evaluation names
_WRONG = 1000  # photos


def _example(**values: Any) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [values]})


class Status(BaseModel):
    """How the service is."""

    model_config = _example(status="ok")
    status: str


class ClassCount(BaseModel):
    """A class and how many images of it were learned."""

    model_config = _example(label="robin", n_images=15)
    label: Label
    n_images: int


class LimitsInfo(BaseModel):
    """What a request may ask for."""

    upload_bytes: int
    files: int
    pixels: int
    label_length: int


class ModelInfo(BaseModel):
    """What the model knows."""

    name: str = Field(description="Of the file, without its folder.", examples=["birds.visvm"])
    revision: int = Field(description="Counts the changes since the service started.")
    can_learn: bool = Field(description="False for a model that was exported for predicting.")
    can_write: bool = Field(description="Whether your token allows changes.")
    encoder: str = Field(examples=["dinov2-s14"])
    transform: str
    can_undo: str | None = Field(
        description="The last change, in words, if it can be undone.",
        examples=["learned session 3 (12 images)"],
    )
    n_images: int
    n_bytes: int = Field(description="Of the file; 0 while there is none.")
    n_sessions: int
    classes: list[ClassCount]
    limits: LimitsInfo
    version: str = Field(description="Of visvm.")


class Answer(BaseModel):
    """A class and its probability."""

    model_config = _example(label="robin", score=0.93)
    label: Label
    score: float


class PredictionInfo(BaseModel):
    """What an image shows."""

    label: Label = Field(description="The likeliest class, or the closest where it is unknown.")
    score: float
    top: list[Answer]
    known: float | None = Field(
        None,
        description="Share of the learned images that would look less familiar; null if not noted.",
    )
    unknown: bool = Field(False, description="Whether it seems to show none of the classes.")
    level: str | None = Field(
        None, description="The class or group that is probable enough; null if there are no groups."
    )
    level_score: float | None = None


class Predictions(BaseModel):
    """What images show, in the order they were sent in, all by one state of the model."""

    model_config = _example(
        revision=3,
        predictions=[
            {
                "label": "robin",
                "score": 0.93,
                "top": [{"label": "robin", "score": 0.93}],
                "known": 0.41,
                "unknown": False,
            }
        ],
    )
    revision: int
    predictions: list[PredictionInfo]


class SessionInfo(BaseModel):
    """What a session did."""

    model_config = ConfigDict(extra="ignore")
    session: int
    learned_at: str
    n_images: int
    new_classes: list[Label]
    returning_classes: list[Label]
    n_classes: int
    ridge: float = Field(description="λ after it.")
    seconds: dict[str, float] = {}
    test: dict[str, float | int | None] | None = Field(
        None, description="Accuracies, from 0 to 1, on the test images."
    )
    estimate: dict[str, Any] | None = Field(
        None,
        description="Accuracy as the session's own photos tell it, each left out in turn.",
    )
    notes: list[str] = []


class EventInfo(BaseModel):
    """A change that is not a session."""

    model_config = _example(
        kind="rename-class", at="2026-01-02T03:04:05+00:00", after_session=2, said="renamed a to b"
    )
    kind: str
    at: str
    after_session: int = Field(description="How many sessions there were.")
    said: str = Field(description="What was done, in words.")


class History(BaseModel):
    """All sessions and other changes, the first one first."""

    sessions: list[SessionInfo]
    events: list[EventInfo]


class Undoing(BaseModel):
    """The last change, to be taken back."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"revision": 7}]})
    revision: int | None = Field(
        None,
        strict=True,  # false is no revision
        description="Refuse if the model has changed since it had this revision.",
    )


class Renaming(BaseModel):
    """A class and its new name."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"old": "robin", "new": "European robin"}]}
    )
    old: Label
    new: Label
    merge: bool = Field(False, description="If the new name is a class already, merge both.")


class ForgettingClass(BaseModel):
    """A class to forget."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"label": "robin"}]})
    label: Label


class JobInfo(BaseModel):
    """A change or an evaluation, and how far it is."""

    model_config = _example(
        id="Vb2mMZ0l6yTqYb6mQ1sC5w", kind="learn", state="running", stage="encoding",
        done=3, total=45, ahead=0, result=None, problem=None,
    )  # fmt: skip
    id: str
    kind: JobKind
    state: State
    stage: str = Field(description="What is being done.")
    done: int
    total: int
    ahead: int = Field(description="Jobs that come before this one.")
    result: dict[str, Any] | None = Field(
        description="What a job that is done did; the change is on disk."
    )
    problem: Problem | None = Field(description="Why a job failed; nothing was changed.")


def describe_evaluation(found: Evaluation) -> dict[str, Any]:
    """Return how labelled images were recognised."""
    return {
        "n": found.n,
        "accuracy": found.accuracy,
        "per_class": [{"label": label, **asdict(each)} for label, each in found.per_class.items()],
        "confusions": [asdict(pair) for pair in found.confusions[:_CONFUSIONS]],
        "never_learned": list(found.never_learned),
        "wrong": [asdict(each) for each in found.wrong[:_WRONG]],
        "n_unknown": found.n_unknown,
    }


def describe_suggestions(found: list[Suggestion]) -> dict[str, Any]:
    """Return which images to label next."""
    names = ("label", "score", "unknown")
    return {
        "suggestions": [
            {"image": each.place, **{name: getattr(each, name) for name in names}} for each in found
        ]
    }


def describe_check(found: Check) -> dict[str, Any]:
    """Return what a check found, and the same in sentences."""
    return {**asdict(found), "sure": found.sure, "notes": sentences(found)}


def describe_model(store: ModelStore, limits: Limits, can_write: bool) -> ModelInfo:
    """Return what the served model knows."""
    snapshot = store.current
    counts = snapshot.counts
    return ModelInfo(
        name=store.path.name,
        revision=snapshot.revision,
        can_learn=store.classifier().can_learn,
        can_write=can_write,
        encoder=store.encoder_name.replace("\\", "/").rsplit("/", 1)[-1],
        transform=store.transform,
        can_undo=snapshot.undoable,
        n_images=sum(counts.values()),
        n_bytes=snapshot.n_bytes,
        n_sessions=len(snapshot.sessions),
        classes=[ClassCount(label=label, n_images=n) for label, n in counts.items()],
        limits=LimitsInfo.model_validate(limits, from_attributes=True),
        version=__version__,
    )


def describe_session(report: SessionReport, *notes: str | None) -> SessionInfo:
    """Return what a session did, with those notes on it that there are."""
    said = [note for note in notes if note is not None] + estimate_notes(report.estimate)
    return SessionInfo.model_validate({**report_as_dict(report), "notes": said})


def describe_event(event: Event) -> EventInfo:
    """Return what a change that is not a session did."""
    return EventInfo.model_validate(event, from_attributes=True)


def describe_job(job: Job, queue: JobQueue) -> JobInfo:
    """Return how far a job is."""
    return JobInfo.model_validate({**vars(job), "ahead": queue.ahead_of(job)})


def describe_predictions(revision: int, predictions: list[Prediction]) -> Predictions:
    """Return the predictions of one request."""
    described = [
        PredictionInfo(
            label=each.label,
            score=each.score,
            top=[Answer(label=label, score=score) for label, score in each.top],
            known=each.known,
            unknown=each.unknown,
            level=each.level,
            level_score=each.level_score,
        )
        for each in predictions
    ]
    return Predictions(revision=revision, predictions=described)
