"""What ends by itself when nothing is heard of a round."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from gymckpt.core.ids import Fence
from gymckpt.core.kinds import ExportState, GateState
from gymckpt.core.transitions import Abort, Prepare, Renew, Resume, Snapshot, Upload
from gymckpt.errors import CutVoid, InvalidPhase, StaleCheckpoint
from tests.unit.participant.base.bed import Clock, Counters, StoppableStore
from tests.unit.participant.rounds import Rounds, settled


@pytest.fixture
def counters(rounds: Rounds, clock: Clock) -> Counters:
    counters = Counters(rounds, clock=clock)
    counters.seed("r")
    return counters


async def test_the_gate_lease_opens_the_gate_fences_the_round_and_leaves_its_export(
    rounds: Rounds, counters: Counters, clock: Clock
) -> None:
    """C19, X33"""
    p = counters.participant
    fence, fresh = rounds.fence(), Prepare(1.0, 5.0)
    prepared = await rounds.ask(p, fence, fresh)
    await rounds.ask(p, fence, Snapshot(prepared.closing, 600.0))
    held = asyncio.create_task(p.enter(counters.call("r")))
    clock.now += 4.9
    p.tick()
    await settled()
    assert (counters.gate(), held.done()) == (GateState.CLOSED, False)
    clock.now += 0.1
    p.tick()
    assert (await held) is not None
    assert (counters.gate(), counters.export()) == (GateState.OPEN, ExportState.FROZEN)
    assert (await rounds.ask(p, fence, Upload())).sessions == 1
    with pytest.raises(StaleCheckpoint):
        await rounds.ask(p, fence, fresh)


async def test_a_snapshot_after_the_lease_ended_is_void(rounds: Rounds, counters: Counters, clock: Clock) -> None:
    """C19, X01"""
    p = counters.participant
    fence = rounds.fence()
    prepared = await rounds.ask(p, fence, Prepare(1.0, 5.0))
    clock.now += 5
    p.tick()
    with pytest.raises(CutVoid):
        await rounds.ask(p, fence, Snapshot(prepared.closing, 600.0))


async def test_a_waiting_prepare_answers_when_its_gate_lease_ends(
    rounds: Rounds, counters: Counters, clock: Clock
) -> None:
    """C19"""
    p = counters.participant
    counters.enter("r")
    waiting = asyncio.create_task(rounds.ask(p, rounds.fence(), Prepare(600.0, 5.0)))
    await settled()
    clock.now += 5
    p.tick()
    assert (await waiting).closing == 0
    assert counters.gate() is GateState.OPEN


async def test_the_export_lease_drops_the_export_and_leaves_the_gate(
    rounds: Rounds, counters: Counters, clock: Clock
) -> None:
    """X33"""
    p = counters.participant
    fence = rounds.fence()
    prepared = await rounds.ask(p, fence, Prepare(1.0, 600.0))
    await rounds.ask(p, fence, Snapshot(prepared.closing, 5.0))
    clock.now += 5
    p.tick()
    assert (counters.gate(), counters.export()) == (GateState.CLOSED, ExportState.NONE)
    with pytest.raises(StaleCheckpoint):
        await rounds.ask(p, fence, Upload())


Moving = Callable[[Rounds, Counters, Fence], Awaitable[object]]


async def resume_twice(rounds: Rounds, counters: Counters, fence: Fence) -> None:
    for _ in range(2):
        await rounds.ask(counters.participant, fence, Resume())


async def prepare_again(rounds: Rounds, counters: Counters, fence: Fence) -> None:
    await rounds.ask(counters.participant, fence, Prepare(1.0, 5.0))


async def end_another_round(rounds: Rounds, counters: Counters, _fence: Fence) -> None:
    await rounds.ask(counters.participant, rounds.fence("other"), Abort())


@pytest.mark.parametrize("moving", [resume_twice, prepare_again, end_another_round])
@pytest.mark.parametrize("uploaded", [False, True])
async def test_whatever_moves_the_gate_leaves_the_export_and_its_lease(
    rounds: Rounds, counters: Counters, clock: Clock, moving: Moving, uploaded: bool
) -> None:
    """X33: a retry as well; the lease of the export ends when it would have ended."""
    p = counters.participant
    fence = rounds.fence()
    prepared = await rounds.ask(p, fence, Prepare(1.0, 600.0))
    await rounds.ask(p, fence, Snapshot(prepared.closing, 5.0))
    first = await rounds.ask(p, fence, Upload()) if uploaded else None
    clock.now += 4
    await moving(rounds, counters, fence)
    assert counters.export() is (ExportState.UPLOADED if uploaded else ExportState.FROZEN)
    assert p.export.lease.remaining(clock.now) == 1.0
    again = await rounds.ask(p, fence, Upload())
    assert first is None or again is first
    assert (again.sessions, len(counters.state.encoded)) == (1, 1)


async def upload_twice(rounds: Rounds, counters: Counters, fence: Fence) -> None:
    for _ in range(2):
        await rounds.ask(counters.participant, fence, Upload())


async def go_away_while_it_uploads(rounds: Rounds, counters: Counters, fence: Fence) -> None:
    store = rounds.store
    assert isinstance(store, StoppableStore)
    store.stop()
    caller = asyncio.create_task(rounds.ask(counters.participant, fence, Upload()))
    await store.reached.wait()
    caller.cancel()
    await asyncio.wait({caller})
    store.running.set()


async def take_the_cut_again(rounds: Rounds, counters: Counters, fence: Fence) -> None:
    closing = counters.participant.gate.closing
    await rounds.ask(counters.participant, fence, Snapshot(closing, 5.0))


@pytest.mark.parametrize("moving", [upload_twice, go_away_while_it_uploads, take_the_cut_again])
@pytest.mark.parametrize("resumed", [False, True])
async def test_whatever_moves_the_export_leaves_the_gate_and_its_lease(
    rounds: Rounds, counters: Counters, clock: Clock, moving: Moving, resumed: bool
) -> None:
    """X33: a retry, and a caller that went away, as well; the gate opens when it would have opened."""
    p = counters.participant
    fence = rounds.fence()
    prepared = await rounds.ask(p, fence, Prepare(1.0, 5.0))
    await rounds.ask(p, fence, Snapshot(prepared.closing, 600.0))
    if resumed:
        await rounds.resume(p, fence)
    clock.now += 4
    await moving(rounds, counters, fence)
    p.tick()
    assert counters.gate() is (GateState.OPEN if resumed else GateState.CLOSED)
    clock.now += 1
    p.tick()
    assert counters.gate() is GateState.OPEN


async def test_renewing_again_and_again_keeps_both_past_their_first_lease(
    rounds: Rounds, counters: Counters, clock: Clock
) -> None:
    """C20"""
    p = counters.participant
    fence = rounds.fence()
    prepared = await rounds.ask(p, fence, Prepare(1.0, 5.0))
    await rounds.ask(p, fence, Snapshot(prepared.closing, 5.0))
    for _ in range(5):
        clock.now += 4
        p.tick()
        await rounds.ask(p, fence, Renew())
    assert (counters.gate(), counters.export()) == (GateState.CLOSED, ExportState.FROZEN)
    await rounds.ask(p, fence, Renew(gate_lease=50.0, export_lease=1.0))
    clock.now += 4
    p.tick()
    assert (counters.gate(), counters.export()) == (GateState.CLOSED, ExportState.NONE)


async def test_a_round_of_which_nothing_is_held_cannot_be_renewed(rounds: Rounds, counters: Counters) -> None:
    fence, _ = await rounds.prepare(counters.participant)
    with pytest.raises(InvalidPhase, match="holds nothing of 'other-2'"):
        await rounds.ask(counters.participant, rounds.fence("other"), Renew())
    await rounds.resume(counters.participant, fence)
    with pytest.raises(InvalidPhase):
        await rounds.ask(counters.participant, fence, Renew())
