"""Environment, agent and model servers send each other, and answer, what was recorded between the real ones.

The three run in one process; the weather server and the model's upstream give their recorded answers. Ids that are
chance (of sessions, in cookies) are left out of the comparison.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gymckpt.participant import Kind, SqliteLedger
from servers.agent.app import agent_app
from servers.environment.app import environment_app
from servers.execution_log import ExecutionLog
from servers.http.cookies import cookies_of, unsign
from servers.http.peers import Peer
from servers.model.app import model_app
from servers.model.backend import OpenAIBackend
from tests.contract.servers.captures import Exchange, exchanges

CHANCE = {"resources_session_id", "agent_session_id", "cookies", "resources_cookies", "base_url"}
RESOURCES = "example_single_tool_call"
HOSTS = {RESOURCES: "http://weather", "simple_agent": "http://agent", "policy_model": "http://model"}


class Wire(httpx.AsyncBaseTransport):
    """Carries calls to the servers by host and keeps them; the weather server and the upstream are recordings."""

    def __init__(self, recorded: list[Exchange]) -> None:
        self.seen: list[tuple[str, httpx.Request, httpx.Response]] = []
        self.apps: dict[str, httpx.ASGITransport] = {}
        self._recorded = {
            "weather": [exchange for exchange in recorded if exchange.server == RESOURCES],
            "upstream": [exchange for exchange in recorded if exchange.server.startswith("upstream")],
        }

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        host = request.url.host
        if host in self.apps:
            response = await self.apps[host].handle_async_request(request)
            response = httpx.Response(response.status_code, headers=response.headers, content=await response.aread())
        else:
            exchange = self._recorded[host].pop(0)
            assert exchange.path == request.url.path
            headers = [("set-cookie", value) for value in exchange.received("set-cookie")]
            body = exchange.response
            if "resources_session_id" in body:
                body = body | {"resources_session_id": json.loads(request.content)["resources_session_id"]}
            response = httpx.Response(exchange.status, json=body, headers=headers)
        self.seen.append((host, request, response))
        return response


def without_chance(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_chance(inner) for name, inner in value.items() if name not in CHANCE}
    return [without_chance(inner) for inner in value] if isinstance(value, list) else value


@pytest.fixture(params=["E_single_agent_turn_typed_attempt1_*", "E_single_agent_turn_session_*"])
async def played(request: pytest.FixtureRequest, shared: Path) -> AsyncIterator[tuple[Wire, list[Exchange]]]:
    """The recorded run, sent again."""
    recorded = [exchange for exchange in exchanges(shared, request.param) if exchange.status == 200]
    wire = Wire(recorded)
    async with httpx.AsyncClient(transport=wire) as http:
        log = ExecutionLog("turn")
        resources, agent, model = (
            Peer(kind, name, HOSTS[name])
            for kind, name in zip((Kind.RESOURCES, Kind.AGENT, Kind.MODEL), HOSTS, strict=True)
        )
        ledger = SqliteLedger(":memory:")
        upstream = OpenAIBackend(http, "http://upstream/v1", "fake", "x")
        wire.apps["model"] = httpx.ASGITransport(model_app("policy_model", upstream, ledger, log))
        loop = agent_app("simple_agent", http, model=model, resources=None, log=log, max_steps=10)
        wire.apps["agent"] = httpx.ASGITransport(loop)
        turn = environment_app("single_agent_turn", http, agent=agent, resources=resources, log=log)
        wire.apps["environment"] = httpx.ASGITransport(turn)
        await http.post("http://environment/run", json=recorded[0].request)
        yield wire, recorded
        await ledger.close()


def by_start(wire: Wire, recorded: list[Exchange]) -> list[tuple[httpx.Request, httpx.Response, Exchange]]:
    """What was seen beside what was recorded, server by server, in the order of the calls to it."""
    names = {"weather": RESOURCES, "agent": "simple_agent", "model": "policy_model", "environment": recorded[0].server}
    names["upstream"] = next(exchange.server for exchange in recorded if exchange.server.startswith("upstream"))
    return [
        (request, response, exchange)
        for host, server in names.items()
        for (_, request, response), exchange in zip(
            [seen for seen in wire.seen if seen[0] == host],
            [exchange for exchange in recorded if exchange.server == server],
            strict=True,
        )
    ]


async def test_every_call_has_the_recorded_route_and_body(played: tuple[Wire, list[Exchange]]) -> None:
    for request, _, exchange in by_start(*played):
        assert (request.method, request.url.path) == (exchange.method, exchange.path)
        sent, recorded = json.loads(request.content), exchange.request
        assert without_chance(sent) == without_chance(recorded), exchange.path


async def test_every_answer_has_the_recorded_body(played: tuple[Wire, list[Exchange]]) -> None:
    for _, response, exchange in by_start(*played):
        answered, recorded = response.json(), exchange.response
        if exchange.path == "/run":
            recorded = recorded | {"agent_ref": answered["agent_ref"]}
        assert response.status_code == exchange.status
        assert without_chance(answered) == without_chance(recorded), exchange.path


async def test_calls_carry_the_cookies_that_the_recorded_ones_carried(played: tuple[Wire, list[Exchange]]) -> None:
    for request, _, exchange in by_start(*played):
        sent = {name.split("___")[0] for name in cookies_of(request.headers.get_list("cookie"))}
        recorded = {name.split("___")[0] for name in cookies_of(exchange.sent("cookie"))}
        # The recorded agent also gave its model's cookie to the environment, which has no use for it.
        assert sent == recorded - ({"SimpleModelServer"} if exchange.server == "simple_agent" else set()), exchange.path


async def test_the_agents_cookie_names_the_agent_session(played: tuple[Wire, list[Exchange]]) -> None:
    wire, _ = played
    _, request, response = next(seen for seen in wire.seen if seen[1].url.path == "/v1/agent_sessions")
    ((key, value),) = cookies_of(response.headers.get_list("set-cookie")).items()
    assert unsign(value, key)["agent_session_id"] == json.loads(request.content)["agent_session_id"]
