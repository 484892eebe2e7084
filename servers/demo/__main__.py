"""`python -m servers.demo`"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from gymckpt.errors import GymckptError
from servers.demo.fleet import ServerFailed
from servers.demo.life import NeverCame
from servers.demo.outcome import Outcome
from servers.demo.rollouts import Tasks
from servers.demo.show import show
from servers.demo.story import Demo, Settings


def arguments() -> argparse.ArgumentParser:
    """The options of the demo."""
    parser = argparse.ArgumentParser(
        prog="python -m servers.demo",
        description="Runs rollouts over several server processes, kills all of them in mid-turn, continues every rollout from a "
        "checkpoint, and compares the end with a run without a crash. Exits with status 1 when anything differs.",
    )
    parser.add_argument("--rollouts", type=int, default=40, help="how many (default: %(default)s)")
    parser.add_argument("--tasks", type=Path, help="JSONL of Workplace tasks (default: built-in tasks)")
    parser.add_argument("--tables", type=Path, help="directory of the tables' CSV files (default: invented tables)")
    parser.add_argument("--seed", type=int, default=0, help="of the model's latency (default: %(default)s)")
    parser.add_argument("--same-ports", action="store_true", help="the new servers take the ports of the killed ones")
    parser.add_argument("--directory", type=Path, help="keep logs, store and ledgers here (default: a temporary one)")
    parser.add_argument("--report", type=Path, default=Path("build/demo.json"), help="(default: %(default)s)")
    return parser


def main() -> None:
    given = arguments().parse_args()
    if (given.tasks is None) != (given.tables is None):
        raise SystemExit(
            "error: tasks and the tables they are about go together; give --tasks and --tables, or neither"
        )
    tasks = Tasks.builtin() if given.tasks is None else Tasks.read(given.tasks, given.tables.resolve())
    directory = given.directory or Path(tempfile.mkdtemp(prefix="gymckpt-demo-"))
    if directory.is_dir() and any(directory.iterdir()):
        raise SystemExit(f"error: {directory} is not empty; name a new directory")
    settings = Settings(tasks, directory.resolve(), given.rollouts, seed=given.seed, same_ports=given.same_ports)
    began = time.monotonic()

    def tell(line: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {line}", flush=True)

    try:
        outcome = asyncio.run(_until_told_to_stop(Demo(settings, tell)))
    except asyncio.CancelledError:
        raise SystemExit("error: told to stop") from None
    except (ServerFailed, NeverCame, GymckptError) as error:
        raise SystemExit(f"error: {type(error).__name__}: {error}\nwhat the servers said is in {directory}") from error
    _report(outcome, given.report)
    if outcome.failures():
        sys.exit(f"logs, store and ledgers are in {directory}")
    if given.directory is None:
        shutil.rmtree(directory)


async def _until_told_to_stop(demo: Demo) -> Outcome:
    """SIGTERM ends the demo as SIGINT does: its servers are killed first."""
    running = asyncio.current_task()
    assert running is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    return await demo.run()


def _report(outcome: Outcome, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(outcome.as_json(), indent=2) + "\n")
    show(outcome)


if __name__ == "__main__":
    main()
