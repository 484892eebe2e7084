"""One call over ASGI, driven message by message, and an app whose handlers do what a test says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from gymckpt.participant import AdmissionMiddleware, Call, current_call
from tests.unit.participant.base.bed import Counters

Message = dict[str, Any]
Handler = Callable[[dict[str, Any], Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]], Awaitable[None]]


class Exchange:
    """A client's side of one call: what it sends, when it leaves, and what it got."""

    def __init__(self, route: str, episode: str | None = "r", *, method: str = "POST", **headers: str) -> None:
        raw = {name.replace("_", "-"): value for name, value in headers.items()}
        if episode is not None:
            raw["x-gymckpt-episode"] = episode
        self.scope: dict[str, Any] = {
            "type": "http",
            "method": method,
            "path": route,
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in raw.items()],
            "extensions": {"http.response.pathsend": {}},
        }
        self._incoming: asyncio.Queue[Message] = asyncio.Queue()
        self.sent: list[Message] = []

    def send_body(self, *chunks: bytes, more: bool = False) -> Exchange:
        for at, chunk in enumerate(chunks):
            last = at == len(chunks) - 1
            self._incoming.put_nowait({"type": "http.request", "body": chunk, "more_body": more or not last})
        return self

    def leave(self) -> None:
        self._incoming.put_nowait({"type": "http.disconnect"})

    async def receive(self) -> Message:
        return await self._incoming.get()

    async def send(self, message: Message) -> None:
        self.sent.append(dict(message))

    def through(self, app: Any) -> asyncio.Task[None]:
        return asyncio.create_task(app(self.scope, self.receive, self.send))

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.sent[0]["headers"]}

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent[1:])

    @property
    def reason(self) -> str:
        return str(json.loads(self.body)["error"]["reason"])


class App:
    """`handlers` by route; without one, a call adds 1 to its session's counter and answers with it."""

    def __init__(self, counters: Counters) -> None:
        self.counters = counters
        self.handlers: dict[str, Handler] = {}
        self.calls: list[Call | None] = []
        self.bodies: list[bytes] = []
        self.app = AdmissionMiddleware(self._handle, counters.participant)

    async def _handle(self, scope: Any, receive: Any, send: Any) -> None:
        call = current_call()
        self.calls.append(call)
        if call is not None and call.route in self.handlers:
            await self.handlers[call.route](scope, receive, send)
            return
        self.bodies.append(await read(receive))
        key = (call.session if call else None) or (call.episode.rollout_id if call and call.episode else "")
        self.counters.values[key] = self.counters.values.get(key, -1) + 1
        await answer(send, str(self.counters.values[key]).encode())

    async def call(self, route: str, episode: str | None = "r", body: bytes = b"", **options: Any) -> Exchange:
        exchange = Exchange(route, episode, **options).send_body(body)
        await exchange.through(self.app)
        return exchange


async def read(receive: Any) -> bytes:
    chunks: list[bytes] = []
    while True:
        message = await receive()
        chunks.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(chunks)


async def answer(send: Any, *chunks: bytes, status: int = 200, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})
    for at, chunk in enumerate(chunks):
        await send({"type": "http.response.body", "body": chunk, "more_body": at < len(chunks) - 1})
