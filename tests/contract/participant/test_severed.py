"""A web server that stops while calls are held or run: their clients see a connection that ended, and nothing that an agent could take for an answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvicorn
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import Response

from gymckpt.participant import EPISODE_HEADER
from tests.unit.participant.base.bed import Counters
from tests.unit.participant.resources.web import App
from tests.unit.participant.rounds import Rounds, until

CALL = f"POST /add HTTP/1.1\r\nhost: here\r\n{EPISODE_HEADER}: r\r\ncontent-length: 1\r\n\r\nx".encode()


async def for_ever(_scope: Any, _receive: Any, _send: Any) -> None:
    await asyncio.Event().wait()


async def passed_on(request: Request, call_next: RequestResponseEndpoint) -> Response:
    return await call_next(request)


@pytest.fixture
def app(counters: Counters) -> App:
    counters.seed("r")
    return App(counters)


async def stopped(app: Any, http: str, calling: Any) -> list[bytes]:
    """What three clients read, whose calls are under way when the server is told to stop and to give them no time."""
    config = uvicorn.Config(
        app, port=0, http=http, lifespan="off", log_level="critical", ws="none", timeout_graceful_shutdown=0
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    await until(lambda: server.started)
    port = server.servers[0].sockets[0].getsockname()[1]
    clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
    for _, writer in clients:
        writer.write(CALL)
    await until(calling)
    server.should_exit = True
    async with asyncio.timeout(5):
        read = [await reader.read() for reader, _ in clients]
        await serving
    for _, writer in clients:
        writer.close()
    return read


@pytest.mark.parametrize("http", ["h11", "httptools"])
@pytest.mark.parametrize("wrapped", [False, True], ids=["outermost", "inside-another-middleware"])
async def test_a_held_call_gets_nothing(rounds: Rounds, counters: Counters, app: App, http: str, wrapped: bool) -> None:
    """X38"""
    await rounds.prepare(counters.participant)
    served = BaseHTTPMiddleware(app.app, passed_on) if wrapped else app.app
    assert await stopped(served, http, lambda: counters.participant.counts()["held"] == 3) == [b""] * 3
    assert app.bodies == []


async def test_a_call_that_runs_gets_nothing(counters: Counters, app: App) -> None:
    """X38, X31"""
    app.handlers["/add"] = for_ever
    assert await stopped(app.app, "auto", lambda: len(app.calls) == 3) == [b""] * 3


async def test_without_checkpointing_the_server_ends_its_calls_in_its_own_way(counters: Counters, app: App) -> None:
    """X23"""
    counters.participant.enabled = False
    app.handlers["/add"] = for_ever
    assert all(b"500" in read for read in await stopped(app.app, "auto", lambda: len(app.calls) == 3))
