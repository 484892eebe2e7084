"""The strict comparison of tables: whatever a tool's answer could show must be equal, down to the types of cells."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from servers.resources.workplace_assistant.tables import Tables


def differences(left: Tables, right: Tables) -> list[str]:
    """One line for each difference between two sessions' tables."""
    frames = zip(left.items(), right.items(), strict=True)
    return [f"{name}: {line}" for (name, ours), (_, theirs) in frames for line in frame_differences(ours, theirs)]


def frame_differences(left: pd.DataFrame, right: pd.DataFrame) -> list[str]:
    """One line for each difference between two frames."""
    found = index_differences("index", left.index, right.index)
    found += index_differences("columns", left.columns, right.columns)
    if found:
        return found
    for column in left.columns:
        ours, theirs = left[column], right[column]
        if ours.dtype != theirs.dtype:
            found.append(f"column {column}: dtype {ours.dtype} and {theirs.dtype}")
        found += cell_differences(f"column {column}", ours.tolist(), theirs.tolist())
    return found


def index_differences(what: str, left: pd.Index[Any], right: pd.Index[Any]) -> list[str]:
    ours, theirs = describe(left), describe(right)
    if ours != theirs:
        return [f"{what}: {ours} and {theirs}"]
    return cell_differences(what, left.tolist(), right.tolist())


def describe(index: pd.Index[Any]) -> tuple[object, ...]:
    bounds = (index.start, index.stop, index.step) if isinstance(index, pd.RangeIndex) else None
    return type(index).__name__, index.dtype, index.name, bounds


def cell_differences(what: str, left: list[Any], right: list[Any]) -> list[str]:
    if len(left) != len(right):
        return [f"{what}: {len(left)} and {len(right)} cells"]
    pairs = enumerate(zip(left, right, strict=True))
    return [f"{what}, row {row}: {ours!r} and {theirs!r}" for row, (ours, theirs) in pairs if not same(ours, theirs)]


def same(left: Any, right: Any) -> bool:
    """Whether two cells are the same: type, value, sign of zero, order of keys; None, NaN, NaT and NA all differ."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    if left is pd.NaT or left is pd.NA:
        return left is right
    if isinstance(left, float | np.floating):
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) and math.isnan(right)
        return bool(left == right) and math.copysign(1.0, left) == math.copysign(1.0, right)
    return bool(left == right)
