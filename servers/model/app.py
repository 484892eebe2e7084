"""The model server's routes: every call goes through the participant, whatever back end answers it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from gymckpt.participant import ModelParticipant, SqliteLedger
from servers.execution_log import ExecutionLog, digest_of
from servers.http.app import build_app
from servers.http.cookies import cookie_key
from servers.http.identity import this_call
from servers.model.backend import Backend
from servers.model.events import response_events
from servers.responses_api import JsonObject, complete_chat, complete_response

SERVER_CLASS = "SimpleModelServer"

Answering = Callable[[JsonObject], Awaitable[JsonObject]]


class CallerGone(Exception):
    """Nobody waits for the answer any more."""


class Delivery(Response):
    """Sends a finished answer inside the call that it finishes: the call counts as delivered only when all is sent, and
    not at all when its caller went away while it was held."""

    def __init__(self, answer: Response, inside: AsyncExitStack) -> None:
        super().__init__()
        self._answer = answer
        self._inside = inside

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with contextlib.suppress(CallerGone):
            async with self._inside:
                if await Request(scope, receive).is_disconnected():
                    raise CallerGone
                await self._answer(scope, receive, send)


def model_app(name: str, backend: Backend, ledger: SqliteLedger, log: ExecutionLog) -> FastAPI:
    """The server `name`. Every call inside an episode leaves a row in `ledger`, which is closed with the server."""
    participant = ModelParticipant(name, ledger)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with participant.serving():
            yield
        await ledger.close()

    app = build_app(lifespan, participant, cookie=cookie_key(SERVER_CLASS, name))

    async def answered(body: JsonObject, answering: Answering, render: Callable[[JsonObject], Response]) -> Response:
        called = this_call()
        async with AsyncExitStack() as stack:
            call = await stack.enter_async_context(participant.call(called.episode))
            answer = await answering(body)
            log.record(called, called.route, body)
            await call.finished(_row(called.route, body, answer))
            return Delivery(render(answer), stack.pop_all())

    @app.post("/v1/responses")
    async def responses(body: dict[str, Any]) -> Response:
        async def answering(given: JsonObject) -> JsonObject:
            return complete_response(await backend.responses(given))

        return await answered(body, answering, _events if body.get("stream") else JSONResponse)

    @app.post("/v1/chat/completions")
    async def chat_completions(body: dict[str, Any]) -> Response:
        async def answering(given: JsonObject) -> JsonObject:
            return complete_chat(await backend.chat(given))

        return await answered(body, answering, JSONResponse)

    return app


def _row(route: str, body: JsonObject, answer: JsonObject) -> JsonObject:
    """What the ledger keeps of one call beside its lineage: digests and sizes, never the texts."""
    return {
        "id": answer["id"],
        "route": route,
        "request": digest_of(body),
        "model": answer["model"],
        "usage": answer["usage"],
    }


def _events(response: JsonObject) -> Response:
    headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
    return Response(response_events(response), media_type="text/event-stream", headers=headers)
