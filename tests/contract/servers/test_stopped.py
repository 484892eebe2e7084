"""Reference servers that are told to stop while a call of theirs waits for another server, or for a gate: its client gets no answer and tries again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from gymckpt.participant import EPISODE_HEADER, Kind, Participant, SqliteLedger
from servers.agent.app import agent_app
from servers.environment.app import environment_app
from servers.execution_log import ExecutionLog
from servers.http.client import http_client
from servers.http.peers import Peer
from servers.model.app import model_app
from servers.model.backend import OpenAIBackend
from tests.contract.participant.stopping import stopped
from tests.e2e.rollouts import counter_row, typed
from tests.unit.participant.rounds import Rounds

LOG = ExecutionLog("stopped")
PARAMS = {"input": [{"role": "user", "content": "add"}]}
SESSION = {"agent_session_id": "s", "episode_id": {"rollout_id": "r"}}
RUN = typed(counter_row(0), "r")


@dataclass
class Silent:
    """A server that accepts calls and never answers."""

    port: int
    calls: int = 0

    def peer(self, kind: Kind) -> Peer:
        return Peer(kind, "silent", f"http://127.0.0.1:{self.port}")


@pytest.fixture
async def silent() -> AsyncIterator[Silent]:
    async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        found.calls += 1
        await reader.read()
        writer.close()

    async with await asyncio.start_server(count, "127.0.0.1", 0) as server:
        found = Silent(server.sockets[0].getsockname()[1])
        yield found


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with http_client() as client:
        yield client


@pytest.fixture
async def ledger() -> AsyncIterator[SqliteLedger]:
    ledger = SqliteLedger(":memory:")
    yield ledger
    await ledger.close()


@pytest.fixture
def apps(http: httpx.AsyncClient, silent: Silent, ledger: SqliteLedger) -> dict[str, FastAPI]:
    """Each kind; whatever they call is silent."""
    agent, model, resources = (silent.peer(kind) for kind in (Kind.AGENT, Kind.MODEL, Kind.RESOURCES))
    upstream = OpenAIBackend(http, f"http://127.0.0.1:{silent.port}/v1", "none", "none")
    return {
        "environment": environment_app("environment", http, agent=agent, resources=resources, log=LOG),
        "agent": agent_app("agent", http, model=model, resources=resources, log=LOG, max_steps=8),
        "model": model_app("model", upstream, ledger, LOG),
    }


def participant_of(app: FastAPI, rounds: Rounds) -> Participant:
    """Its participant, as it is while a coordinator is configured."""
    [participant] = [added.kwargs["participant"] for added in app.user_middleware if "participant" in added.kwargs]
    assert isinstance(participant, Participant)
    rounds.serve(participant)
    participant.enabled = True
    return participant


def call(path: str, body: Any) -> bytes:
    sent = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: here\r\n{EPISODE_HEADER}: r\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(sent)}\r\n\r\n".encode() + sent


@pytest.mark.parametrize(
    ("kind", "path", "body"),
    [
        ("environment", "/run", RUN),
        ("agent", "/run", RUN),
        ("agent", "/v1/responses", PARAMS),
        ("model", "/v1/responses", PARAMS),
        ("model", "/v1/chat/completions", {"messages": PARAMS["input"]}),
    ],
)
async def test_a_call_that_runs_gets_nothing(
    apps: dict[str, FastAPI], silent: Silent, kind: str, path: str, body: Any
) -> None:
    """X38"""
    participant_of(apps[kind], Rounds())
    assert await stopped(apps[kind], [call(path, body)], lambda: silent.calls) == [b""]


@pytest.mark.parametrize(
    ("kind", "path", "body"), [("agent", "/v1/agent_sessions", SESSION), ("model", "/v1/responses", PARAMS)]
)
async def test_a_held_call_gets_nothing(
    apps: dict[str, FastAPI], silent: Silent, monkeypatch: pytest.MonkeyPatch, kind: str, path: str, body: Any
) -> None:
    """X38"""
    rounds = Rounds()
    participant = participant_of(apps[kind], rounds)
    await rounds.prepare(participant)
    held = waits(participant, monkeypatch)
    assert await stopped(apps[kind], [call(path, body)], held) == [b""]
    assert silent.calls == 0


def waits(participant: Participant, monkeypatch: pytest.MonkeyPatch) -> Callable[[], object]:
    """Whether a call has come to wait for the gate."""
    waiting: list[None] = []
    open_gate = participant.open_gate

    async def noted() -> None:
        waiting.append(None)
        await open_gate()

    monkeypatch.setattr(participant, "open_gate", noted)
    return lambda: waiting
