"""Parts may come from anywhere: what the encoder does not make is refused, by the name of the part."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from servers.resources.workplace_assistant.codec import CodecError, MalformedPartsError, decode, encode
from servers.resources.workplace_assistant.tables import Tables
from servers.resources.workplace_assistant.tools import call

Change = Callable[[Any], object]


@pytest.fixture(scope="module")
def parts(pristine: Tables) -> dict[str, bytes]:
    tables = pristine.copy()
    call(tables, "email_delete_email", {"email_id": "00000007"})
    return encode(tables)


def edited(parts: dict[str, bytes], name: str, change: Change) -> dict[str, bytes]:
    value = json.loads(parts[name])
    change(value)
    return parts | {name: json.dumps(value).encode()}


def setting(*path: Any, to: Any) -> Change:
    def change(value: Any) -> None:
        for step in path[:-1]:
            value = value[step]
        value[path[-1]] = to

    return change


def test_every_part_is_needed(parts: dict[str, bytes]) -> None:
    """R08, X31."""
    for name in parts:
        table = name.partition("/")[0]
        with pytest.raises(MalformedPartsError, match=f"part {table}/table"):
            decode({other: content for other, content in parts.items() if other != name})


@pytest.mark.parametrize(
    "name", ["strangers/table", "emails", "emails/", "emails/rows/", "emails/rows/01", "emails/rows/x", "../table", ""]
)
def test_a_foreign_part_is_refused(name: str, parts: dict[str, bytes]) -> None:
    """R08, X21."""
    with pytest.raises(MalformedPartsError) as refused:
        decode(parts | {name: b"{}"})
    assert refused.value.part == name


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"null", b"[]", b"{}", b"\xff\xfe", b"[" * 100_000, b'{"labels":[0],"cells":[],"more":1}'],
    ids=range(8),
)
@pytest.mark.parametrize("name", ["emails/table", "emails/rows/0"])
def test_damaged_bytes_are_refused(name: str, content: bytes, parts: dict[str, bytes]) -> None:
    """R08, X20."""
    with pytest.raises(MalformedPartsError, match=f"part {name}"):
        decode(parts | {name: content})


HEAD_CHANGES: list[tuple[Change, str]] = [
    (setting("format", to="gymckpt-table/2"), "format 'gymckpt-table/2'"),
    (setting("pandas", to="1.5.3"), "made under pandas 1.5.3"),
    (setting("pandas", to=None), "no pandas version"),
    (setting("rows", to=498), "counts 498 rows, but the other parts hold 499"),
    (setting("rows", to="499"), "no count of rows"),
    (setting("dtypes", to=["object"]), "do not pair off"),
    (setting("dtypes", 0, to="datetime64[ns]"), "dtype beyond"),
    (setting("dtypes", 0, to="int64"), "column email_id is int64"),
    (setting("dtypes", 0, to=[]), "dtype beyond"),
    (setting("columns", to=["email_id"]), "no column names"),
    (setting("columns", "names", to=["a"] * 6), "do not pair off"),
    (setting("columns", "names", 0, to=7), "bad names"),
    (setting("columns", "dtype", to="category"), "no index"),
    (setting("index", to={"dtype": "float64", "name": None}), "no index"),
    (setting("index", to={"dtype": "int64", "name": 3}), "no index"),
    (setting("index", to={"range": [0, 499, 1], "name": None}), "the rows have others"),
    (setting("index", to={"range": [0, 10**15, 1], "name": None}), "the rows have others"),
    (setting("index", to={"range": [0, 499, 0], "name": None}), "no index"),
    (setting("order", to=[0]), "an order that is none of its rows"),
    (setting("order", to="012"), "an order that is none of its rows"),
]


@pytest.mark.parametrize(("change", "problem"), HEAD_CHANGES, ids=range(len(HEAD_CHANGES)))
def test_a_wrong_first_part_is_refused(change: Change, problem: str, parts: dict[str, bytes]) -> None:
    """R08, X20."""
    with pytest.raises(MalformedPartsError, match=problem) as refused:
        decode(edited(parts, "emails/table", change))
    assert refused.value.part == "emails/table"


ROW_CHANGES: list[tuple[Change, str]] = [
    (setting("labels", to=[]), "no list of labels"),
    (setting("labels", 0, to=64), r"rows of other blocks: \[64\]"),
    (setting("labels", 0, to="0"), r"rows of other blocks: \['0'\]"),
    (setting("cells", to={}), "no list of columns"),
    (setting("cells", 0, to=["x"]), "cells for each of the columns"),
    (setting("cells", 0, 0, to={"tuple": []}), "no tagged cell"),
    (setting("cells", 0, 0, to={"float": "1.0"}), "'1.0' is none of nan, inf, -inf"),
    (setting("cells", 0, 0, to={"int": "0x1"}), "no hexadecimal integer beyond 64 bits"),
    (setting("cells", 0, 0, to={"int": 7}), "no hexadecimal integer"),
    (setting("cells", 0, 0, to={"missing": []}), "is none of NaT, NA"),
    (setting("cells", 0, 0, to={"numpy": ["O", 1]}), "numpy type 'O'"),
    (setting("cells", 0, 0, to={"numpy": 1}), "cannot unpack"),
    (setting("cells", 0, 0, to={"dict": [[1, 2]]}), "a key that is no text"),
    (setting("cells", 0, 0, to={"dict": [["a", 1], ["a", 2]]}), "comes twice"),
]


@pytest.mark.parametrize(("change", "problem"), ROW_CHANGES, ids=range(len(ROW_CHANGES)))
def test_a_wrong_block_of_rows_is_refused(change: Change, problem: str, parts: dict[str, bytes]) -> None:
    """R08, X20."""
    with pytest.raises(MalformedPartsError, match=problem) as refused:
        decode(edited(parts, "emails/rows/0", change))
    assert refused.value.part == "emails/rows/0"


def test_a_whole_number_beyond_64_bits_is_refused_in_a_column_of_them(pristine: Tables) -> None:
    """R08, X20."""
    tables = pristine.copy()
    tables.emails = pd.DataFrame({"count": [1, 2]})
    change = setting("cells", 0, 0, to={"int": hex(2**70)})
    with pytest.raises(MalformedPartsError, match="column count is int64"):
        decode(edited(encode(tables), "emails/rows/0", change))


def test_another_major_version_of_pandas_is_told_what_to_do(parts: dict[str, bytes]) -> None:
    """R08."""
    with pytest.raises(CodecError, match=f"this is pandas {pd.__version__}.*restore it under the one that made it"):
        decode(edited(parts, "emails/table", setting("pandas", to="30.1.0")))


def test_a_minor_version_of_pandas_makes_no_difference(parts: dict[str, bytes]) -> None:
    major = pd.__version__.split(".")[0]
    assert len(decode(edited(parts, "emails/table", setting("pandas", to=f"{major}.99.0"))).emails) == 499
