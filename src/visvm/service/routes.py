"""The routes, each with the right that it needs."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import ExitStack
from typing import Annotated, Any, BinaryIO
from urllib.parse import quote

from fastapi import Depends, FastAPI, Query, Request, Response
from fastapi.responses import StreamingResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException

from visvm.head.familiarity import UNKNOWN
from visvm.image_classifier import ImageClassifier
from visvm.model.levels import SURE
from visvm.model.results import first_session_note, ridge_note
from visvm.progress import Progress
from visvm.service import schemas
from visvm.service.core import Service
from visvm.service.forms import PostedForm
from visvm.service.gate import Rights, require_writing
from visvm.service.jobs import ENDED, QUESTIONS, Asked, Job
from visvm.service.problems import RefusedError, stopping
from visvm.service.wire import (
    CHANGE,
    LABELLED,
    QUESTION,
    SESSION,
    accepted,
    asked_for,
    form_of,
    of_kind,
    uploaded,
)

_EVENT_SECONDS = 0.1  # how often a job is looked at for those who follow it
_HEARTBEAT = 150  # looks without a change, after which a follower gets a sign of life
_CHUNK = 1 << 20
_OCTETS, _EVENTS = "application/octet-stream", "text/event-stream"


def _add_health(app: FastAPI, service: Service, rights: Rights) -> None:
    """Add how the service is."""

    @app.get("/api/health", tags=["service"])
    async def health() -> schemas.Status:
        """Whether the process runs."""
        return schemas.Status(status="ok")

    @app.get("/api/ready", tags=["service"])
    async def ready() -> schemas.Status:
        """Whether requests will be answered; 503 if not."""
        if not service.ready:
            raise stopping()
        return schemas.Status(status="ready")

    @app.get("/metrics", tags=["service"], dependencies=[rights.reader], **of_kind("text/plain"))
    async def metrics() -> Response:
        """Counts and times for Prometheus."""
        return Response(generate_latest(service.metrics.registry), media_type=CONTENT_TYPE_LATEST)


def _add_model(app: FastAPI, service: Service, rights: Rights) -> None:
    """Add what the model knows."""
    unchanged: dict[int | str, Any] = {304: {"description": "Unchanged since you last asked."}}

    @app.get("/api/model", tags=["model"], responses=unchanged)
    async def model(
        request: Request, response: Response, may_write: Annotated[bool, rights.reader]
    ) -> schemas.ModelInfo:
        """What the model knows: its classes and how many images of each it has learned."""
        described = schemas.describe_model(service.store, service.limits, may_write)
        tag = f'"{service.boot}-{described.revision}-{int(may_write)}"'
        if request.headers.get("if-none-match") == tag:
            raise HTTPException(304, headers={"ETag": tag})
        response.headers["ETag"] = tag
        return described

    @app.get("/api/history", tags=["model"], dependencies=[rights.reader])
    async def history() -> schemas.History:
        """What was learned when, and the accuracy after it."""
        model = service.store.current.model
        sessions, events = ((), ()) if model is None else (model.sessions, model.events)
        return schemas.History(
            sessions=[schemas.describe_session(each, ridge_note(each)) for each in sessions],
            events=[schemas.describe_event(each) for each in events],
        )

    # who may only ask gets no sums, as features of single images can be computed from them
    @app.get("/api/model/file", tags=["model"], dependencies=[rights.writer], **of_kind(_OCTETS))
    async def model_file() -> StreamingResponse:
        """The model file, for the command line or another service.

        It is not anonymous: features of single images can be computed from it. A token that only
        allows reading does not give it.
        """
        path = service.store.path
        if not path.is_file():
            detail = "There is no model file yet. Teach the model, and it is written."
            raise RefusedError(409, detail, code="model-file-missing")
        file = path.open("rb")  # stays this state of the model, even if it changes meanwhile
        headers = {
            "Content-Length": str(file.seek(0, 2)),
            "Content-Disposition": f"attachment; filename*=UTF-8''{quote(path.name, safe='')}",
        }
        return StreamingResponse(_chunks(file), media_type=_OCTETS, headers=headers)


def _add_questions(app: FastAPI, service: Service, rights: Rights) -> None:
    """Add what images show."""
    asking: dict[str, Any] = {"tags": ["model"], "dependencies": [rights.reader]}

    @app.post("/api/predict", **asking, **form_of(QUESTION))
    async def predict(
        form: Annotated[PostedForm, Depends(uploaded(service, QUESTION))],
        top: Annotated[int, Query(ge=1, le=1000)] = 5,
        unknown: Annotated[float, Query(ge=0, lt=1)] = UNKNOWN,
        sure: Annotated[float, Query(gt=0, le=1)] = SURE,
    ) -> schemas.Predictions:
        """Say what images show: the likeliest classes of each with their probabilities.

        An image is `unknown` where at most that share of the learned images would look less
        familiar; 0 never says so. Where classes have groups, its `level` is the last class or group
        from the top that is at least as probable as `sure`.
        """
        snapshot, made = await service.predict(form, top, unknown, sure)
        return schemas.describe_predictions(snapshot.revision, made)


def _add_examinations(app: FastAPI, service: Service, rights: Rights) -> None:
    """Add how often the model is right, and the labels of images are."""
    asking: dict[str, Any] = {"tags": ["model"], "dependencies": [rights.reader]}

    @app.post("/api/evaluate", status_code=202, **asking, **form_of(LABELLED))
    async def evaluate(
        response: Response, form: Annotated[PostedForm, Depends(uploaded(service, LABELLED))]
    ) -> schemas.JobInfo:
        """Measure accuracy on images with labels, overall and by class.

        Images of unknown classes are left out, and these classes are named.
        """

        def task(_: Job, progress: Progress) -> dict[str, Any]:
            found = service.store.classifier().evaluate(*form.labelled("images"), progress=progress)
            return schemas.describe_evaluation(found)

        job = service.jobs.submit("evaluate", task, form.held.pop_all())
        return accepted(service, job, response)

    @app.post("/api/check", status_code=202, **asking, **form_of(LABELLED))
    async def check(
        response: Response, form: Annotated[PostedForm, Depends(uploaded(service, LABELLED))]
    ) -> schemas.JobInfo:
        """Find wrong labels, photos that are there twice, and odd ones. Learns nothing.

        Each image is scored as if it had not been learned, among all classes known and given.
        """

        def task(_: Job, progress: Progress) -> dict[str, Any]:
            found = service.store.classifier().check(*form.labelled("images"), progress=progress)
            return schemas.describe_check(found)

        job = service.jobs.submit("check", task, form.held.pop_all())
        return accepted(service, job, response)


def _add_advice(app: FastAPI, service: Service, rights: Rights) -> None:
    """Add what to label next, and what an answer rests on."""
    asking: dict[str, Any] = {"tags": ["model"], "dependencies": [rights.reader]}

    @app.post("/api/suggest", status_code=202, **asking, **form_of(QUESTION))
    async def suggest(
        response: Response,
        form: Annotated[PostedForm, Depends(uploaded(service, QUESTION, checked=True))],
        n: Annotated[int, Query(ge=1, le=1000)] = 20,
    ) -> schemas.JobInfo:
        """Say which of these images to label next, the most telling first, by place from 0."""

        def task(_: Job, progress: Progress) -> dict[str, Any]:
            found = service.store.classifier().suggest(form.images["images"], n, progress=progress)
            return schemas.describe_suggestions(found)

        job = service.jobs.submit("suggest", task, form.held.pop_all())
        return accepted(service, job, response)

    @app.post("/api/explain", **asking, **form_of(QUESTION), **of_kind("image/png"))
    async def explain(
        form: Annotated[PostedForm, Depends(uploaded(service, QUESTION))],
        label: Annotated[str | None, Query(examples=["robin"])] = None,
    ) -> Response:
        """Draw which parts of an image speak for a class, red, or against it, blue."""
        wanted = None if label is None else service.read_label(label, "the class to explain")
        return Response(await service.explain(form, wanted), media_type="image/png")


def _add_changes(app: FastAPI, service: Service, rights: Rights) -> None:
    """Add what changes the model by images."""

    @app.post("/api/learn", dependencies=[rights.writer], **CHANGE, **form_of(SESSION))
    async def learn(
        response: Response,
        form: Annotated[PostedForm, Depends(uploaded(service, SESSION, keyed=True))],
    ) -> schemas.JobInfo:
        """Learn one session: new classes, more images of known ones, or both.

        Test images are not learned: they show how accurate the model is before and after.
        """

        def work(classifier: ImageClassifier, progress: Progress) -> dict[str, Any]:
            images, test, untested = form.labelled("images"), None, None
            if "test_images" in form.labels:
                test = form.labelled("test_images")
                # a browser may keep photos of classes that were renamed or forgotten since
                if set(test[1]).isdisjoint({*classifier.classes_, *images[1]}):
                    test, untested = None, "None of the test photos is of a class that it knows."
            report = classifier.learn(*images, test=test, progress=progress)
            notes = first_session_note(report), ridge_note(report), untested
            return schemas.describe_session(report, *notes).model_dump()

        job = service.change("learn", work, form.held.pop_all(), form.asked)
        return accepted(service, job, response)

    @app.post("/api/forget", dependencies=[rights.writer], **CHANGE, **form_of(LABELLED))
    async def forget(
        response: Response,
        form: Annotated[PostedForm, Depends(uploaded(service, LABELLED, keyed=True))],
    ) -> schemas.JobInfo:
        """Take images out again, as if they had never been learned.

        They must be the very images that were learned.
        """

        def work(classifier: ImageClassifier, progress: Progress) -> dict[str, Any]:
            return {"n_images": classifier.forget(*form.labelled("images"), progress=progress)}

        job = service.change("forget", work, form.held.pop_all(), form.asked)
        return accepted(service, job, response)


def _add_classes(app: FastAPI, service: Service, rights: Rights) -> None:
    """Add what changes classes without any image."""

    @app.post("/api/classes/rename", dependencies=[rights.writer], **CHANGE)
    async def rename_class(
        renaming: schemas.Renaming,
        response: Response,
        asked: Annotated[Asked | None, Depends(asked_for)],
    ) -> schemas.JobInfo:
        """Give a class another name, or put two classes together."""
        if (known := service.answered(asked)) is not None:
            return accepted(service, known, response)
        old = service.read_label(str(renaming.old), "the class to rename")
        new = service.read_label(str(renaming.new), "the new name")
        service.require_class(old)
        if not renaming.merge:
            service.require_no_class(new)

        def work(classifier: ImageClassifier, progress: Progress) -> dict[str, Any]:
            progress("renaming", 0, 1)
            classifier.rename_class(old, new, merge=renaming.merge)
            return {}

        job = service.change("rename-class", work, ExitStack(), asked)
        return accepted(service, job, response)

    @app.post("/api/classes/forget", dependencies=[rights.writer], **CHANGE)
    async def forget_class(
        forgetting: schemas.ForgettingClass,
        response: Response,
        asked: Annotated[Asked | None, Depends(asked_for)],
    ) -> schemas.JobInfo:
        """Never answer with a class again; its images are not needed.

        The other classes' scores stay the same.
        """
        if (known := service.answered(asked)) is not None:
            return accepted(service, known, response)
        label = service.read_label(str(forgetting.label), "the class to forget")
        service.require_class(label)

        def work(classifier: ImageClassifier, progress: Progress) -> dict[str, Any]:
            progress("forgetting", 0, 1)
            classifier.forget_class(label)
            return {}

        job = service.change("forget-class", work, ExitStack(), asked)
        return accepted(service, job, response)


def _add_undo(app: FastAPI, service: Service, rights: Rights) -> None:
    """Add what takes the last change back."""

    @app.post("/api/undo", dependencies=[rights.writer], **CHANGE)
    async def undo(
        undoing: schemas.Undoing,
        response: Response,
        asked: Annotated[Asked | None, Depends(asked_for)],
    ) -> schemas.JobInfo:
        """Take the last change back, also one of another client; once only.

        Until the next change the file from before it is kept beside the model file, with all that
        the change has forgotten.
        """
        if (known := service.answered(asked)) is not None:
            return accepted(service, known, response)

        def work(classifier: ImageClassifier, progress: Progress) -> dict[str, Any]:
            progress("undoing", 0, 1)
            return service.take_back(classifier, undoing.revision)

        job = service.change("undo", work, ExitStack(), asked)
        return accepted(service, job, response)


def _add_jobs(app: FastAPI, service: Service, rights: Rights) -> None:
    """Add how far a job is."""

    async def find(id: str) -> Job:  # noqa: A002 - its name in the path
        job = service.job(id)
        if job is None:
            detail = "This job is unknown to the service since its last start. Ask for it again."
            raise RefusedError(404, detail, code="job-unknown")
        return job

    @app.get("/api/jobs/{id}", tags=["jobs"], dependencies=[rights.reader])
    async def job(found: Annotated[Job, Depends(find)]) -> schemas.JobInfo:
        """How far a job is, and once it has ended, how."""
        return schemas.describe_job(found, service.jobs)

    @app.get(
        "/api/jobs/{id}/events",
        tags=["jobs"],
        dependencies=[rights.reader],
        **of_kind(_EVENTS),
    )
    async def events(found: Annotated[Job, Depends(find)]) -> StreamingResponse:
        """The same as server-sent events of the type `job`, one for every step until it ends."""
        return StreamingResponse(_events(found, service), media_type=_EVENTS)

    @app.post("/api/jobs/{id}/cancel", tags=["jobs"])
    async def cancel(
        may_write: Annotated[bool, rights.reader], found: Annotated[Job, Depends(find)]
    ) -> schemas.JobInfo:
        """End a job, unless it is being written to disk already.

        What changes nothing needs only the right to read.
        """
        require_writing(may_write or found.kind in QUESTIONS)
        service.jobs.cancel(found)
        return schemas.describe_job(found, service.jobs)


ALL = (
    *(_add_health, _add_model, _add_questions, _add_examinations, _add_advice),
    *(_add_changes, _add_classes),
    *(_add_undo, _add_jobs),
)


async def _events(job: Job, service: Service) -> AsyncIterator[str]:
    seen, looks = None, 0
    while True:
        described = schemas.describe_job(job, service.jobs)
        if described != seen:
            seen, looks = described, 0
            yield f"event: job\ndata: {described.model_dump_json()}\n\n"
        elif looks >= _HEARTBEAT:
            looks = 0
            yield ": still there\n\n"
        if described.state in ENDED:
            return
        looks += 1
        await asyncio.sleep(_EVENT_SECONDS)


def _chunks(file: BinaryIO) -> Iterable[bytes]:
    with file:
        file.seek(0)
        while chunk := file.read(_CHUNK):
            yield chunk
