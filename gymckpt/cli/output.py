"""Where answers, progress and errors go: answers to standard output, everything else to standard error."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from gymckpt.cli.exits import next_step
from gymckpt.cli.shapes import error_shape
from gymckpt.errors import GymckptError


@dataclass(slots=True)
class Output:
    """How one command speaks. With `as_json` an answer is one JSON document on one line, and an error is one too, on standard error."""

    as_json: bool = False

    def answer(self, shape: Mapping[str, Any], *human: str) -> None:
        """Prints the answer in the form that was asked for."""
        if self.as_json:
            print(json.dumps(shape), flush=True)
            return
        for part in human:
            print(part, flush=True)

    def note(self, text: str) -> None:
        """Says something beside the answer, to people only."""
        if not self.as_json:
            print(text, file=sys.stderr, flush=True)

    def warn(self, text: str) -> None:
        """Says that an answer is less than what was hoped for, with --json too: what it is about stands in the answer as well."""
        print(f"warning: {text}", file=sys.stderr, flush=True)

    def fail(self, error: GymckptError) -> None:
        """Prints an error and what to do next."""
        advice = next_step(error)
        if self.as_json:
            print(json.dumps(error_shape(error, advice)), file=sys.stderr, flush=True)
            return
        print(f"error: {error.message} [{error.reason}]", file=sys.stderr)
        if error.retry_after is not None:
            print(f"retry: after {error.retry_after:g} s", file=sys.stderr)
        if advice:
            print(f"next: {advice}", file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def progress(self, text: str) -> Iterator[Step]:
        """A live line on standard error when that is a terminal; nothing otherwise."""
        console = Console(file=sys.stderr)
        if not console.is_terminal:
            yield Step(None)
            return
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=24), TimeElapsedColumn())
        with Progress(*columns, console=console, transient=True) as bar:
            bar.add_task(text, total=None)
            yield Step(bar)


@dataclass(slots=True)
class Step:
    """The one line of progress; without a terminal it shows nothing."""

    bar: Progress | None

    def show(self, text: str, finished: int = 0, total: int = 0) -> None:
        """What is going on, and how far it is; a total of 0 is unknown."""
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], description=text, completed=finished, total=total or None)


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]], empty: str) -> str:
    """Rows under headings; without rows the words of `empty`."""
    if not rows:
        return empty
    lines = [list(columns), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(columns))]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def counted(count: int, noun: str) -> str:
    """`1 blob`, `2 blobs`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
