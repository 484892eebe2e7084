"""Errors on the data plane, told so that no caller takes them for an answer."""

from __future__ import annotations

import logging
import math

from starlette.requests import Request
from starlette.responses import JSONResponse

from gymckpt.errors import AdmissionClosed, DeadlineExceeded, GymckptError, InvalidField, TransportFailed
from gymckpt.participant import REASON_HEADER

_STATUSES: dict[type[GymckptError], int] = {
    AdmissionClosed: 503,
    DeadlineExceeded: 504,
    InvalidField: 400,
    TransportFailed: 502,
}

_log = logging.getLogger(__name__)


class CalledServerFailed(Exception):
    """A server that this one called gave no usable answer; the message names it and says what came instead."""


def refusal(error: GymckptError) -> JSONResponse:
    """JSON with the reason also in a header: 503 for a closed gate (come again), 409 where the table says nothing."""
    status = _STATUSES.get(type(error), 409)
    headers = {REASON_HEADER: error.reason}
    if status == 503:
        headers["retry-after"] = str(math.ceil(error.retry_after or 1))
    content = {"error": {"reason": error.reason, "message": error.message, "details": error.details}}
    return JSONResponse(content, status, headers)


async def answer_refusal(_request: Request, error: Exception) -> JSONResponse:
    """As a Starlette exception handler of GymckptError."""
    assert isinstance(error, GymckptError)
    return refusal(error)


async def answer_failure(request: Request, error: Exception) -> JSONResponse:
    """As a Starlette exception handler of CalledServerFailed: status 500, as NeMo Gym's servers answer then."""
    _log.warning("%s failed: %s", request.url.path, error)
    return JSONResponse({"detail": str(error)}, 500)
