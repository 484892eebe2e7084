"""The model server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from gymckpt.participant import SqliteLedger
from servers.execution_log import ExecutionLog, read_log
from servers.model.__main__ import arguments, latency
from servers.model.app import model_app
from servers.model.backend import OpenAIBackend
from servers.model.scripted import Plan, ScriptedBackend

CALL = {"name": "add", "arguments": "{}"}
ASKED: dict[str, Any] = {"input": "do it"}
OF_R = {"x-gymckpt-episode": "r"}


@dataclass
class Served:
    app: FastAPI
    client: httpx.AsyncClient
    ledger: SqliteLedger
    log: Path


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    ledger = SqliteLedger(str(tmp_path / "ledger.sqlite"))
    backend = ScriptedBackend({"do it": Plan((CALL,))})
    app = model_app("policy", backend, ledger, ExecutionLog("policy", tmp_path / "log"))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://policy") as client:
        yield Served(app, client, ledger, tmp_path / "log")
    await ledger.close()


async def test_every_call_of_a_rollout_is_in_the_ledger_and_follows_the_one_before(served: Served) -> None:
    """V04"""
    first = (await served.client.post("/v1/responses", json=ASKED, headers=OF_R)).json()
    second = (await served.client.post("/ng-rollout/r/v1/responses", json=ASKED)).json()
    rows = served.ledger.rows("r")
    assert [row["id"] for row in rows] == [first["id"], second["id"]]
    assert [row["parent"] for row in rows] == [None, rows[0]["call_id"]]
    assert rows[0]["usage"] == first["usage"]
    assert "do it" not in str(rows)


async def test_a_call_without_episode_is_answered_and_left_out_of_the_ledger(served: Served) -> None:
    """M20"""
    assert (await served.client.post("/v1/responses", json=ASKED)).status_code == 200
    assert [line["rollout"] for line in read_log(served.log)] == [None]
    assert served.ledger.last("r") is None


async def test_a_response_is_streamed_as_events_and_delivered_too(served: Served) -> None:
    answer = await served.client.post("/v1/responses", json={**ASKED, "stream": True}, headers=OF_R)
    assert answer.headers["content-type"].startswith("text/event-stream")
    names = [line for line in answer.text.splitlines() if line.startswith("event: ")]
    assert names == [f"event: response.{name}" for name in ("created", "output_item.done", "completed")]
    assert len(served.ledger.rows("r")) == 1


async def test_chat_completions_are_in_the_ledger_too(served: Served) -> None:
    body = {"messages": [{"role": "user", "content": "do it"}]}
    answer = (await served.client.post("/v1/chat/completions", json=body, headers=OF_R)).json()
    assert answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "add"
    assert [row["route"] for row in served.ledger.rows("r")] == ["/v1/chat/completions"]


async def test_a_call_that_its_upstream_failed_is_told_and_left_out_of_the_ledger() -> None:
    """M04"""
    asked: list[httpx.Request] = []

    def upstream(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(503, text="busy")

    ledger = SqliteLedger(":memory:")
    http = httpx.AsyncClient(transport=httpx.MockTransport(upstream))
    app = model_app("policy", OpenAIBackend(http, "http://up/v1/", "m", "key"), ledger, ExecutionLog("policy"))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://policy") as client:
        answer = await client.post("/v1/responses", json={**ASKED, "stream": True}, headers=OF_R)
    assert (answer.status_code, answer.json()) == (500, {"detail": "http://up/v1/responses answered 503: busy"})
    assert ledger.rows("r") == []
    assert asked[0].headers["authorization"] == "Bearer key"
    assert asked[0].content == b'{"input":"do it","model":"m"}'
    await ledger.close()


async def test_a_call_whose_caller_went_away_is_left_out_of_the_ledger(served: Served) -> None:
    """M04"""
    body = b'{"input": "do it"}'
    received = iter([{"type": "http.request", "body": body, "more_body": False}])
    sent: list[Any] = []

    async def receive() -> Any:
        return next(received, {"type": "http.disconnect"})

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"content-type", b"application/json"), (b"x-gymckpt-episode", b"r")]
    scope = {"type": "http", "method": "POST", "path": "/v1/responses", "query_string": b"", "headers": headers}
    await served.app(scope, receive, send)
    assert sent == []
    assert len(read_log(served.log)) == 1
    assert served.ledger.rows("r") == []


def test_a_latency_is_one_number_or_two() -> None:
    assert latency("0.1:0.5") == (0.1, 0.5)
    assert latency("2") == (2.0, 2.0)


@pytest.mark.parametrize("text", ["x", "0.5:0.1", "-1:2"])
def test_another_latency_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        arguments().parse_args([f"--latency={text}"])
    assert "a latency is" in capsys.readouterr().err
