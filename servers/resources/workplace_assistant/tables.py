"""The seven tables of one session.

A frame inside `Tables` is a value: nobody changes one in place. A tool that changes a table puts a new frame in the
old one's place, so a copy of the container is a snapshot, and "the same frame" means "unchanged".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pandas as pd

NOW = "2023-11-30 23:59:00"
"""The fixed present of every task: what a tool stamps on a new row."""

CSV_FILES = {
    "company_directory": "email_addresses.csv",
    "emails": "emails.csv",
    "calendar_events": "calendar_events.csv",
    "analytics_data": "analytics_data.csv",
    "project_tasks": "project_tasks.csv",
    "customers": "customer_relationship_manager_data.csv",
}
"""Table name -> file name. The plots have no file: every session starts without any."""


@dataclass
class Tables:
    """One session's tables, a frame each; the field name is the table's name everywhere."""

    company_directory: pd.DataFrame
    emails: pd.DataFrame
    calendar_events: pd.DataFrame
    analytics_data: pd.DataFrame
    analytics_plots: pd.DataFrame
    project_tasks: pd.DataFrame
    customers: pd.DataFrame

    def copy(self) -> Tables:
        """Another container of the same frames: neither side sees what the other changes later."""
        return dataclasses.replace(self)

    def items(self) -> Iterator[tuple[str, pd.DataFrame]]:
        """Name and frame of each table, always in the same order."""
        for name in TABLE_NAMES:
            yield name, getattr(self, name)


TABLE_NAMES = tuple(field.name for field in dataclasses.fields(Tables))


def load_tables(directory: Path) -> Tables:
    """The tables of the CSV files in `directory` (see `CSV_FILES`).

    Raises:
        FileNotFoundError: a file is missing; the message names it.
    """
    return read_tables({table: directory / file for table, file in CSV_FILES.items()})


def read_tables(sources: Mapping[str, Path | IO[str]]) -> Tables:
    """The tables of CSV sources by table name. Ids keep their leading zeros; an empty cell is NaN."""
    frames = {table: _read(table, source) for table, source in sources.items()}
    engaged = frames["analytics_data"]["user_engaged"] == "True"
    frames["analytics_data"] = frames["analytics_data"].assign(user_engaged=engaged)
    return Tables(**frames, analytics_plots=pd.DataFrame(columns=["file_path"]))


def _read(table: str, source: Path | IO[str]) -> pd.DataFrame:
    if table == "company_directory":
        return pd.read_csv(source, header=None, names=["email_address"], dtype=str)
    return pd.read_csv(source, dtype=str)


def with_row(frame: pd.DataFrame, row: Mapping[str, Any], *, renumbered: bool = True) -> pd.DataFrame:
    """`frame` with `row` at its end, the labels numbered anew from 0 or the new row's label 0; columns take whatever
    dtype now holds all their cells."""
    return pd.concat([frame, pd.DataFrame([row])], ignore_index=renumbered)


def rows_containing(frame: pd.DataFrame, column: str, pattern: Any) -> pd.Series[bool]:
    """Which rows match the regular expression `pattern` somewhere in `column`, in any case. A cell that is no text
    makes the mask unusable."""
    return frame[column].str.contains(pattern, case=False)


def has_id(frame: pd.DataFrame, column: str, value: Any) -> bool:
    """Whether some row holds `value` in `column`. Raises ValueError for a list."""
    return value in frame[column].values


def next_number(frame: pd.DataFrame, column: str) -> int:
    """One above the greatest id, ids being compared as text."""
    return int(frame[column].max()) + 1
