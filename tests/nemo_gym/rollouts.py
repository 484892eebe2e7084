"""Rollouts of the real simple_agent, started as NeMo Gym's collector starts them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx

from tests.nemo_gym.calls import SESSION

Call = tuple[str, dict[str, Any]]

STEPS = 24
LONGEST_ROLLOUT = 300.0  # seconds


def row(task: int, steps: int = STEPS) -> dict[str, Any]:
    """A run of the agent: the task's own e-mail, then calls of the session from a place of its own; all are the ground truth."""
    mine = ("email_send_email", {"recipient": f"r{task}@atlas.com", "subject": f"task {task}", "body": "x"})
    calls = [mine, *(SESSION[(task * 3 + step) % len(SESSION)] for step in range(steps - 1))]
    told = [{"name": name, "arguments": json.dumps(arguments)} for name, arguments in calls]
    script = {"steps": [[call] for call in told], "final": f"done {task}"}
    return {
        "id": task,
        "category": "scripted",
        "environment_name": "workplace_assistant",
        "ground_truth": told,
        "responses_create_params": {"input": [{"role": "user", "content": json.dumps(script)}], "tools": []},
        "_ng_task_index": task,
        "_ng_rollout_index": 0,
    }


async def collect(agent: str, count: int) -> list[dict[str, Any]]:
    """Runs all at once; rewards and conversations by task. Raises for an answer that is no 200."""
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(timeout=LONGEST_ROLLOUT, limits=limits) as client:
        answers = await asyncio.gather(*(client.post(f"{agent}/run", json=row(task)) for task in range(count)))
    found = [(answer.raise_for_status().json()) for answer in answers]
    return [{"reward": run["reward"], "conversation": run["response"]["output"]} for run in found]


def executed(log: Path) -> list[dict[str, Any]]:
    """Every line of a log, in order: an execution of a tool, or the end of a session."""
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def by_session(executions: list[dict[str, Any]]) -> list[list[Call]]:
    """The calls that each session executed, in order."""
    found: dict[str, list[Call]] = {}
    for line in executions:
        found.setdefault(line["session"], []).append((line["tool"], line["arguments"]))
    return sorted(found.values(), key=repr)


def tables_by_task(ends: list[dict[str, Any]]) -> dict[int, list[Any]]:
    """The tables with which each task's sessions came to their verifications: more than one, if it was verified more than once."""
    found: dict[int, list[Any]] = {}
    for line in ends:
        found.setdefault(line["task"], []).append(line["tables"])
    return found


def told(runs: list[dict[str, Any]]) -> list[list[Call]]:
    """The calls that each conversation holds, in order."""
    calls = [[item for item in run["conversation"] if item["type"] == "function_call"] for run in runs]
    return sorted(([(c["name"], json.loads(c["arguments"])) for c in conversation] for conversation in calls), key=repr)


async def some_executed(log: Path, more: int) -> None:
    """Returns when so many more tools have run. Raises TimeoutError after a minute."""
    wanted = len(executed(log)) + more
    async with asyncio.timeout(60):
        while len(executed(log)) < wanted:  # noqa: ASYNC110 - another process writes the file
            await asyncio.sleep(0.02)
