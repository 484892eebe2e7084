"""The messages of one HTTP call over ASGI: its body, its answer, and typed refusals."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Sequence

from gymckpt.core.manifest import Receipt
from gymckpt.errors import (
    AdmissionClosed,
    DeadlineExceeded,
    GymckptError,
    InvalidField,
    NotImplementedHere,
    TransportFailed,
)
from gymckpt.participant.call import REASON_HEADER, REVISION_HEADER, Message, Receive, Send

MAX_BODY = 64 * 2**20  # bytes of a request body, or of an answer, that are kept in memory

Headers = Sequence[tuple[bytes, bytes]]


class Body:
    """A request body, read before its call is let in, so that a slow client keeps nobody waiting; the rest of a larger one follows from the connection."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._given = False
        self.chunks: list[bytes] = []
        self.complete = False
        self.gone = False  # the client went away before it had sent all

    async def read(self) -> None:
        """Reads all of it, or up to MAX_BODY."""
        size = 0
        while not (self.complete or self.gone) and size <= MAX_BODY:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self.gone = True
                return
            self.chunks.append(message.get("body", b""))
            size += len(self.chunks[-1])
            self.complete = not message.get("more_body", False)

    async def receive(self) -> Message:
        """The `receive` that the handler sees."""
        if self._given:
            return await self._receive()
        self._given = True
        chunks, self.chunks = self.chunks, []
        body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        return {"type": "http.request", "body": body, "more_body": not self.complete}

    async def disconnected(self) -> None:
        """Returns when the client has gone. Only for a complete body: nothing else can come."""
        while self.complete and (await self._receive())["type"] != "http.disconnect":
            pass
        if not self.complete:
            await asyncio.Event().wait()


class KeptAnswer:
    """Keeps an answer until its call has left."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0
        self.headers: Headers = ()
        self.body: list[bytes] = []
        self.complete = False
        self._size = 0

    async def take(self, message: Message) -> None:
        """The `send` that the handler sees. Raises NotImplementedHere for answers that are not plain HTTP, or too large to be kept."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = [(bytes(name), bytes(value)) for name, value in message.get("headers", [])]
        elif message["type"] == "http.response.body":
            self.body.append(bytes(message.get("body", b"")))
            self._size += len(self.body[-1])
            self.complete = not message.get("more_body", False)
        else:
            raise NotImplementedHere(
                f"a tool answered with {message['type']!r}; only plain bodies are supported inside a session"
            )
        if self._size > MAX_BODY:
            raise NotImplementedHere(f"a tool answered with more than {MAX_BODY} bytes; answer in pages")

    async def release(self, headers: Headers) -> None:
        """Sends it, with these headers added."""
        await self._send({"type": "http.response.start", "status": self.status, "headers": [*self.headers, *headers]})
        last = len(self.body) - 1
        for at, chunk in enumerate(self.body):
            await self._send({"type": "http.response.body", "body": chunk, "more_body": at < last})


async def give_again(receipt: Receipt, send: Send) -> None:
    """Sends the stored answer."""
    headers = [*receipt.headers, (REVISION_HEADER.encode(), str(receipt.revision).encode())]
    await send({"type": "http.response.start", "status": receipt.status, "headers": headers})
    await send({"type": "http.response.body", "body": receipt.body})


# Statuses of typed refusals on the data plane; every other one is 409.
STATUSES: dict[type[GymckptError], int] = {
    AdmissionClosed: 503,
    DeadlineExceeded: 504,
    InvalidField: 400,
    TransportFailed: 502,
}


def http_refusal(error: GymckptError) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of a typed refusal: JSON, with the reason also in a header, by which a program tells it from any answer of a tool."""
    body = json.dumps({"error": {"reason": error.reason, "message": error.message, "details": error.details}}).encode()
    status = STATUSES.get(type(error), 409)
    headers = {"content-type": "application/json", REASON_HEADER: error.reason}
    if error.retry_after is not None or status == 503:
        headers["retry-after"] = str(max(1, math.ceil(error.retry_after or 1.0)))
    return status, headers, body


async def refuse(error: GymckptError, send: Send, *, status: int = 0) -> None:
    """Sends a typed refusal; `status` where another than the usual one tells its client more."""
    usual, headers, body = http_refusal(error)
    headers["content-length"] = str(len(body))
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status or usual, "headers": raw})
    await send({"type": "http.response.body", "body": body})
