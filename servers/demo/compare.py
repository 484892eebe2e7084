"""What differs between a run that was cut and continued and one that was not. Pure: logs and results in, numbers out."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from servers.demo.layout import WORKPLACE, base_name
from servers.demo.rollouts import Result, outputs
from servers.resources.workplace_assistant.tables import Tables
from servers.resources.workplace_assistant.tools import call
from servers.responses_api import JsonObject, function_calls

Line = Mapping[str, Any]

NO_TOOLS = frozenset({"seed_session", "verify", "close_session"})
"""What a resources server logs besides tool calls."""


def tool_calls(log: Iterable[Line]) -> list[Line]:
    """The tool calls among executed calls, of all lanes."""
    return [line for line in log if base_name(line["server"]) == WORKPLACE and line["what"] not in NO_TOOLS]


def repeated_calls(log: Iterable[Line], reference: Iterable[Line]) -> int:
    """Tool calls that were executed more often than in the reference, over all attempts of a rollout."""
    more = _counted(tool_calls(log)) - _counted(tool_calls(reference))
    return more.total()


def different_prefixes(at_cut: Mapping[str, Sequence[JsonObject]], results: Mapping[str, Result]) -> int:
    """Rollouts whose conversation does not begin with the items that the checkpoint holds."""
    return sum(list(items) != list(_items(results, rollout)[: len(items)]) for rollout, items in at_cut.items())


def different_outputs(results: Mapping[str, Result], reference: Mapping[str, Result]) -> int:
    """Answers of tools that are not those of the reference, and calls and messages that are not either; a missing item differs."""
    pairs = (
        pair
        for rollout in results.keys() | reference.keys()
        for pair in zip_longest(_items(results, rollout), _items(reference, rollout))
    )
    return sum(ours != theirs for ours, theirs in pairs)


def different_rewards(results: Mapping[str, Result], reference: Mapping[str, Result]) -> int:
    """Rollouts whose reward is not that of the reference, or that have none."""
    rollouts = results.keys() | reference.keys()
    return sum(_reward(results, rollout) != _reward(reference, rollout) for rollout in rollouts)


def different_tables(log: Iterable[Line], reference: Iterable[Line], rollouts: Iterable[str]) -> int:
    """Rollouts whose tables were not the same at their verification, of which there must be exactly one."""
    ours, theirs = _final_tables(log), _final_tables(reference)
    return sum(
        len(ours.get(rollout, ())) != 1 or ours[rollout] != theirs.get(rollout) or None in ours[rollout]
        for rollout in rollouts
    )


def mean_reward(results: Mapping[str, Result]) -> float:
    """0.0 without results."""
    return sum(result.reward for result in results.values()) / len(results) if results else 0.0


class Continuation:
    """How far a continued rollout depends on what was restored: its calls are played twice on `pristine` tables, once with and once without the changes that
    were made before the cut (`answered` tool calls)."""

    def __init__(self, pristine: Tables, output: Sequence[JsonObject], answered: int) -> None:
        self.results_after = max(0, len(outputs(output)) - answered)
        self.reads_of_changed_state = 0
        calls = function_calls(list(output))
        whole, rest = pristine.copy(), pristine.copy()
        for made in calls[:answered]:
            _play(whole, made)
        self.changed = _changed(pristine, whole)
        for made in calls[answered:]:
            before = whole.copy()
            seen, unseen = _play(whole, made), _play(rest, made)
            is_read = not _changed(before, whole)
            self.reads_of_changed_state += is_read and seen != unseen


def _play(tables: Tables, made: JsonObject) -> Any:
    return call(tables, made["name"], json.loads(made["arguments"]))


def _changed(before: Tables, after: Tables) -> bool:
    return any(ours is not theirs for (_, ours), (_, theirs) in zip(before.items(), after.items(), strict=True))


def _counted(calls: Iterable[Line]) -> Counter[tuple[Any, ...]]:
    return Counter((line["rollout"], line["what"], line["call_id"], line["arguments"]) for line in calls)


def _items(results: Mapping[str, Result], rollout: str) -> Sequence[JsonObject]:
    return results[rollout].output if rollout in results else ()


def _reward(results: Mapping[str, Result], rollout: str) -> float | None:
    return results[rollout].reward if rollout in results else None


def _final_tables(log: Iterable[Line]) -> dict[str, list[str | None]]:
    found: dict[str, list[str | None]] = {}
    for line in log:
        if line["what"] == "verify":
            found.setdefault(line["rollout"], []).append(line.get("tables"))
    return found
