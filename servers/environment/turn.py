"""One agent turn: seed both sessions, let the agent play, close its session, verify, return.

Each stage begins at a boundary that carries all that the rest of the turn needs, so a continued episode begins with
the stage that its boundary names.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from gymckpt.participant import RESTART_HEADER, VERIFY_HEADER, Episode, Run, Touch
from servers.environment.state import TurnState
from servers.http.client import Answer, Outgoing, UnexpectedAnswer
from servers.http.peers import Peer, call_headers
from servers.http.rows import Task
from servers.responses_api import JsonObject


@dataclass(frozen=True)
class Links:
    """The servers that a turn needs."""

    agent: Peer
    resources: Peer
    outgoing: Outgoing


class Turn:
    """`continues` is the controller's word that this attempt follows one that a restore brought back."""

    def __init__(self, links: Links, episode: Episode, task: Task, run: Run, *, continues: bool) -> None:
        self._links = links
        self._episode = episode
        self._task = task
        self._run = run
        restored = run.continuation
        self._continues = continues
        self._state = TurnState.continued(restored) if restored is not None else _fresh()

    async def play(self) -> JsonObject:
        """The graded rollout. Raises GymckptError when a server refuses, UnexpectedAnswer or TransportFailed when one
        fails; the sessions of a failed turn are closed first."""
        stages = {
            "seed": self._seed,
            "invoke_agent": self._invoke,
            "close_agent": self._close_agent,
            "verify": self._verify,
        }
        try:
            while self._state.stage != "return":
                await stages[self._state.stage]()
                await self._run.boundary(self._state.stage, self._state.payload(), self._touches())
        except UnexpectedAnswer:
            async with self._run.finishing():
                await self._close_sessions()
            raise
        async with self._run.finishing():
            await self._close_resources()
        assert self._state.result is not None
        return {**self._state.result, "agent_ref": self._task.agent_ref or {"name": self._links.agent.name}}

    async def _seed(self) -> None:
        state, links = self._state, self._links
        async with self._run.step("replay"):
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
                await self._run.mark_restart(f"{peer.id} cannot be captured")
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
        return await self._call(self._links.agent.url, "/v1/agent_sessions", body)

    async def _invoke(self) -> None:
        state, agent = self._state, self._links.agent
        async with self._run.step("replay"):
            base = agent.for_episode(self._episode)
            headers = call_headers(self._episode, request_id="activation-0")
            answer = await self._links.outgoing.fetch(
                f"{base}/v1/responses", self._task.params, headers=headers, cookies=state.agent_cookies
            )
        state.response = answer.json()
        state.agent_cookies = state.agent_cookies | answer.cookies
        state.stage = "close_agent"

    async def _close_agent(self) -> None:
        state = self._state
        async with self._run.step("wait"):
            closed = (await self._close_agent_session()).json()
        state.resources_cookies = closed["resources_cookies"] or state.resources_cookies
        state.resources_revision = max(state.resources_revision, closed.get("resources_revision") or 0)
        state.stage = "verify"

    async def _verify(self) -> None:
        state = self._state
        assert state.response is not None
        body = self._task.verify_body(state.response)
        async with self._run.step(state.verify_mode):
            answer = await self._call(self._links.resources.url, "/verify", body, cookies=state.resources_cookies)
        state.result = answer.json()
        state.stage = "return"

    async def _close_agent_session(self) -> Answer:
        cookies = self._state.agent_cookies
        return await self._call(
            self._links.agent.url, "/v1/agent_sessions/close", self._agent_session(), cookies=cookies
        )

    async def _close_resources(self) -> Answer:
        body = {"resources_session_id": self._state.resources_session_id, "episode_id": self._episode_id()}
        return await self._call(
            self._links.resources.url, "/close_session", body, cookies=self._state.resources_cookies
        )

    async def _close_sessions(self) -> None:
        """Frees what a failed turn holds elsewhere; what was never opened or is closed already is fine."""
        if self._state.agent_cookies:
            await self._close_agent_session()
        if self._state.resources_cookies:
            await self._close_resources()

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
