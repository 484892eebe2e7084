"""Typed refusals on the data plane: JSON that a program tells from any other answer by one header."""

from __future__ import annotations

import math

from starlette.requests import Request
from starlette.responses import JSONResponse

from gymckpt.errors import AdmissionClosed, GymckptError, InvalidField
from gymckpt.participant import REASON_HEADER


def refusal(error: GymckptError) -> JSONResponse:
    """503 for a closed gate (come again), 400 for a bad field, else 409."""
    status = {AdmissionClosed: 503, InvalidField: 400}.get(type(error), 409)
    headers = {REASON_HEADER: error.reason}
    if status == 503:
        headers["retry-after"] = str(math.ceil(error.retry_after or 1))
    return JSONResponse(
        {"error": {"reason": error.reason, "message": error.message, "details": error.details}}, status, headers
    )


async def answer_refusal(_request: Request, error: Exception) -> JSONResponse:
    """As a Starlette exception handler of GymckptError."""
    assert isinstance(error, GymckptError)
    return refusal(error)
