"""One agent turn: seed both sessions, let the agent play, close its session, verify, return.

Each stage begins at a boundary that carries all that the rest of the turn needs, so a continued episode begins with
the stage that its boundary names.
"""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass
from typing import Any

from gymckpt.participant import RESTART_HEADER, VERIFY_HEADER, Episode, Run, Touch
from servers.environment.state import TurnState
from servers.http.client import Answer, Outgoing, UnexpectedAnswer
from servers.http.peers import Peer, activation_id, call_headers
from servers.http.rows import Task
from servers.responses_api import JsonObject

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Links:
    """The servers that a turn needs."""

    agent: Peer
    resources: Peer
    outgoing: Outgoing


class Turn:
    """`continues` is the controller's word that this attempt follows one that a restore brought back."""

    def __init__(self, links: Links, episode: Episode, task: Task, *, continues: bool) -> None:
        self._links = links
        self._episode = episode
        self._task = task
        self._continues = continues
        self._state = _fresh()

    async def play(self, run: Run) -> JsonObject:
        """The graded rollout, from the boundary that `run` continues or else from the task.

        Raises GymckptError when a server refuses, UnexpectedAnswer when one fails; the sessions of a turn that failed
        are closed first.
        """
        if run.continuation is not None:
            self._state = TurnState.continued(run.continuation)
        stages = {
            "seed": self._seed,
            "invoke_agent": self._invoke,
            "close_agent": self._close_agent,
            "verify": self._verify,
        }
        try:
            while self._state.stage != "return":
                await stages[self._state.stage](run)
                await run.boundary(self._state.stage, self._state.payload(), self._touches())
        except UnexpectedAnswer:
            async with run.finishing():
                await self.close_sessions()
            raise
        async with run.finishing():
            await self._close_resources()
        assert self._state.result is not None
        return {**self._state.result, "agent_ref": self._task.agent_ref or {"name": self._links.agent.name}}

    async def _seed(self, run: Run) -> None:
        state, links = self._state, self._links
        async with run.step("replay"):
            seeded = await self._call(
                links.resources.url, "/seed_session", self._seed_body(), continues=self._continues
            )
            state.resources_cookies = seeded.cookies
            state.resources_revision = seeded.revision
            state.verify_mode = "replay" if seeded.headers.get(VERIFY_HEADER) == "replay" else "wait"
            opened = await self._open_agent_session()
            state.agent_cookies = opened.cookies
        for peer, answer in ((links.resources, seeded), (links.agent, opened)):
            if answer.headers.get(RESTART_HEADER) == "1":
                await run.mark_restart(f"{peer.id} cannot be captured")
        state.stage = "invoke_agent"

    async def _open_agent_session(self) -> Answer:
        state, resources = self._state, self._links.resources
        access = {
            "kind": "direct_http",
            "name": f"{resources.name}.direct_http",
            "required": True,
            "base_url": resources.url,
            "cookies": state.resources_cookies,
            "headers": {},
        }
        body = {
            **self._agent_session(),
            "task_id": self._task.task_id,
            "tool_accesses": [access],
            "sandbox_access": None,
        }
        return await self._call(self._links.agent.url, "/v1/agent_sessions", body, continues=self._continues)

    async def _invoke(self, run: Run) -> None:
        state, agent = self._state, self._links.agent
        async with run.step("replay"):
            base = agent.for_episode(self._episode)
            headers = call_headers(self._episode, request_id=activation_id(0))
            answer = await self._links.outgoing.fetch(
                f"{base}/v1/responses", self._task.params, headers=headers, cookies=state.agent_cookies
            )
        state.response = answer.json()
        state.agent_cookies = state.agent_cookies | answer.cookies
        state.stage = "close_agent"

    async def _close_agent(self, run: Run) -> None:
        state = self._state
        async with run.step("wait"):
            closed = (
                await self._call(
                    self._links.agent.url,
                    "/v1/agent_sessions/close",
                    self._agent_session(),
                    cookies=state.agent_cookies,
                )
            ).json()
        state.resources_cookies = closed["resources_cookies"] or state.resources_cookies
        state.resources_revision = max(state.resources_revision, closed.get("resources_revision") or 0)
        state.stage = "verify"

    async def _verify(self, run: Run) -> None:
        state = self._state
        assert state.response is not None
        body = self._task.verify_body(state.response)
        async with run.step(state.verify_mode):
            answer = await self._call(self._links.resources.url, "/verify", body, cookies=state.resources_cookies)
        state.result = answer.json()
        state.stage = "return"

    async def close_sessions(self) -> None:
        """Frees what a failed turn holds elsewhere; what was never opened, or is closed already, is fine."""
        if self._state.agent_cookies:
            await self._close(self._links.agent, "/v1/agent_sessions/close", self._agent_session())
        if self._state.resources_cookies:
            await self._close_resources()

    async def _close_resources(self) -> None:
        body = {"resources_session_id": self._state.resources_session_id, "episode_id": self._episode_id()}
        await self._close(self._links.resources, "/close_session", body)

    async def _close(self, peer: Peer, route: str, body: JsonObject) -> None:
        """Whatever it answers: a session that does not close costs its server memory, not this rollout its result."""
        cookies = self._state.agent_cookies if peer is self._links.agent else self._state.resources_cookies
        headers = call_headers(self._episode)
        answer = await self._links.outgoing.post(peer.url + route, body, headers=headers, cookies=cookies)
        if not answer.ok:
            _log.warning("%s%s of %s answered %d: %s", peer.url, route, self._episode, answer.status, answer.text[:300])

    async def _call(
        self, base: str, route: str, body: Any, *, cookies: dict[str, str] | None = None, continues: bool = False
    ) -> Answer:
        headers = call_headers(self._episode, continues=continues)
        return await self._links.outgoing.fetch(base + route, body, headers=headers, cookies=cookies)

    def _touches(self) -> list[Touch]:
        links, state = self._links, self._state
        touches = [] if state.stage == "return" else [Touch(links.resources.id, revision=state.resources_revision)]
        if state.stage in ("invoke_agent", "close_agent"):
            touches.append(Touch(links.agent.id, state.agent_session_id))
        return touches

    def _episode_id(self) -> JsonObject:
        return {"rollout_id": self._episode.rollout_id, "attempt": self._episode.attempt}

    def _agent_session(self) -> JsonObject:
        return {"agent_session_id": self._state.agent_session_id, "episode_id": self._episode_id()}

    def _seed_body(self) -> JsonObject:
        return {
            "resources_session_id": self._state.resources_session_id,
            "episode_id": self._episode_id(),
            "task_id": self._task.task_id,
            "task_data": self._task.data,
        }


def _fresh() -> TurnState:
    return TurnState(f"resources-session-{uuid.uuid4().hex}", f"agent-session-{uuid.uuid4().hex}")
