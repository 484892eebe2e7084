"""The counter server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from servers.execution_log import ExecutionLog, read_log
from servers.resources.counter.app import counter_app


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    app = counter_app("counter", ExecutionLog("counter", tmp_path / "log"))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://counter") as client:
        yield client


def verify_body(expected: int) -> dict[str, Any]:
    return {"responses_create_params": {"input": "add"}, "response": {"output": []}, "expected_count": expected}


async def test_a_session_counts_from_its_seed_and_is_graded_by_its_count(client: httpx.AsyncClient) -> None:
    assert (await client.post("/seed_session", json={"initial_count": 3, "expected_count": 6})).json() == {}
    for count in (1, 2):
        assert (await client.post("/increment_counter", json={"count": count})).json() == {"success": True}
    assert (await client.post("/get_counter_value", json={})).json() == {"count": 6}
    assert (await client.post("/verify", json=verify_body(6))).json()["reward"] == 1.0
    assert (await client.post("/verify", json=verify_body(7))).json()["reward"] == 0.0


async def test_a_typed_seed_is_answered_with_its_session_and_counts_from_its_task_data(
    client: httpx.AsyncClient,
) -> None:
    body = {"resources_session_id": "s", "episode_id": {"rollout_id": "r"}, "task_data": {"initial_count": 5}}
    answer = (await client.post("/seed_session", json=body)).json()
    assert answer == {"resources_session_id": "s", "resources_tools": None, "sandbox_access": None}
    assert (await client.post("/get_counter_value", json={})).json() == {"count": 5}


async def test_sessions_are_told_apart_by_their_cookies(client: httpx.AsyncClient) -> None:
    await client.post("/seed_session", json={"initial_count": 1})
    client.cookies.clear()
    assert (await client.post("/get_counter_value", json={})).status_code == 400


async def test_a_closed_session_is_gone_and_closing_again_is_fine(client: httpx.AsyncClient) -> None:
    await client.post("/seed_session", json={})
    for _ in range(2):
        assert (await client.post("/close_session", json={"resources_session_id": "s"})).json() == {
            "resources_session_id": "s"
        }
    assert (await client.post("/increment_counter", json={"count": 1})).status_code == 400


async def test_only_calls_that_were_carried_out_are_logged(client: httpx.AsyncClient, tmp_path: Path) -> None:
    await client.post("/increment_counter", json={"count": 1})
    await client.post("/seed_session", json={})
    await client.post("/increment_counter", json={"count": "many"})
    headers = {"x-gymckpt-episode": "r-a1", "x-gymckpt-request-id": "call-1"}
    await client.post("/increment_counter", json={"count": 1}, headers=headers)
    lines = read_log(tmp_path / "log")
    assert [line["what"] for line in lines] == ["seed_session", "increment_counter"]
    assert [lines[1][name] for name in ("rollout", "attempt", "call_id")] == ["r", 1, "call-1"]
