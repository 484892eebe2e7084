"""What a controller sends to /run: a flat row, or a typed request. Both come down to one episode and one task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gymckpt.errors import EpisodeRequired, InvalidField
from gymckpt.participant import Call, Episode
from servers.responses_api import JsonObject


@dataclass(frozen=True)
class Task:
    """`data` are the task's own fields, `params` the request that the agent gets, `agent_ref` names it in the result."""

    task_id: JsonObject
    params: JsonObject
    data: JsonObject
    agent_ref: JsonObject | None = None

    @property
    def identity(self) -> JsonObject:
        """What makes it the same task in another attempt."""
        return {"task_id": self.task_id, "responses_create_params": self.params, "task_data": self.data}

    def verify_body(self, response: JsonObject) -> JsonObject:
        """The row with the finished response, as resources servers grade it."""
        return {"responses_create_params": self.params, **self.data, "response": response}


def read_run(call: Call, body: Mapping[str, Any], taskset: str) -> tuple[Episode, Task]:
    """The episode and the task of a run; the task of a flat row belongs to `taskset`.

    The header or path prefix of the call decides the attempt; the rollout must be the one in the body, where the body
    names one. Raises EpisodeRequired when neither does, InvalidField for a malformed body.
    """
    episode, task = _read_typed(body) if "episode_id" in body else _read_flat(body, taskset)
    if call.episode is None and episode is None:
        raise EpisodeRequired(
            "the run names no rollout; send x-gymckpt-episode, _ng_rollout_id, or _ng_task_index and _ng_rollout_index"
        )
    if call.episode is not None and episode is not None and call.episode.rollout_id != episode.rollout_id:
        raise InvalidField(
            f"the call is of rollout {call.episode.rollout_id!r}, its body of {episode.rollout_id!r}",
            field="episode_id",
        )
    chosen = call.episode or episode
    assert chosen is not None
    return chosen, task


def _read_typed(body: Mapping[str, Any]) -> tuple[Episode, Task]:
    named = _object(body, "episode_id")
    task = _object(body, "task")
    given = _object(task, "task_input")
    episode = Episode(str(named.get("rollout_id", "")), _attempt(named.get("attempt", 0), "episode_id.attempt"))
    data = given.get("task_data") or {}
    return episode, Task(
        _object(task, "task_id"), _object(given, "responses_create_params"), data, body.get("agent_ref")
    )


def _read_flat(row: Mapping[str, Any], taskset: str) -> tuple[Episode | None, Task]:
    rollout = row.get("_ng_rollout_id")
    if rollout is None and "_ng_task_index" in row and "_ng_rollout_index" in row:
        rollout = f"{row['_ng_task_index']}-{row['_ng_rollout_index']}"
    attempt = _attempt(row.get("_ng_attempt_index") or 0, "_ng_attempt_index")
    data = {name: value for name, value in row.items() if name not in _NO_TASK_DATA and not name.startswith("_ng_")}
    number = row.get("id", row.get("_ng_task_index", 0))
    task_id = {"taskset": taskset, "task_id": str(number)}
    task = Task(task_id, _object(row, "responses_create_params"), data, row.get("agent_ref"))
    return (None if rollout is None else Episode(str(rollout), attempt)), task


_NO_TASK_DATA = {"responses_create_params", "agent_ref"}


def _object(body: Mapping[str, Any], field: str) -> JsonObject:
    value = body.get(field)
    if not isinstance(value, dict):
        raise InvalidField(f"{field} must be an object, got {type(value).__name__}", field=field)
    return value


def _attempt(value: Any, field: str) -> int:
    if not isinstance(value, int):
        raise InvalidField(f"{field} must be a whole number, got {value!r}", field=field)
    return value
