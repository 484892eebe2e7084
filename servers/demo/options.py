"""Options that every program which plays demos has."""

from __future__ import annotations

import argparse
import asyncio
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from gymckpt.errors import GymckptError
from servers.demo.fleet import ServerFailed
from servers.demo.life import NeverCame
from servers.demo.rollouts import Tasks

T = TypeVar("T")


def add_options(parser: argparse.ArgumentParser, report: Path) -> None:
    """What to play, and where to keep and report it."""
    parser.add_argument("--tasks", type=Path, help="JSONL of Workplace tasks (default: built-in tasks)")
    parser.add_argument("--tables", type=Path, help="directory of the tables' CSV files (default: invented tables)")
    parser.add_argument("--seed", type=int, default=0, help="of the model's latency (default: %(default)s)")
    parser.add_argument("--directory", type=Path, help="keep logs, store and ledgers here (default: a temporary one)")
    parser.add_argument("--report", type=Path, default=report, help="(default: %(default)s)")


def tasks_of(given: argparse.Namespace) -> Tasks:
    """Raises SystemExit when only one of tasks and tables is given."""
    if (given.tasks is None) != (given.tables is None):
        raise SystemExit(
            "error: tasks and the tables they are about go together; give --tasks and --tables, or neither"
        )
    return Tasks.builtin() if given.tasks is None else Tasks.read(given.tasks, given.tables.resolve())


def directory_of(given: argparse.Namespace) -> Path:
    """An empty directory. Raises SystemExit when the given one is not."""
    directory: Path = given.directory or Path(tempfile.mkdtemp(prefix="gymckpt-demo-"))
    if directory.is_dir() and any(directory.iterdir()):
        raise SystemExit(f"error: {directory} is not empty; name a new directory")
    return directory.resolve()


def teller() -> Callable[[str], None]:
    """Prints lines with the seconds since now before them."""
    began = time.monotonic()

    def tell(line: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {line}", flush=True)

    return tell


def played(work: Callable[[], Awaitable[T]], directory: Path) -> T:
    """The result of the work; SIGTERM ends it as SIGINT does: its servers are killed first. Raises SystemExit when it cannot be done."""

    async def until_told_to_stop() -> T:
        running = asyncio.current_task()
        assert running is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
        return await work()

    try:
        return asyncio.run(until_told_to_stop())
    except asyncio.CancelledError:
        raise SystemExit("error: told to stop") from None
    except (ServerFailed, NeverCame, GymckptError) as error:
        raise SystemExit(f"error: {type(error).__name__}: {error}\nwhat the servers said is in {directory}") from error
