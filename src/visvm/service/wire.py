"""What routes share: forms, keys, and the answer to a change."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Header, Request, Response

from visvm.service import schemas
from visvm.service.core import Service
from visvm.service.forms import PostedForm, read_form
from visvm.service.jobs import Asked, Job
from visvm.service.problems import RefusedError

IMAGES = {
    "type": "array",
    "minItems": 1,
    "items": {"type": "string", "format": "binary"},
    "description": "Image files.",
}
LABELS = {
    "type": "array",
    "minItems": 1,
    "items": {"type": "string", "examples": ["robin"]},
    "description": "One for every image in the same order, or one for all.",
}
QUESTION = {"images": IMAGES}
LABELLED = {"images": IMAGES, "labels": LABELS}
SESSION = {**LABELLED, "test_images": IMAGES, "test_labels": LABELS}

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        pattern="^[!-~]+$",
        description=(
            "Chosen by you, for this change only. If you send the change again with the same key, "
            "because no answer came, you get the first job back, and nothing is done twice."
        ),
        examples=["5f0c9d0e-2f0b-4f4e-9d8d-6f3a1f8f2c11"],
    ),
]
CHANGE: dict[str, Any] = {"tags": ["changes"], "status_code": 202}


async def asked_for(request: Request, key: IdempotencyKey = None) -> Asked | None:
    """Return what a request asks for, if it has a key; the dependency of those without a form."""
    return Asked.under(key, request.url.path, await request.body())


def uploaded(
    service: Service, fields: dict[str, Any], *, keyed: bool = False, checked: bool = False
) -> Callable[..., AsyncIterator[PostedForm]]:
    """Return the dependency that reads, checks and closes a form with these fields."""
    names = [[name for name in fields if fields[name] is kind] for kind in (IMAGES, LABELS)]

    @asynccontextmanager
    async def read(request: Request, key: str | None) -> AsyncIterator[PostedForm]:
        request.scope["visvm.body"].allow(service.limits.upload_bytes)
        form = await read_form(request, service.limits, *names)
        form.asked = Asked.under(key, request.url.path, form.digest.digest())
        with form.held:  # empty once a job has taken the images over
            if (checked or "labels" in fields) and service.answered(form.asked) is None:
                await request.is_disconnected()  # lets uvicorn read on, and so notice the end
                await service.check(form)
                if await request.is_disconnected():  # nobody would see the end of it
                    fact = "The client disconnected before the upload was accepted."
                    raise RefusedError(400, f"{fact} Send it again.", code="client-disconnected")
            yield form

    async def question(request: Request) -> AsyncIterator[PostedForm]:
        async with read(request, None) as form:
            yield form

    async def change(request: Request, key: IdempotencyKey = None) -> AsyncIterator[PostedForm]:
        async with read(request, key) as form:
            yield form

    return change if keyed else question


def form_of(fields: dict[str, Any]) -> dict[str, Any]:
    """Return what a route says that takes a form."""
    schema = {
        "type": "object",
        "properties": fields,
        "required": [name for name in fields if not name.startswith("test_")],
        "additionalProperties": False,
    }
    content = {"multipart/form-data": {"schema": schema}}
    return {"openapi_extra": {"requestBody": {"required": True, "content": content}}}


def of_kind(kind: str) -> dict[str, Any]:
    """Return what a route says whose answer is not JSON."""
    return {"response_class": Response, "responses": {200: {"content": {kind: {}}}}}


def accepted(service: Service, job: Job, response: Response) -> schemas.JobInfo:
    """Return where to follow a job."""
    response.headers["Location"] = f"/api/jobs/{job.id}"
    return schemas.describe_job(job, service.jobs)
