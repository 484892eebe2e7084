"""What an agent server tells of the runs inside it, and how they end when their attempt is retired."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from environment_servers.legacy_agent.app import LegacyAgentEnvironmentServer
from fastapi import Request
from responses_api_agents.simple_agent.app import SimpleAgent, SimpleAgentRunRequest, SimpleAgentVerifyResponse

from gymckpt.errors import InvalidField
from gymckpt.nemo_gym import make_participant
from gymckpt.participant import Capture
from tests.nemo_gym.embedded import build, serving
from tests.nemo_gym.gym import Gym
from tests.nemo_gym.test_embedding import episodes

SERVERS = {
    "resources_server": {"type": "resources_servers", "name": "tools"},
    "model_server": {"type": "responses_api_models", "name": "policy"},
}
INPUT = {"responses_create_params": {"input": "x"}}
TYPED = {"agent_session_id": "chosen", "episode_id": {"rollout_id": "typed", "attempt": 2}}
SEED = {**TYPED, "task_id": {"taskset": "t", "task_id": "1"}}


class Waiting(SimpleAgent):  # type: ignore[misc]
    """A run of it waits until it is cancelled."""

    async def run(self, request: Request, body: SimpleAgentRunRequest) -> SimpleAgentVerifyResponse:
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")


@pytest.fixture
def on(gym: Gym) -> dict[str, Any]:
    gym.serve_checkpoints()
    return gym.configuration


@pytest.fixture
def runs() -> Iterator[list[asyncio.Task[httpx.Response]]]:
    """Requests that a test leaves waiting."""
    started: list[asyncio.Task[httpx.Response]] = []
    yield started
    for task in started:
        task.cancel()


async def present(app: Any, *texts: str) -> None:
    """Returns when these episodes run, and no others."""
    async with asyncio.timeout(20):
        while episodes(app) != sorted(texts):  # noqa: ASYNC110 - the server under test tells no event
            await asyncio.sleep(0.01)


def test_environment_servers_take_no_part() -> None:
    """X20."""
    with pytest.raises(InvalidField, match="LegacyAgentEnvironmentServer is no SimpleResourcesServer"):
        make_participant(LegacyAgentEnvironmentServer)


@pytest.mark.parametrize(
    ("said", "observed", "episode"),
    [
        ({"_ng_task_index": 3, "_ng_rollout_index": 1}, False, "3-1"),
        ({"_ng_task_index": 3, "_ng_rollout_index": 1, "_ng_attempt_index": 2}, False, "3-1-a2"),
        ({"_ng_task_index": 3, "_ng_rollout_index": 1, "_ng_rollout_id": "mine"}, False, "3-1"),
        ({"_ng_task_index": 3, "_ng_rollout_index": 1, "_ng_rollout_id": "mine"}, True, "mine"),
    ],
)
async def test_a_run_is_of_the_episode_that_its_servers_are_told(
    on: dict[str, Any],
    runs: list[asyncio.Task[httpx.Response]],
    said: dict[str, Any],
    observed: bool,
    episode: str,
) -> None:
    """X13: an id that reaches the resources server only in a path counts only where NeMo Gym puts it there."""
    app = build(Waiting, "agent", {**on, "observability_enabled": observed}, **SERVERS)
    assert app.state.gymckpt.info.capture is Capture.RESIDENT
    async with serving(app) as client:
        runs.append(asyncio.create_task(client.post("/run", json={**INPUT, **said})))
        await present(app, episode)
        runs[0].cancel()
        await present(app)


async def test_retiring_an_attempt_ends_its_run_as_a_failure(
    gym: Gym, on: dict[str, Any], runs: list[asyncio.Task[httpx.Response]]
) -> None:
    """X28: no result, and no second start of it; the attempt after it is welcome, and other rollouts go on."""
    app = build(Waiting, "agent", on, **SERVERS)
    async with serving(app) as client:
        runs += [asyncio.create_task(client.post("/run", json=_run(task))) for task in (1, 2)]
        await present(app, "1-0", "2-0")
        await asyncio.to_thread(gym.command, "retire", "1-0")
        for answer in (await runs[0], await client.post("/run", json=_run(1))):
            assert (answer.status_code, answer.headers["x-gymckpt-reason"]) == (500, "STALE_ATTEMPT"), answer.text
        assert episodes(app) == ["2-0"]
        runs.append(asyncio.create_task(client.post("/run", json=_run(1, attempt=1))))
        await present(app, "1-0-a1", "2-0")


async def test_an_agent_session_is_present_from_its_seed_to_its_close(on: dict[str, Any]) -> None:
    """X13: also between two requests; seeded again it is the same, and a seed that fails is none."""
    app = build(SimpleAgent, "agent", on, **SERVERS)
    async with serving(app) as client:
        assert (await client.post("/v1/agent_sessions", json={**SEED, "unknown": 1})).status_code == 422
        assert episodes(app) == []
        for _ in range(2):
            assert (await client.post("/v1/agent_sessions", json=SEED)).status_code == 200
        assert episodes(app) == ["typed-a2"]
        assert (await client.post("/v1/agent_sessions/close", json=TYPED)).status_code == 200
        assert episodes(app) == []


async def test_a_retired_agent_session_is_not_activated_again(gym: Gym, on: dict[str, Any]) -> None:
    """X28: its environment server, which takes no part, may still close it."""
    app = build(SimpleAgent, "agent", on, **SERVERS)
    async with serving(app) as client:
        assert (await client.post("/v1/agent_sessions", json=SEED)).status_code == 200
        await asyncio.to_thread(gym.members, 1)
        await asyncio.to_thread(gym.command, "retire", "typed-a2")
        assert episodes(app) == []
        activated = await client.post("/ng-rollout/typed-a2/v1/responses", json={"input": "x"})
        assert (activated.status_code, activated.headers["x-gymckpt-reason"]) == (500, "STALE_ATTEMPT"), activated.text
        assert (await client.post("/v1/agent_sessions/close", json=TYPED)).status_code == 200


def _run(task: int, attempt: int = 0) -> dict[str, Any]:
    return {**INPUT, "_ng_task_index": task, "_ng_rollout_index": 0, "_ng_attempt_index": attempt}
