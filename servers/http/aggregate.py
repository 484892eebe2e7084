"""Metrics over finished rollouts, the answer of POST /aggregate_metrics."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_TOKENS = ("input_tokens", "output_tokens", "total_tokens")
_STATISTICS: dict[str, Callable[[Sequence[float]], float]] = {
    "mean": statistics.fmean,
    "max": max,
    "min": min,
    "median": statistics.median,
    "std": lambda values: statistics.stdev(values) if len(values) > 1 else 0.0,
}


def aggregate(verify_responses: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Statistics of the reward and the token counts: per task, over all, and the means alone as key metrics."""
    tasks: dict[int, list[Mapping[str, Any]]] = {}
    for row in verify_responses:
        tasks.setdefault(row["_ng_task_index"], []).append(row)
    overall = _statistics(verify_responses)
    return {
        "group_level_metrics": [_group(index, rows) for index, rows in sorted(tasks.items())],
        "agent_metrics": {**overall, "num_repeats": max(map(len, tasks.values()), default=0)},
        "key_metrics": {name: value for name, value in overall.items() if name.startswith("mean/")},
        "perf_summary": None,
        "repeat_level_metrics": [],
    }


def _group(index: int, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "_ng_task_index": index,
        **_statistics(rows),
        "sample": {"agent_ref": {"name": "agent"}},
        "num_rollouts": len(rows),
        "expected_num_rollouts": len(rows),
        "missing_num_rollouts": 0,
        "reward_profile_completion_pct": 100.0,
        "rollout_infos": [_info(row) for row in rows],
    }


def _info(row: Mapping[str, Any]) -> dict[str, Any]:
    task, rollout = row["_ng_task_index"], row["_ng_rollout_index"]
    identity = {"rollout_id": f"{task}:{rollout}", "_ng_task_index": task, "_ng_rollout_index": rollout}
    return {**identity, **_measures(row)}


def _statistics(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    columns: dict[str, list[float]] = {}
    for row in rows:
        for name, value in _measures(row).items():
            columns.setdefault(name, []).append(value)
    return {f"{kind}/{name}": float(of(column)) for kind, of in _STATISTICS.items() for name, column in columns.items()}


def _measures(row: Mapping[str, Any]) -> dict[str, float]:
    usage = (row.get("response") or {}).get("usage") or {}
    return {"reward": row["reward"], **{name: usage[name] for name in _TOKENS if name in usage}}
