"""The end of the demo as a table that a person can read."""

from __future__ import annotations

import importlib.util

from servers.demo.outcome import Outcome

TITLE = "cut in mid-turn, killed, continued"


def show(outcome: Outcome) -> None:
    """Prints the table, in colours when rich is installed, and below it what must not be."""
    rows = _rows(outcome)
    if importlib.util.find_spec("rich") is None:
        width = max(len(name) for name, *_ in rows)
        for name, text, wanted, good in rows:
            print(f"{name:{width}}  {text:>18}  {'' if good else 'WRONG: '}{wanted}")
    else:
        _show_rich(rows)
    failures = outcome.failures()
    for failure in failures:
        print(f"wrong: {failure}")
    if not failures:
        print("Nothing differs from the run without a crash.")


Row = tuple[str, str, str, bool]


def _rows(outcome: Outcome) -> list[Row]:
    """Name, value, what it must be, and whether it is."""
    rows: list[Row] = []
    for name, value in outcome.as_json().items():
        wanted, good = outcome.wanted(name)
        rows.append((name.replace("_", " "), _text(value), wanted, good))
    return rows


def _text(value: object) -> str:
    if isinstance(value, dict):
        return f"p50 {value['p50']:.0f}, max {value['max']:.0f} (n={value['n']})"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _show_rich(rows: list[Row]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=TITLE)
    table.add_column("what", no_wrap=True)
    table.add_column("seen", justify="right", no_wrap=True)
    table.add_column("must be")
    for name, text, wanted, good in rows:
        table.add_row(name, text, wanted, style=None if good else "bold red")
    Console().print(table)
