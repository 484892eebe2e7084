"""The same admission under a real HTTP server, with clients that wait, leave and read slowly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
import uvicorn

from gymckpt.participant import EPISODE_HEADER, REQUEST_ID_HEADER
from tests.unit.participant.base.bed import Counters
from tests.unit.participant.resources.web import App
from tests.unit.participant.rounds import Rounds, until

EPISODE = {EPISODE_HEADER: "r"}


@pytest.fixture
async def app(counters: Counters) -> App:
    counters.seed("r")
    return App(counters)


@pytest.fixture
async def client(app: App) -> AsyncIterator[httpx.AsyncClient]:
    config = uvicorn.Config(app.app, port=0, lifespan="off", log_level="warning", ws="none")
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    await until(lambda: server.started)
    port = server.servers[0].sockets[0].getsockname()[1]
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=5.0) as client:
        yield client
    server.should_exit = True
    await serving


@pytest.mark.parametrize("headers", [EPISODE, EPISODE | {REQUEST_ID_HEADER: "call-1"}], ids=["plain", "repeatable"])
async def test_a_held_call_is_answered_after_resume_and_one_whose_client_left_is_never_started(
    rounds: Rounds, counters: Counters, app: App, client: httpx.AsyncClient, headers: dict[str, str]
) -> None:
    """R01, X38, R15"""
    fence, _ = await rounds.prepare(counters.participant)
    with pytest.raises(httpx.ReadTimeout):
        await client.post("/add", headers=headers, content=b"left", timeout=0.2)
    waiting = asyncio.create_task(client.post("/add", headers=headers, content=b"stayed"))
    with pytest.raises(httpx.ReadTimeout):
        await client.post("/add", headers=headers, content=b"left", timeout=0.2)
    await until(lambda: counters.participant.counts()["held"] == 1)
    assert (waiting.done(), app.bodies) == (False, [])
    await rounds.resume(counters.participant, fence)
    answer = await waiting
    assert (answer.status_code, answer.headers["x-gymckpt-revision"], app.bodies) == (200, "2", [b"stayed"])


async def test_a_client_that_sends_its_body_slowly_holds_no_checkpoint_up(
    rounds: Rounds, counters: Counters, app: App, client: httpx.AsyncClient
) -> None:
    """R01"""
    begun, go = asyncio.Event(), asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield b"one "
        begun.set()
        await go.wait()
        yield b"two"

    sending = asyncio.create_task(client.post("/add", headers=EPISODE, content=slowly()))
    await begun.wait()
    fence, prepared = await rounds.prepare(counters.participant)
    assert prepared.report.ready
    go.set()
    await rounds.resume(counters.participant, fence)
    assert (await sending).status_code == 200
    assert app.bodies == [b"one two"]


async def test_a_large_body_and_a_refusal_pass_as_they_are(
    rounds: Rounds, counters: Counters, app: App, client: httpx.AsyncClient
) -> None:
    """X38"""
    body = bytes(range(256)) * 20_000
    assert (await client.post("/add", headers=EPISODE, content=body)).status_code == 200
    assert app.bodies == [body]
    await rounds.retire(counters.participant, "r")
    refused = await client.post("/add", headers=EPISODE, content=body)
    assert (refused.status_code, refused.headers["x-gymckpt-reason"]) == (409, "STALE_ATTEMPT")
