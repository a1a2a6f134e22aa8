"""The endpoints."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import ExitStack, closing
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import StreamingResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from visvm import __version__
from visvm.errors import InputError
from visvm.image_classifier import ImageClassifier
from visvm.model.labels import Label
from visvm.model.results import first_session_note
from visvm.progress import Progress
from visvm.service import schemas
from visvm.service.core import Service
from visvm.service.forms import read_form
from visvm.service.gate import LOOPBACK, NEEDS_WRITING, PAGE, Gate, Tokens, problem_response
from visvm.service.jobs import ENDED, Job
from visvm.service.problems import MEDIA_TYPE, BusyError, RefusedError, problem, problem_of
from visvm.service.uploads import check_text

_EVENT_SECONDS = 0.1  # how often a job is looked at for those who follow it
_HEARTBEAT = 150  # looks, after which a follower is told that we are still there
_CHUNK = 1 << 20

_IMAGES = {
    "type": "array",
    "minItems": 1,
    "items": {"type": "string", "format": "binary"},
    "description": "Image files.",
}
_LABELS = {
    "type": "array",
    "minItems": 1,
    "items": {"type": "string", "examples": ["robin"]},
    "description": "One for every image in the same order, or one for all.",
}


def create_app(service: Service, tokens: Tokens, hosts: Iterable[str] = LOOPBACK) -> FastAPI:
    """The ASGI application.

    Parameters
    ----------
    service : Service
    tokens : Tokens
    hosts : iterable of str
        As in ``Gate``.
    """
    app = FastAPI(
        title="visvm",
        version=__version__,
        summary="Learn to recognise images class by class, and never forget.",
        docs_url=None,  # its page would be fetched from elsewhere
        redoc_url=None,
        responses={
            "4XX": _problem_schema("Refused, and nothing was changed."),
            "5XX": _problem_schema("Not now."),
        },
    )
    app.add_middleware(
        Gate,
        tokens=tokens,
        hosts=hosts,
        limits=service.limits,
        requests=service.metrics.requests,
        seconds=service.metrics.seconds,
    )
    app.add_exception_handler(HTTPException, _http_problem)
    app.add_exception_handler(RequestValidationError, _validation_problem)
    for add in (_add_state, _add_predict, _add_changes, _add_classes, _add_jobs):
        add(app, service)
    app.mount("/", StaticFiles(directory=PAGE, html=True))
    if tokens.wanted:
        app.openapi = lambda: _with_token(FastAPI.openapi(app))  # type: ignore[method-assign]
    return app


def _with_token(document: dict[str, Any]) -> dict[str, Any]:
    """The OpenAPI document, saying that a token is needed."""
    document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{"token": []}]
    return document


def _add_state(app: FastAPI, service: Service) -> None:
    """How the service and the model are."""

    @app.get("/api/health", tags=["service"])
    async def health() -> schemas.Status:
        """Whether the process runs."""
        return schemas.Status(status="ok")

    @app.get("/api/ready", tags=["service"])
    async def ready() -> schemas.Status:
        """Whether requests will be answered; 503 if not."""
        if not service.ready:
            raise BusyError("the service must be ready; it is stopping: try another, or later", 5)
        return schemas.Status(status="ready")

    @app.get(
        "/metrics",
        tags=["service"],
        response_class=Response,
        responses={200: {"content": {"text/plain": {}}}},
    )
    async def metrics() -> Response:
        """Counts and times for Prometheus."""
        return Response(generate_latest(service.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    @app.get(
        "/api/model",
        tags=["model"],
        responses={304: {"description": "As it was when you last asked."}},
    )
    async def model(request: Request, response: Response) -> schemas.ModelInfo:
        """What the model knows: its classes and how many images of each it has learned."""
        told = schemas.describe_model(service.store, service.limits, request.scope["visvm.write"])
        tag = f'"{service.boot}-{told.revision}-{int(told.can_write)}"'
        if request.headers.get("if-none-match") == tag:
            raise _Unchanged(tag)
        response.headers["ETag"] = tag
        return told

    @app.get("/api/history", tags=["model"])
    async def history() -> schemas.History:
        """What was learned when, and the accuracy after it."""
        return schemas.History.model_validate(
            {"sessions": service.store.current.classifier.history_}
        )

    @app.get(
        "/api/model/file",
        tags=["model"],
        response_class=StreamingResponse,
        responses={200: {"content": {"application/octet-stream": {}}}},
    )
    async def model_file() -> StreamingResponse:
        """The model file, to be used with the command line or another service."""
        if not service.store.path.is_file():
            raise RefusedError(
                409,
                "there must be a model file to download; there is none: teach the model, and it is written",
            )
        # which stays this state of the model, whatever is written meanwhile
        file = service.store.path.open("rb")
        file.seek(0, 2)
        name = quote(service.store.path.name, safe="")
        headers = {
            "Content-Length": str(file.tell()),
            "Content-Disposition": f"attachment; filename*=UTF-8''{name}",
        }
        file.seek(0)
        return StreamingResponse(
            _chunks(file), media_type="application/octet-stream", headers=headers
        )


def _add_predict(app: FastAPI, service: Service) -> None:
    """What images show."""

    @app.post("/api/predict", tags=["model"], openapi_extra=_form({"images": _IMAGES}, ["images"]))
    async def predict(
        request: Request, top: Annotated[int, Query(ge=1, le=1000)] = 5
    ) -> schemas.Predictions:
        """Say what images show: the likeliest classes of each with their probabilities."""
        form = await read_form(request, service.limits, ["images"])
        with closing(form):
            snapshot, made = await service.predict(form, top)
        return schemas.describe_predictions(snapshot.revision, made)

    @app.post(
        "/api/evaluate",
        tags=["model"],
        status_code=202,
        openapi_extra=_form({"images": _IMAGES, "labels": _LABELS}, ["images", "labels"]),
    )
    async def evaluate(request: Request, response: Response) -> schemas.JobInfo:
        """Measure accuracy on images with labels, overall and by class. Images of classes not known are left out, and named."""
        form = await read_form(request, service.limits, ["images"], ["labels"])
        with ExitStack() as held:
            held.callback(form.close)
            labels = await service.labelled(form)
            await _require_client(request)

            def work(progress: Progress) -> dict[str, Any]:
                found = service.store.current.classifier.evaluate(
                    form.images["images"], labels, progress=progress
                )
                per_class = [
                    {"label": label, "n": each.n, "accuracy": each.accuracy}
                    for label, each in found.per_class.items()
                ]
                confusions = [
                    {"label": p.label, "predicted": p.predicted, "n": p.n}
                    for p in found.confusions[:100]
                ]
                return {
                    "n": found.n,
                    "accuracy": found.accuracy,
                    "per_class": per_class,
                    "confusions": confusions,
                    "never_learned": list(found.never_learned),
                }

            return _accepted(
                service, service.jobs.submit("evaluate", work, held.pop_all()), response
            )


def _add_changes(app: FastAPI, service: Service) -> None:
    """What changes the model by images."""

    @app.post(
        "/api/learn",
        tags=["changes"],
        status_code=202,
        openapi_extra=_form(
            {"images": _IMAGES, "labels": _LABELS, "test_images": _IMAGES, "test_labels": _LABELS},
            ["images", "labels"],
        ),
    )
    async def learn(request: Request, response: Response) -> schemas.JobInfo:
        """Learn one session: new classes, more images of known ones, or both.

        Test images are not learned: they tell how accurate the model was before the session, and is
        after it.
        """
        form = await read_form(
            request, service.limits, ["images", "test_images"], ["labels", "test_labels"]
        )
        with ExitStack() as held:
            held.callback(form.close)
            labels, tests = await service.labelled(form), None
            if form.images["test_images"] or form.texts["test_labels"]:
                tests = (
                    form.images["test_images"],
                    await service.labelled(form, "test_images", "test_labels"),
                )
            await _require_client(request)

            def work(classifier: ImageClassifier, progress: Progress) -> dict[str, Any]:
                report = classifier.learn(
                    form.images["images"], labels, test=tests, progress=progress
                )
                note = first_session_note(report)
                told = {**classifier.history_[-1], "notes": [] if note is None else [note]}
                return schemas.SessionInfo.model_validate(told).model_dump()

            return _accepted(service, service.change("learn", work, held.pop_all()), response)

    @app.post(
        "/api/forget",
        tags=["changes"],
        status_code=202,
        openapi_extra=_form({"images": _IMAGES, "labels": _LABELS}, ["images", "labels"]),
    )
    async def forget(request: Request, response: Response) -> schemas.JobInfo:
        """Take images out again, as if they had never been learned. They must be the very images that were learned."""
        form = await read_form(request, service.limits, ["images"], ["labels"])
        with ExitStack() as held:
            held.callback(form.close)
            labels = await service.labelled(form)
            await _require_client(request)

            def work(classifier: ImageClassifier, progress: Progress) -> dict[str, Any]:
                return {
                    "n_images": classifier.forget(form.images["images"], labels, progress=progress)
                }

            return _accepted(service, service.change("forget", work, held.pop_all()), response)


def _add_classes(app: FastAPI, service: Service) -> None:
    """What changes classes without any image."""

    @app.post("/api/classes/rename", tags=["changes"], status_code=202)
    async def rename_class(renaming: schemas.Renaming, response: Response) -> schemas.JobInfo:
        """Give a class another name, or put two classes together."""
        old, new = _labels(
            service, {"the class to rename": str(renaming.old), "the new name": str(renaming.new)}
        )
        known = service.store.current.classifier.classes_
        if old not in known:
            raise InputError(
                f"the class to rename must be known; {old!r} is not: ask for the model's classes"
            )
        if new in known and not renaming.merge:
            raise InputError(
                f"the new name must not be taken; {new!r} is a class already: choose another, or merge both"
            )

        def work(classifier: ImageClassifier, progress: Progress) -> dict[str, Any]:
            progress("renaming", 0, 1)
            classifier.rename_class(old, new, merge=renaming.merge)
            return {}

        return _accepted(service, service.change("rename-class", work, ExitStack()), response)

    @app.post("/api/classes/forget", tags=["changes"], status_code=202)
    async def forget_class(
        forgetting: schemas.ForgettingClass, response: Response
    ) -> schemas.JobInfo:
        """Never answer with a class again; its images are not needed. The other classes' scores stay as they are."""
        (label,) = _labels(service, {"the class to forget": str(forgetting.label)})
        if label not in service.store.current.classifier.classes_:
            raise InputError(
                f"a class to forget must be known; {label!r} is not: ask for the model's classes"
            )

        def work(classifier: ImageClassifier, progress: Progress) -> dict[str, Any]:
            progress("forgetting", 0, 1)
            classifier.forget_class(label)
            return {}

        return _accepted(service, service.change("forget-class", work, ExitStack()), response)


def _add_jobs(app: FastAPI, service: Service) -> None:
    """How far a job is."""

    def find(identifier: str) -> Job:
        job = service.jobs.get(identifier)
        if job is None:
            raise RefusedError(
                404,
                "a job must be one of this service's, since its last start; this one is not: ask for it again",
            )
        return job

    @app.get("/api/jobs/{id}", tags=["jobs"])
    async def job(id: str) -> schemas.JobInfo:  # noqa: A002 - its name in the address
        """How far a job is, and once it has ended, how."""
        return schemas.describe_job(find(id), service.jobs)

    @app.get(
        "/api/jobs/{id}/events",
        tags=["jobs"],
        response_class=StreamingResponse,
        responses={200: {"content": {"text/event-stream": {}}}},
    )
    async def events(id: str) -> StreamingResponse:  # noqa: A002
        """The same as server-sent events of the type `job`, one for every step, until it has ended."""
        return StreamingResponse(_events(find(id), service), media_type="text/event-stream")

    @app.post("/api/jobs/{id}/cancel", tags=["jobs"])
    async def cancel(id: str, request: Request) -> schemas.JobInfo:  # noqa: A002
        """End a job. One that is being written to disk already is not ended."""
        found = find(id)
        if found.kind != "evaluate" and not request.scope["visvm.write"]:
            raise RefusedError(403, NEEDS_WRITING)
        service.jobs.cancel(found)
        return schemas.describe_job(found, service.jobs)


async def _require_client(request: Request) -> None:
    """Do not begin what nobody would be told the end of: whoever has gone may send it again."""
    if await request.is_disconnected():
        raise RefusedError(
            400,
            "whoever asks must wait for the answer; the connection was closed before it: ask again",
        )


def _accepted(service: Service, job: Job, response: Response) -> schemas.JobInfo:
    response.headers["Location"] = f"/api/jobs/{job.id}"
    return schemas.describe_job(job, service.jobs)


async def _events(job: Job, service: Service) -> AsyncIterator[str]:
    seen, looks = None, 0
    while True:
        told = schemas.describe_job(job, service.jobs)
        if told != seen:
            seen, looks = told, 0
            yield f"event: job\ndata: {told.model_dump_json()}\n\n"
        elif looks >= _HEARTBEAT:
            looks = 0
            yield ": still there\n\n"
        if told.state in ENDED:
            return
        looks += 1
        await asyncio.sleep(_EVENT_SECONDS)


def _labels(service: Service, texts: dict[str, str]) -> list[Label]:
    numbers = service.store.current.classifier.numbers
    return [check_text(text, where, numbers, service.limits) for where, text in texts.items()]


def _chunks(file: Any) -> Iterable[bytes]:
    with file:
        while chunk := file.read(_CHUNK):
            yield chunk


def _form(fields: dict[str, Any], required: Sequence[str]) -> dict[str, Any]:
    """A form as OpenAPI describes it."""
    schema = {
        "type": "object",
        "properties": fields,
        "required": list(required),
        "additionalProperties": False,
    }
    return {
        "requestBody": {"required": True, "content": {"multipart/form-data": {"schema": schema}}}
    }


def _problem_schema(what: str) -> dict[str, Any]:
    return {
        "description": what,
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }


class _Unchanged(HTTPException):
    def __init__(self, tag: str) -> None:
        super().__init__(304, headers={"ETag": tag})


async def _http_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 304:
        return Response(status_code=304, headers=error.headers)
    # of the body, which FastAPI takes for a mistake in it
    if (refused := request.scope.get("visvm.refused")) is not None:
        return problem_response(problem_of(refused), refused.headers)
    what = "address" if error.status_code in (404, 405) else "body"
    detail = f"a request must have an address, a method and a body that /openapi.json names; its {what} is another: correct it"
    return problem_response(problem(error.status_code, detail), dict(error.headers or {}))


async def _validation_problem(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    wrong = "; ".join(
        f"{'.'.join(str(part) for part in each['loc'][1:]) or 'the body'}: {each['msg']}"
        for each in error.errors()
    )
    return problem_response(
        problem(
            422, f"the request must be as /openapi.json says; it is not ({wrong})", "InputError"
        )
    )
