"""Numbers as a table that a person can read."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

from servers.demo.outcome import Outcome

TITLE = "cut in mid-turn, killed, continued"

Row = tuple[str, object, str, bool, object]
"""Name, value, what it must be, whether it is, and a value to compare with."""


def show(outcome: Outcome) -> None:
    """Prints the table, and below it what must not be."""
    show_table(TITLE, [(name, value, *outcome.wanted(name), "") for name, value in outcome.as_json().items()])
    failures = outcome.failures()
    for failure in failures:
        print(f"wrong: {failure}")
    if not failures:
        print("Nothing differs from the run without a crash.")


def show_table(title: str, rows: Sequence[Row], last: str = "") -> None:
    """In colours when rich is installed. `last` heads the column of values to compare with, which is left out without it."""
    texts = [
        (name.replace("_", " "), _text(value), wanted, _text(other), good) for name, value, wanted, good, other in rows
    ]
    if importlib.util.find_spec("rich") is not None:
        _show_rich(title, texts, last)
        return
    width = max(len(name) for name, *_ in texts)
    for name, text, wanted, other, good in texts:
        print(
            f"{name:{width}}  {text:>18}  {'' if good else 'WRONG: '}{wanted}{f'  ({other} {last})' if other else ''}"
        )


def _text(value: object) -> str:
    if isinstance(value, dict) and "p50" not in value:
        return ", ".join(f"{name} {count}" for name, count in value.items())
    if isinstance(value, dict):
        return f"p50 {value['p50']:.0f}, max {value['max']:.0f} (n={value['n']})"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _show_rich(title: str, texts: Sequence[tuple[str, str, str, str, bool]], last: str) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title)
    table.add_column("what", no_wrap=True)
    table.add_column("seen", justify="right")
    table.add_column("must be")
    if last:
        table.add_column(last, justify="right")
    for name, text, wanted, other, good in texts:
        table.add_row(name, text, wanted, *([other] if last else []), style=None if good else "bold red")
    Console().print(table)
