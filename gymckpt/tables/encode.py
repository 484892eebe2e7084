"""One table as parts."""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from gymckpt.tables.cells import pack, pack_all
from gymckpt.tables.layout import (
    BLOCK_ROWS,
    FORMAT,
    HEAD,
    LABEL_DTYPES,
    ROWS,
    VALUE_DTYPES,
    Block,
    UnsupportedStateError,
    block_of,
    block_order,
    to_bytes,
)

INDEX = "(index)"
COLUMNS = "(column names)"


KEPT_BLOCKS = 512
"""Encoded blocks of rows that one cache keeps: about 16 KB each."""
UNCHANGING = frozenset({str, int, float, bool, type(None)})

Rows = list[tuple[str, "np.ndarray[Any, Any]"]]
"""Labels, then each column, of one block with their names; text is held as references to the cells."""


class BlockCache:
    """Encoded blocks by the very cells in them, the latest `kept`, so that a changed row does not encode its whole table again.

    Tables that come from one another share the cells that did not change. An entry keeps its cells alive, so that no other takes the place in memory of one.
    """

    def __init__(self, kept: int = KEPT_BLOCKS) -> None:
        self._kept = kept
        self._entries: OrderedDict[bytes, tuple[Rows, bytes]] = OrderedDict()
        self._lock = threading.Lock()

    def encoded(self, table: str, rows: Rows) -> bytes:
        """The part that `rows` make. Raises UnsupportedStateError."""
        pieces = [piece for _, cells in rows for piece in (cells.dtype.str.encode(), cells.tobytes())]
        key = b"%d " % len(rows[0][1]) + b"".join(pieces)
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
                return self._entries[key][1]
        content = _encoded(table, rows)
        if all(_unchanging(cells) for _, cells in rows):
            with self._lock:
                self._entries[key] = [(name, cells.copy()) for name, cells in rows], content
                if len(self._entries) > self._kept:
                    self._entries.popitem(last=False)
        return content


def encode_table(table: str, frame: pd.DataFrame, cache: BlockCache | None = None) -> dict[str, bytes]:
    """Parts by name, without the table's own name in front.

    Raises:
        UnsupportedStateError: a cell, label, dtype or kind of index has no exact form.
    """
    blocks = _rising_blocks(frame.index) or _blocks(table, frame.index.tolist())
    order = [position for positions in blocks.values() for position in positions]
    parts = {HEAD: to_bytes(_head(table, frame, order))}
    columns = [(INDEX, frame.index.to_numpy()), *((str(column), frame[column].to_numpy()) for column in frame.columns)]
    encoded = _encoded if cache is None else cache.encoded
    for block, positions in blocks.items():
        taken = _taken(positions)
        parts[f"{ROWS}{block}"] = encoded(table, [(name, cells[taken]) for name, cells in columns])
    return parts


def _taken(positions: Sequence[int]) -> slice | list[int]:
    """The rising positions as a slice where they are one run: taking that copies nothing."""
    first, last = positions[0], positions[-1]
    return slice(first, last + 1) if last - first == len(positions) - 1 else list(positions)


def _encoded(table: str, rows: Rows) -> bytes:
    labels, *cells = [_bytes(table, name, cells.tolist()) for name, cells in rows]
    return b'{"labels":%b,"cells":[%b]}' % (labels, b",".join(cells))


def _unchanging(cells: np.ndarray[Any, Any]) -> bool:
    return cells.dtype != object or UNCHANGING.issuperset(map(type, cells.tolist()))


def _rising_blocks(index: pd.Index[Any]) -> dict[Block, Sequence[int]]:
    """What `_blocks` finds, at once, for integer labels whose blocks come in order; empty for all others."""
    if index.dtype != np.int64:
        return {}
    numbers = index.to_numpy() // BLOCK_ROWS
    steps = np.diff(numbers)
    if (steps < 0).any():
        return {}
    starts = [0, *(np.flatnonzero(steps) + 1).tolist()]
    ends = [*starts[1:], len(numbers)]
    return {int(numbers[start]): range(start, end) for start, end in zip(starts, ends, strict=True) if start < end}


def _blocks(table: str, labels: list[Any]) -> dict[Block, Sequence[int]]:
    """Positions of the rows of each block, the blocks in their order."""
    blocks: dict[Block, list[int]] = defaultdict(list)
    for position, label in enumerate(labels):
        try:
            blocks[block_of(label)].append(position)
        except TypeError as error:
            raise UnsupportedStateError(table, INDEX, label, "is no label that can be kept exactly") from error
    return dict(sorted(blocks.items(), key=lambda item: block_order(item[0])))


def _head(table: str, frame: pd.DataFrame, order: list[int]) -> dict[str, Any]:
    dtypes = [dtype.name for dtype in frame.dtypes]
    for column, dtype in zip(frame.columns, dtypes, strict=True):
        if dtype not in VALUE_DTYPES:
            raise UnsupportedStateError(table, str(column), dtype, f"is none of the dtypes {', '.join(VALUE_DTYPES)}")
    if frame.attrs:
        raise UnsupportedStateError(table, "(attrs)", frame.attrs, "is kept by no part")
    return {
        "format": FORMAT,
        "pandas": pd.__version__,
        "rows": len(frame),
        "columns": {"names": _column_names(table, frame.columns), **_kind(table, COLUMNS, frame.columns)},
        "dtypes": dtypes,
        "index": _index(table, frame.index),
        "order": None if order == list(range(len(order))) else order,
    }


def _column_names(table: str, columns: pd.Index[Any]) -> list[str]:
    names = columns.tolist()
    if not all(type(name) is str for name in names) or len(set(names)) != len(names):
        raise UnsupportedStateError(table, COLUMNS, names, "are not different texts")
    return names


def _index(table: str, index: pd.Index[Any]) -> dict[str, Any]:
    if isinstance(index, pd.RangeIndex):
        return {"range": [index.start, index.stop, index.step], "name": _name(table, INDEX, index)}
    return _kind(table, INDEX, index)


def _kind(table: str, what: str, index: pd.Index[Any]) -> dict[str, Any]:
    if type(index) is not pd.Index or index.dtype.name not in LABEL_DTYPES:
        problem = f"is neither a range nor a plain index of {', '.join(LABEL_DTYPES)}"
        raise UnsupportedStateError(table, what, f"{type(index).__name__} of {index.dtype}", problem)
    return {"dtype": index.dtype.name, "name": _name(table, what, index)}


def _name(table: str, what: str, index: pd.Index[Any]) -> str | None:
    if index.name is not None and type(index.name) is not str:
        raise UnsupportedStateError(table, what, index.name, "is no text, as the name of an index must be")
    return index.name


def _bytes(table: str, column: str, cells: list[Any]) -> bytes:
    try:
        return to_bytes(pack_all(cells))
    except (TypeError, ValueError, RecursionError) as error:
        value, problem = next(_unpackable(cells), (cells, error))
        raise UnsupportedStateError(table, column, value, f"cannot be kept exactly: {problem}") from error


def _unpackable(cells: list[Any]) -> Any:
    for cell in cells:
        try:
            to_bytes(pack(cell))
        except (TypeError, ValueError, RecursionError) as error:
            yield cell, error
