"""Admission for any ASGI server: decides in microseconds when the gate is open, holds without refusing when it is not."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable
from typing import Any

import blake3

from gymckpt.core.kinds import Capture
from gymckpt.core.manifest import Receipt
from gymckpt.errors import AdmissionClosed, GymckptError, InvalidField, NotImplementedHere
from gymckpt.participant.base import Participant
from gymckpt.participant.call import (
    REASON_HEADER,
    RESTART_HEADER,
    REVISION_HEADER,
    VERIFY_HEADER,
    Call,
    Message,
    Receive,
    Scope,
    Send,
    identify,
    reset_current_call,
    set_current_call,
)
from gymckpt.participant.resources import MAX_RECEIPT, ResourcesParticipant, Ticket

MAX_HELD_BODY = 64 * 2**20  # bytes of a request that is kept while it is held or compared with a receipt

App = Callable[[Scope, Receive, Send], Any]


class AdmissionMiddleware:
    """Pure ASGI. Add it before the session middleware, so that it runs inside and finds the session decoded.

    Typed refusals become JSON `{"error": {"reason", "message"}}` with the header `x-gymckpt-reason`: 409 for refusals, 503 with Retry-After for a
    closed gate, 400 for a malformed identity. Answers inside a session carry `x-gymckpt-revision`. While checkpointing is off every call passes.
    """

    def __init__(self, app: App, participant: Participant, identify: Callable[[Scope], Call] = identify) -> None:
        self._app = app
        self._participant = participant
        self._identify = identify

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            call = self._identify(scope)
        except InvalidField as error:
            await _refuse(error, send)
            return
        token = set_current_call(call)
        try:
            if not self._participant.enabled:
                await self._app(scope, receive, send)
            elif isinstance(self._participant, ResourcesParticipant):
                await _ResourcesCall(self._participant, self._app, self._identify, call).run(scope, receive, send)
            else:
                await self._kind_call(call, scope, receive, send)
        finally:
            reset_current_call(token)

    async def _kind_call(self, call: Call, scope: Scope, receive: Receive, send: Send) -> None:
        """Environments, agents and models park inside their handlers; here stale attempts are refused and typed errors answered."""
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            async with self._participant.admit(call):
                await self._app(scope, receive, watched)
        except GymckptError as error:
            if started:
                raise
            await _refuse(error, send)


class _ResourcesCall:
    """One call to a resources server."""

    def __init__(
        self, participant: ResourcesParticipant, app: App, identify: Callable[[Scope], Call], call: Call
    ) -> None:
        self._p = participant
        self._app = app
        self._identify = identify
        self._call = call
        self._digest = b""

    async def run(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            ticket, receive = await self._admitted(receive)
        except GymckptError as error:
            await _refuse(error, send)
            return
        if ticket is None:
            return
        if ticket.receipt is not None:
            await _replay(ticket.receipt, send)
            return
        if ticket.number == 0:
            await self._app(scope, receive, send)
            return
        await self._answer(ticket, scope, receive, send)

    async def _admitted(self, receive: Receive) -> tuple[Ticket | None, Receive]:
        """Reads the body only when the call must wait or has a request id: the common call costs no copy."""
        if self._call.request_id is None:
            ticket = self._p.enter_now(self._call)
            if ticket is not None:
                return ticket, receive
        body = await _read_body(receive)
        if body is None:
            return None, receive
        self._digest = blake3.blake3(f"{self._call.method} {self._call.route}\n".encode() + body).digest()
        disconnected: asyncio.Future[Any] = asyncio.ensure_future(_disconnect(receive))
        try:
            ticket = await self._p.enter(self._call, self._digest, lambda: self._gone(disconnected))
        finally:
            if not disconnected.done():
                disconnected.cancel()
        return ticket, _replaying(body, receive)

    async def _gone(self, disconnected: asyncio.Future[Any]) -> bool:
        """Waits for the next move; whether the client went away first."""
        moved: asyncio.Future[Any] = asyncio.ensure_future(self._p.has_moved())
        try:
            await asyncio.wait({moved, disconnected}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            moved.cancel()
        return disconnected.done()

    async def _answer(self, ticket: Ticket, scope: Scope, receive: Receive, send: Send) -> None:
        """Runs the handler, then leaves, then sends: mutation, revision and receipt are one step before the reply."""
        answer = _Answer(send)
        left = False
        try:
            await self._app(scope, receive, answer.take)
        except GymckptError as error:
            self._p.leave(ticket, succeeded=False)
            left = True
            await _refuse(error, send)
            return
        finally:
            if not left and not answer.complete:
                self._p.leave(ticket, succeeded=False)
                left = True
        if left:
            return
        revision = self._p.leave(
            ticket,
            succeeded=200 <= answer.status < 300,
            key=self._key(scope),
            receipt=lambda n: self._receipt(answer, n),
        )
        await answer.release(self._headers(ticket, revision))

    def _key(self, scope: Scope) -> str | None:
        """Key of the session after the handler ran: a seed may have given it another."""
        after = self._identify(scope)
        return after.session or (self._call.episode.rollout_id if self._call.episode is not None else None)

    def _receipt(self, answer: _Answer, revision: int) -> Receipt | None:
        if self._call.request_id is None or answer.size > MAX_RECEIPT or not self._digest:
            return None
        headers = tuple((bytes(name), bytes(value)) for name, value in answer.headers if name.lower() != b"set-cookie")
        return Receipt(self._call.request_id, self._digest, revision, answer.status, headers, answer.body)

    def _headers(self, ticket: Ticket, revision: int) -> list[tuple[bytes, bytes]]:
        headers = [(REVISION_HEADER.encode(), str(revision).encode())]
        if self._p.is_seed(ticket.call):
            headers.append((VERIFY_HEADER.encode(), self._p.verify.encode()))
            if self._p.capture is Capture.RESTART_ONLY:
                headers.append((RESTART_HEADER.encode(), b"1"))
        return headers


class _Answer:
    """Keeps an answer until the call has left."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self._chunks: list[bytes] = []
        self.size = 0
        self.complete = False

    @property
    def body(self) -> bytes:
        return b"".join(self._chunks)

    async def take(self, message: Message) -> None:
        """The `send` that the handler sees. Raises NotImplementedHere for answers that are not plain HTTP."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = [(bytes(name), bytes(value)) for name, value in message.get("headers", [])]
        elif message["type"] == "http.response.body":
            self._chunks.append(message.get("body", b""))
            self.size += len(self._chunks[-1])
            self.complete = not message.get("more_body", False)
        else:
            raise NotImplementedHere(
                f"a tool answered with {message['type']!r}; only plain bodies are supported inside a session"
            )

    async def release(self, headers: list[tuple[bytes, bytes]]) -> None:
        await self._send({"type": "http.response.start", "status": self.status, "headers": self.headers + headers})
        await self._send({"type": "http.response.body", "body": self.body})


async def _read_body(receive: Receive) -> bytes | None:
    """The whole body; None when the client went away. Raises InvalidField over MAX_HELD_BODY."""
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        if size > MAX_HELD_BODY:
            raise InvalidField(f"the body has more than {MAX_HELD_BODY} bytes", field="body")
        if not message.get("more_body", False):
            return b"".join(chunks)


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _replaying(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the body once, then what the connection gives."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


async def _replay(receipt: Receipt, send: Send) -> None:
    headers = [*receipt.headers, (REVISION_HEADER.encode(), str(receipt.revision).encode())]
    await send({"type": "http.response.start", "status": receipt.status, "headers": headers})
    await send({"type": "http.response.body", "body": receipt.body})


def _status(error: GymckptError) -> int:
    if isinstance(error, InvalidField):
        return 400
    return 503 if isinstance(error, AdmissionClosed) else 409


async def _refuse(error: GymckptError, send: Send) -> None:
    body = json.dumps({"error": {"reason": error.reason, "message": error.message, "details": error.details}}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (REASON_HEADER.encode(), error.reason.encode()),
    ]
    if error.retry_after is not None:
        headers.append((b"retry-after", str(max(1, math.ceil(error.retry_after))).encode()))
    await send({"type": "http.response.start", "status": _status(error), "headers": headers})
    await send({"type": "http.response.body", "body": body})
