"""The judge of the codec's tests must itself be strict."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from servers.resources.workplace_assistant.tables import Tables
from tests.unit.workplace.sameness import differences, frame_differences, same


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (None, math.nan),
        (math.nan, pd.NaT),
        (pd.NA, pd.NaT),
        (1, 1.0),
        (1, True),
        (0.0, -0.0),
        (1.0, np.float64(1.0)),
        ("1", 1),
        ([None], [math.nan]),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    ],
)
def test_cells_that_look_alike_are_told_apart(left: Any, right: Any) -> None:
    """X15: what a restore must not mix up."""
    assert not same(left, right)
    assert same(left, left)
    assert same(right, right)


def test_frames_that_compare_equal_are_told_apart_by_index_and_dtype(tables: Tables) -> None:
    """X15."""
    texts = pd.DataFrame({"a": ["x", "y"]})
    assert frame_differences(texts, texts.copy()) == []
    assert frame_differences(texts, texts.set_axis(pd.Index([0, 1]))) != []
    numbers = pd.DataFrame({"a": [1, 2]})
    assert frame_differences(numbers, numbers.astype(object)) == ["column a: dtype int64 and object"]
    other = tables.copy()
    other.emails = other.emails[1:]
    assert len(differences(tables, other)) == 1
