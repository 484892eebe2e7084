"""The codec keeps everything that a tool's answer can show, cuts tables into blocks, and refuses what it cannot keep."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from servers.resources.workplace_assistant.codec import UnsupportedStateError, decode, encode
from servers.resources.workplace_assistant.tables import Tables
from servers.resources.workplace_assistant.tools import call
from tests.unit.workplace.sameness import differences, frame_differences

CELLS: list[Any] = [
    None, math.nan, pd.NaT, pd.NA, math.inf, -math.inf, 0.0, -0.0, 0.1, 1e16, 5e-324, 1, -1, True, False, 2**63 - 1, -(2**63), 2**63,
    10**5000, "", "nan", "None", "00000189", "é e\u0301 ✅ 漢字 \u0000\u2028\"\\/\n", "\ud800 lone", "\ud83d" + "\ude00", [], {}, [None, math.nan, [1, 1.0]],
    {"dict": [["a", 1]]}, {"float": "nan"}, {"b": 1, "a": {"": [True]}}, np.float64(0.5), np.float32(0.1), np.float16(math.nan),
    np.int8(-3), np.uint64(2**64 - 1), np.bool_(True), np.str_("x"),
]  # fmt: skip


def with_emails(tables: Tables, frame: pd.DataFrame) -> Tables:
    changed = tables.copy()
    changed.emails = frame
    return changed


def of_cells(cells: list[Any], index: pd.Index[Any] | None = None) -> pd.DataFrame:
    values = np.fromiter(cells, dtype=object, count=len(cells))
    return pd.DataFrame({"cell": pd.Series(values, dtype=object, index=index)})


def test_tables_come_back_the_same_and_equal_tables_give_equal_bytes(tables: Tables) -> None:
    """R07, X15."""
    parts = encode(tables)
    restored = decode(parts)
    assert differences(restored, tables) == []
    assert encode(restored) == parts


@pytest.mark.parametrize("cell", CELLS, ids=[f"{number}-{type(cell).__name__}" for number, cell in enumerate(CELLS)])
def test_a_cell_of_any_kind_survives_exactly(cell: Any, tables: Tables) -> None:
    """R07."""
    changed = with_emails(tables, of_cells(["text", cell]))
    assert differences(decode(encode(changed)), changed) == []


def test_cells_of_all_kinds_survive_side_by_side(tables: Tables) -> None:
    """R07."""
    changed = with_emails(tables, of_cells(CELLS))
    assert differences(decode(encode(changed)), changed) == []


@pytest.mark.parametrize("cells", [[1, -(2**63)], [0.5, math.nan, -0.0, math.inf], [True, False], []])
def test_columns_of_numbers_keep_their_dtype(cells: list[Any], tables: Tables) -> None:
    """R07."""
    frame = pd.DataFrame({"cell": pd.Series(cells, dtype=None if cells else "float64")})
    changed = with_emails(tables, frame)
    assert differences(decode(encode(changed)), changed) == []


@pytest.mark.parametrize(
    "index",
    [
        pd.RangeIndex(3),
        pd.RangeIndex(5, 11, 2),
        pd.RangeIndex(2, -1, -1),
        pd.RangeIndex(3, name="row"),
        pd.Index([0, 1, 2]),
        pd.Index([-65, 4, 2**62]),
        pd.Index([700, 3, 70]),
        pd.Index([1, 1, 0], name="row"),
        pd.Index(["b", "a", "ü"]),
        pd.Index(["b", 7, None], dtype=object),
    ],
)
def test_labels_their_order_and_the_kind_of_index_survive(index: pd.Index[Any], tables: Tables) -> None:
    """R07."""
    changed = with_emails(tables, of_cells(["x", None, math.nan], index))
    assert differences(decode(encode(changed)), changed) == []


def test_text_and_object_columns_with_the_same_cells_have_different_bytes(tables: Tables) -> None:
    """R07: which of the two a column is decides later answers."""
    text = pd.DataFrame({"cell": ["x", "y"]})
    same = text.astype(object)
    first, second = encode(with_emails(tables, text)), encode(with_emails(tables, same))
    assert (first == second) is bool(text["cell"].dtype == object)
    assert frame_differences(decode(second).emails, same) == []


def changed_parts(before: dict[str, bytes], after: dict[str, bytes]) -> set[str]:
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        (
            "project_management_update_task",
            {"field": "task_name", "new_value": "Paint"},
            {"project_tasks/rows/1"},
        ),
        ("project_management_delete_task", {}, {"project_tasks/table", "project_tasks/rows/1"}),
        (
            "email_send_email",
            {"recipient": "a@b.example", "subject": "s", "body": "b"},
            {"emails/table", "emails/rows/7"},
        ),
        (
            "analytics_create_plot",
            {"time_min": "a", "time_max": "b", "value_to_plot": "total_visits", "plot_type": "bar"},
            {"analytics_plots/table", "analytics_plots/rows/0"},
        ),
    ],
)
def test_a_change_costs_its_block(name: str, arguments: dict[str, Any], expected: set[str], tables: Tables) -> None:
    """X11: all other parts are those of before, byte for byte."""
    before = encode(tables)
    task = {"task_id": tables.project_tasks["task_id"].iloc[100]} if name.startswith("project") else {}
    call(tables, name, arguments | task)
    assert changed_parts(before, encode(tables)) == expected


def test_a_block_holds_up_to_64_rows(tables: Tables) -> None:
    """X11."""
    parts = encode(tables)
    labels = {name: json.loads(content)["labels"] for name, content in parts.items() if "/rows/" in name}
    assert labels["emails/rows/0"] == list(range(64))
    assert labels["emails/rows/7"] == list(range(448, 500))
    assert "analytics_plots/rows/0" not in parts
    assert max(map(len, labels.values())) == 64


@pytest.mark.parametrize(
    "cell",
    [(1, 2), b"x", pd.Timestamp("2023-11-30"), {1: "x"}, [{"a": {2}}], np.datetime64("NaT"), np.longdouble(1)],
    ids=lambda cell: type(cell).__name__,
)
def test_a_cell_that_no_tool_can_store_is_refused_by_table_column_and_value(cell: Any, tables: Tables) -> None:
    """R08: rather no export than one that comes back different."""
    with pytest.raises(UnsupportedStateError) as refused:
        encode(with_emails(tables, of_cells(["x", cell])))
    assert (refused.value.table, refused.value.column) == ("emails", "cell")
    assert refused.value.value is cell
    assert repr(cell) in str(refused.value)


def test_nesting_beyond_the_interpreter_is_refused(tables: Tables) -> None:
    """R08."""
    deep: list[Any] = []
    for _ in range(50_000):
        deep = [deep]
    with pytest.raises(UnsupportedStateError, match="table emails, column cell"):
        encode(with_emails(tables, of_cells([deep])))


@pytest.mark.parametrize(
    ("frame", "column", "problem"),
    [
        (pd.DataFrame({"when": pd.to_datetime(["2023-11-30"])}), "when", "none of the dtypes"),
        (pd.DataFrame({"kind": pd.Series(["a"], dtype="category")}), "kind", "none of the dtypes"),
        (pd.DataFrame({"text": pd.Series(["a"], dtype="string")}), "text", "none of the dtypes"),
        (pd.DataFrame([["a", "b"]], columns=["x", "x"]), "(column names)", "not different texts"),
        (pd.DataFrame([["a"]], columns=[7]), "(column names)", "not different texts"),
        (pd.DataFrame({"a": ["x"]}, index=pd.to_datetime(["2023-11-30"])), "(index)", "no label"),
        (pd.DataFrame({"a": ["x"]}, index=pd.MultiIndex.from_tuples([("x", 1)])), "(index)", "no label"),
        (pd.DataFrame({"a": ["x"]}, index=pd.Index([1.5])), "(index)", "neither a range"),
    ],
)
def test_a_frame_of_another_kind_is_refused(frame: pd.DataFrame, column: str, problem: str, tables: Tables) -> None:
    """R08."""
    with pytest.raises(UnsupportedStateError, match=problem) as refused:
        encode(with_emails(tables, frame))
    assert refused.value.column == column


def test_attributes_of_a_frame_are_refused(tables: Tables) -> None:
    """R08."""
    frame = of_cells(["x"])
    frame.attrs["origin"] = "elsewhere"
    with pytest.raises(UnsupportedStateError, match="origin"):
        encode(with_emails(tables, frame))
