"""The agent's loop."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import httpx
import pytest

from gymckpt.errors import StaleAttempt
from gymckpt.participant import Episode, Kind, Touch
from servers.agent.loop import Loop, Unrecorded
from servers.agent.state import LoopState
from servers.http.client import Outgoing, UnexpectedAnswer
from servers.http.peers import Peer
from servers.model.scripted import Plan, ScriptedBackend

T = TypeVar("T")
EPISODE = Episode("r", 1)
MODEL, TOOLS = Peer(Kind.MODEL, "policy", "http://model"), Peer(Kind.RESOURCES, "tools", "http://tools")
CALLS = tuple({"name": "add", "arguments": json.dumps({"count": count})} for count in (1, 2, 3))
PARAMS: dict[str, Any] = {"input": "do it", "tools": [{"type": "function", "name": "add"}]}


class Servers:
    """A scripted model and an adding machine behind one transport; keeps the requests in order."""

    def __init__(self, calls: Sequence[dict[str, str]] = CALLS) -> None:
        self.backend = ScriptedBackend({"do it": Plan(tuple(calls))})
        self.requests: list[httpx.Request] = []
        self.total = 0
        self.tool_answer: httpx.Response | None = None

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        body = json.loads(request.content)
        if request.url.host == "model":
            return httpx.Response(200, json=await self.backend.responses(body), headers={"set-cookie": "m=1"})
        if self.tool_answer is not None:
            return self.tool_answer
        self.total += body["count"]
        headers = {"set-cookie": f"t={self.total}", "x-gymckpt-revision": str(self.total)}
        return httpx.Response(200, json={"total": self.total}, headers=headers)

    def loop(self, state: LoopState | None = None, max_steps: int = 10) -> Loop:
        outgoing = Outgoing(httpx.AsyncClient(transport=httpx.MockTransport(self)))
        return Loop(
            PARAMS,
            state or LoopState(resources_cookies={"t": "0"}),
            episode=EPISODE,
            model=MODEL,
            resources=TOOLS,
            outgoing=outgoing,
            max_steps=max_steps,
        )


class Recorded:
    """An activation that keeps every boundary as JSON text, and ends the loop at boundary number `stop`."""

    def __init__(self, stop: int | None = None) -> None:
        self.boundaries: list[tuple[str, str, list[Touch]]] = []
        self._stop = stop

    async def boundary(
        self, name: str, snapshot: Callable[[], dict[str, Any]], touches: Callable[[], Sequence[Touch]]
    ) -> None:
        self.boundaries.append((name, json.dumps(snapshot()), list(touches())))
        if len(self.boundaries) == self._stop:
            raise KeyboardInterrupt

    async def awaiting_model(self, awaitable: Awaitable[T]) -> T:
        return await awaitable


async def test_the_loop_asks_and_acts_until_the_model_wants_no_tool() -> None:
    servers = Servers()
    reply = await servers.loop().run(Unrecorded())
    assert [item["type"] for item in reply["output"]] == ["function_call", "function_call_output"] * 3 + ["message"]
    assert [json.loads(item["output"]) for item in reply["output"][1:6:2]] == [{"total": n} for n in (1, 3, 6)]
    assert reply["usage"]["total_tokens"] > 0
    assert len(servers.requests) == 7


async def test_every_call_names_its_episode_and_tool_calls_their_call() -> None:
    servers = Servers()
    reply = await servers.loop().run(Unrecorded())
    assert {request.headers["x-gymckpt-episode"] for request in servers.requests} == {"r-a1"}
    tools = [request for request in servers.requests if request.url.host == "tools"]
    call_ids = [item["call_id"] for item in reply["output"] if item["type"] == "function_call"]
    assert [request.headers["x-gymckpt-request-id"] for request in tools] == call_ids
    assert [request.headers["cookie"] for request in tools] == ["t=0", "t=1", "t=3"]
    models = [request for request in servers.requests if request.url.host == "model"]
    assert {request.url.path for request in models} == {"/ng-rollout/r-a1/v1/responses"}
    assert all("x-gymckpt-request-id" not in request.headers for request in models)


async def test_boundaries_lie_before_every_model_call_and_every_tool_call() -> None:
    servers, recorded = Servers(), Recorded()
    await servers.loop().run(recorded)
    assert [name for name, _, _ in recorded.boundaries] == ["model", "tool"] * 3 + ["model"]
    assert [touches[0].revision for _, _, touches in recorded.boundaries] == [0, 0, 1, 1, 3, 3, 6]
    assert {touches[0].participant for _, _, touches in recorded.boundaries} == {TOOLS.id}


@pytest.mark.parametrize("stop", range(1, 8))
async def test_a_loop_continued_at_any_boundary_ends_as_if_it_had_never_stopped(stop: int) -> None:
    """A04"""
    whole = await Servers().loop().run(Unrecorded())
    servers, recorded = Servers(), Recorded(stop)
    with pytest.raises(KeyboardInterrupt):
        await servers.loop().run(recorded)
    _, snapshot, _ = recorded.boundaries[-1]
    reply = await servers.loop(LoopState.from_json(json.loads(snapshot))).run(Unrecorded())
    assert reply == whole
    assert len(servers.requests) == 7


async def test_a_refused_tool_call_ends_the_loop_and_is_never_shown_to_the_model() -> None:
    """X38"""
    servers = Servers()
    error = {"error": {"reason": "STALE_ATTEMPT", "message": "attempt 1 was replaced"}}
    servers.tool_answer = httpx.Response(409, json=error, headers={"x-gymckpt-reason": "STALE_ATTEMPT"})
    with pytest.raises(StaleAttempt, match="attempt 1 was replaced"):
        await servers.loop().run(Unrecorded())
    assert len(servers.requests) == 2


@pytest.mark.parametrize("status", [400, 404, 409, 500, 503])
async def test_the_error_of_a_server_that_does_not_know_the_session_is_no_answer(status: int) -> None:
    """X38"""
    servers = Servers()
    servers.tool_answer = httpx.Response(status, json={"detail": "Session not initialized."})
    with pytest.raises(UnexpectedAnswer, match=f"http://tools/add answered {status}"):
        await servers.loop().run(Unrecorded())
    assert len(servers.requests) == 2


@pytest.mark.parametrize(("status", "tool"), [(422, "add"), (404, "invented")])
async def test_the_model_is_told_of_its_own_mistakes(status: int, tool: str) -> None:
    servers = Servers([{"name": tool, "arguments": "{}"}])
    servers.tool_answer = httpx.Response(status, json={"detail": "no"})
    reply = await servers.loop().run(Unrecorded())
    assert reply["output"][1]["output"] == '{"detail":"no"}'


async def test_arguments_that_are_no_json_are_answered_without_a_call() -> None:
    servers = Servers([{"name": "add", "arguments": "{"}])
    reply = await servers.loop().run(Unrecorded())
    assert reply["output"][1]["output"].startswith("The arguments are no JSON: ")
    assert [request.url.host for request in servers.requests] == ["model", "model"]


async def test_the_loop_ends_after_its_last_step() -> None:
    reply = await Servers().loop(max_steps=2).run(Unrecorded())
    assert [item["type"] for item in reply["output"]] == ["function_call", "function_call_output", "function_call"]
