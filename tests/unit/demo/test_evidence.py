"""The totals of several demos, and which of them are not enough."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gymckpt.coordinator import Checkpoint, Stage
from servers.demo.evidence import Totals, failures, totals, wanted
from tests.unit.demo.test_outcome import GOOD

RUNS = [
    replace(GOOD, continued=60, continued_with_changed_state=30, reads_of_changed_state_after_restore=50),
    replace(GOOD, continued=60, continued_with_changed_state=30, reads_of_changed_state_after_restore=50),
]


def taken(milliseconds: float, waited_for: int = 0) -> Checkpoint:
    return Checkpoint("c", Stage.PUBLISHED, prepare_seconds=milliseconds / 1e3, waited_for=waited_for)


def wrong(summed: Totals) -> list[str]:
    return [name for name in summed if not wanted(summed, name)[1]]


def test_numbers_are_added_and_rewards_weighed_by_rollouts() -> None:
    summed = totals([replace(GOOD, rollouts=10, mean_reward=1.0), replace(GOOD, rollouts=30, mean_reward=0.0)], [])
    assert summed["rollouts"] == 40
    assert summed["mean_reward"] == 0.25
    assert summed["stale_attempts_tried"] == 2 * GOOD.stale_attempts_tried


def test_only_what_found_nothing_to_wait_for_must_be_prepared_at_once() -> None:
    """P14: a tool call of a second may keep a gate closing for a second."""
    quick = [taken(6), taken(7), taken(900, waited_for=1)]
    assert totals(RUNS, quick)["prepare_at_once_ms"] == {"n": 2, "p50": 6.5, "max": 7.0}
    assert wrong(totals(RUNS, quick)) == []
    assert wrong(totals(RUNS, [taken(8.5), taken(900, waited_for=1)])) == ["prepare_at_once_ms"]


def test_a_time_that_is_missed_is_no_failure_but_one_that_was_not_measured_is() -> None:
    """P14."""
    assert failures(totals(RUNS, [taken(8.5)])) == []
    assert failures(totals(RUNS, [taken(900, waited_for=1)])) == ["prepare_at_once_ms"], "nothing was shown"


@pytest.mark.parametrize(
    "name",
    [
        "continued",
        "continued_with_changed_state",
        "reads_of_changed_state_after_restore",
        "mean_reward",
        "lost",
        "tool_calls_repeated",
        "sessions_left",
    ],
)
def test_each_total_that_is_not_as_it_must_be_is_named(name: str) -> None:
    """P14."""
    value = 1 if name in ("lost", "tool_calls_repeated", "sessions_left") else 0
    assert wrong(totals([RUNS[0], replace(RUNS[1], **{name: value})], [taken(1)])) == [name]  # type: ignore[arg-type]
