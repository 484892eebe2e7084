"""The agent server's routes: agent sessions for an environment, and whole runs for a controller."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from gymckpt.participant import AgentParticipant, Episode
from servers.agent.loop import Unrecorded
from servers.agent.run import WholeRun
from servers.agent.seat import Seat
from servers.agent.state import LoopState
from servers.execution_log import ExecutionLog
from servers.http.app import build_app
from servers.http.client import Outgoing
from servers.http.cookies import cookie_key
from servers.http.identity import this_call
from servers.http.peers import Peer
from servers.http.rows import read_run

SERVER_CLASS = "SimpleAgent"


class EpisodeId(BaseModel):
    rollout_id: str
    attempt: int = 0

    def value(self) -> Episode:
        """Raises InvalidField."""
        return Episode(self.rollout_id, self.attempt)


class OpenRequest(BaseModel):
    model_config = ConfigDict(extra="allow")
    agent_session_id: str
    episode_id: EpisodeId
    tool_accesses: list[dict[str, Any]] = []


class CloseRequest(BaseModel):
    agent_session_id: str
    episode_id: EpisodeId


def agent_app(
    name: str, http: httpx.AsyncClient, *, model: Peer, resources: Peer | None, log: ExecutionLog, max_steps: int
) -> FastAPI:
    """The server `name`, which calls others over `http` and closes it at its end; see Seat for `resources`. A loop takes
    at most `max_steps` answers of the model."""
    participant = AgentParticipant(name)
    seat = Seat(participant, model, resources, Outgoing(http), log, max_steps)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with http, participant.serving():
            yield

    app = build_app(lifespan, participant, cookie=cookie_key(SERVER_CLASS, name))
    _add_session_routes(app, seat)
    _add_call_routes(app, seat, name)
    return app


def _add_session_routes(app: FastAPI, seat: Seat) -> None:
    @app.post("/v1/agent_sessions")
    async def open_session(request: Request, body: OpenRequest) -> dict[str, str]:
        episode, call = body.episode_id.value(), this_call()
        kept = seat.session_request(body.tool_accesses)
        await seat.participant.open_session(episode, body.agent_session_id, kept, continues=call.continues)
        request.scope["session"]["agent_session_id"] = body.agent_session_id
        seat.log.record(
            replace(call, episode=episode, session=body.agent_session_id), "open_session", body.model_dump()
        )
        return {"agent_session_id": body.agent_session_id}

    @app.post("/v1/agent_sessions/close")
    async def close_session(body: CloseRequest) -> dict[str, Any]:
        episode = body.episode_id.value()
        facts = await seat.participant.close_session(episode, body.agent_session_id)
        call = replace(this_call(), episode=episode, session=body.agent_session_id)
        seat.log.record(call, "close_session", body.model_dump())
        return close_answer(body.agent_session_id, facts or {})


def _add_call_routes(app: FastAPI, seat: Seat, name: str) -> None:
    @app.post("/v1/responses")
    async def responses(request: Request, body: dict[str, Any]) -> Response:
        call, key = this_call(), request.scope["session"].get("agent_session_id")
        if key is not None and call.episode is not None:
            return JSONResponse(await seat.activate(replace(call, session=key), call.episode, key, body))
        brought = dict(request.cookies)
        state = LoopState(resources_cookies=brought, model_cookies=brought)
        seat.log.record(call, call.route, body)
        reply = await seat.loop(body, state, call.episode, seat.resources).run(Unrecorded())
        answer = JSONResponse(reply)
        renewed = (state.resources_cookies.items() | state.model_cookies.items()) - brought.items()
        for cookie, value in sorted(renewed):
            answer.headers.append("set-cookie", f"{cookie}={value}; Path=/; SameSite=lax")
        return answer

    @app.post("/run")
    async def run(body: dict[str, Any]) -> JSONResponse:
        call = this_call()
        episode, task = read_run(call, body, name)
        return JSONResponse(await WholeRun(seat, replace(call, episode=episode), episode, task).play())


def close_answer(agent_session_id: str, facts: dict[str, Any]) -> dict[str, Any]:
    """NeMo Gym's answer to a close. The revision of the resources session is there only when there is one."""
    answer = {
        "agent_session_id": agent_session_id,
        "agent_observations": None,
        "resources_cookies": facts.get("resources_cookies") or {},
    }
    revision = facts.get("resources_revision") or 0
    return {**answer, "resources_revision": revision} if revision else answer
