"""The agent server's routes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gymckpt.participant import Kind
from servers.agent.app import agent_app
from servers.execution_log import ExecutionLog, read_log
from servers.http.peers import Peer, activation_id, activation_index
from servers.model.scripted import Plan, ScriptedBackend

PARAMS = {"input": "do it", "tools": [{"type": "function", "name": "add"}]}
EPISODE = {"rollout_id": "r", "attempt": 1}
SESSION = {"agent_session_id": "as-1", "episode_id": EPISODE}
HEADERS = {"x-gymckpt-episode": "r-a1"}


class Agent:
    """The agent server between a scripted model and an adding machine."""

    def __init__(self, directory: Path) -> None:
        self.log = directory / "log"
        self.backend = ScriptedBackend({"do it": Plan(({"name": "add", "arguments": '{"count": 2}'},))})
        self.calls: list[httpx.Request] = []
        http = httpx.AsyncClient(transport=httpx.MockTransport(self._answer))
        app = agent_app(
            "agent",
            http,
            model=Peer(Kind.MODEL, "policy", "http://policy"),
            resources=Peer(Kind.RESOURCES, "tools", "http://tools"),
            log=ExecutionLog("agent", self.log),
            max_steps=10,
        )
        self.client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://agent")

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        self.calls.append(request)
        body = json.loads(request.content)
        if request.url.host == "policy":
            return httpx.Response(200, json=await self.backend.responses(body), headers={"set-cookie": "policy=p"})
        return httpx.Response(200, json={"ok": True}, headers={"set-cookie": "tools=t2", "x-gymckpt-revision": "4"})

    @property
    def tool_calls(self) -> list[httpx.Request]:
        return [request for request in self.calls if request.url.host != "policy"]

    async def open(self, url: str = "http://elsewhere") -> httpx.Response:
        access = {"kind": "direct_http", "name": "tools.direct_http", "base_url": url, "cookies": {"tools": "t1"}}
        return await self.client.post("/v1/agent_sessions", json={**SESSION, "tool_accesses": [access]})

    async def activate(self, index: int | None = None, **more: str) -> httpx.Response:
        headers = {**HEADERS, **more}
        if index is not None:
            headers["x-gymckpt-request-id"] = activation_id(index)
        return await self.client.post("/v1/responses", json=PARAMS, headers=headers)

    async def close(self) -> dict[str, Any]:
        answer = await self.client.post("/v1/agent_sessions/close", json=SESSION)
        return dict(answer.json())


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[Agent]:
    agent = Agent(tmp_path)
    async with agent.client:
        yield agent


async def test_a_session_is_opened_activated_and_closed_with_its_facts(agent: Agent) -> None:
    """A09"""
    assert (await agent.open()).json() == {"agent_session_id": "as-1"}
    reply = (await agent.activate()).json()
    assert [item["type"] for item in reply["output"]] == ["function_call", "function_call_output", "message"]
    facts = {"resources_cookies": {"tools": "t2"}, "resources_revision": 4}
    assert await agent.close() == {"agent_session_id": "as-1", "agent_observations": None, **facts}


async def test_closing_again_gives_the_same_answer_and_closing_nothing_an_empty_one(agent: Agent) -> None:
    """A09"""
    empty: dict[str, Any] = {"agent_session_id": "as-1", "agent_observations": None, "resources_cookies": {}}
    assert await agent.close() == empty
    await agent.open()
    await agent.activate()
    assert await agent.close() == await agent.close() != empty


async def test_the_activation_that_was_finished_is_answered_again_without_running(agent: Agent) -> None:
    """A15"""
    await agent.open()
    first = (await agent.activate(0)).json()
    assert (await agent.activate(0)).json() == first
    assert len(agent.tool_calls) == 1
    assert [line["what"] for line in read_log(agent.log)] == ["open_session", "/v1/responses"]


async def test_an_agent_that_is_used_as_a_tool_says_so_in_every_call_that_it_makes(agent: Agent) -> None:
    """X37: who holds one of them would hold the step that a checkpoint waits for."""
    await agent.open()
    await agent.activate(0, **{"x-gymckpt-within": "outer-a2"})
    run = {"responses_create_params": PARAMS, "_ng_task_index": 1, "_ng_rollout_index": 0}
    headers = {"x-gymckpt-episode": "1-0", "x-gymckpt-within": "outer-a2"}
    assert (await agent.client.post("/run", json=run, headers=headers)).status_code == 200
    assert {request.url.path.rpartition("/")[2] for request in agent.calls} == {
        "responses",
        "add",
        "seed_session",
        "verify",
    }
    assert {request.headers.get("x-gymckpt-within") for request in agent.calls} == {"outer-a2"}


async def test_an_agent_that_plays_a_rollout_is_within_nothing(agent: Agent) -> None:
    """X37: its calls are held, so that it parks."""
    await agent.open()
    await agent.activate(0)
    assert {request.headers.get("x-gymckpt-within") for request in agent.calls} == {None}


async def test_an_activation_out_of_order_is_refused(agent: Agent) -> None:
    """A15"""
    await agent.open()
    refused = await agent.activate(3)
    assert (refused.status_code, refused.headers["x-gymckpt-reason"]) == (409, "ACTIVATION_OUT_OF_ORDER")


async def test_opening_again_binds_to_the_same_session(agent: Agent) -> None:
    """A14"""
    await agent.open()
    first = (await agent.activate(0)).json()
    assert (await agent.open()).status_code == 200
    assert (await agent.activate(0)).json() == first


async def test_tools_are_called_where_they_are_now_with_the_cookies_of_the_session(agent: Agent) -> None:
    """The address that a session was opened with may be that of a process that is gone."""
    await agent.open("http://gone")
    await agent.activate()
    assert [(request.url.host, request.headers["cookie"]) for request in agent.tool_calls] == [("tools", "tools=t1")]


async def test_a_required_access_of_another_kind_is_refused(agent: Agent) -> None:
    """X20"""
    access = {"kind": "mcp", "name": "other", "required": True}
    refused = await agent.client.post("/v1/agent_sessions", json={**SESSION, "tool_accesses": [access]})
    assert (refused.status_code, refused.headers["x-gymckpt-reason"]) == (400, "INVALID_FIELD")
    assert "['other']" in refused.json()["error"]["message"]


async def test_a_call_without_agent_session_plays_too_and_hands_the_cookies_on(agent: Agent) -> None:
    agent.client.cookies.clear()
    answer = await agent.client.post("/v1/responses", json=PARAMS, headers={"cookie": "tools=t1"})
    assert len(answer.json()["output"]) == 3
    assert agent.tool_calls[0].headers["cookie"] == "tools=t1"
    assert (answer.cookies["tools"], answer.cookies["policy"]) == ("t2", "p")


@pytest.mark.parametrize("request_id", [None, "", "activation-", "activation-x", "call-1"])
def test_a_request_id_that_names_no_activation_names_none(request_id: str | None) -> None:
    assert activation_index(request_id) is None


def test_an_activation_is_named_by_its_index() -> None:
    assert activation_index(activation_id(12)) == 12
