"""One table as parts."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pandas as pd

from gymckpt.tables.cells import pack, pack_all
from gymckpt.tables.layout import (
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


def encode_table(table: str, frame: pd.DataFrame) -> dict[str, bytes]:
    """Parts by name, without the table's own name in front.

    Raises:
        UnsupportedStateError: a cell, label, dtype or kind of index has no exact form.
    """
    labels = frame.index.tolist()
    blocks = _blocks(table, labels)
    order = [position for positions in blocks.values() for position in positions]
    parts = {HEAD: to_bytes(_head(table, frame, order))}
    columns = {str(column): frame[column].tolist() for column in frame.columns}
    for block, positions in blocks.items():
        cells = [
            _bytes(table, column, [values[position] for position in positions]) for column, values in columns.items()
        ]
        own = _bytes(table, INDEX, [labels[position] for position in positions])
        parts[f"{ROWS}{block}"] = b'{"labels":%b,"cells":[%b]}' % (own, b",".join(cells))
    return parts


def _blocks(table: str, labels: list[Any]) -> dict[Block, list[int]]:
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
