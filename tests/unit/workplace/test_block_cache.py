"""A block of rows that did not change is not encoded again, and only such a block."""

from __future__ import annotations

import itertools
import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gymckpt.tables import PartsCache, decode, encode
from gymckpt.tables.encode import BlockCache, encode_table
from servers.resources.workplace_assistant.tables import Tables
from servers.resources.workplace_assistant.tools import call

ALIKE = [0, 0.0, -0.0, False, None, float("nan"), "0", "", pd.NA, pd.NaT]


def test_a_changed_row_leaves_the_other_blocks_of_its_table(pristine: Tables) -> None:
    """X12: of a table with one more row, only its last block and its head are made anew."""
    cache = PartsCache()
    live = pristine.copy()
    before = encode(live.items(), cache)
    call(live, "email_send_email", {"recipient": "a@b.example", "subject": "s", "body": "b"})
    after = encode(live.items(), cache)
    assert after == encode(live.items())
    anew = [name for name, content in after.items() if content is not before.get(name)]
    assert sorted(anew) == ["emails/rows/7", "emails/table"]


def test_a_copy_of_a_table_shares_its_blocks(pristine: Tables) -> None:
    """X12: also where every checkpoint looks at frames of its own."""
    cache = BlockCache()
    first, second = (encode_table("emails", pristine.emails.copy(), cache) for _ in range(2))
    assert first == second
    assert [name for name in first if first[name] is not second[name]] == ["table"]


@pytest.mark.parametrize("label", [[0], ["a"], pd.RangeIndex(1)])
@pytest.mark.parametrize(("left", "right"), list(itertools.permutations(ALIKE, 2)))
def test_cells_that_look_alike_are_told_apart(left: Any, right: Any, label: Any) -> None:
    """X36."""
    cache = BlockCache()
    for cell in (left, right):
        for frame in (pd.DataFrame({"a": [cell]}, index=label, dtype=object), pd.DataFrame({"a": [cell]}, index=label)):
            if frame["a"].dtype.name in ("object", "str", "bool", "int64", "float64"):
                assert encode_table("t", frame, cache) == encode_table("t", frame)


def test_numbers_of_the_same_bits_are_told_apart() -> None:
    """X36: floats and integers, and either order of bytes."""
    cache = BlockCache()
    for cells in ([1.0], [0x3FF0000000000000]):
        for dtype in ("<f8", ">f8") if type(cells[0]) is float else ("<i8", ">i8"):
            native = np.array(cells, dtype=np.dtype(dtype).newbyteorder("="))
            for column in (native.astype(dtype), native.view(dtype)):
                frame = pd.DataFrame({"a": column})
                assert encode_table("t", frame, cache) == encode_table("t", frame)


def test_rows_and_columns_are_told_apart() -> None:
    """X36: a row of four cells, and a second row whose label has the bytes of those cells."""
    cache, label = BlockCache(), int.from_bytes(b"?\x01" * 4, sys.byteorder)
    for frame in (
        pd.DataFrame([[True] * 4], index=[label - 1], columns=list("abcd")),
        pd.DataFrame(index=[label - 1, label], columns=pd.Index([], dtype="object")),
    ):
        assert encode_table("t", frame, cache) == encode_table("t", frame)


def test_a_cell_that_changed_inside_is_encoded_again() -> None:
    """X02: a list is another one when something was put into it."""
    cache, cell = BlockCache(), ["x"]
    frame = pd.DataFrame({"a": [cell]})
    before = encode_table("t", frame, cache)
    cell.append("y")
    assert encode_table("t", frame, cache) == encode_table("t", frame) != before


def test_a_cell_in_the_place_of_a_dead_one_is_encoded() -> None:
    """X02: memory is used again."""
    cache = BlockCache()
    for number in range(2_000):
        frame = pd.DataFrame({"a": [f"cell {number}", f"other {number}"]})
        assert encode_table("t", frame, cache) == encode_table("t", frame)
        del frame


def test_rows_in_any_order_are_the_same_blocks() -> None:
    """X36: labels that rise, fall, jump and are below zero."""
    for labels in ([-65, -64, -1, 0, 63, 64, 6400], [64, 63, 0, -1], [0, 64, 1], [1, 0], [], range(200, -70, -3)):
        frame = pd.DataFrame({"a": [str(label) for label in labels]}, index=pd.Index(list(labels), dtype="int64"))
        blocks = {name for name in encode_table("t", frame) if name != "table"}
        assert blocks == {f"rows/{label // 64}" for label in labels}
        pd.testing.assert_frame_equal(decode(encode([("t", frame)], PartsCache()), ["t"])["t"], frame)


def test_a_cache_keeps_a_limited_number_of_blocks() -> None:
    """X12: the one used last is the last to go."""
    cache = BlockCache(kept=3)
    frames = [pd.DataFrame({"a": [f"cell {number}"]}) for number in range(4)]
    first = []
    for frame in frames:
        first.append(encode_table("t", frame, cache)["rows/0"])
        assert encode_table("t", frames[0], cache)["rows/0"] is first[0]
    kept = [encode_table("t", frames[number], cache)["rows/0"] is first[number] for number in (0, 3, 2, 1)]
    assert kept == [True, True, True, False]
