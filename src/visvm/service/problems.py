"""Errors as RFC 9457 problems, in the sentences of the command line."""

import logging
from http import HTTPStatus

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from visvm import errors

log = logging.getLogger("visvm.service")

MEDIA_TYPE = "application/problem+json"
MODEL_EMPTY = "model-empty"

_STATUS: dict[type[errors.VisvmError], int] = {  # others are the client's mistake: 422
    errors.IncompatibleModelError: 409,
    errors.ModelFileError: 409,
    errors.MemoryLimitError: 507,
    errors.EncoderError: 503,
    errors.WeightsError: 503,
}


class Problem(BaseModel):
    """What went wrong and what to do."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "type": "urn:visvm:problem:images-unreadable",
                    "title": "Unprocessable Entity",
                    "status": 422,
                    "detail": "1 photo cannot be read: photo 2 (the file is empty). Leave it out.",
                    "code": "images-unreadable",
                }
            ]
        }
    )
    type: str = Field(description="`urn:visvm:problem:` and the code.")
    title: str = Field(description="The meaning of the status.")
    status: int
    detail: str = Field(description="One line for people: the fact, then the remedy.")
    code: str = Field(description="What it is for programs; never changes.")


class RefusedError(errors.VisvmError):
    """A request that is answered with a status of its own.

    Parameters
    ----------
    status : int
    detail : str
    code : str
    headers : dict, optional
    """

    def __init__(
        self, status: int, detail: str, *, code: str, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(detail, code=code)
        self.status = status
        self.headers = headers or {}


class BusyError(RefusedError):
    """Too much is waiting already; the client may try again after so many seconds."""

    def __init__(self, detail: str, seconds: int, *, code: str) -> None:
        super().__init__(503, detail, code=code, headers={"Retry-After": str(seconds)})


def stopping() -> BusyError:
    """Return the error for what comes while the service stops."""
    return BusyError("The service is stopping. Try again later.", 5, code="service-stopping")


def problem(status: int, detail: str, code: str) -> Problem:
    """Return a problem with the title that its status has."""
    return Problem(
        type=f"urn:visvm:problem:{code}",
        title=HTTPStatus(status).phrase,
        status=status,
        detail=detail,
        code=code,
    )


def problem_of(error: Exception) -> Problem:
    """Return what a client gets to know of an error; a fault of ours is logged and not shown."""
    if isinstance(error, RefusedError):
        return problem(error.status, str(error), error.code)
    if isinstance(error, errors.VisvmError):
        status = next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 422)
        return problem(status, str(error), error.code)
    if type(error).__name__ == "NotFittedError":  # scikit-learn's, which takes long to import
        return problem(409, str(error), MODEL_EMPTY)
    log.error("internal error", exc_info=error)
    detail = "The server failed, and nothing was changed. Its log says why."
    return problem(500, detail, "internal")


def problem_response(answer: Problem, headers: dict[str, str] | None = None) -> Response:
    """Return a problem as an answer."""
    return Response(answer.model_dump_json(), answer.status, headers, MEDIA_TYPE)


def refusal_response(error: Exception) -> Response:
    """Return the answer to a request that raised an error."""
    headers = error.headers if isinstance(error, RefusedError) else None
    return problem_response(problem_of(error), headers)
