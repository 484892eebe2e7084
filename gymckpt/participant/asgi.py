"""Admission for any ASGI server: decides in microseconds when the gate is open, holds without refusing when it is not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from gymckpt.core.admission import Entry
from gymckpt.core.kinds import Capture
from gymckpt.core.manifest import Receipt
from gymckpt.errors import GymckptError, InvalidField
from gymckpt.participant.base import Participant
from gymckpt.participant.call import (
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
from gymckpt.participant.http import MAX_BODY, Body, KeptAnswer, give_again, refuse
from gymckpt.participant.receipts import digest_of_request, receipt_for
from gymckpt.participant.resources import ResourcesParticipant, Ticket
from gymckpt.participant.severing import Connections

App = Callable[[Scope, Receive, Send], Any]


class AdmissionMiddleware:
    """Pure ASGI. Add it before the session middleware, so that it runs inside and finds the session decoded.

    Typed refusals become JSON `{"error": {"reason", "message"}}` with the header `x-gymckpt-reason`: 409 for refusals, 503 with Retry-After for a
    closed gate, 400 for a malformed identity. Answers inside a session carry `x-gymckpt-revision`. A call that is cancelled because its server stops gets no
    answer: its connection ends. While checkpointing is off every call passes.
    """

    def __init__(self, app: App, participant: Participant, identify: Callable[[Scope], Call] = identify) -> None:
        self._app = app
        self._participant = participant
        self._identify = identify
        self._connections = Connections()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            call = self._identify(scope)
        except InvalidField as error:
            await refuse(error, send)
            return
        token = set_current_call(call)
        try:
            if not self._participant.enabled:
                await self._app(scope, receive, send)
            elif isinstance(self._participant, ResourcesParticipant):
                await _ResourcesCall(self._participant, self._app, self._identify, call).run(scope, receive, send)
            else:
                await self._kind_call(call, scope, receive, send)
        except asyncio.CancelledError:
            if self._participant.enabled:
                self._connections.sever(scope)
            raise
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
            await refuse(error, send)


class Severing:
    """Pure ASGI, for outside of a middleware that answers cancelled calls itself: while checkpointing is on, such an answer is not sent either, and the
    connection ends."""

    def __init__(self, app: App, participant: Participant) -> None:
        self._app = app
        self._participant = participant
        self._connections = Connections()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        task = asyncio.current_task()
        if task is None or scope["type"] != "http" or not self._participant.enabled:
            await self._app(scope, receive, send)
            return

        async def unless_cancelled(message: Message) -> None:
            if task.cancelling():
                self._connections.sever(scope)
            await send(message)

        try:
            await self._app(scope, receive, unless_cancelled)
        except asyncio.CancelledError:
            self._connections.sever(scope)
            raise


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
        if self._p.classify(self._call) is Entry.EXEMPT:
            await self._app(scope, receive, send)
            return
        body = Body(receive)
        try:
            ticket = await self._admitted(scope, body)
        except GymckptError as error:
            await refuse(error, send)
            return
        if ticket is None:
            return
        if ticket.receipt is not None:
            await give_again(ticket.receipt, send)
        elif ticket.number == 0:
            await self._app(scope, body.receive, send)
        else:
            await self._answer(ticket, scope, body, send)

    async def _admitted(self, scope: Scope, body: Body) -> Ticket | None:
        """None when the client went away before its call could start."""
        await body.read()
        if body.gone:
            return None
        if self._call.request_id is not None:
            if not body.complete:
                raise InvalidField(f"the body of a call with a request id has at most {MAX_BODY} bytes", field="body")
            query = scope.get("query_string", b"").decode("latin-1")
            self._digest = digest_of_request(self._call.method, f"{self._call.route}?{query}", body.chunks)
        ticket = self._p.enter_now(self._call, self._digest)
        return ticket if ticket is not None else await self._held(body)

    async def _held(self, body: Body) -> Ticket | None:
        left: asyncio.Future[Any] = asyncio.ensure_future(body.disconnected())
        try:
            return await self._p.enter(self._call, self._digest, lambda: self._gone(left))
        finally:
            left.cancel()
            await asyncio.wait({left})

    async def _gone(self, left: asyncio.Future[Any]) -> bool:
        """Waits for the next move; whether the client went away first."""
        moved: asyncio.Future[Any] = asyncio.ensure_future(self._p.has_moved())
        try:
            await asyncio.wait({moved, left}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            moved.cancel()
        return left.done()

    async def _answer(self, ticket: Ticket, scope: Scope, body: Body, send: Send) -> None:
        """Runs the handler, then leaves, then sends: mutation, revision and receipt are one step before the reply."""
        answer = KeptAnswer(send)
        scope.pop("extensions", None)  # ways to answer that cannot be kept
        try:
            try:
                await self._app(scope, body.receive, answer.take)
                key = self._key(scope)
            except BaseException:
                self._p.leave(ticket, succeeded=False)
                raise
            revision = self._p.leave(
                ticket,
                succeeded=answer.complete and 200 <= answer.status < 300,
                key=key,
                receipt=lambda revision: self._receipt(answer, revision),
            )
        except GymckptError as error:
            await refuse(error, send)
            return
        if answer.complete:  # the server under us tells the client of a handler that did not answer
            await answer.release(self._headers(revision))

    def _key(self, scope: Scope) -> str | None:
        """Key of the session after the handler ran: a seed may have given it another."""
        after = self._identify(scope)
        return after.session or (self._call.episode.rollout_id if self._call.episode is not None else None)

    def _receipt(self, answer: KeptAnswer, revision: int) -> Receipt | None:
        if self._call.request_id is None or not answer.complete:
            return None
        return receipt_for(self._call.request_id, self._digest, revision, answer.status, answer.headers, answer.body)

    def _headers(self, revision: int) -> list[tuple[bytes, bytes]]:
        headers = [(REVISION_HEADER.encode(), str(revision).encode())]
        if self._p.is_seed(self._call):
            headers.append((VERIFY_HEADER.encode(), self._p.verify.encode()))
            if self._p.capture is Capture.RESTART_ONLY:
                headers.append((RESTART_HEADER.encode(), b"1"))
        return headers
