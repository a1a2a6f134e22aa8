"""Errors as RFC 9457 has them, in the sentences of the command line."""

import logging
from http import HTTPStatus

from pydantic import BaseModel, ConfigDict, Field

from visvm import errors

log = logging.getLogger("visvm.service")

MEDIA_TYPE = "application/problem+json"

_STATUS: dict[type[errors.VisvmError], int] = {  # others are the request's fault: 422
    errors.IncompatibleModelError: 409,
    errors.ModelFileError: 409,
    errors.MemoryLimitError: 507,
    errors.EncoderError: 503,
    errors.WeightsError: 503,
}


class Problem(BaseModel):
    """What went wrong, what was given, what to do."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "type": "urn:visvm:problem:ImageError",
                    "title": "Unprocessable Entity",
                    "status": 422,
                    "detail": "every file must be an image; 1 cannot be read: photo 2 (the file is empty): leave them out",
                }
            ]
        }
    )
    type: str = Field("about:blank", description="A name of this kind of problem.")
    title: str = Field(description="The meaning of the status.")
    status: int
    detail: str = Field(description="One sentence: what must be how, what was given, what to do.")


class RefusedError(errors.VisvmError):
    """A request that is answered with a status of its own.

    Parameters
    ----------
    status : int
    detail : str
    headers : dict, optional
    """

    def __init__(self, status: int, detail: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.headers = headers or {}


class BusyError(RefusedError):
    """Too much waits already: try again after so many seconds."""

    def __init__(self, detail: str, seconds: int) -> None:
        super().__init__(503, detail, {"Retry-After": str(seconds)})


def problem(status: int, detail: str, kind: str = "") -> Problem:
    """A problem with the title that its status has."""
    title = HTTPStatus(status).phrase
    return Problem(
        type=f"urn:visvm:problem:{kind}" if kind else "about:blank",
        title=title,
        status=status,
        detail=detail,
    )


def problem_of(error: Exception) -> Problem:
    """What a client is told of an error; what only we can put right is logged and told without its insides."""
    if isinstance(error, RefusedError):
        return problem(error.status, str(error), type(error).__name__)
    if isinstance(error, errors.VisvmError):
        status = next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 422)
        return problem(status, str(error), type(error).__name__)
    if type(error).__name__ == "NotFittedError":
        return problem(409, str(error), "NotFittedError")
    log.error("an error that is ours", exc_info=error)
    return problem(
        500, "something went wrong on the server, and nothing was changed: its log tells more"
    )
