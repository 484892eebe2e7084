"""Tasks for the reference servers, and the controller's side of a rollout."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from servers.resources.workplace_assistant.synthetic import synthetic_tables
from servers.resources.workplace_assistant.tasks import as_jsonl, builtin_tasks

Row = dict[str, Any]

COUNTER_TOOLS = [
    {
        "type": "function",
        "name": "increment_counter",
        "parameters": {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]},
        "strict": True,
    },
    {
        "type": "function",
        "name": "get_counter_value",
        "parameters": {"type": "object", "properties": {}},
        "strict": True,
    },
]


def counter_row(number: int, steps: int = 3) -> Row:
    """A task of `steps` increments and one read; every number asks for other increments."""
    counts = [number + step for step in range(1, steps + 1)]
    plan = [{"name": "increment_counter", "arguments": json.dumps({"count": count})} for count in counts]
    request = f"Task {number}: add {', then '.join(map(str, counts))}, then read the counter."
    return {
        "responses_create_params": {"input": [{"role": "user", "content": request}], "tools": COUNTER_TOOLS},
        "initial_count": 3,
        "expected_count": 3 + sum(counts),
        "plan": [*plan, {"name": "get_counter_value", "arguments": "{}"}],
    }


def workplace_rows(count: int) -> list[Row]:
    """The first built-in tasks over the invented tables."""
    return builtin_tasks(synthetic_tables())[:count]


def write_tasks(file: Path, rows: Sequence[Row]) -> Path:
    """The rows as the file that the scripted model reads."""
    file.write_text(as_jsonl(rows))
    return file


def typed(row: Row, rollout_id: str, attempt: int = 0) -> Row:
    """The row as a typed request."""
    data = {name: value for name, value in row.items() if name != "responses_create_params"}
    task_input = {"responses_create_params": row["responses_create_params"], "task_data": data}
    return {
        "episode_id": {"rollout_id": rollout_id, "attempt": attempt},
        "task": {"task_id": {"taskset": "tests", "task_id": rollout_id}, "task_input": task_input},
    }


async def run(address: str, body: Row, headers: Mapping[str, str] | None = None) -> httpx.Response:
    """One `/run` at a server, however long it takes."""
    async with httpx.AsyncClient(timeout=60, trust_env=False) as client:
        return await client.post(f"{address}/run", json=body, headers=dict(headers or {}))
