"""One turn of the environment server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from gymckpt.errors import StaleAttempt
from gymckpt.participant import Episode, Kind, Run, Touch
from servers.environment.turn import Links, Turn
from servers.http.client import Outgoing, UnexpectedAnswer
from servers.http.peers import Peer
from servers.http.rows import Task

EPISODE = Episode("r", 1)
AGENT, TOOLS = Peer(Kind.AGENT, "agent", "http://agent"), Peer(Kind.RESOURCES, "tools", "http://tools")
TASK = Task({"taskset": "t", "task_id": "1"}, {"input": "do it"}, {"expected": 1})
ORDER = [
    "/seed_session",
    "/v1/agent_sessions",
    "/ng-rollout/r-a1/v1/responses",
    "/v1/agent_sessions/close",
    "/verify",
    "/close_session",
]


class RecordedRun(Run):
    """A live episode that keeps what the turn declares."""

    def __init__(self, continuation: dict[str, Any] | None = None) -> None:
        self.continuation = continuation
        self.boundaries: list[tuple[str, dict[str, Any], list[Touch]]] = []
        self.steps: list[str] = []
        self.restart = ""

    async def boundary(self, stage: str, payload: Mapping[str, Any], touches: Sequence[Touch] = ()) -> None:
        self.boundaries.append((stage, json.loads(json.dumps(payload)), list(touches)))

    @asynccontextmanager
    async def step(self, mode: str, name: str = "") -> AsyncIterator[None]:
        self.steps.append(mode)
        yield

    @asynccontextmanager
    async def finishing(self) -> AsyncIterator[None]:
        self.steps.append("finishing")
        yield

    async def mark_restart(self, why: str) -> None:
        self.restart = why


class Servers:
    """Agent and tools; `broken` maps a route to the answer that it gives instead."""

    def __init__(
        self, broken: Mapping[str, httpx.Response] | None = None, seed: Mapping[str, str] | None = None
    ) -> None:
        self.requests: list[httpx.Request] = []
        self._broken = broken or {}
        self._seed = {"set-cookie": "tools=1", "x-gymckpt-revision": "1", **(seed or {})}

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        route = request.url.path
        if route in self._broken:
            return self._broken[route]
        if route == "/seed_session":
            return httpx.Response(200, json={}, headers=self._seed)
        if route == "/v1/agent_sessions":
            return httpx.Response(200, json={}, headers={"set-cookie": "agent=1"})
        if route == "/v1/agent_sessions/close":
            return httpx.Response(200, json={"resources_cookies": {"tools": "2"}, "resources_revision": 5})
        return httpx.Response(200, json={"reward": 1.0} if route == "/verify" else {"id": "response"})

    @property
    def routes(self) -> list[str]:
        return [request.url.path for request in self.requests]

    def turn(self, *, continues: bool = False) -> Turn:
        outgoing = Outgoing(httpx.AsyncClient(transport=httpx.MockTransport(self)))
        return Turn(Links(AGENT, TOOLS, outgoing), EPISODE, TASK, continues=continues)


async def test_a_turn_goes_through_its_stages_in_order_and_declares_each() -> None:
    servers, run = Servers(), RecordedRun()
    assert await servers.turn().play(run) == {"reward": 1.0, "agent_ref": {"name": "agent"}}
    assert servers.routes == ORDER
    assert [stage for stage, _, _ in run.boundaries] == ["invoke_agent", "close_agent", "verify", "return"]
    assert run.steps == ["replay", "replay", "wait", "wait", "finishing"]
    assert {request.headers["x-gymckpt-episode"] for request in servers.requests} == {"r-a1"}


async def test_boundaries_name_the_sessions_that_the_rest_of_the_turn_needs() -> None:
    run = RecordedRun()
    await Servers().turn().play(run)
    touched = [{(str(touch.participant), touch.revision) for touch in touches} for _, _, touches in run.boundaries]
    agent, seeded, played = ("agent/agent", 0), ("resources/tools", 1), ("resources/tools", 5)
    assert touched == [{seeded, agent}, {seeded, agent}, {played}, set()]


@pytest.mark.parametrize(("number", "rest"), [(0, ORDER[2:]), (1, ORDER[3:]), (2, ORDER[4:]), (3, ORDER[5:])])
async def test_a_continued_turn_begins_with_the_stage_of_its_boundary(number: int, rest: list[str]) -> None:
    """E13, E14: what was done before the boundary is not done again."""
    before, run = Servers(), RecordedRun()
    result = await before.turn().play(run)
    stage, payload, _ = run.boundaries[number]
    servers = Servers()
    assert await servers.turn(continues=True).play(RecordedRun({"stage": stage, **payload})) == result
    assert servers.routes == rest
    cookies = [(request.url.path, request.headers.get("cookie")) for request in servers.requests]
    assert cookies == [(request.url.path, request.headers.get("cookie")) for request in before.requests[-len(rest) :]]


async def test_a_continued_turn_without_a_boundary_starts_over_and_says_so() -> None:
    """X30: what the interrupted seed left at the tools and at the agent makes way."""
    servers = Servers()
    await servers.turn(continues=True).play(RecordedRun())
    assert servers.routes == ORDER
    said = [request.url.path for request in servers.requests if "x-gymckpt-continue" in request.headers]
    assert said == ["/seed_session", "/v1/agent_sessions"]


async def test_an_activation_sent_again_is_the_same_activation() -> None:
    """A15"""
    servers = Servers()
    await servers.turn().play(RecordedRun())
    assert servers.requests[2].headers["x-gymckpt-request-id"] == "activation-0"


async def test_the_tools_say_how_they_are_to_be_verified() -> None:
    """P07"""
    run = RecordedRun()
    await Servers(seed={"x-gymckpt-verify": "replay"}).turn().play(run)
    assert run.steps == ["replay", "replay", "wait", "replay", "finishing"]


async def test_tools_that_cannot_be_captured_make_the_episode_a_restart() -> None:
    """P10"""
    run = RecordedRun()
    await Servers(seed={"x-gymckpt-restart": "1"}).turn().play(run)
    assert run.restart == "resources/tools cannot be captured"


async def test_a_failed_turn_closes_both_sessions_and_tells_the_failure() -> None:
    broken = {"/ng-rollout/r-a1/v1/responses": httpx.Response(500, text="broken")}
    servers, run = Servers(broken), RecordedRun()
    with pytest.raises(UnexpectedAnswer, match="answered 500: broken"):
        await servers.turn().play(run)
    assert servers.routes[3:] == ["/v1/agent_sessions/close", "/close_session"]
    assert run.steps[-1] == "finishing"


async def test_a_turn_that_failed_in_its_seed_closes_only_what_it_opened() -> None:
    servers = Servers({"/v1/agent_sessions": httpx.Response(500, text="broken")})
    with pytest.raises(UnexpectedAnswer):
        await servers.turn().play(RecordedRun())
    assert servers.routes == ["/seed_session", "/v1/agent_sessions", "/close_session"]


async def test_a_session_that_does_not_close_does_not_cost_the_result() -> None:
    servers = Servers({"/close_session": httpx.Response(500, text="broken")})
    assert (await servers.turn().play(RecordedRun()))["reward"] == 1.0


async def test_a_turn_that_was_replaced_stops_where_it_is() -> None:
    """X38"""
    error = {"error": {"reason": "STALE_ATTEMPT", "message": "replaced"}}
    stale = httpx.Response(409, json=error, headers={"x-gymckpt-reason": "STALE_ATTEMPT"})
    servers = Servers({"/ng-rollout/r-a1/v1/responses": stale})
    with pytest.raises(StaleAttempt, match="replaced"):
        await servers.turn().play(RecordedRun())
    assert servers.routes == ORDER[:3]
