"""`python -m servers.demo.evidence`: the demo four times, as large as the published runs of NeMo Gym's own checkpointing, cut at different depths."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from gymckpt.coordinator import Checkpoint
from servers.demo.options import add_options, directory_of, played, tasks_of, teller
from servers.demo.outcome import ZERO, Outcome, Spread
from servers.demo.show import show, show_table
from servers.demo.story import Demo, Settings

RUNS = ((40, 0.2), (40, 0.45), (60, 0.35), (80, 0.25))
"""Rollouts, and the share of all planned tool calls after which everything is killed."""
CHECKPOINTS, CHECKPOINTS_AFTER = 4, 14
"""On the way to the crash, and on the way to the end; two more are those of the crash and of the restore."""
LATENCY = (0.3, 1.5)
STAGGER = 0.03
LANES = 2

PUBLISHED: dict[str, Any] = {
    "rollouts": 220,
    "finished_before": 89,
    "continued": 131,
    "continued_with_changed_state": 17,
    "restarted": 0,
    "tool_results_after_restore": 276,
    "second_checkpoint_different": 0,
    "sessions_left": 0,
}
"""What was published of NeMo Gym's own checkpointing in four runs of Workplace tasks; every prepare took at most 8 ms there."""
LEAST = {"continued": 120, "continued_with_changed_state": 60, "reads_of_changed_state_after_restore": 100}
PREPARE_MS = 8.0
"""Most milliseconds, in the median, until all gates are closed where no turn was waited for."""
TIME = "prepare_at_once_ms"

Totals = dict[str, Any]


class Evidence:
    """Plays the runs one after another."""

    def __init__(self, given: argparse.Namespace, directory: Path) -> None:
        self._given = given
        self._directory = directory
        self._tell = teller()
        self.outcomes: list[Outcome] = []
        self.checkpoints: list[Checkpoint] = []

    async def run(self) -> None:
        """Raises what a demo raises."""
        tasks = tasks_of(self._given)
        for number, (rollouts, depth) in enumerate(RUNS, 1):
            self._tell(f"run {number} of {len(RUNS)}: {rollouts} rollouts, cut after {depth:.0%} of their tool calls")
            settings = Settings(
                tasks,
                self._directory / f"run-{number}",
                rollouts,
                CHECKPOINTS,
                latency=LATENCY,
                stagger=STAGGER,
                seed=self._given.seed + number,
                lanes=LANES,
                checkpoints_after=CHECKPOINTS_AFTER,
                depth=depth,
            )
            demo = Demo(settings, self._tell)
            self.outcomes.append(await demo.run())
            self.checkpoints += demo.checkpoints
            show(self.outcomes[-1])


def totals(outcomes: Sequence[Outcome], checkpoints: Sequence[Checkpoint]) -> Totals:
    """Over all runs, with the names of a run's numbers; `prepare_at_once_ms` is of the checkpoints that found no work to wait for."""
    rollouts = sum(outcome.rollouts for outcome in outcomes)
    summed: Totals = {}
    for field in fields(Outcome):
        values = [getattr(outcome, field.name) for outcome in outcomes]
        if field.name.startswith("mean_reward"):
            shares = zip(values, outcomes, strict=True)
            summed[field.name] = sum(value * outcome.rollouts for value, outcome in shares) / rollouts
        elif not field.name.endswith("_ms"):
            summed[field.name] = sum(values)
    at_once = [taken.prepare_seconds for taken in checkpoints if not taken.waited_for]
    summed["prepare_ms"] = asdict(Spread.of([taken.prepare_seconds for taken in checkpoints]))
    summed[TIME] = asdict(Spread.of(at_once))
    summed["pause_ms"] = asdict(Spread.of([taken.pause_seconds for taken in checkpoints if taken.pause_seconds]))
    return summed


def wanted(summed: Totals, name: str) -> tuple[str, bool]:
    """What a total must be, in words ("" when it may be anything), and whether it is."""
    value = summed[name]
    if name in ZERO:
        return "0", value == 0
    if name in LEAST:
        return f"at least {LEAST[name]}", value >= LEAST[name]
    if name == "mean_reward":
        return f"{summed['mean_reward_uninterrupted']:.3f}", value == summed["mean_reward_uninterrupted"]
    if name == TIME:
        return f"p50 at most {PREPARE_MS:g}", value["n"] > 0 and value["p50"] <= PREPARE_MS
    return "", True


def failures(summed: Totals) -> list[str]:
    """Totals that are not as they must be. A time is the machine's as much as the program's: one that is missed is told and is no failure, unless nothing was
    measured."""
    missed = [name for name in summed if not wanted(summed, name)[1]]
    return [name for name in missed if name != TIME or not summed[TIME]["n"]]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m servers.demo.evidence", description=__doc__)
    add_options(parser, report=Path("build/evidence.json"))
    given = parser.parse_args()
    directory = directory_of(given)
    evidence = Evidence(given, directory)
    played(evidence.run, directory)
    summed = totals(evidence.outcomes, evidence.checkpoints)
    document = {"runs": [outcome.as_json() for outcome in evidence.outcomes], "totals": summed}
    given.report.parent.mkdir(parents=True, exist_ok=True)
    given.report.write_text(json.dumps(document, indent=2) + "\n")
    rows = [(name, value, *wanted(summed, name), PUBLISHED.get(name, "")) for name, value in summed.items()]
    show_table(f"{summed['rollouts']} rollouts in {len(RUNS)} runs", rows, last="published")
    if summed[TIME]["p50"] > PREPARE_MS:
        print(
            f"slower than wanted: {TIME} has p50 {summed[TIME]['p50']:g}, wanted {PREPARE_MS:g}; is the machine quiet?"
        )
    wrong = failures(summed)
    wrong += [failure for outcome in evidence.outcomes for failure in outcome.failures()]
    if wrong:
        sys.exit(f"wrong: {'; '.join(wrong)}\nlogs, stores and ledgers are in {directory}")
    if given.directory is None:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
