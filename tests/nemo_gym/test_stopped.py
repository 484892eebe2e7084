"""NeMo Gym's own agents and model servers, told to stop while they answer: a client that is told `Request was cancelled` takes it for the answer."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import httpx
import pytest

from tests.nemo_gym.gym import AGENT, MODEL, WORKPLACE, Gym

INPUT = {"input": "x"}
RUN = {"responses_create_params": INPUT, "_ng_task_index": 1, "_ng_rollout_index": 0}
SERVERS = {"policy_model": MODEL, "agent": AGENT}
REFERENCES = {
    "model_server": {"type": "responses_api_models", "name": "policy_model"},
    "resources_server": {"type": "resources_servers", "name": "tools"},
}


@pytest.fixture
def configured(gym: Gym) -> Gym:
    """A model server and an agent, not started; what they call, `upstream` and `tools`, is the test's own."""
    gym.add("tools", "resources_servers", "workplace_assistant")
    gym.add("upstream", "resources_servers", "none")
    gym.add_policy(gym.url("upstream"))
    gym.add("agent", "responses_api_agents", "simple_agent", **REFERENCES)
    return gym


async def told(gym: Gym, name: str, path: str, body: dict[str, Any]) -> str | None:
    """What a client is told whose call is under way when the server gets SIGTERM; None: the connection ended."""
    waiting = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        waiting.set()
        await reader.read()
        writer.close()

    await asyncio.to_thread(gym.start, name, SERVERS[name])
    called = "tools" if path == "/run" else "upstream" if name == "policy_model" else "policy_model"
    async with (
        await asyncio.start_server(silent, "127.0.0.1", gym.ports[called]),
        asyncio.timeout(60),
        httpx.AsyncClient(timeout=None) as client,
    ):
        asked = asyncio.create_task(client.post(f"{gym.url(name)}{path}", json=body))
        await waiting.wait()
        gym.running[name].send_signal(signal.SIGTERM)
        return await _cut_off(asked)


async def _cut_off(asked: asyncio.Task[httpx.Response]) -> str | None:
    """The whole answer; None: the connection ended without one."""
    try:
        answer = await asked
    except httpx.RemoteProtocolError:
        return None
    return f"{answer.status_code} {answer.text}"


@pytest.mark.parametrize(
    ("name", "path", "body"),
    [("policy_model", "/v1/responses", INPUT), ("agent", "/v1/responses", INPUT), ("agent", "/run", RUN)],
)
async def test_a_call_that_is_cut_off_gets_nothing(configured: Gym, name: str, path: str, body: dict[str, Any]) -> None:
    """X38: as after a crash, so that NeMo Gym's client calls again."""
    configured.serve_checkpoints()
    assert await told(configured, name, path, body) is None


async def test_a_tool_call_that_is_held_gets_nothing(configured: Gym) -> None:
    """X38: of a session that is not here."""
    configured.serve_checkpoints()
    await asyncio.to_thread(configured.start, "tools", WORKPLACE)
    await asyncio.to_thread(configured.members, 1)
    tool = f"{configured.url('tools')}/ng-rollout/1-0/company_directory_find_email_address"
    async with asyncio.timeout(60), httpx.AsyncClient(timeout=None) as client:
        asked = asyncio.create_task(client.post(tool, json={"name": "x"}))
        while (await asyncio.to_thread(configured.counts, "tools"))["held"] == 0:
            assert not asked.done(), asked.result().text
        configured.running["tools"].send_signal(signal.SIGTERM)
        assert await _cut_off(asked) is None


async def test_without_checkpointing_it_gets_the_server_s_own_words(configured: Gym) -> None:
    """X23."""
    assert await told(configured, "policy_model", "/v1/responses", INPUT) == '500 "Request was cancelled"'
