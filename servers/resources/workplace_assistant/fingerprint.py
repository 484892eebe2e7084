"""A digest of a session's tables that owes nothing to the codec, so that it tells on the codec too.

It covers whatever a tool's answer could show: names and dtypes of columns, labels and kind of index, and of every cell
its type and its text, so that None, NaN and "nan" all differ.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd
from blake3 import blake3

from servers.resources.workplace_assistant.tables import Tables


def fingerprint(tables: Tables) -> str:
    """Hexadecimal BLAKE3; equal only for tables that no sequence of tool calls can tell apart."""
    digest = blake3()
    for name, frame in tables.items():
        digest.update(
            f"table {name!r} {_index(frame.index)} {_index(frame.columns)}\n".encode("utf-8", "surrogatepass")
        )
        for column in frame.columns:
            cells = _cells(frame[column].tolist())
            digest.update(f"{column!r} {frame[column].dtype} {cells}\n".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _index(index: pd.Index[Any]) -> str:
    bounds = (index.start, index.stop, index.step) if isinstance(index, pd.RangeIndex) else None
    return f"{type(index).__name__} {index.dtype} {index.name!r} {bounds} {_cells(index.tolist())}"


def _cells(cells: Iterable[Any]) -> str:
    return ",".join(f"{type(cell).__name__}:{cell!r}" for cell in cells)
