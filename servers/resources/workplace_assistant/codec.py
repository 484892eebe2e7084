"""One session's tables as named parts of bytes, and back, without losing anything that a tool's answer can show.

    <table>/table          what the rows do not tell: columns, dtypes, kind of index, order of rows, pandas version
    <table>/rows/<block>   up to 64 rows: those whose integer label is in [64 * block, 64 * block + 64)

Equal tables give equal bytes. A changed cell changes one block of rows; an added or deleted row also changes its
table's first part. Labels that are no integers fall into blocks by a hash, named "h" and two hexadecimal digits.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping

import pandas as pd

from servers.resources.workplace_assistant.decode import decode_table
from servers.resources.workplace_assistant.encode import encode_table
from servers.resources.workplace_assistant.layout import CodecError, MalformedPartsError, UnsupportedStateError
from servers.resources.workplace_assistant.tables import TABLE_NAMES, Tables

__all__ = ["CodecError", "MalformedPartsError", "PartsCache", "UnsupportedStateError", "decode", "encode", "freeze"]


class PartsCache:
    """Encoded tables, each kept as long as its frame lives, so that an unchanged table is encoded once.

    All sessions start from the same frames: one cache for a process encodes those once for all of them.
    """

    def __init__(self) -> None:
        self._entries: dict[tuple[str, int], tuple[weakref.ref[pd.DataFrame], dict[str, bytes]]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, table: str, frame: pd.DataFrame) -> dict[str, bytes] | None:
        """The parts remembered for exactly this frame, or None."""
        entry = self._entries.get((table, id(frame)))
        return entry[1] if entry is not None and entry[0]() is frame else None

    def put(self, table: str, frame: pd.DataFrame, parts: dict[str, bytes]) -> None:
        """Remembers the parts of a frame, which is not kept alive by that."""
        entries, key = self._entries, (table, id(frame))
        entries[key] = (weakref.ref(frame, lambda _: entries.pop(key, None)), parts)


def freeze(tables: Tables) -> Tables:
    """What `tables` hold now. Later tool calls on `tables` never show in it, so it may be encoded in a thread.

    Frames are values (see `Tables`), so only the container is copied, under any version of pandas.
    """
    return tables.copy()


def encode(tables: Tables, cache: PartsCache | None = None) -> dict[str, bytes]:
    """Parts by name; those of a frame that `cache` knows are taken from there.

    Raises:
        UnsupportedStateError: something in a table has no exact form; the message names table, column and value.
    """
    parts: dict[str, bytes] = {}
    for table, frame in tables.items():
        of_table = cache.get(table, frame) if cache is not None else None
        if of_table is None:
            of_table = {f"{table}/{name}": content for name, content in encode_table(table, frame).items()}
            if cache is not None:
                cache.put(table, frame, of_table)
        parts.update(of_table)
    return parts


def decode(parts: Mapping[str, bytes]) -> Tables:
    """The tables that `encode` made `parts` of.

    Raises:
        MalformedPartsError: a part is missing, unknown or damaged, or another major version of pandas made it.
    """
    of_table: dict[str, dict[str, bytes]] = {table: {} for table in TABLE_NAMES}
    for name, content in parts.items():
        table, _, rest = name.partition("/")
        if table not in of_table or not rest:
            raise MalformedPartsError(name, f"belongs to none of the tables {', '.join(TABLE_NAMES)}")
        of_table[table][rest] = content
    return Tables(**{table: decode_table(table, own) for table, own in of_table.items()})
