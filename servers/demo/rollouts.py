"""The rollouts of a demo, and the one call by which a controller plays them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gymckpt.participant import Episode
from servers.http.client import Outgoing
from servers.http.peers import call_headers
from servers.resources.workplace_assistant.plan import PlannedCall, plan
from servers.resources.workplace_assistant.synthetic import synthetic_tables
from servers.resources.workplace_assistant.tables import Tables, load_tables
from servers.resources.workplace_assistant.tasks import as_jsonl, builtin_tasks
from servers.responses_api import JsonObject


@dataclass(frozen=True)
class Rollout:
    """One task, played once. `number` counts the rollouts of a demo from 0; `row` is what the controller sends."""

    number: int
    rollout_id: str
    row: JsonObject
    plan: tuple[PlannedCall, ...]


@dataclass(frozen=True)
class Result:
    """A finished rollout: `output` are the items of its conversation."""

    output: list[JsonObject]
    reward: float


@dataclass(frozen=True)
class Tasks:
    """What is played, and on which tables. `tables_file` is None for the invented ones."""

    rows: tuple[JsonObject, ...]
    tables_directory: Path | None = None

    @classmethod
    def builtin(cls) -> Tasks:
        """The built-in tasks over invented tables."""
        return cls(tuple(builtin_tasks(synthetic_tables())))

    @classmethod
    def read(cls, file: Path, tables_directory: Path | None) -> Tasks:
        """Rows from a JSONL file. Raises FileNotFoundError, ValueError."""
        return cls(tuple(json.loads(line) for line in file.read_text().splitlines()), tables_directory)

    def pristine(self) -> Tables:
        """The tables that every session starts from."""
        return synthetic_tables() if self.tables_directory is None else load_tables(self.tables_directory)

    def write(self, file: Path) -> Path:
        """Writes the rows where a model server can read them."""
        file.write_text(as_jsonl(self.rows))
        return file

    def rollouts(self, count: int) -> list[Rollout]:
        """`count` rollouts; tasks are repeated in turn when there are fewer."""
        rollouts = []
        for number in range(count):
            repeat, task = divmod(number, len(self.rows))
            row = {**self.rows[task], "_ng_task_index": task, "_ng_rollout_index": repeat}
            rollouts.append(Rollout(number, f"{task}-{repeat}", row, tuple(plan(row))))
        return rollouts


async def play(outgoing: Outgoing, url: str, rollout: Rollout, attempt: int = 0, *, continues: bool = False) -> Result:
    """Plays one attempt at the environment server `url`. Raises TransportFailed when it dies, GymckptError when it refuses, UnexpectedAnswer."""
    headers = call_headers(Episode(rollout.rollout_id, attempt), continues=continues)
    answer = await outgoing.fetch(f"{url}/run", rollout.row, headers=headers)
    result: dict[str, Any] = answer.json()
    return Result(result["response"]["output"], float(result["reward"]))


def outputs(items: Sequence[JsonObject]) -> list[JsonObject]:
    """The items that are answers of tools, in order."""
    return [item for item in items if item.get("type") == "function_call_output"]
