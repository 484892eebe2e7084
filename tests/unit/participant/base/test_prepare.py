"""Closing the gate and waiting until nothing blocks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from gymckpt.core.ids import Fence
from gymckpt.core.kinds import ExportState, GateState
from gymckpt.core.report import Blocker
from gymckpt.core.transitions import Abort, Prepare, Request, Resume, Retire, Snapshot
from gymckpt.errors import (
    Conflict,
    DeadlineExceeded,
    InvalidPhase,
    StaleBoot,
    StaleCheckpoint,
    StaleEpoch,
    StoreUnavailable,
)
from gymckpt.participant import Episode
from tests.unit.participant.base.bed import Counters
from tests.unit.participant.rounds import Rounds, blocked, settled, until


async def test_prepare_waits_for_running_work_and_the_same_prepare_again_gives_the_identical_answer(
    rounds: Rounds, counters: Counters
) -> None:
    """C01, R01"""
    counters.seed("r")
    ticket = counters.enter("r")
    fence, waiting = rounds.closing(counters.participant)
    await settled()
    assert counters.gate() is GateState.CLOSING
    assert not waiting.done()
    counters.leave(ticket)
    prepared = await waiting
    assert prepared.report.ready
    assert counters.gate() is GateState.CLOSED
    inside = counters.enter("r", within=Episode("r"))
    assert await rounds.ask(counters.participant, fence, Prepare(0.001, 600.0)) is prepared
    counters.leave(inside)


async def test_a_missed_deadline_answers_with_the_blockers_and_the_gate_stays_closing(
    rounds: Rounds, counters: Counters
) -> None:
    """C02, R01"""
    counters.seed("r")
    ticket = counters.enter("r")
    fence, prepared = await rounds.prepare(counters.participant, timeout=0.01)
    assert (blocked(prepared.report), prepared.closing) == ([("tool_call", "r")], 0)
    assert counters.gate() is GateState.CLOSING
    assert counters.participant.enter_now(counters.call("r")) is None
    counters.leave(ticket)
    again = await rounds.ask(counters.participant, fence, Prepare(0.01, 600.0))
    assert again.closing == counters.participant.gate.closing


@pytest.mark.parametrize("end", [Resume(), Abort("enough")], ids=["resume", "abort"])
async def test_resume_and_abort_interrupt_a_waiting_prepare_which_answers_without_error(
    rounds: Rounds, counters: Counters, end: Resume | Abort
) -> None:
    """C04, X04"""
    counters.seed("r")
    counters.enter("r")
    fence, waiting = rounds.closing(counters.participant)
    await settled()
    await rounds.ask(counters.participant, fence, end)
    async with asyncio.timeout(1.0):
        prepared = await waiting
    assert prepared.closing == 0
    assert counters.gate() is GateState.OPEN


async def test_an_ended_round_never_closes_the_gate_again_and_ending_it_again_is_fine(
    rounds: Rounds, counters: Counters
) -> None:
    """C05"""
    fence, _ = await rounds.prepare(counters.participant)
    assert not (await rounds.ask(counters.participant, fence, Resume())).already
    assert (await rounds.ask(counters.participant, fence, Resume())).already
    with pytest.raises(StaleCheckpoint):
        await rounds.ask(counters.participant, fence, Prepare(1.0, 60.0))
    assert counters.gate() is GateState.OPEN


async def test_resume_of_a_round_that_never_began_fences_it_and_opens_nobody_elses_gate(
    rounds: Rounds, counters: Counters
) -> None:
    """C05, X33"""
    held, _ = await rounds.prepare(counters.participant)
    never = rounds.fence("never")
    assert (await rounds.ask(counters.participant, never, Resume())).already
    assert counters.gate() is GateState.CLOSED
    await rounds.resume(counters.participant, held)
    with pytest.raises(StaleCheckpoint):
        await rounds.ask(counters.participant, never, Prepare(1.0, 60.0))


async def test_abort_of_another_round_leaves_gate_and_export_of_the_present_one(
    rounds: Rounds, counters: Counters
) -> None:
    """X33"""
    counters.seed("r")
    fence, prepared = await rounds.prepare(counters.participant)
    taken = await rounds.snapshot(counters.participant, fence, prepared)
    assert (await rounds.ask(counters.participant, rounds.fence("other"), Abort())).already
    assert counters.gate() is GateState.CLOSED
    assert counters.export() is ExportState.FROZEN
    assert (await rounds.publish(counters.participant, fence, taken)).uploaded.sessions == 1


async def test_an_aborted_round_is_refused_even_where_it_was_never_seen(rounds: Rounds, counters: Counters) -> None:
    """X04, C05"""
    fence = rounds.fence()
    assert (await rounds.ask(counters.participant, fence, Abort())).already
    with pytest.raises(StaleCheckpoint):
        await rounds.ask(counters.participant, fence, Prepare(1.0, 60.0))
    assert counters.gate() is GateState.OPEN


async def test_retire_is_refused_while_the_gate_is_not_open_and_a_new_id_prepares_afterwards(
    rounds: Rounds, counters: Counters
) -> None:
    """C03"""
    fence, _ = await rounds.prepare(counters.participant)
    with pytest.raises(InvalidPhase, match="resume or abort first"):
        await rounds.retire(counters.participant, "r")
    assert not counters.participant.floors.refuses(Episode("r"))
    await rounds.resume(counters.participant, fence)
    await rounds.retire(counters.participant, "r")
    _, prepared = await rounds.prepare(counters.participant)
    assert prepared.report.ready


async def test_a_process_that_is_just_starting_retires_although_its_gate_was_never_open(
    rounds: Rounds, counters: Counters
) -> None:
    """C03, X27: one server that comes back must not keep its caller from retiring what another one has lost."""
    p = Counters(rounds).participant
    p.gate = type(p.gate)()
    await rounds.retire(p, "r")
    assert p.floors.refuses(Episode("r"))
    assert p.gate.state is GateState.CLOSED


async def test_a_kind_that_fails_to_close_leaves_the_gate_open(
    rounds: Rounds, counters: Counters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C06"""

    def fail() -> None:
        raise RuntimeError("cannot close")

    monkeypatch.setattr(counters.participant, "gate_closing", fail)
    with pytest.raises(RuntimeError, match="cannot close"):
        await rounds.prepare(counters.participant)
    assert counters.gate() is GateState.OPEN
    assert counters.participant.gate.fence is None


async def test_a_kind_that_fails_when_the_gate_opens_still_lets_held_calls_go_on(
    rounds: Rounds, counters: Counters, monkeypatch: pytest.MonkeyPatch
) -> None:
    counters.seed("r")
    fence, _ = await rounds.prepare(counters.participant)
    held = asyncio.create_task(counters.participant.enter(counters.call("r")))
    await settled()

    def fail() -> None:
        raise RuntimeError("cannot open")

    monkeypatch.setattr(counters.participant, "gate_opened", fail)
    with pytest.raises(RuntimeError, match="cannot open"):
        await rounds.resume(counters.participant, fence)
    assert (await held) is not None


async def test_another_round_is_refused_while_one_holds_the_gate_or_the_export(
    rounds: Rounds, counters: Counters
) -> None:
    counters.seed("r")
    fence, prepared = await rounds.prepare(counters.participant)
    with pytest.raises(Conflict, match="holds the gate"):
        await rounds.prepare(counters.participant)
    await rounds.snapshot(counters.participant, fence, prepared)
    await rounds.resume(counters.participant, fence)
    with pytest.raises(Conflict, match="still FROZEN") as refused:
        await rounds.prepare(counters.participant)
    assert refused.value.retry_after is not None
    assert counters.gate() is GateState.OPEN


async def test_twenty_wakes_of_a_prepare_list_the_blockers_once(
    rounds: Rounds, counters: Counters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C49, C37"""
    counters.seed("r")
    ticket = counters.enter("r")
    listings: list[int] = []
    blockers = counters.participant.blockers

    def listed() -> Iterable[Blocker]:
        listings.append(1)
        return blockers()

    monkeypatch.setattr(counters.participant, "blockers", listed)
    _, waiting = rounds.closing(counters.participant)
    for _ in range(20):
        counters.participant.notify()
        await settled()
    counters.leave(ticket)
    await waiting
    assert len(listings) <= 1


async def test_the_report_lists_a_hundred_blockers_by_key_and_counts_them_all(
    rounds: Rounds, counters: Counters
) -> None:
    """C25, C37"""
    for number in range(150):
        counters.seed(f"r{number:03d}")
        counters.enter(f"r{number:03d}")
    _, prepared = await rounds.prepare(counters.participant, timeout=0.01)
    assert prepared.report.blocker_count == 150
    assert [str(blocker.episode) for blocker in prepared.report.blockers] == [f"r{n:03d}" for n in range(100)]


async def test_readiness_that_changes_between_look_and_wait_is_not_missed(rounds: Rounds, counters: Counters) -> None:
    """C01"""
    counters.seed("r")
    for _ in range(50):
        ticket = counters.enter("r")
        fence, waiting = rounds.closing(counters.participant)
        await asyncio.sleep(0)
        counters.leave(ticket)
        await waiting
        await rounds.resume(counters.participant, fence)


async def test_an_older_epoch_and_another_boot_change_nothing(rounds: Rounds, counters: Counters) -> None:
    """X06, X26"""
    p = counters.participant
    p.observe_epoch(3)
    with pytest.raises(StaleEpoch):
        await p.apply(Request(Fence(2, 1, "old"), 1, p.boot_id, Prepare(1.0, 60.0)))
    with pytest.raises(StaleBoot):
        await p.apply(Request(Fence(9, 1, "elsewhere"), 1, "0" * 32, Prepare(1.0, 60.0)))
    assert (p.gate.state, p.authority.epoch) == (GateState.OPEN, 3)
    with pytest.raises(StaleEpoch):
        p.observe_epoch(2)


async def test_a_process_that_does_not_know_the_floors_obeys_nobody_and_admits_nobody(
    rounds: Rounds, counters: Counters
) -> None:
    """X27"""
    p = Counters(rounds).participant
    p.gate, p.started = type(p.gate)(), False
    with pytest.raises(StoreUnavailable, match="has not read the epoch and the floors"):
        await rounds.prepare(p)
    with pytest.raises(StoreUnavailable):
        p.observe_epoch(1)
    assert p.enter_now(counters.call("r", "/seed_session")) is None
    p.started = True
    with pytest.raises(InvalidPhase, match="still starting"):
        await rounds.prepare(p)


async def test_a_call_that_is_retired_blocks_until_it_has_stopped_and_is_then_not_exported(
    rounds: Rounds, counters: Counters
) -> None:
    """C17, C34, R12"""
    p = counters.participant
    counters.seed("r")
    counters.seed("s")
    ticket = counters.enter("r")
    retiring = asyncio.create_task(rounds.retire(p, "r"))
    await settled()
    fence, waiting = rounds.closing(p)
    await settled()
    assert blocked(p.report()) == [("retiring", "r"), ("tool_call", "r")]
    counters.leave(ticket)
    await retiring
    prepared = await waiting
    taken = await rounds.ask(p, fence, Snapshot(prepared.closing, 600.0))
    assert (taken.sessions, counters.keys) == (1, ["s"])


async def test_a_retirement_that_failed_blocks_until_a_retry_frees_the_session(
    rounds: Rounds, counters: Counters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C16, R11, R12"""
    p = counters.participant
    for text in ("r", "s"):
        counters.seed(text)
    discard = counters.state.discard

    def fail(session: str) -> None:
        if session == "r":
            raise RuntimeError("the sandbox does not answer")
        discard(session)

    monkeypatch.setattr(counters.state, "discard", fail)
    with pytest.raises(RuntimeError, match="sandbox"):
        await rounds.retire(p, "r", "s")
    assert [p.floors.refuses(Episode(text)) for text in "rs"] == [True, True]
    assert counters.keys == ["r"]
    fence, prepared = await rounds.prepare(p, timeout=0.01)
    assert blocked(prepared.report) == [("retiring", "r")]
    await rounds.resume(p, fence)
    monkeypatch.undo()
    await rounds.retire(p, "r", "s")
    assert counters.keys == []
    assert p.report().ready


async def test_a_retirement_that_takes_too_long_says_who_and_a_retry_waits_for_the_same(
    rounds: Rounds, counters: Counters
) -> None:
    """C17"""
    p = counters.participant
    counters.seed("r")
    ticket = counters.enter("r")
    with pytest.raises(DeadlineExceeded, match=r"have not stopped after 0.01 s, first \['r'\]"):
        await rounds.ask(p, rounds.fence("retire"), Retire((Episode("r"),), 0.01))
    again = asyncio.create_task(rounds.retire(p, "r"))
    await until(lambda: p.retiring.count == 1)
    counters.leave(ticket)
    await again
    assert (p.retiring.count, counters.keys, counters.values) == (0, [], {})
