"""Rollouts of real agents that are participants: they go on while they live, and start over when they die."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.nemo_gym.gym import AGENT, MODEL, Gym
from tests.nemo_gym.result import note
from tests.nemo_gym.rollouts import LONGEST_ROLLOUT, STEPS, by_session, executed, row, some_executed

WORKPLACE = "tests.nemo_gym.logged_workplace:LoggedWorkplace"
AGENTS = ("simple_agent", "second_agent")
HALF = 4  # rollouts of one agent


@pytest.fixture
def executions(tmp_path: Path) -> Path:
    return tmp_path / "executions.jsonl"


@pytest.fixture
def fleet(gym: Gym, executions: Path) -> Gym:
    """A policy, a model server, a resources server and two agents; all but the policy are members."""
    gym.environment = {"EXECUTIONS": str(executions), "PYTHONPATH": os.getcwd()}
    gym.start_script("upstream", "upstream.py", "--latency", "0.4")
    gym.add("workplace_assistant", "resources_servers", "workplace_assistant")
    gym.add_policy(gym.url("upstream"))
    for name in AGENTS:
        gym.add(
            name,
            "responses_api_agents",
            "simple_agent",
            max_steps=STEPS + 1,
            resources_server={"type": "resources_servers", "name": "workplace_assistant"},
            model_server={"type": "responses_api_models", "name": "policy_model"},
        )
    gym.serve_checkpoints()
    gym.start("policy_model", MODEL)
    gym.start("workplace_assistant", WORKPLACE)
    for name in AGENTS:
        gym.start(name, AGENT)
    gym.members(4)
    return gym


async def play(agent: str, tasks: Iterable[int], attempt: int = 0) -> list[httpx.Response | httpx.TransportError]:
    """Runs these tasks at once; the answers, or why there is none."""
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(timeout=LONGEST_ROLLOUT, limits=limits) as client:

        async def one(task: int) -> httpx.Response | httpx.TransportError:
            body = {**row(task), "_ng_attempt_index": attempt}
            try:
                return await client.post(f"{agent}/run", json=body)
            except httpx.TransportError as gone:
                return gone

        return await asyncio.gather(*(one(task) for task in tasks))


def results(answers: list[httpx.Response | httpx.TransportError]) -> list[dict[str, Any]]:
    """Rewards and conversations. Raises for an answer that is no 200."""
    found = []
    for answer in answers:
        assert isinstance(answer, httpx.Response), answer
        run = answer.raise_for_status().json()
        found.append({"reward": run["reward"], "conversation": run["response"]["output"]})
    return found


def script(run: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The calls that a conversation holds."""
    calls = [item for item in run["conversation"] if item["type"] == "function_call"]
    return [(call["name"], json.loads(call["arguments"])) for call in calls]


def repeated(executions: list[dict[str, Any]], runs: list[dict[str, Any]]) -> int:
    """Calls that a session executed beyond its script, or not in its order."""
    scripts = [script(run) for run in runs]
    longest = []
    for session in by_session(executions):
        common = (sum(1 for _ in _common(session, calls)) for calls in scripts)
        longest.append(len(session) - max(common))
    return sum(longest)


def _common(session: list[Any], calls: list[Any]) -> Iterable[Any]:
    for executed_call, call in zip(session, calls, strict=False):
        if executed_call != call:
            return
        yield call


def kill_and_restore(gym: Gym, name: str, *dying: str) -> dict[str, Any]:
    """Checkpoint, SIGKILL before the gates open, fresh processes on the same ports, restore."""
    gym.command("checkpoint", "create", name, "--resume", "by-caller")
    for server in dying:
        gym.kill(server)
    for server in dying:
        gym.start(server, AGENT if server in AGENTS else WORKPLACE)
    gym.members(4)
    gym.command("checkpoint", "resume", name)
    restored: dict[str, Any] = gym.command("checkpoint", "restore", name)
    return restored


def targets(restored: dict[str, Any], fate: str) -> list[tuple[str, str]]:
    return sorted((target["source"], target["target"]) for target in restored[fate])


def left_over(gym: Gym) -> int:
    return sum(gym.counts(name)["sessions"] for name in ("workplace_assistant", *AGENTS))


async def test_living_agents_go_on_as_the_attempt_that_each_restore_gives_them(fleet: Gym, executions: Path) -> None:
    """X01, X13, R01, C09: agent and resources name the same attempt in the next checkpoint, or it would lose the episodes."""
    tasks = range(HALF)
    expected = results(await play(fleet.url("simple_agent"), tasks))
    before = len(executed(executions))
    running = asyncio.create_task(play(fleet.url("simple_agent"), tasks))
    for attempt in range(2):
        await some_executed(executions, HALF)
        restored = await asyncio.to_thread(kill_and_restore, fleet, f"cut-{attempt}", "workplace_assistant")
        texts = [f"{task}-0" for task in tasks]
        given = [[text if n == 0 else f"{text}-a{n}" for text in texts] for n in (attempt, attempt + 1)]
        assert targets(restored, "restored") == list(zip(*given, strict=True))
        assert targets(restored, "restarted") == targets(restored, "lost") == []
    runs, calls = results(await running), executed(executions)[before:]
    assert runs == expected
    assert by_session(calls) == sorted((script(run) for run in expected), key=repr), "each call was executed once"
    assert await asyncio.to_thread(left_over, fleet) == 0


async def test_episodes_of_a_dead_agent_restart_beside_those_that_go_on(fleet: Gym, executions: Path) -> None:
    """X13, X29, X06: one agent dies with the resources server, the other one lives."""
    living, dead = range(HALF), range(HALF, 2 * HALF)
    first, second = (fleet.url(name) for name in AGENTS)
    expected = results(await play(first, [*living, *dead]))
    before = len(executed(executions))
    staying, dying = asyncio.create_task(play(first, living)), asyncio.create_task(play(second, dead))
    await some_executed(executions, 2 * HALF)
    restored = await asyncio.to_thread(kill_and_restore, fleet, "cut", "workplace_assistant", "second_agent")
    assert targets(restored, "restored") == [(f"{task}-0", f"{task}-0-a1") for task in living]
    assert targets(restored, "restarted") == [(f"{task}-0", f"{task}-0-a1") for task in dead]
    assert restored["lost"] == []
    assert all("agent/second_agent held it in a process that is gone" in e["why"] for e in restored["restarted"])
    assert all(isinstance(answer, httpx.TransportError) for answer in await dying)
    anew = results(await play(second, dead, attempt=1))
    runs, calls = [*results(await staying), *anew], executed(executions)[before:]
    over = await asyncio.to_thread(left_over, fleet)
    note(
        "environments",
        "simple_agent",
        rollouts=2 * HALF,
        continued=len(restored["restored"]),
        restarted=len(restored["restarted"]),
        lost=len(restored["lost"]),
        tool_calls_repeated=repeated(calls, expected),
        tool_outputs_different=sum(a["conversation"] != b["conversation"] for a, b in zip(runs, expected, strict=True)),
        rewards_different=sum(a["reward"] != b["reward"] for a, b in zip(runs, expected, strict=True)),
        left_over=over,
    )
    assert runs == expected
    assert repeated(calls, expected) == 0
    assert len(by_session(calls)) == 3 * HALF, "those that live, those that died, and those that began anew"
    assert over == 0


async def test_an_agent_that_dies_alone_leaves_nothing_behind(fleet: Gym, executions: Path) -> None:
    """X13, X28: its episodes are named as restarts, and the sessions that it left at a living resources server are freed."""
    tasks, agent = range(HALF), fleet.url("simple_agent")
    running = asyncio.create_task(play(agent, tasks))
    await some_executed(executions, HALF)
    restored = await asyncio.to_thread(kill_and_restore, fleet, "cut", "simple_agent")
    assert targets(restored, "restarted") == [(f"{task}-0", f"{task}-0-a1") for task in tasks]
    assert restored["restored"] == restored["lost"] == []
    assert all(isinstance(answer, httpx.TransportError) for answer in await running)
    assert await asyncio.to_thread(left_over, fleet) == 0
    [refused] = await play(agent, [0])
    assert isinstance(refused, httpx.Response)
    assert (refused.status_code, refused.headers["x-gymckpt-reason"]) == (500, "STALE_ATTEMPT"), refused.text
    assert {run["reward"] for run in results(await play(agent, tasks, attempt=1))} == {1.0}
    assert await asyncio.to_thread(left_over, fleet) == 0
