"""A counter per session."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from gymckpt.participant import Call, MappingState, ResourcesParticipant
from servers.execution_log import ExecutionLog
from servers.http.app import build_app
from servers.http.cookies import cookie_key
from servers.http.identity import this_call
from servers.resources.protocol import (
    CloseRequest,
    VerifyRequest,
    not_seeded,
    seed_answer,
    session_of,
    task_data,
    verify_answer,
)

SERVER_CLASS = "StatefulCounterResourcesServer"


class Increment(BaseModel):
    count: int


class CounterVerifyRequest(VerifyRequest):
    expected_count: int


class Counters:
    """The sessions: `{"count": int}` by the id in the cookie."""

    def __init__(self) -> None:
        self.of_session: dict[str, dict[str, int]] = {}

    def of(self, call: Call) -> dict[str, int]:
        """The counter of the call's session. Raises HTTPException 400 when it was never seeded."""
        if session_of(call) not in self.of_session:
            raise not_seeded()
        return self.of_session[session_of(call)]


def counter_app(name: str, log: ExecutionLog) -> FastAPI:
    """The server `name`."""
    counters = Counters()
    participant = ResourcesParticipant(
        name,
        state=MappingState(counters.of_session, schema="counter/1"),
        verify="replay",
        read_only_routes=("/get_counter_value",),
    )

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with participant.serving():
            yield

    app = build_app(lifespan, participant, cookie=cookie_key(SERVER_CLASS, name))
    _add_session_routes(app, counters, log)
    _add_tool_routes(app, counters, log)
    return app


def _add_session_routes(app: FastAPI, counters: Counters, log: ExecutionLog) -> None:
    @app.post("/seed_session")
    async def seed_session(body: dict[str, Any]) -> dict[str, Any]:
        call = this_call()
        counters.of_session[session_of(call)] = {"count": int(task_data(body).get("initial_count", 0))}
        log.record(call, "seed_session", body)
        return seed_answer(body)

    @app.post("/verify")
    async def verify(body: CounterVerifyRequest) -> dict[str, Any]:
        call = this_call()
        reward = float(counters.of(call)["count"] == body.expected_count)
        log.record(call, "verify", body.model_dump())
        return verify_answer(body, reward)

    @app.post("/close_session")
    async def close_session(body: CloseRequest) -> dict[str, Any]:
        call = this_call()
        counters.of_session.pop(session_of(call), None)
        log.record(call, "close_session", body.model_dump())
        return {"resources_session_id": body.resources_session_id}


def _add_tool_routes(app: FastAPI, counters: Counters, log: ExecutionLog) -> None:
    @app.post("/increment_counter")
    async def increment_counter(body: Increment) -> dict[str, bool]:
        call = this_call()
        counters.of(call)["count"] += body.count
        log.record(call, "increment_counter", body.model_dump())
        return {"success": True}

    @app.post("/get_counter_value")
    async def get_counter_value() -> dict[str, int]:
        call = this_call()
        counter = counters.of(call)
        log.record(call, "get_counter_value", {})
        return dict(counter)
