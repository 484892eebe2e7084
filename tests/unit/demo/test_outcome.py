"""Which numbers of the demo are wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from servers.demo.outcome import Outcome, Spread
from servers.demo.show import show

GOOD = Outcome(
    rollouts=40,
    finished_before=8,
    continued=32,
    continued_from_input=2,
    continued_with_changed_state=30,
    restarted=0,
    lost=0,
    tool_calls_repeated=0,
    tool_results_after_restore=120,
    reads_of_changed_state_after_restore=10,
    prefix_different=0,
    tool_outputs_different=0,
    tables_different=0,
    rewards_different=0,
    second_checkpoint_different=0,
    stale_attempts_tried=128,
    stale_attempts_accepted=0,
    sessions_left=0,
    turns_waited_for=3,
    checkpoints=5,
    mean_reward=1.0,
    mean_reward_uninterrupted=1.0,
    prepare_ms=Spread.of([0.01, 0.03, 0.02]),
    pause_ms=Spread.of([]),
)


def test_a_run_without_differences_has_no_failures() -> None:
    assert GOOD.failures() == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"restarted": 1, "continued": 31, "stale_attempts_tried": 124},
        {"lost": 1, "continued": 31, "stale_attempts_tried": 124},
        {"tool_calls_repeated": 1},
        {"prefix_different": 1},
        {"tool_outputs_different": 1},
        {"tables_different": 1},
        {"rewards_different": 1},
        {"second_checkpoint_different": 1},
        {"stale_attempts_accepted": 1},
        {"sessions_left": 1},
        {"stale_attempts_tried": 127},
        {"continued_from_input": 7},
        {"continued_with_changed_state": 0},
        {"reads_of_changed_state_after_restore": 9},
        {"finished_before": 7},
        {"mean_reward": 0.5},
    ],
)
def test_each_number_that_is_not_as_it_must_be_is_named(
    wrong: dict[str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    """X13 among them: every rollout is accounted for."""
    outcome = replace(GOOD, **wrong)  # type: ignore[arg-type]
    named = next(iter(wrong)) if "finished_before" not in wrong else "rollouts"
    assert [failure.split()[0] for failure in outcome.failures()] == [named]
    show(outcome)
    printed = capsys.readouterr().out
    assert f"wrong: {named}" in printed
    assert "Nothing differs" not in printed


def test_a_run_in_which_nothing_was_continued_proves_nothing() -> None:
    nothing = replace(GOOD, finished_before=40, continued=0, continued_from_input=0, stale_attempts_tried=0)
    assert any(failure.startswith("continued is 0") for failure in nothing.failures())


def test_times_are_told_in_milliseconds() -> None:
    assert GOOD.as_json()["prepare_ms"] == {"n": 3, "p50": 20.0, "max": 30.0}
    assert GOOD.as_json()["pause_ms"] == {"n": 0, "p50": 0.0, "max": 0.0}
