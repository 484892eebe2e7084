"""One cell of a table as JSON, exactly.

Text, True, False, null, 64-bit integers and finite floats stand for themselves, a list for a list. Everything else is
an object with one key that says what it is: `{"dict": [[key, value], ...]}` (so key order is kept and no cell can be
mistaken for a tag), `{"int": "0x..."}`, `{"float": "nan"}`, `{"missing": "NaT"}`, `{"numpy": ["f4", 0.5]}`.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

_INT64 = range(-(2**63), 2**63)
_MISSING: dict[str, Any] = {"NaT": pd.NaT, "NA": pd.NA}
_FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_NUMPY = ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "U0")
_AS_THEY_ARE = frozenset({str, bool, type(None)})
_TAGGED = frozenset({dict, list})


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 200


def shown(value: object) -> str:
    """A value as an error message shows it: neither its length nor its depth is the message's."""
    return _SHORT.repr(value)


def pack_all(cells: list[Any]) -> list[Any]:
    """The cells as JSON values; the very same list where nothing needs a tag."""
    if _AS_THEY_ARE.issuperset(map(type, cells)):
        return cells
    return [pack(cell) for cell in cells]


def unpack_all(values: list[Any]) -> list[Any]:
    """The cells that `pack_all` made `values` of.

    Raises:
        ValueError: `pack` never makes such values.
    """
    if _TAGGED.isdisjoint(map(type, values)):
        return values
    return [unpack(value) for value in values]


def pack(cell: Any) -> Any:
    """One cell as a JSON value.

    Raises:
        TypeError: the cell, or something inside it, is of a type that a tool cannot have stored.
    """
    packer = _PACKERS.get(type(cell))
    if packer is not None:
        return packer(cell)
    for name, missing in _MISSING.items():
        if cell is missing:
            return {"missing": name}
    if isinstance(cell, np.generic) and (code := np.dtype(type(cell)).str[1:]) in _NUMPY:
        return {"numpy": [code, pack(cell.item())]}
    raise TypeError(f"{shown(cell)} of type {type(cell).__name__} has no exact JSON form")


def unpack(value: Any) -> Any:
    """The cell that `pack` made `value` of.

    Raises:
        ValueError: `pack` never makes such a value.
    """
    if isinstance(value, list):
        return [unpack(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        (tag, content), *_ = value.items()
        unpacker = _UNPACKERS.get(tag)
        if unpacker is not None:
            return unpacker(content)
    raise ValueError(f"{shown(value)} is no tagged cell; tags are {', '.join(_UNPACKERS)}")


def _pack_int(cell: int) -> Any:
    return cell if cell in _INT64 else {"int": hex(cell)}


def _pack_float(cell: float) -> Any:
    return cell if math.isfinite(cell) else {"float": repr(cell)}


def _pack_dict(cell: dict[Any, Any]) -> Any:
    if not all(type(key) is str for key in cell):
        raise TypeError(f"{shown(cell)} has a key that is no text")
    return {"dict": [[key, pack(inner)] for key, inner in cell.items()]}


def _unpack_int(content: Any) -> int:
    if not isinstance(content, str) or (number := int(content, 16)) in _INT64:
        raise ValueError(f"{shown(content)} is no hexadecimal integer beyond 64 bits")
    return number


def _unpack_dict(content: Any) -> dict[str, Any]:
    pairs = [(key, unpack(inner)) for key, inner in content]
    if not all(type(key) is str for key, _ in pairs) or len(dict(pairs)) != len(pairs):
        raise ValueError(f"{shown(content)} has a key that is no text or comes twice")
    return dict(pairs)


def _unpack_numpy(content: Any) -> Any:
    code, item = content
    if code not in _NUMPY:
        raise ValueError(f"numpy type {shown(code)} is none of {', '.join(_NUMPY)}")
    return np.dtype(code).type(unpack(item))


def _one_of(known: dict[str, Any]) -> Callable[[Any], Any]:
    def unpack_known(content: Any) -> Any:
        if not isinstance(content, str) or content not in known:
            raise ValueError(f"{shown(content)} is none of {', '.join(known)}")
        return known[content]

    return unpack_known


def _itself(cell: Any) -> Any:
    return cell


_PACKERS: dict[type, Callable[[Any], Any]] = {
    str: _itself,
    bool: _itself,
    type(None): _itself,
    int: _pack_int,
    float: _pack_float,
    list: lambda cell: [pack(item) for item in cell],
    dict: _pack_dict,
}
_UNPACKERS: dict[str, Callable[[Any], Any]] = {
    "dict": _unpack_dict,
    "int": _unpack_int,
    "float": _one_of(_FLOATS),
    "missing": _one_of(_MISSING),
    "numpy": _unpack_numpy,
}
