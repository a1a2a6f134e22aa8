"""The ASGI application: routes, checks around them, and the page."""

from collections.abc import Iterable
from importlib.resources import files
from typing import Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from visvm import __version__
from visvm.service import routes
from visvm.service.core import Service
from visvm.service.gate import LOOPBACK, Gate, Rights, Tokens, own_page, trusted_hosts
from visvm.service.problems import MEDIA_TYPE, RefusedError, refusal

PAGE = str(files("visvm.service") / "page")
_PROBLEM = {"$ref": "#/components/schemas/Problem"}


def create_app(service: Service, tokens: Tokens, hosts: Iterable[str] = LOOPBACK) -> FastAPI:
    """Return the application; while it asks for no token, only `hosts` are names to call it by."""
    app = FastAPI(
        title="visvm",
        version=__version__,
        summary="Learn to recognise images class by class, and never forget.",
        openapi_url=None,  # below, as it needs the right to read
        dependencies=[Depends(own_page)],
        responses={
            status: {"description": what, "content": {MEDIA_TYPE: {"schema": _PROBLEM}}}
            for status, what in (("4XX", "Refused, and nothing was changed."), ("5XX", "Not now."))
        },
    )
    if not tokens.wanted:
        app.add_middleware(trusted_hosts, hosts=hosts)
    app.add_middleware(Gate, limits=service.limits, metrics=service.metrics)
    app.add_exception_handler(HTTPException, _http_problem)
    app.add_exception_handler(RequestValidationError, _validation_problem)
    rights = Rights(tokens)
    for add in routes.ALL:
        add(app, service, rights)

    @app.get("/openapi.json", include_in_schema=False, dependencies=[rights.reader])
    async def document() -> dict[str, Any]:
        return app.openapi()

    app.mount("/", StaticFiles(directory=PAGE, html=True))
    return app


async def _http_problem(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 304:
        return Response(status_code=304, headers=error.headers)
    if isinstance(error.__cause__, RefusedError):  # of the body: FastAPI wraps it
        return refusal(error.__cause__)
    what, code = {
        404: ("This path is unknown.", "path-unknown"),
        405: ("This path does not take this method.", "method-unknown"),
    }.get(error.status_code, ("The body cannot be read.", "body-unreadable"))
    detail = f"{what} See /openapi.json."
    return refusal(RefusedError(error.status_code, detail, code=code, headers=error.headers))


async def _validation_problem(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    wrong = "; ".join(
        f"{'.'.join(str(part) for part in each['loc'][1:]) or 'the body'}: {each['msg']}"
        for each in error.errors()
    )
    detail = f"The request does not fit /openapi.json ({wrong})."
    return refusal(RefusedError(422, detail, code="request-invalid"))
