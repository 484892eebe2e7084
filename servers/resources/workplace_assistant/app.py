"""The Workplace Assistant resources server: 27 tools over seven tables per session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from gymckpt.participant import ResourcesParticipant
from servers.execution_log import ExecutionLog
from servers.http.app import build_app
from servers.http.cookies import cookie_key
from servers.http.identity import this_call
from servers.resources.protocol import CloseRequest, VerifyRequest, not_seeded, session_of, verify_answer
from servers.resources.workplace_assistant.fingerprint import fingerprint
from servers.resources.workplace_assistant.state import TablesState
from servers.resources.workplace_assistant.tables import Tables
from servers.resources.workplace_assistant.tools import call as call_tool
from servers.resources.workplace_assistant.verify import reward

SERVER_CLASS = "WorkbenchResourcesServer"


class ToolArguments(BaseModel):
    model_config = ConfigDict(extra="allow")


class ToolAnswer(BaseModel):
    output: Any


class WorkplaceVerifyRequest(VerifyRequest):
    ground_truth: list[dict[str, str]]
    id: int
    category: str
    environment_name: str


def workplace_app(name: str, pristine: Tables, log: ExecutionLog, sessions: dict[str, Tables] | None = None) -> FastAPI:
    """The server `name`. Every session starts from `pristine`, which stays as it is, and is kept in `sessions`."""
    sessions = {} if sessions is None else sessions
    participant = ResourcesParticipant(name, state=TablesState(sessions), verify="wait")

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with participant.serving():
            yield

    app = build_app(lifespan, participant, cookie=cookie_key(SERVER_CLASS, name))

    @app.get("/reverify_mode")
    async def reverify_mode() -> str:
        return "unknown"

    @app.post("/seed_session")
    async def seed_session(body: dict[str, Any]) -> dict[str, Any]:
        call = this_call()
        sessions[session_of(call)] = pristine.copy()
        log.record(call, "seed_session", body)
        return {}

    @app.post("/verify")
    async def verify(body: WorkplaceVerifyRequest) -> dict[str, Any]:
        call = this_call()
        graded = await asyncio.to_thread(reward, pristine, body.ground_truth, body.response["output"])
        tables = sessions.pop(session_of(call), None)
        noted = {"tables": await asyncio.to_thread(fingerprint, tables)} if log.on and tables is not None else {}
        log.record(call, "verify", body.model_dump(), **noted)
        return verify_answer(body, graded)

    @app.post("/close_session")
    async def close_session(body: CloseRequest) -> dict[str, Any]:
        call = this_call()
        sessions.pop(session_of(call), None)
        log.record(call, "close_session", body.model_dump())
        return {"resources_session_id": body.resources_session_id}

    @app.post("/{tool}")
    async def use_tool(tool: str, body: ToolArguments) -> Response:
        call, arguments = this_call(), body.model_dump()
        tables = sessions.get(session_of(call))
        if tables is None:
            raise not_seeded()
        output = call_tool(tables, tool, arguments)
        log.record(call, tool, arguments)
        return Response(ToolAnswer(output=output).model_dump_json(), media_type="application/json")

    return app
