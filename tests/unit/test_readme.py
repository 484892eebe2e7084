"""The README says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from gymckpt.core import export, gate

README = Path(__file__).parents[2] / "README.md"


def test_the_table_of_moves_is_that_of_the_machines() -> None:
    told = {
        tuple(cell.strip() for cell in row.split("|")[1:-1])
        for row in README.read_text().splitlines()
        if re.match(r"\| (gate|export) ", row)
    }
    gates = {("gate", state.name, move, to.name) for (state, move), to in gate.MOVES.items()}
    exports = {("export", state.name, move, to.name) for (state, move), to in export.MOVES.items()}
    assert told == gates | exports
