"""The environment server's routes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
from fastapi import FastAPI
from starlette.responses import JSONResponse

from gymckpt.errors import DeadlineExceeded
from gymckpt.participant import EnvironmentParticipant
from servers.environment.turn import Links, Turn
from servers.execution_log import ExecutionLog
from servers.http.app import build_app
from servers.http.client import Outgoing
from servers.http.identity import this_call
from servers.http.peers import Peer
from servers.http.rows import read_run


def environment_app(
    name: str,
    http: httpx.AsyncClient,
    *,
    agent: Peer,
    resources: Peer,
    log: ExecutionLog,
    deadline: float | None = None,
) -> FastAPI:
    """The server `name`, which calls others over `http` and closes it at its end. `deadline` is in seconds, for each
    episode, None for no limit."""
    participant = EnvironmentParticipant(name)
    links = Links(agent, resources, Outgoing(http))

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with http, participant.serving():
            yield

    app = build_app(lifespan, participant)

    @app.post("/run")
    async def run(body: dict[str, Any]) -> JSONResponse:
        call = this_call()
        episode, task = read_run(call, body, resources.name)
        turn = Turn(links, episode, task, continues=call.continues)
        try:
            async with participant.episode(
                episode, task=task.identity, continues=call.continues, deadline=deadline
            ) as live:
                if live.reply is None:
                    log.record(replace(call, episode=episode), "run", body)
                    live.complete(await turn.play(live))
        except DeadlineExceeded:
            await turn.close_sessions()
            raise
        return JSONResponse(live.reply)

    return app
