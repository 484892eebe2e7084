"""The rule of admission, whole, and the count of what runs."""

from __future__ import annotations

import itertools

import pytest

from gymckpt.core.admission import TABLE, Entry, InFlight, Running, Verdict, decide
from gymckpt.core.ids import Episode
from gymckpt.core.kinds import GateState

CLOSED_RULE = {
    Entry.EXEMPT: Verdict.ADMIT,
    Entry.REPLAY: Verdict.ADMIT,
    Entry.WITHIN: Verdict.ADMIT,
    Entry.INSIDE: Verdict.HOLD,
    Entry.START: Verdict.REFUSE,
}


@pytest.mark.parametrize(("entry", "gate"), list(itertools.product(Entry, GateState)))
def test_only_a_new_episode_is_refused_and_only_work_of_a_loop_that_can_park_is_held(
    entry: Entry, gate: GateState
) -> None:
    """X37, X38, R01, R05"""
    expected = Verdict.ADMIT if gate is GateState.OPEN else CLOSED_RULE[entry]
    assert decide(entry, gate) is expected
    assert len(TABLE) == len(Entry) * len(GateState)


def test_only_calls_that_block_a_cut_are_blockers() -> None:
    """R05, R15, C37"""
    calls = InFlight()
    held = calls.enter(Running("tool_call", Episode("r"), "/add", 1.0, blocks=True))
    calls.enter(Running("verify", Episode("r"), "/verify", 2.0, blocks=False))
    assert (len(calls), calls.blocking) == (2, 1)
    [blocker] = calls.blockers(now=4.0)
    assert (blocker.type, blocker.subject, blocker.age) == ("tool_call", "/add", 3.0)
    calls.leave(held)
    assert (len(calls), calls.blocking, list(calls.blockers(4.0))) == (1, 0, [])
    with pytest.raises(KeyError):
        calls.leave(held)
    assert calls.blocking == 0


def test_calls_of_a_rollout_are_found_whatever_their_attempt_and_forgotten_when_they_leave() -> None:
    """X18"""
    calls = InFlight()
    tickets = [calls.enter(Running("tool_call", Episode("r", attempt), "", 0.0, blocks=True)) for attempt in (0, 1)]
    calls.enter(Running("tool_call", Episode("s"), "", 0.0, blocks=True))
    calls.enter(Running("tool_call", None, "", 0.0, blocks=True))
    assert [running.episode for running in calls.of_rollout("r")] == [Episode("r"), Episode("r", 1)]
    for ticket in tickets:
        calls.leave(ticket)
    assert calls.of_rollout("r") == []
    assert calls.blocking == 2
