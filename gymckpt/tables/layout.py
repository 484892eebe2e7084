"""How a table is cut into parts, and what both directions of the codec must agree on."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from gymckpt.tables.cells import pack, shown

FORMAT = "gymckpt-table/1"
BLOCK_ROWS = 64
HEAD = "table"
ROWS = "rows/"
VALUE_DTYPES = ("object", "str", "bool", "int64", "float64")
"""Dtypes of a column."""
LABEL_DTYPES = ("object", "str", "int64")
"""Dtypes of an index that is no plain range, and of the column names."""

Block = int | str
"""A block's name inside its table: a number, or "h" and two hexadecimal digits."""

_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


class CodecError(ValueError):
    """Tables and parts cannot be turned into each other."""


class UnsupportedStateError(CodecError):
    """A table holds something that has no exact form: nothing is encoded."""

    def __init__(self, table: str, column: str, value: object, problem: str) -> None:
        super().__init__(f"table {table}, column {column}: {shown(value)} {problem}")
        self.table = table
        self.column = column
        self.value = value


class MalformedPartsError(CodecError):
    """A part is not what the encoder makes, or belongs to another pandas: nothing is decoded."""

    def __init__(self, part: str, problem: str) -> None:
        super().__init__(f"part {part}: {problem}")
        self.part = part


def block_of(label: Any) -> Block:
    """The block of the row with this label; the same label always falls into the same block."""
    if type(label) is int:
        return label // BLOCK_ROWS
    return "h" + hashlib.blake2b(to_bytes(pack(label)), digest_size=1).hexdigest()


def block_order(block: Block) -> tuple[int, str]:
    """Sorts blocks: numbered ones by number, so that rising labels need no order of their own; then hashed ones."""
    return (block, "") if isinstance(block, int) else (2**63, block)


def to_bytes(value: Any) -> bytes:
    """JSON in its one form here; a lone surrogate inside a text survives."""
    return _JSON.encode(value).encode("utf-8", "surrogatepass")


def from_bytes(content: bytes) -> Any:
    """The value of `to_bytes`.

    Raises:
        ValueError: the bytes are no JSON text.
    """
    return json.loads(content.decode("utf-8", "surrogatepass"))
