"""Named tables as named parts of bytes, and back, without losing anything that a tool's answer can show.

    <table>/table          what the rows do not tell: columns, dtypes, kind of index, order of rows, pandas version
    <table>/rows/<block>   up to 64 rows: those whose integer label is in [64 * block, 64 * block + 64)

Equal tables give equal bytes. A changed cell changes one block of rows; an added or deleted row also changes its
table's first part. Labels that are no integers fall into blocks by a hash, named "h" and two hexadecimal digits.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterable, Mapping

import pandas as pd

from gymckpt.tables.decode import decode_table
from gymckpt.tables.encode import BlockCache, encode_table
from gymckpt.tables.layout import MalformedPartsError


class PartsCache:
    """What was encoded, so that nothing is encoded twice: a table as long as its frame lives, and blocks of rows (see `BlockCache`).

    All sessions start from the same frames: one cache for a process encodes those once for all of them. Only for frames that nobody changes in place, as those
    of `freeze` are.
    """

    def __init__(self) -> None:
        self._entries: dict[tuple[str, int], tuple[weakref.ref[pd.DataFrame], dict[str, bytes]]] = {}
        self.blocks = BlockCache()

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


def freeze(tables: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """What `tables` hold now, for frames that their owner changes in place: later changes never show in it.

    pandas 3 copies when it writes, so nothing is copied here; before that the cells are, at about 0.1 ms for 2,000 rows.
    """
    copies_when_it_writes = int(pd.__version__.split(".")[0]) >= 3
    return {table: frame.copy(deep=not copies_when_it_writes) for table, frame in tables.items()}


def encode(tables: Iterable[tuple[str, pd.DataFrame]], cache: PartsCache | None = None) -> dict[str, bytes]:
    """Parts by name; what `cache` knows is taken from there. The names of tables have no slash.

    Raises:
        UnsupportedStateError: something in a table has no exact form; the message names table, column and value.
    """
    parts: dict[str, bytes] = {}
    for table, frame in tables:
        of_table = cache.get(table, frame) if cache is not None else None
        if of_table is None:
            encoded = encode_table(table, frame, cache.blocks if cache is not None else None)
            of_table = {f"{table}/{name}": content for name, content in encoded.items()}
            if cache is not None:
                cache.put(table, frame, of_table)
        parts.update(of_table)
    return parts


def decode(parts: Mapping[str, bytes], names: Collection[str]) -> dict[str, pd.DataFrame]:
    """The tables that `encode` made `parts` of: exactly those called `names`.

    Raises:
        MalformedPartsError: a part is missing, unknown or damaged, or another major version of pandas made it.
    """
    of_table: dict[str, dict[str, bytes]] = {table: {} for table in names}
    for name, content in parts.items():
        table, _, rest = name.partition("/")
        if table not in of_table or not rest:
            raise MalformedPartsError(name, f"belongs to none of the tables {', '.join(names)}")
        of_table[table][rest] = content
    return {table: decode_table(table, own) for table, own in of_table.items()}
