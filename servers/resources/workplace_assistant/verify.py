"""The reward: did the calls of a response leave the tables as the ground truth leaves them?"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from servers.resources.workplace_assistant.tables import Tables
from servers.resources.workplace_assistant.tools import call


def reward(pristine: Tables, ground_truth: Iterable[Mapping[str, Any]], output: Iterable[Mapping[str, Any]]) -> float:
    """1.0 if both lists of calls, each played on its own copy of `pristine`, end in the same tables, else 0.0.

    Args:
        pristine: the tables that every session starts from; stays as it is.
        ground_truth: calls as `{"name", "arguments"}`, the arguments as JSON text.
        output: a response's output items; only those of type "function_call" count.
    """
    wanted = replay(pristine, ground_truth)
    reached = replay(pristine, (item for item in output if item.get("type") == "function_call"))
    pairs = zip(wanted.items(), reached.items(), strict=True)
    return 1.0 if all(same_content(left, right) for (_, left), (_, right) in pairs) else 0.0


def replay(pristine: Tables, calls: Iterable[Mapping[str, Any]]) -> Tables:
    """The tables after `calls` on a copy of `pristine`. A call whose arguments are no JSON object changes nothing."""
    tables = pristine.copy()
    for item in calls:
        arguments = _arguments(item["arguments"])
        if arguments is not None:
            call(tables, item["name"], arguments)
    return tables


def same_content(left: pd.DataFrame, right: pd.DataFrame) -> bool:
    """Whether two frames say the same, row by row.

    Text counts without its case, a number as its text (an average turns a column of digits into numbers, and that is
    no change to the workplace), None as NaN. Index labels and dtypes do not count.
    """
    if left is right:
        return True
    if left.shape != right.shape or list(left.columns) != list(right.columns):
        return False
    return all(
        left[column] is right[column] or _contents(left[column]) == _contents(right[column]) for column in left.columns
    )


def _arguments(text: Any) -> dict[str, Any] | None:
    try:
        arguments = json.loads(text)
    except (TypeError, ValueError):
        return None
    return arguments if isinstance(arguments, dict) else None


def _contents(column: pd.Series[Any]) -> list[str | None]:
    return [_content(cell) for cell in column.tolist()]


def _content(cell: Any) -> str | None:
    if isinstance(cell, str):
        return cell.casefold()
    if cell is None or cell != cell:
        return None
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return json.dumps(cell, sort_keys=True, ensure_ascii=False).casefold()
