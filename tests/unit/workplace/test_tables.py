"""Loading tables, and the invented ones."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path

import pandas as pd
import pytest

from servers.resources.workplace_assistant.synthetic import SEED, synthetic_csv, synthetic_tables
from servers.resources.workplace_assistant.tables import CSV_FILES, Tables, load_tables
from tests.unit.workplace.sameness import differences

SIZES = {
    "company_directory": (20, 1),
    "emails": (500, 6),
    "calendar_events": (300, 5),
    "analytics_data": (1000, 6),
    "analytics_plots": (0, 1),
    "project_tasks": (300, 6),
    "customers": (200, 10),
}


def test_a_folder_of_csv_files_gives_the_tables_that_were_written(tmp_path: Path, pristine: Tables) -> None:
    """X15: the start of a session is always the same."""
    for table, text in synthetic_csv().items():
        (tmp_path / CSV_FILES[table]).write_text(text, encoding="utf-8")
    assert differences(load_tables(tmp_path), pristine) == []


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"email_addresses\.csv"):
        load_tables(tmp_path)


def test_the_invented_tables_have_the_usual_sizes_and_column_types(pristine: Tables) -> None:
    assert {name: frame.shape for name, frame in pristine.items()} == SIZES
    assert all(isinstance(frame.index, pd.RangeIndex) for _, frame in pristine.items())
    assert pristine.analytics_data["user_engaged"].dtype == bool
    text = pd.Series(["x"]).dtype
    assert set(pristine.customers.dtypes) | set(pristine.emails.dtypes) == {text}


def test_ids_keep_their_leading_zeros_and_empty_cells_are_nan(pristine: Tables) -> None:
    assert sorted(pristine.emails["email_id"])[:2] == ["00000000", "00000001"]
    phones = pristine.customers["customer_phone"].tolist()
    missing = [phone for phone in phones if not isinstance(phone, str)]
    assert 0 < len(missing) < len(phones)
    assert all(type(phone) is float and math.isnan(phone) for phone in missing)


def test_the_invented_tables_reach_beyond_ascii(pristine: Tables) -> None:
    assert not "".join(pristine.customers["customer_name"]).isascii()
    assert not "".join(pristine.emails["body"]).isascii()


def test_a_seed_always_makes_the_same_tables_and_another_one_others() -> None:
    """X15: a run over the built-in tables can be repeated anywhere."""
    text = json.dumps(synthetic_csv(SEED), ensure_ascii=False)
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "718cb6873441c42a"
    assert differences(synthetic_tables(SEED), synthetic_tables(SEED)) == []
    assert synthetic_csv(1) != synthetic_csv(2)


def test_a_copy_shares_no_later_change(pristine: Tables) -> None:
    """X02."""
    copy = pristine.copy()
    copy.emails = copy.emails[:1]
    assert len(pristine.emails) == 500
