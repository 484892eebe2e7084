"""`python -m servers.chaos`"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

from servers.chaos.run import Chaos, Settings
from servers.demo.options import add_options, directory_of, played, tasks_of, teller
from servers.demo.show import show_table


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m servers.chaos",
        description="Plays rollouts on a supervised fleet, takes checkpoints and kills random servers until all rollouts have a "
        "result, and compares the results with those of a run that nobody disturbed. Exits with status 1 when anything differs.",
    )
    parser.add_argument("--rollouts", type=int, default=200, help="how many (default: %(default)s)")
    parser.add_argument("--concurrency", type=int, default=64, help="at once (default: %(default)s)")
    parser.add_argument("--every", type=float, default=2.0, help="seconds between checkpoints (default: %(default)s)")
    parser.add_argument(
        "--kill-after",
        type=float,
        default=10.0,
        help="seconds that the fleet is whole before a kill (default: %(default)s)",
    )
    add_options(parser, report=Path("build/chaos.json"))
    given = parser.parse_args()
    tasks, directory = tasks_of(given), directory_of(given)
    settings = Settings(
        tasks,
        directory,
        given.rollouts,
        given.concurrency,
        given.every,
        given.kill_after,
        seed=given.seed,
    )
    outcome = played(Chaos(settings, teller()).run, directory)
    given.report.parent.mkdir(parents=True, exist_ok=True)
    given.report.write_text(json.dumps(outcome.as_json(), indent=2) + "\n")
    rows = [(name, value, *outcome.wanted(name), "") for name, value in outcome.as_json().items()]
    show_table("played while servers were killed", rows)
    if outcome.failures():
        sys.exit(f"wrong: {'; '.join(outcome.failures())}\nlogs, store and ledgers are in {directory}")
    if given.directory is None:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
