"""One session's tables as parts: the names of the tables, and `Tables` in place of a mapping. The bytes are those of `gymckpt.tables`."""

from __future__ import annotations

from collections.abc import Mapping

from gymckpt import tables as codec
from gymckpt.tables import CodecError, MalformedPartsError, PartsCache, UnsupportedStateError
from servers.resources.workplace_assistant.tables import TABLE_NAMES, Tables

__all__ = ["CodecError", "MalformedPartsError", "PartsCache", "UnsupportedStateError", "decode", "encode", "freeze"]


def freeze(tables: Tables) -> Tables:
    """What `tables` hold now. Later tool calls on `tables` never show in it, so it may be encoded in a thread.

    Frames are values (see `Tables`), so only the container is copied, under any version of pandas.
    """
    return tables.copy()


def encode(tables: Tables, cache: PartsCache | None = None) -> dict[str, bytes]:
    """Parts by name. Raises UnsupportedStateError."""
    return codec.encode(tables.items(), cache)


def decode(parts: Mapping[str, bytes]) -> Tables:
    """The tables that `encode` made `parts` of. Raises MalformedPartsError."""
    return Tables(**codec.decode(parts, TABLE_NAMES))
