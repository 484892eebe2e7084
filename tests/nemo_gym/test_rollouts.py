"""Rollouts of the real agent and model go on while the real resources server is killed and restored under them."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from tests.nemo_gym.gym import AGENT, MODEL, Gym
from tests.nemo_gym.result import note
from tests.nemo_gym.rollouts import STEPS, by_session, collect, executed, some_executed, tables_by_task, told

WORKPLACE = "tests.nemo_gym.logged_workplace:LoggedWorkplace"
ROLLOUTS = 32
KILLS = 5


@pytest.fixture
def executions(tmp_path: Path) -> Path:
    return tmp_path / "executions.jsonl"


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    return tmp_path / "tables.jsonl"


@pytest.fixture
def fleet(gym: Gym, executions: Path, tables: Path) -> Gym:
    """Everything but a coordinator is running: the policy, the model server, the resources server and the agent."""
    gym.environment = {"EXECUTIONS": str(executions), "TABLES": str(tables), "PYTHONPATH": os.getcwd()}
    gym.start_script("upstream", "upstream.py", "--latency", "0.4")
    gym.add("workplace_assistant", "resources_servers", "workplace_assistant")
    gym.add_policy(gym.url("upstream"))
    gym.add(
        "simple_agent",
        "responses_api_agents",
        "simple_agent",
        max_steps=STEPS + 1,
        resources_server={"type": "resources_servers", "name": "workplace_assistant"},
        model_server={"type": "responses_api_models", "name": "policy_model"},
    )
    gym.serve_checkpoints()
    gym.start("policy_model", MODEL)
    gym.start("workplace_assistant", WORKPLACE)
    gym.start("simple_agent", AGENT, stock=True)
    gym.members(2)
    return gym


def kill_and_restore(gym: Gym, name: str) -> dict[str, Any]:
    """Checkpoint, SIGKILL before the gates open, a fresh process on the same port, restore."""
    gym.command("checkpoint", "create", name, "--resume", "by-caller")
    gym.kill("workplace_assistant")
    gym.start("workplace_assistant", WORKPLACE)
    gym.members(2)
    gym.command("checkpoint", "resume", name)
    restored: dict[str, Any] = gym.command("checkpoint", "restore", name)
    return restored


def differing(found: Any, expected: Any) -> int:
    return sum(a != b for a, b in zip(found, expected, strict=True))


async def test_rollouts_outlive_five_kills_of_the_resources_server(fleet: Gym, executions: Path, tables: Path) -> None:
    """X01, X13, X15, R01: rewards, conversations, calls and the tables at the end are those of an uninterrupted run."""
    agent = fleet.url("simple_agent")
    expected = await collect(agent, ROLLOUTS)
    assert {run["reward"] for run in expected} == {1.0}
    before, ended = len(executed(executions)), tables_by_task(executed(tables))
    assert len({str(end) for end in ended.values()}) == len(ended) == ROLLOUTS, "each task leaves tables of its own"
    already = len(executed(tables))
    running = asyncio.create_task(collect(agent, ROLLOUTS))
    restores = []
    for kill in range(KILLS):
        await some_executed(executions, ROLLOUTS // 2)
        restores.append(await asyncio.to_thread(kill_and_restore, fleet, f"kill-{kill}"))
    runs, calls = await running, executed(executions)[before:]
    ended_alike = tables_by_task(executed(tables)[already:])
    fates = {fate: sum(len(restore[fate]) for restore in restores) for fate in ("restored", "restarted", "lost")}
    left_over = (await asyncio.to_thread(fleet.counts, "workplace_assistant"))["sessions"]
    note(
        "environments",
        "workplace_assistant",
        rollouts=ROLLOUTS,
        continued=fates["restored"],
        restarted=fates["restarted"],
        lost=fates["lost"],
        tool_calls_repeated=len(calls) - sum(map(len, told(expected))),
        tool_outputs_different=differing(*([run["conversation"] for run in each] for each in (runs, expected))),
        tables_different=differing(*([each.get(task) for task in range(ROLLOUTS)] for each in (ended_alike, ended))),
        rewards_different=differing(*([run["reward"] for run in each] for each in (runs, expected))),
        left_over=left_over,
    )
    assert fates["restored"] > ROLLOUTS
    assert fates["restarted"] == fates["lost"] == left_over == 0
    assert runs == expected
    assert ended_alike == ended
    assert by_session(calls) == told(expected), "every call was executed exactly once"
