"""What a participant reads of stock calls, what it holds, and that it is nothing without its block."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from resources_servers.example_mcp_weather.app import ExampleMCPWeatherResourcesServer
from resources_servers.example_session_state_mgmt.app import StatefulCounterResourcesServer
from resources_servers.example_single_tool_call.app import SimpleWeatherResourcesServer
from responses_api_models.openai_model.app import SimpleModelServer

from gymckpt.errors import InvalidField
from gymckpt.nemo_gym import make_participant
from gymckpt.participant import Capture, Episode
from tests.nemo_gym.embedded import build, serving
from tests.nemo_gym.gym import Gym

MODEL = {"openai_base_url": "http://127.0.0.1:9", "openai_api_key": "x", "openai_model": "m"}
TYPED = {
    "resources_session_id": "chosen",
    "episode_id": {"rollout_id": "typed", "attempt": 2},
    "task_id": {"taskset": "t", "task_id": "1"},
    "task_data": {},
}


@pytest.fixture
def on(gym: Gym) -> dict[str, Any]:
    """A configuration with the block, and a coordinator behind it."""
    gym.serve_checkpoints()
    return gym.configuration


def episodes(app: Any) -> list[str]:
    return sorted(str(session.episode) for session in app.state.gymckpt.sessions)


def test_without_the_block_nothing_is_installed() -> None:
    """X05."""
    app, shipped = build(StatefulCounterResourcesServer, "counter", {}), StatefulCounterResourcesServer
    assert not hasattr(app.state, "gymckpt")
    assert [middleware.cls.__name__ for middleware in app.user_middleware] == [
        "RolloutContextMiddleware",
        "SessionMiddleware",
        "BaseHTTPMiddleware",
    ]
    assert make_participant(shipped).__name__ == shipped.__name__


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        ("x", "checkpoint must be a mapping"),
        ({"coordinator": "127.0.0.1:1", "lease": 3}, "checkpoint.lease is unknown"),
        ({"store": "127.0.0.1:1"}, "checkpoint.coordinator is required"),
        ({"coordinator": 7}, "checkpoint.coordinator must be text"),
        ({"coordinator": "127.0.0.1:1", "adapters": ["no.such.module"]}, "names 'no.such.module'"),
    ],
)
def test_a_wrong_block_is_refused(block: Any, problem: str) -> None:
    """X20."""
    with pytest.raises(InvalidField, match=problem):
        build(StatefulCounterResourcesServer, "counter", {"checkpoint": block})


def test_resources_servers_of_many_workers_are_refused() -> None:
    """X20."""
    with pytest.raises(InvalidField, match="counter has num_workers 2"):
        build(StatefulCounterResourcesServer, "counter", {"checkpoint": {"coordinator": "127.0.0.1:1"}}, num_workers=2)


@pytest.mark.parametrize(
    ("path", "said", "episode"),
    [
        ("/seed_session", {"_ng_task_index": 3, "_ng_rollout_index": 1}, "3-1"),
        ("/seed_session", {"_ng_task_index": 3, "_ng_rollout_index": 1, "_ng_attempt_index": 2}, "3-1-a2"),
        ("/seed_session", {"_ng_rollout_id": "mine"}, "mine"),
        ("/ng-rollout/9-9-a1/seed_session", {"_ng_task_index": 3, "_ng_rollout_index": 1}, "9-9-a1"),
    ],
)
async def test_a_seed_names_its_episode(on: dict[str, Any], path: str, said: dict[str, Any], episode: str) -> None:
    """R01."""
    app = build(StatefulCounterResourcesServer, "counter", on)
    async with serving(app) as client:
        assert (await client.post(path, json={"initial_count": 1, **said})).status_code == 200
        assert episodes(app) == [episode]
        assert (await client.post("/increment_counter", json={"count": 2})).status_code == 200
        assert (await client.post("/get_counter_value", json={})).json() == {"count": 3}
        prefixed = await client.post("/ng-rollout/8-8/get_counter_value", json={})
        assert prefixed.json() == {"count": 3}, "a session is known by its cookie, whatever the agent's prefix says"


async def test_a_typed_seed_names_its_episode_and_one_that_names_none_is_a_rollout_of_its_own(
    on: dict[str, Any],
) -> None:
    """R01."""
    app = build(SimpleWeatherResourcesServer, "weather", on)
    assert app.state.gymckpt.capture is Capture.EXPORTED
    async with serving(app) as client:
        assert (await client.post("/seed_session", json=TYPED)).status_code == 200
        client.cookies.clear()
        assert (await client.post("/seed_session", json={})).status_code == 200
        first, second = episodes(app)
        assert "typed-a2" in (first, second)
        assert {len(first), len(second)} == {len("typed-a2"), 32}


async def test_calls_are_held_while_the_gate_is_closed_and_answered_after_it(gym: Gym, on: dict[str, Any]) -> None:
    """A02. Two servers share one process and one loop."""
    counter, policy = (
        build(StatefulCounterResourcesServer, "counter", on),
        build(SimpleModelServer, "policy", on, **MODEL),
    )
    async with serving(counter) as client, serving(policy):
        await asyncio.to_thread(gym.members, 2)
        await client.post("/seed_session", json={"initial_count": 1, "_ng_rollout_id": "held"})
        await asyncio.to_thread(gym.command, "checkpoint", "create", "cut", "--resume", "by-caller")
        held = asyncio.create_task(client.post("/increment_counter", json={"count": 2}))
        while not counter.state.gymckpt.counts()["held"]:  # noqa: ASYNC110 - the server under test tells no event
            await asyncio.sleep(0)
        assert not held.done()
        await asyncio.to_thread(gym.command, "checkpoint", "resume", "cut")
        assert (await held).status_code == 200
        shown = await asyncio.to_thread(gym.command, "checkpoint", "show", "cut")
        assert shown["episodes"] == ["held"]
        verified = await client.post("/verify", json=verification(3))
        assert verified.json()["reward"] == 1.0
        assert episodes(counter) == []


async def test_a_client_that_has_seen_more_than_was_restored_is_held_and_named(gym: Gym, on: dict[str, Any]) -> None:
    """R06. The server dies two calls after its gate had opened."""
    policy = build(SimpleModelServer, "policy", on, **MODEL)
    async with serving(policy):
        async with serving(build(StatefulCounterResourcesServer, "counter", on)) as client:
            await asyncio.to_thread(gym.members, 2)
            await client.post("/seed_session", json={"initial_count": 1, "_ng_rollout_id": "ahead"})
            cut = dict(client.cookies)
            await asyncio.to_thread(gym.command, "checkpoint", "create", "cut")
            await client.post("/increment_counter", json={"count": 2})
            seen = dict(client.cookies)
        fresh = build(StatefulCounterResourcesServer, "counter", on)
        async with serving(fresh) as client:
            await asyncio.to_thread(gym.members, 2)
            await asyncio.to_thread(gym.command, "checkpoint", "restore", "cut")
            client.cookies.update(seen)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await client.post("/get_counter_value", json={})
            assert "has seen revision 2" in fresh.state.gymckpt.lost[Episode("ahead", 1)]
            await asyncio.to_thread(gym.command, "checkpoint", "create", "later")
            assert (await asyncio.to_thread(gym.command, "checkpoint", "show", "later"))["episodes"] == []
            client.cookies.clear()
            client.cookies.update(cut)
            assert (await client.post("/get_counter_value", json={})).json() == {"count": 1}


async def test_tools_called_over_mcp_belong_to_the_session_of_their_token(on: dict[str, Any]) -> None:
    """R01. Such a call brings a cookie that is new each time."""
    app = build(ExampleMCPWeatherResourcesServer, "weather", on, expose_tools_over_mcp=True)
    async with serving(app) as client:
        seeded = (await client.post("/seed_session", json={"_ng_rollout_id": "mcp"})).json()
        client.cookies.clear()
        call = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": "get_weather", "arguments": {"city": "Oslo"}},
        }
        headers = {**seeded["mcp"]["headers"], "accept": "application/json, text/event-stream"}
        answer = await client.post("/mcp", json=call, headers=headers)
        assert answer.status_code == 200, answer.text
        [session] = app.state.gymckpt.sessions
        assert (str(session.episode), session.revision) == ("mcp", 2)


def verification(expected: int) -> dict[str, Any]:
    """The body of a verification of the counter."""
    response = {
        "id": "r",
        "created_at": 0,
        "model": "m",
        "object": "response",
        "output": [],
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "tools": [],
    }
    return {"responses_create_params": {"input": "x"}, "response": response, "expected_count": expected}
