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


def counter_app(name: str, log: ExecutionLog) -> FastAPI:
    """The server `name`. A session is `{"count": int}` under the id in its cookie."""
    counters: dict[str, dict[str, int]] = {}
    participant = ResourcesParticipant(
        name,
        state=MappingState(counters, schema="counter/1"),
        verify="replay",
        read_only_routes=("/get_counter_value",),
    )

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with participant.serving():
            yield

    app = build_app(lifespan, participant, cookie=cookie_key(SERVER_CLASS, name))

    def counter_of(call: Call) -> dict[str, int]:
        if session_of(call) not in counters:
            raise not_seeded()
        return counters[session_of(call)]

    @app.post("/seed_session")
    async def seed_session(body: dict[str, Any]) -> dict[str, Any]:
        call = this_call()
        counters[session_of(call)] = {"count": int(task_data(body).get("initial_count", 0))}
        log.record(call, "seed_session", body)
        return seed_answer(body)

    @app.post("/increment_counter")
    async def increment_counter(body: Increment) -> dict[str, bool]:
        call = this_call()
        counter_of(call)["count"] += body.count
        log.record(call, "increment_counter", body.model_dump())
        return {"success": True}

    @app.post("/get_counter_value")
    async def get_counter_value() -> dict[str, int]:
        call = this_call()
        counter = counter_of(call)
        log.record(call, "get_counter_value", {})
        return dict(counter)

    @app.post("/verify")
    async def verify(body: CounterVerifyRequest) -> dict[str, Any]:
        call = this_call()
        reward = float(counter_of(call)["count"] == body.expected_count)
        log.record(call, "verify", body.model_dump())
        return verify_answer(body, reward)

    @app.post("/close_session")
    async def close_session(body: CloseRequest) -> dict[str, Any]:
        call = this_call()
        counters.pop(session_of(call), None)
        log.record(call, "close_session", body.model_dump())
        return {"resources_session_id": body.resources_session_id}

    return app
