"""One table from its parts. Parts may come from anywhere: each is checked before a frame is built."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
import pandas as pd

from gymckpt.tables.cells import shown, unpack_all
from gymckpt.tables.layout import (
    FORMAT,
    HEAD,
    LABEL_DTYPES,
    ROWS,
    VALUE_DTYPES,
    Block,
    MalformedPartsError,
    block_of,
    block_order,
    from_bytes,
)


def decode_table(table: str, parts: Mapping[str, bytes]) -> pd.DataFrame:
    """The frame that `encode_table` made `parts` of.

    Raises:
        MalformedPartsError: a part is missing, unknown or damaged, or another major version of pandas made it.
    """
    if HEAD not in parts:
        raise MalformedPartsError(f"{table}/{HEAD}", "is missing")
    head = _Head(f"{table}/{HEAD}", parts[HEAD])
    labels: list[Any] = []
    columns: list[list[Any]] = [[] for _ in head.names]
    for name in sorted((name for name in parts if name != HEAD), key=lambda name: block_order(_block(table, name))):
        own_labels, own_cells = _rows(f"{table}/{name}", parts[name], _block(table, name), head.names)
        labels += own_labels
        for column, cells in zip(columns, own_cells, strict=True):
            column.extend(cells)
    head.expect(len(labels) == head.rows, f"counts {head.rows} rows, but the other parts hold {len(labels)}")
    index = head.index(head.in_order(labels))
    series = [
        pd.Series(head.values(name, dtype, head.in_order(cells)), index=index, dtype=dtype)
        for name, dtype, cells in zip(head.names, head.dtypes, columns, strict=True)
    ]
    frame = pd.DataFrame(dict(enumerate(series)), index=index)
    frame.columns = head.columns
    return frame


class _Head:
    """A table's first part: checks itself on the way in, then turns checked lists into index and columns."""

    def __init__(self, part: str, content: bytes) -> None:
        self._part = part
        value = _parsed(part, content, {"format", "pandas", "rows", "columns", "dtypes", "index", "order"})
        self.expect(value["format"] == FORMAT, f"is of format {shown(value['format'])}, this code reads {FORMAT!r}")
        made_by = value["pandas"]
        self.expect(isinstance(made_by, str) and made_by[:1].isdigit(), f"names no pandas version: {shown(made_by)}")
        self.expect(
            made_by.split(".")[0] == pd.__version__.split(".")[0],
            f"was made under pandas {made_by}, this is pandas {pd.__version__}: tools answer differently under another "
            "major version, so restore it under the one that made it",
        )
        self.rows = value["rows"]
        self.expect(type(self.rows) is int, f"has no count of rows: {shown(self.rows)}")
        self.dtypes = value["dtypes"]
        self._index = self._description(value["index"])
        self._order = self._permutation(value["order"])
        columns = value["columns"]
        self.expect(isinstance(columns, dict) and "names" in columns, f"has no column names: {shown(columns)}")
        self.names = columns.pop("names")
        self.expect(isinstance(self.names, list) and all(type(name) is str for name in self.names), "has bad names")
        self.expect(
            isinstance(self.dtypes, list) and len(self.dtypes) == len(self.names) == len(set(self.names)),
            f"has column names {shown(self.names)} and dtypes {shown(self.dtypes)}, which do not pair off",
        )
        known = all(dtype in VALUE_DTYPES for dtype in self.dtypes)
        self.expect(known, f"has a dtype beyond {', '.join(VALUE_DTYPES)}: {shown(self.dtypes)}")
        description = self._description(columns)
        self.expect("dtype" in description, f"has no dtype of its column names: {shown(description)}")
        self.columns = pd.Index(self.names, dtype=description["dtype"], name=description["name"])

    def expect(self, holds: bool, problem: str) -> None:
        if not holds:
            raise MalformedPartsError(self._part, problem)

    def in_order(self, values: list[Any]) -> list[Any]:
        """Values in the order of the blocks, put into the order of the rows."""
        if self._order is None:
            return values
        ordered = [None] * len(values)
        for position, value in zip(self._order, values, strict=True):
            ordered[position] = value
        return ordered

    def index(self, labels: list[Any]) -> pd.Index[Any]:
        name = self._index["name"]
        if "range" in self._index:
            start, stop, step = self._index["range"]
            says = range(start, stop, step)
            fits = len(labels) == self.rows and says[: self.rows + 1] == says and list(says) == labels
            self.expect(fits, f"says that the labels are {says}, but the rows have others")
            return pd.RangeIndex(start, stop, step, name=name)
        dtype = self._index["dtype"]
        index: pd.Index[Any] = pd.Index(self.values("(index)", dtype, labels), dtype=dtype, name=name)
        return index

    def values(self, column: str, dtype: str, cells: list[Any]) -> Any:
        if dtype == "object":
            return np.fromiter(cells, dtype=object, count=len(cells))
        kinds = set(map(type, cells))
        self.expect(kinds <= _CELLS[dtype], f"says that column {column} is {dtype}, but it holds {shown(kinds)}")
        if dtype == "str":
            numbers = [cell for cell in cells if type(cell) is float and not math.isnan(cell)]
            self.expect(not numbers, f"says that column {column} is {dtype}, but it holds {shown(numbers)}")
            return pd.array(cells, dtype="str")
        try:
            return np.array(cells, dtype=dtype)
        except OverflowError as error:
            raise MalformedPartsError(self._part, f"says that column {column} is {dtype}: {error}") from error

    def _description(self, value: Any) -> dict[str, Any]:
        """`{"name", "dtype"}` or `{"name", "range"}`."""
        well_formed = isinstance(value, dict) and (value.get("name") is None or type(value["name"]) is str)
        if well_formed and set(value) == {"name", "dtype"} and value["dtype"] in LABEL_DTYPES:
            return dict(value)
        if well_formed and set(value) == {"name", "range"}:
            bounds = value["range"]
            if isinstance(bounds, list) and len(bounds) == 3 and all(type(b) is int for b in bounds) and bounds[2]:
                return dict(value)
        raise MalformedPartsError(self._part, f"describes no index that this code knows: {shown(value)}")

    def _permutation(self, value: Any) -> list[int] | None:
        if value is None:
            return None
        positions = isinstance(value, list) and all(type(position) is int for position in value)
        self.expect(positions and sorted(value) == list(range(self.rows)), "has an order that is none of its rows")
        return list(value)


_CELLS: dict[str, set[type]] = {"str": {str, float}, "bool": {bool}, "int64": {int}, "float64": {float}}
"""What a column of each dtype but object may hold; the float in text is NaN alone."""


def _block(table: str, name: str) -> Block:
    block = name.removeprefix(ROWS)
    if name.startswith(ROWS):
        if block[:1] == "h":
            return block
        if block.removeprefix("-").isdecimal() and block == str(int(block)):
            return int(block)
    raise MalformedPartsError(f"{table}/{name}", "is neither a table's first part nor a block of its rows")


def _rows(part: str, content: bytes, block: Block, names: list[str]) -> tuple[list[Any], list[list[Any]]]:
    value = _parsed(part, content, {"labels", "cells"})
    labels, columns = value["labels"], value["cells"]
    if not isinstance(labels, list) or not labels:
        raise MalformedPartsError(part, "has no list of labels")
    if not isinstance(columns, list) or not all(isinstance(cells, list) for cells in columns):
        raise MalformedPartsError(part, "has no list of columns")
    if [len(cells) for cells in columns] != [len(labels)] * len(names):
        raise MalformedPartsError(part, f"does not hold {len(labels)} cells for each of the columns {', '.join(names)}")
    try:
        labels = unpack_all(labels)
        columns = [unpack_all(cells) for cells in columns]
        strangers = [label for label in labels if block_of(label) != block]
    except (TypeError, ValueError, RecursionError) as error:
        raise MalformedPartsError(part, f"holds what no table can hold: {error}") from error
    if strangers:
        raise MalformedPartsError(part, f"holds rows of other blocks: {shown(strangers)}")
    return labels, columns


def _parsed(part: str, content: bytes, keys: set[str]) -> dict[str, Any]:
    try:
        value = from_bytes(content)
    except (ValueError, RecursionError) as error:
        _damaged(part, error)
    if not isinstance(value, dict) or set(value) != keys:
        raise MalformedPartsError(part, f"is no JSON object of {', '.join(sorted(keys))}")
    return value


def _damaged(part: str, error: Exception) -> NoReturn:
    raise MalformedPartsError(part, f"is no JSON text: {error}") from error
