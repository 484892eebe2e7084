"""An agent server as a participant by presence alone: checkpoints know which episodes run in its process, and retiring one ends its requests there."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar

from nemo_gym.global_config import ROLLOUT_ID_KEY_NAME

from gymckpt.core.ids import Episode
from gymckpt.core.kinds import Kind
from gymckpt.errors import GymckptError, InvalidField, StaleAttempt
from gymckpt.nemo_gym.identity import said_episode, said_in
from gymckpt.participant.asgi import App
from gymckpt.participant.call import Message, Receive, Scope, Send, identify
from gymckpt.participant.http import Body, refuse
from gymckpt.participant.resident import ResidentParticipant

SESSION = "agent_session_id"
"""Key of an agent session: in the bodies that begin and close it, and in the cookie that brings it back."""
STOPPED = 500
"""Status of a request whose attempt was retired: NeMo Gym's collector takes it for a failed run, ends, or goes on where it
routes failures to its sidecar, and may start it again as the next attempt."""


class GymAgent(ResidentParticipant):
    """Its conversations live in coroutines: nothing is exported, no call is held for a checkpoint."""

    kind: ClassVar[Kind] = Kind.AGENT


class Presence:
    """Pure ASGI, and the innermost middleware. A run is a `/run` from its start to its end, or an agent session from its seed to its close.

    `captured` is NeMo Gym's own answer to which rollout id it puts before the paths of a run's calls, given the body of a `/run`; None when it puts none.
    """

    def __init__(self, app: App, participant: GymAgent, captured: Callable[[Mapping[str, Any]], str | None]) -> None:
        self._app = app
        self._agent = participant
        self._captured = captured
        self._numbers = itertools.count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or not self._agent.enabled:
            await self._app(scope, receive, send)
            return
        answer, body = _Answer(send), Body(receive)
        try:
            handler = HANDLERS.get(identify(scope).route)
            if handler is None:
                await self._app(scope, receive, answer.send)
                return
            await body.read()
            if not body.gone:
                await handler(self, scope, body, answer)
        except GymckptError as error:
            if answer.status:
                raise
            await refuse(error, send, status=STOPPED if isinstance(error, StaleAttempt) else 0)

    async def _run(self, scope: Scope, body: Body, answer: _Answer) -> None:
        """One that names no episode is nobody's."""
        episode = self._episode(said_in(b"".join(body.chunks)))
        if episode is None:
            await self._app(scope, body.receive, answer.send)
            return
        run = await self._agent.begin(episode, f"run-{next(self._numbers)}")
        try:
            with self._agent.working(run):
                await self._app(scope, body.receive, answer.send)
        finally:
            self._agent.free(run)

    def _episode(self, said: Mapping[str, Any]) -> Episode | None:
        """As the servers that the run calls are told it: `_ng_rollout_id` reaches them in a path only."""
        try:
            text = self._captured(said)
        except (TypeError, ValueError) as error:
            raise InvalidField(f"the run does not name its rollout: {error}", field=ROLLOUT_ID_KEY_NAME) from error
        if text is not None:
            return Episode.parse(text)
        return said_episode({key: value for key, value in said.items() if key != ROLLOUT_ID_KEY_NAME})

    async def _seed(self, scope: Scope, body: Body, answer: _Answer) -> None:
        """One that fails begins nothing."""
        said = said_in(b"".join(body.chunks))
        episode, key = said_episode(said), _session_key(said)
        if episode is None or key is None:
            await self._app(scope, body.receive, answer.send)
            return
        known = self._agent.sessions.get(key)
        run = await self._agent.begin(episode, key)
        try:
            with self._agent.working(run):
                await self._app(scope, body.receive, answer.send)
        finally:
            if known is None and not answer.succeeded:
                self._agent.free(run)

    async def _close(self, scope: Scope, body: Body, answer: _Answer) -> None:
        """One that fails ends nothing."""
        key = _session_key(said_in(b"".join(body.chunks)))
        await self._app(scope, body.receive, answer.send)
        run = self._agent.sessions.get(key) if key is not None else None
        if run is not None and answer.succeeded:
            self._agent.free(run)

    async def _respond(self, scope: Scope, body: Body, answer: _Answer) -> None:
        """An activation of an agent session; one of a session that was retired is refused. What a `/run` asks of its own server ends with that."""
        key = _session_key(scope.get("session") or {})
        run = self._agent.sessions.get(key) if key is not None else None
        if run is not None:
            with self._agent.working(run):
                await self._app(scope, body.receive, answer.send)
            return
        episode = identify(scope).episode
        if key is not None and episode is not None:
            self._agent.check_attempt(episode)
        await self._app(scope, body.receive, answer.send)


HANDLERS: Mapping[str, Callable[[Presence, Scope, Body, _Answer], Awaitable[None]]] = {
    "/run": Presence._run,
    "/v1/agent_sessions": Presence._seed,
    "/v1/agent_sessions/close": Presence._close,
    "/v1/responses": Presence._respond,
}


class _Answer:
    """The status of an answer; 0 until it has begun."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0

    @property
    def succeeded(self) -> bool:
        return 200 <= self.status < 300

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self._send(message)


def _session_key(said: Mapping[str, Any]) -> str | None:
    key = said.get(SESSION)
    return key if isinstance(key, str) and key else None
