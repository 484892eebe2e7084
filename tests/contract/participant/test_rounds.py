"""Whole rounds over the wire; both doors lead to one function and pass one suite."""

from __future__ import annotations

import asyncio

import pytest

from gymckpt.core.ids import Episode, Fence
from gymckpt.core.kinds import ExportState, GateState
from gymckpt.core.manifest import CheckpointManifest, Decision, ParticipantEntry
from gymckpt.core.transitions import (
    Abort,
    AbortDone,
    Activate,
    Activated,
    Confirm,
    Confirmed,
    Decided,
    DecisionSeen,
    Discard,
    Discarded,
    Forget,
    Install,
    Installed,
    InstallTarget,
    Prepare,
    Prepared,
    Renew,
    Renewed,
    Resume,
    Resumed,
    Retire,
    Retired,
    Snapshot,
    SnapshotTaken,
    Transition,
    Upload,
    Uploaded,
)
from gymckpt.errors import (
    CheckpointAborted,
    Conflict,
    CutVoid,
    GymckptError,
    InvalidPhase,
    NotImplementedHere,
    RestoreAborted,
    StaleBoot,
    StaleCheckpoint,
    StaleEpoch,
    TransportFailed,
)
from gymckpt.rpc.codec import encode_checkpoint_manifest, encode_decision
from tests.contract.participant.conftest import Member, StreamDoor
from tests.unit.participant.base.bed import Counters, StoppableStore
from tests.unit.participant.rounds import Rounds, blocked, until

ONE, TWO = Fence(1, 1, "one"), Fence(1, 2, "two")
PREPARE = Prepare(5.0, 60.0)


async def publish(rounds: Rounds, member: Member, fence: Fence, uploaded: Uploaded) -> CheckpointManifest:
    entry = ParticipantEntry(member.counters.participant.info, uploaded.manifest)
    manifest = CheckpointManifest(fence.checkpoint_id, 1, fence.sequence, 0, participants=(entry,))
    [digest] = await rounds.store.write([encode_checkpoint_manifest(manifest)])
    await rounds.store.put_name(f"decisions/{fence.checkpoint_id}", encode_decision(Decision(digest)))
    return manifest


async def test_a_checkpoint_and_a_restore_from_beginning_to_end(rounds: Rounds, member: Member) -> None:
    """C01, C07, C09, X02, X33"""
    counters = member.counters
    counters.seed("r", value=7)
    prepared = await member.ask(ONE, PREPARE)
    assert isinstance(prepared.result, Prepared)
    assert (prepared.gate, prepared.export) == (GateState.CLOSED, ExportState.NONE)
    snapshot = Snapshot(prepared.result.closing, 60.0)
    taken = await member.ask(ONE, snapshot)
    assert isinstance(taken.result, SnapshotTaken)
    assert (taken.result.sessions, taken.gate, taken.export) == (1, GateState.CLOSED, ExportState.FROZEN)
    assert await member.result(ONE, Renew()) == Renewed()
    resumed = await member.ask(ONE, Resume())
    assert (resumed.result, resumed.gate, resumed.export) == (
        Resumed(already=False),
        GateState.OPEN,
        ExportState.FROZEN,
    )
    counters.add("r", 100)
    uploaded = await member.ask(ONE, Upload())
    assert isinstance(uploaded.result, Uploaded)
    assert (uploaded.gate, uploaded.export) == (GateState.OPEN, ExportState.UPLOADED)
    assert await member.result(ONE, Upload()) == uploaded.result
    manifest = await publish(rounds, member, ONE, uploaded.result)
    decided = await member.ask(ONE, Decided(published=True))
    assert (decided.result, decided.export) == (DecisionSeen(), ExportState.NONE)

    assert await member.result(TWO, Retire((Episode("r"),), 5.0)) == Retired()
    [digest] = await rounds.store.write([encode_checkpoint_manifest(manifest)])
    restore = Fence(1, 3, "restore-two")
    install = Install(digest, (InstallTarget(Episode("r"), 1),), 60.0)
    assert await member.result(restore, install) == Installed(1)
    assert await member.result(restore, install) == Installed(1)
    assert await member.result(restore, Confirm()) == Confirmed(1)
    assert await member.result(restore, Activate()) == Activated(1)
    assert counters.values == {"r": 7}


async def test_a_missed_deadline_answers_closing_with_blockers(member: Member) -> None:
    """C02"""
    member.counters.seed("r")
    member.counters.enter("r")
    answer = await member.ask(ONE, Prepare(0.01, 60.0))
    assert isinstance(answer.result, Prepared)
    assert (answer.gate, answer.result.closing, blocked(answer.result.report)) == (
        GateState.CLOSING,
        0,
        [("tool_call", "r")],
    )


async def test_a_closing_tells_how_much_it_waited_for(member: Member) -> None:
    """C02: work that began before it, and nothing when it comes again for the answer."""
    member.counters.seed("r")
    call = member.counters.enter("r")
    waiting = asyncio.create_task(member.ask(ONE, Prepare(3600.0, 60.0)))
    await until(lambda: member.counters.gate() is GateState.CLOSING)
    member.counters.leave(call)
    for answer in (await waiting, await member.ask(ONE, PREPARE)):
        assert isinstance(answer.result, Prepared)
        assert answer.result.waited_for == 1
    await member.result(ONE, Abort())
    assert (await member.result(TWO, PREPARE)).waited_for == 0


@pytest.mark.parametrize(
    ("end", "done"), [(Resume(), Resumed(False)), (Abort("no"), AbortDone(False))], ids=["resume", "abort"]
)
async def test_resume_and_abort_overtake_a_waiting_prepare(member: Member, end: Transition, done: object) -> None:
    """C04, X04"""
    member.counters.seed("r")
    member.counters.enter("r")
    waiting = asyncio.create_task(member.ask(ONE, Prepare(3600.0, 60.0)))
    await until(lambda: member.counters.gate() is GateState.CLOSING)
    async with asyncio.timeout(1.0):
        assert await member.result(ONE, end) == done
        answer = await waiting
    assert isinstance(answer.result, Prepared)
    assert (answer.gate, answer.result.closing) == (GateState.OPEN, 0)


async def test_abort_overtakes_a_running_upload(member: Member, store: StoppableStore) -> None:
    """X04"""
    member.counters.seed("r")
    prepared = await member.result(ONE, PREPARE)
    await member.ask(ONE, Snapshot(prepared.closing, 60.0))
    store.stop()
    uploading = asyncio.create_task(member.ask(ONE, Upload()))
    await store.reached.wait()
    async with asyncio.timeout(1.0):
        assert await member.result(ONE, Abort()) == AbortDone(already=False)
        with pytest.raises(CheckpointAborted):
            await uploading
    store.running.set()


REFUSALS: list[tuple[str, list[tuple[Fence, Transition]], Fence, Transition, type[GymckptError]]] = [
    ("an old epoch", [(Fence(5, 1, "one"), Resume())], Fence(4, 2, "two"), PREPARE, StaleEpoch),
    ("an ended round", [(ONE, Resume())], ONE, PREPARE, StaleCheckpoint),
    ("another round's gate", [(ONE, PREPARE)], TWO, PREPARE, Conflict),
    ("a cut without prepare", [], ONE, Snapshot(1, 60.0), InvalidPhase),
    ("a cut of a reopened gate", [(ONE, PREPARE), (ONE, Resume())], ONE, Snapshot(1, 60.0), CutVoid),
    ("a cut of another closing", [(ONE, PREPARE)], ONE, Snapshot(7, 60.0), CutVoid),
    ("an upload without a cut", [(ONE, PREPARE)], ONE, Upload(), InvalidPhase),
    ("renewing nothing", [], ONE, Renew(), InvalidPhase),
    ("retiring behind a closed gate", [(ONE, PREPARE)], TWO, Retire((Episode("r"),), 1.0), InvalidPhase),
    ("confirming nothing", [], ONE, Confirm(), RestoreAborted),
    ("activating nothing", [], ONE, Activate(), RestoreAborted),
    ("forgetting", [], ONE, Forget(("r",)), NotImplementedHere),
]


@pytest.mark.parametrize(
    ("before", "fence", "transition", "refusal"), [row[1:] for row in REFUSALS], ids=[row[0] for row in REFUSALS]
)
async def test_a_refusal_is_the_same_through_both_doors_and_changes_nothing(
    member: Member,
    before: list[tuple[Fence, Transition]],
    fence: Fence,
    transition: Transition,
    refusal: type[GymckptError],
) -> None:
    """C03, C05, C12, X01, X06"""
    member.counters.participant.observe_epoch(1)
    for earlier in before:
        await member.ask(*earlier)
    held = member.counters.participant.holdings()
    with pytest.raises(refusal) as refused:
        await member.ask(fence, transition)
    assert type(refused.value) is refusal
    assert member.counters.participant.holdings() == held


async def test_a_transition_for_another_boot_changes_nothing_not_even_the_epoch(member: Member) -> None:
    """X26"""
    with pytest.raises(StaleBoot):
        await member.ask(Fence(9, 1, "one"), PREPARE, boot_id="0" * 32)
    assert member.counters.participant.authority.epoch == 0
    assert member.counters.gate() is GateState.OPEN


async def test_what_nobody_holds_is_ended_discarded_and_decided_without_complaint(member: Member) -> None:
    """C05"""
    assert await member.result(ONE, Resume()) == Resumed(already=True)
    assert await member.result(ONE, Abort()) == AbortDone(already=True)
    assert await member.result(ONE, Decided(published=True)) == DecisionSeen()
    assert await member.result(ONE, Discard()) == Discarded()


async def test_an_accident_is_answered_as_a_failure_of_the_process_and_the_door_stays_open(
    member: Member, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """C06"""

    def fail() -> None:
        raise RuntimeError("cannot close")

    monkeypatch.setattr(member.counters.participant, "gate_closing", fail)
    with pytest.raises(TransportFailed, match="RuntimeError"):
        await member.ask(ONE, PREPARE)
    assert "cannot close" in caplog.text
    monkeypatch.undo()
    assert (await member.ask(TWO, PREPARE)).gate is GateState.CLOSED


async def test_a_caller_that_goes_away_stops_waiting_only(member: Member) -> None:
    """X33"""
    member.counters.seed("r")
    ticket = member.counters.enter("r")
    waiting = asyncio.create_task(member.ask(ONE, PREPARE))
    await until(lambda: member.counters.gate() is GateState.CLOSING)
    waiting.cancel()
    await asyncio.wait({waiting})
    if isinstance(member.door, StreamDoor):
        await member.door.break_off()
    member.counters.leave(ticket)
    await until(lambda: member.counters.gate() is GateState.CLOSED)
    assert (await member.result(ONE, PREPARE)).closing == 1


async def test_readiness_is_reported_on_the_stream_while_the_gate_is_closing(
    counters: Counters, stream: StreamDoor
) -> None:
    """C02"""
    member = Member(counters, None, stream)
    for text in ("r", "s"):
        counters.seed(text)
    tickets = [counters.enter("r"), counters.enter("s")]
    preparing = asyncio.create_task(member.ask(ONE, PREPARE))
    await until(lambda: counters.gate() is GateState.CLOSING)
    counters.leave(tickets.pop())
    await until(lambda: stream.reports)
    assert [blocker.type for blocker in stream.reports[-1].blockers] == ["tool_call"]
    counters.leave(tickets.pop())
    assert (await preparing).gate is GateState.CLOSED
