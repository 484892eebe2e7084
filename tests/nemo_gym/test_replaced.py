"""Sessions whose rollout begins again at the same server: a stock client that sends its seed again leaves the first one behind."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from resources_servers.example_session_state_mgmt.app import StatefulCounterResourcesServer
from resources_servers.mcqa.app import MCQAResourcesServer

from tests.nemo_gym.embedded import build, serving
from tests.nemo_gym.gym import Gym
from tests.nemo_gym.test_embedding import episodes


@pytest.fixture
def on(gym: Gym) -> dict[str, Any]:
    gym.serve_checkpoints()
    return gym.configuration


async def seed(client: httpx.AsyncClient, attempt: int = 0, count: int = 1) -> dict[str, str]:
    """Seeds rollout 3-1 as a client without cookies does; returns the ones it got."""
    client.cookies.clear()
    said = {"_ng_task_index": 3, "_ng_rollout_index": 1, "_ng_attempt_index": attempt, "initial_count": count}
    assert (await client.post("/seed_session", json=said)).status_code == 200
    return dict(client.cookies)


async def value(client: httpx.AsyncClient, cookies: dict[str, str]) -> int:
    client.cookies.clear()
    client.cookies.update(cookies)
    answer = await client.post("/get_counter_value", json={})
    count: int = answer.json()["count"]
    return count


async def is_held(client: httpx.AsyncClient, cookies: dict[str, str]) -> bool:
    try:
        async with asyncio.timeout(0.3):
            await value(client, cookies)
    except TimeoutError:
        return True
    return False


async def test_a_later_attempt_takes_the_place_of_the_earlier_one(on: dict[str, Any]) -> None:
    """X14, R03: nothing is left over, nobody is told anything, and the rollout is not lost."""
    app = build(StatefulCounterResourcesServer, "counter", on)
    participant = app.state.gymckpt
    async with serving(app) as client:
        first = await seed(client, count=1)
        second = await seed(client, 1, count=5)
        assert len(episodes(app)) == 1
        assert participant.counts()["replaced"] == 1
        assert await is_held(client, first)
        assert await value(client, second) == 5
        assert participant.lost == {}


async def test_two_runs_that_number_alike_do_not_disturb_each_other(on: dict[str, Any]) -> None:
    """R01: each is known by its cookie; so is a seed that was sent twice."""
    app = build(StatefulCounterResourcesServer, "counter", on)
    async with serving(app) as client:
        first, second = await seed(client, count=1), await seed(client, count=5)
        assert [await value(client, cookies) for cookies in (first, second)] == [1, 5]
        assert app.state.gymckpt.counts()["replaced"] == 0


async def test_an_older_attempt_takes_nobodys_place(on: dict[str, Any]) -> None:
    """X28: a late seed of the attempt before."""
    app = build(StatefulCounterResourcesServer, "counter", on)
    async with serving(app) as client:
        newer = await seed(client, 1, count=7)
        await seed(client, 0)
        assert episodes(app) == ["3-1", "3-1-a1"]
        assert await value(client, newer) == 7


async def test_a_session_that_is_seeded_again_by_its_own_client_goes_on(on: dict[str, Any]) -> None:
    """R03: what becomes of its state is the server's affair."""
    app = build(StatefulCounterResourcesServer, "counter", on)
    async with serving(app) as client:
        cookies = await seed(client, count=1)
        said = {"_ng_task_index": 3, "_ng_rollout_index": 1, "initial_count": 9}
        assert (await client.post("/seed_session", json=said)).status_code == 200
        assert not await is_held(client, cookies)
        assert (episodes(app), app.state.gymckpt.counts()["replaced"]) == (["3-1"], 0)


async def test_a_server_without_state_answers_whoever_calls(on: dict[str, Any]) -> None:
    """R01: there is nothing that a replaced session could miss."""
    app = build(MCQAResourcesServer, "mcqa", on)
    async with serving(app) as client:
        first = await seed(client)
        await seed(client, 1)
        client.cookies.clear()
        client.cookies.update(first)
        async with asyncio.timeout(20):
            assert (await client.post("/verify", json={})).status_code == 422


async def test_calls_of_a_retired_session_are_held_and_never_answered(gym: Gym, on: dict[str, Any]) -> None:
    """A02: a refusal would reach the model as the tool's answer; also while something of the session still runs."""
    app = build(StatefulCounterResourcesServer, "counter", on)
    participant = app.state.gymckpt
    async with serving(app) as client:
        cookies = await seed(client)
        [session] = participant.sessions
        participant.floors.refuse(session.episode)
        assert await is_held(client, cookies)
        await asyncio.to_thread(gym.members, 1)
        await asyncio.to_thread(gym.command, "retire", "3-1")
        assert episodes(app) == []
        assert await is_held(client, cookies)
        assert participant.lost == {}
