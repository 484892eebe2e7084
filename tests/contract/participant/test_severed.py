"""A web server that stops while calls are held or run: their clients see a connection that ended, and nothing that an agent could take for an answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import Response

from gymckpt.participant import EPISODE_HEADER
from gymckpt.participant.asgi import Severing
from tests.contract.participant.stopping import stopped
from tests.unit.participant.base.bed import Counters
from tests.unit.participant.resources.web import App
from tests.unit.participant.rounds import Rounds

CALLS = [f"POST /add HTTP/1.1\r\nhost: here\r\n{EPISODE_HEADER}: r\r\ncontent-length: 1\r\n\r\nx".encode()] * 3


async def for_ever(_scope: Any, _receive: Any, _send: Any) -> None:
    await asyncio.Event().wait()


async def passed_on(request: Request, call_next: RequestResponseEndpoint) -> Response:
    return await call_next(request)


async def answered(request: Request, call_next: RequestResponseEndpoint) -> Response:
    """As NeMo Gym's servers do."""
    try:
        return await call_next(request)
    except asyncio.CancelledError:
        return Response("Request was cancelled", 500)


@pytest.fixture
def app(counters: Counters) -> App:
    counters.seed("r")
    return App(counters)


@pytest.mark.parametrize("http", ["h11", "httptools"])
@pytest.mark.parametrize("wrapped", [False, True], ids=["outermost", "inside-another-middleware"])
async def test_a_held_call_gets_nothing(rounds: Rounds, counters: Counters, app: App, http: str, wrapped: bool) -> None:
    """X38"""
    await rounds.prepare(counters.participant)
    served = BaseHTTPMiddleware(app.app, passed_on) if wrapped else app.app
    assert await stopped(served, CALLS, lambda: counters.participant.counts()["held"] == 3, http=http) == [b""] * 3
    assert app.bodies == []


async def test_a_call_that_runs_gets_nothing(counters: Counters, app: App) -> None:
    """X38, X31"""
    app.handlers["/add"] = for_ever
    assert await stopped(app.app, CALLS, lambda: len(app.calls) == 3) == [b""] * 3


@pytest.mark.parametrize("enabled", [True, False])
async def test_what_a_middleware_made_of_the_cancellation_is_sent_only_without_checkpointing(
    counters: Counters, app: App, enabled: bool
) -> None:
    """X38, X23"""
    counters.participant.enabled = enabled
    app.handlers["/add"] = for_ever
    served = Severing(BaseHTTPMiddleware(app.app, answered), counters.participant)
    read = await stopped(served, CALLS, lambda: len(app.calls) == 3)
    assert [b"500" in each for each in read] == [not enabled] * 3
    assert any(read) is not enabled


async def test_without_checkpointing_the_server_ends_its_calls_in_its_own_way(counters: Counters, app: App) -> None:
    """X23"""
    counters.participant.enabled = False
    app.handlers["/add"] = for_ever
    assert all(b"500" in read for read in await stopped(app.app, CALLS, lambda: len(app.calls) == 3))
