"""Errors on the data plane, told so that no caller takes them for an answer."""

from __future__ import annotations

import logging

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from gymckpt.errors import GymckptError
from gymckpt.participant import http_refusal

_log = logging.getLogger(__name__)


class CalledServerFailed(Exception):
    """A server that this one called gave no usable answer; the message names it and says what came instead."""


async def answer_refusal(_request: Request, error: Exception) -> Response:
    """As a Starlette exception handler of GymckptError."""
    assert isinstance(error, GymckptError)
    status, headers, body = http_refusal(error)
    return Response(body, status, headers)


async def answer_failure(request: Request, error: Exception) -> JSONResponse:
    """As a Starlette exception handler of CalledServerFailed: status 500, as NeMo Gym's servers answer then."""
    _log.warning("%s failed: %s", request.url.path, error)
    return JSONResponse({"detail": str(error)}, 500)
