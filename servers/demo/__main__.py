"""`python -m servers.demo`"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

from servers.demo.options import add_options, directory_of, played, tasks_of, teller
from servers.demo.outcome import Outcome
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
    parser.add_argument("--same-ports", action="store_true", help="the new servers take the ports of the killed ones")
    add_options(parser, report=Path("build/demo.json"))
    return parser


def main() -> None:
    given = arguments().parse_args()
    tasks, directory = tasks_of(given), directory_of(given)
    settings = Settings(tasks, directory, given.rollouts, seed=given.seed, same_ports=given.same_ports)
    outcome = played(Demo(settings, teller()).run, directory)
    _report(outcome, given.report)
    if outcome.failures():
        sys.exit(f"logs, store and ledgers are in {directory}")
    if given.directory is None:
        shutil.rmtree(directory)


def _report(outcome: Outcome, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(outcome.as_json(), indent=2) + "\n")
    show(outcome)


if __name__ == "__main__":
    main()
