"""Errors as RFC 9457 problems, in the sentences of the command line."""

import logging
from collections.abc import Mapping
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
    """A request that is answered with a status of its own."""

    def __init__(
        self, status: int, detail: str, *, code: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(detail, code=code)
        self.status = status
        self.headers = headers


class BusyError(RefusedError):
    """Too much is waiting already; the client may try again after so many seconds."""

    def __init__(self, detail: str, seconds: int, *, code: str) -> None:
        super().__init__(503, detail, code=code, headers={"Retry-After": str(seconds)})


def stopping() -> BusyError:
    """Return the error for what comes while the service stops."""
    return BusyError("The service is stopping. Try again later.", 5, code="service-stopping")


def problem_of(error: Exception) -> Problem:
    """Return what a client gets to know of an error; a fault of ours is logged and not shown."""
    if isinstance(error, errors.VisvmError):
        kinds = (status for kind, status in _STATUS.items() if isinstance(error, kind))
        status = error.status if isinstance(error, RefusedError) else next(kinds, 422)
        detail, code = str(error), error.code
    elif type(error).__name__ == "NotFittedError":  # scikit-learn's, which takes long to import
        status, detail, code = 409, str(error), MODEL_EMPTY
    else:
        log.error("internal error", exc_info=error)
        detail = "The server failed, and nothing was changed. Its log says why."
        status, code = 500, "internal"
    kind, title = f"urn:visvm:problem:{code}", HTTPStatus(status).phrase
    return Problem(type=kind, title=title, status=status, detail=detail, code=code)


def refusal(error: Exception) -> Response:
    """Return the answer to a request that raised an error."""
    headers = error.headers if isinstance(error, RefusedError) else None
    answer = problem_of(error)
    return Response(answer.model_dump_json(), answer.status, headers, MEDIA_TYPE)
