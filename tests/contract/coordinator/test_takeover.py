"""A coordinator that starts after another one, wherever that one ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from gymckpt.coordinator import (
    POINTS,
    CheckpointArguments,
    CoordinatorClient,
    Faults,
    OnNotReady,
    RestoreArguments,
    ResumePolicy,
    Stage,
)
from gymckpt.core.ids import Episode, ParticipantId
from gymckpt.core.kinds import ExportState, GateState, Kind
from gymckpt.core.manifest import Decision, Intent, StoredSession
from gymckpt.core.report import Blocker
from gymckpt.core.transitions import Abort, Prepare, Upload
from gymckpt.errors import (
    CheckpointAborted,
    CutVoid,
    MemberMissing,
    RestoreAborted,
    StaleEpoch,
    TransportFailed,
)
from gymckpt.rpc import codec
from tests.contract.coordinator.fleet import Fleet, Following, KillAt

R1 = Episode("r1")
CHECKPOINT_POINTS = [
    point
    for point in POINTS
    if point.startswith("checkpoint.") and point not in ("checkpoint.held", "checkpoint.aborted")
]
RESTORE_POINTS = [point for point in POINTS if point.startswith("restore.") and point != "restore.aborted"]
TAKEOVER_POINTS = [point for point in POINTS if point.startswith(("epoch.", "takeover."))]


async def assembled(bare: Fleet, faults: Faults | None = None) -> Fleet:
    (state,) = await bare.store.write([codec.encode_session(StoredSession("fake/1", ()))])
    for kind in Kind:
        participant = await bare.add(kind)
        participant.host(R1, state=state)
        participant.stored = {R1}
    await bare.coordinate(faults=faults)
    await bare.register()
    return bare


async def decided(fleet: Fleet, round_id: str) -> Decision:
    return codec.decode_decision(await fleet.store.get_name(f"decisions/{round_id}"))


def test_every_point_of_a_round_is_killed_at() -> None:
    """X07: no point is left out."""
    tested = {
        *CHECKPOINT_POINTS,
        *RESTORE_POINTS,
        *TAKEOVER_POINTS,
        "checkpoint.held",
        "checkpoint.aborted",
        "restore.aborted",
        "retire.floored",
    }
    assert tested == set(POINTS)


@pytest.mark.parametrize("point", [*CHECKPOINT_POINTS, "checkpoint.aborted"])
async def test_a_checkpoint_whose_coordinator_died_is_decided_once_and_nobody_stays_paused(
    bare: Fleet, point: str
) -> None:
    """X07, X25: its successor decides, or finds what was decided; the id is never opened again."""
    faults = KillAt(point)
    fleet = await assembled(bare, faults)
    if point == "checkpoint.aborted":
        fleet[Kind.AGENT].script[Upload] = CutVoid("scripted")
        fleet[Kind.MODEL].script[Abort] = asyncio.Event()  # the caller would be answered once everyone has heard
    following = Following(fleet.client.create_checkpoint(CheckpointArguments("c1", resume=ResumePolicy.AFTER_PUBLISH)))
    await asyncio.wait_for(faults.reached.wait(), 5)
    await fleet.server.stop()
    assert isinstance(await following.end(), TransportFailed)
    for kind in (Kind.AGENT, Kind.MODEL):
        fleet[kind].script.clear()
    await fleet.coordinate()
    assert {(p.gate, p.export) for p in fleet.all} == {(GateState.OPEN, ExportState.NONE)}
    decision = await decided(fleet, "c1")
    assert decision.published is (point in ("checkpoint.decided", "checkpoint.published"))
    same = CheckpointArguments("c1", resume=ResumePolicy.AFTER_PUBLISH)
    if decision.published:
        assert (await fleet.checkpoint(same)).manifest == decision.manifest
    else:
        with pytest.raises(CheckpointAborted):
            await fleet.checkpoint(same)
    await fleet.register()
    assert (await fleet.checkpoint("c2")).stage is Stage.PUBLISHED


@pytest.mark.parametrize("point", RESTORE_POINTS)
async def test_a_restore_whose_coordinator_died_ends_everywhere_alike(bare: Fleet, point: str) -> None:
    """X28, X07, X39: active everywhere, or nowhere and retired; the successor tells its caller the same."""
    faults = KillAt(point)
    fleet = await assembled(bare, faults)
    await fleet.checkpoint("c1")
    restoring = asyncio.create_task(fleet.client.restore(RestoreArguments("one", "c1")))
    await asyncio.wait_for(faults.reached.wait(), 5)
    await fleet.server.stop()
    with pytest.raises(TransportFailed):
        await restoring
    await fleet.coordinate()
    await fleet.register()
    installed = point in ("restore.decided", "restore.activated")
    begun = point != "restore.pinned"
    assert [p.pending for p in fleet.all] == [set()] * 4
    assert [p.live for p in fleet.all] == ([{Episode("r1", 1)}] * 4 if installed else [set()] * 4)
    assert [p.retired["r1"] for p in fleet.all] == [0 if installed else 1 if begun else -1] * 4
    assert await fleet.names("pins") == []
    if begun and not installed:
        with pytest.raises(RestoreAborted):
            await fleet.client.restore(RestoreArguments("one", "c1"))
    elif begun:
        assert (await fleet.client.restore(RestoreArguments("one", "c1")))[0].attempt == 1
    assert (await fleet.client.restore(RestoreArguments("two", "c1")))[0].attempt == (2 if begun else 1)


@pytest.mark.parametrize("point", ["restore.floored", "restore.aborted"])
async def test_a_restore_that_was_being_given_up_is_given_up_by_the_successor(bare: Fleet, point: str) -> None:
    """X28, X39: a participant decided `aborted` when its lease ended."""
    faults = KillAt(point)
    fleet = await assembled(bare, faults)
    await fleet.checkpoint("c1")
    aborted = codec.encode_decision(Decision(None, "a participant's lease ended"))
    if point == "restore.aborted":
        await fleet.store.put_name("decisions/restore-one", aborted)
    restoring = asyncio.create_task(fleet.client.restore(RestoreArguments("one", "c1")))
    await asyncio.wait_for(faults.reached.wait(), 5)
    await fleet.store.put_name("decisions/restore-one", aborted)
    await fleet.server.stop()
    with pytest.raises(TransportFailed):
        await restoring
    await fleet.coordinate()
    assert [(p.pending, p.live, p.retired["r1"]) for p in fleet.all] == [(set(), set(), 1)] * 4
    assert await fleet.names("pins") == []


async def test_a_held_checkpoint_is_aborted_by_the_successor(bare: Fleet) -> None:
    """X07: nobody stays paused for a caller that cannot come back."""
    faults = KillAt("checkpoint.held")
    fleet = await assembled(bare, faults)
    fleet[Kind.AGENT].block(Blocker("tool_call", R1, "s", 1.0))
    arguments = CheckpointArguments("c1", prepare_timeout=0.1, on_not_ready=OnNotReady.HOLD)
    assert (await fleet.checkpoint(arguments)).stage is Stage.HELD
    await fleet.server.stop()
    assert GateState.CLOSED in fleet.gates()
    await fleet.coordinate()
    assert fleet.gates() == {GateState.OPEN}
    assert not (await decided(fleet, "c1")).published


async def test_a_retire_whose_coordinator_died_refuses_already_and_can_be_repeated(bare: Fleet) -> None:
    """X07, C17: the floors are written before anyone is told."""
    faults = KillAt("retire.floored")
    fleet = await assembled(bare, faults)
    retiring = asyncio.create_task(fleet.client.retire_episodes([R1]))
    await asyncio.wait_for(faults.reached.wait(), 5)
    await fleet.server.stop()
    with pytest.raises(TransportFailed):
        await retiring
    assert len(await fleet.names("floors")) == 1
    await fleet.coordinate()
    await fleet.register()
    await fleet.client.retire_episodes([R1])
    assert [p.retired["r1"] for p in fleet.all] == [0] * 4


async def test_an_installed_restore_is_retired_when_one_that_held_it_died_with_its_coordinator(bare: Fleet) -> None:
    """X28: never one side only."""
    faults = KillAt("restore.decided")
    fleet = await assembled(bare, faults)
    await fleet.checkpoint("c1")
    restoring = asyncio.create_task(fleet.client.restore(RestoreArguments("one", "c1")))
    await asyncio.wait_for(faults.reached.wait(), 5)
    await fleet.server.stop()
    await fleet[Kind.MODEL].die()
    with pytest.raises(TransportFailed):
        await restoring
    await fleet.coordinate()
    survivors = [fleet[kind] for kind in Kind if kind is not Kind.MODEL]
    assert [(p.live, p.pending, p.retired["r1"]) for p in survivors] == [(set(), set(), 1)] * 3


@pytest.mark.parametrize("point", TAKEOVER_POINTS)
async def test_a_successor_that_died_while_taking_over_is_succeeded(bare: Fleet, point: str) -> None:
    """X07: whatever it left, the next one finishes."""
    first = KillAt("checkpoint.uploading")
    fleet = await assembled(bare, first)
    following = Following(fleet.client.create_checkpoint(CheckpointArguments("c1")))
    await asyncio.wait_for(first.reached.wait(), 5)
    await fleet.server.stop()
    await following.end()
    second = KillAt(point)
    starting = asyncio.create_task(fleet.coordinate(faults=second))
    await asyncio.wait_for(second.reached.wait(), 5)
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    await fleet.coordinate()
    assert (await fleet.client.participants()).epoch == 3
    assert fleet.gates() == {GateState.OPEN}
    assert not (await decided(fleet, "c1")).published


async def test_an_older_coordinator_can_change_nothing_once_it_has_a_successor(bare: Fleet) -> None:
    """X06: refused by every participant and by the store."""
    fleet = await assembled(bare)
    older = fleet.client
    fleet[Kind.AGENT].script[Upload] = slow = asyncio.Event()
    following = Following(older.create_checkpoint(CheckpointArguments("c1")))
    await following.until_stage(Stage.UPLOADING)
    newer = await fleet.coordinate()
    slow.set()
    error = await following.end()
    assert isinstance(error, StaleEpoch | CheckpointAborted)
    assert not (await decided(fleet, "c1")).published
    with pytest.raises(StaleEpoch):
        await older.checkpoint(CheckpointArguments("c2"))
    with pytest.raises(StaleEpoch):
        await older.restore(RestoreArguments("x", "c1"))
    with pytest.raises(StaleEpoch):
        await older.retire_episodes([R1])
    await fleet.register()
    assert (await newer.checkpoint(CheckpointArguments("c3"))).stage is Stage.PUBLISHED


Changing = Callable[[CoordinatorClient], Awaitable[object]]

IDLE: dict[str, Changing] = {
    "create": lambda old: old.checkpoint(CheckpointArguments("new")),
    "abort": lambda old: old.abort_checkpoint("new"),
    "pin": lambda old: old.pin_checkpoint("c1", "me"),
    "release": lambda old: old.pin_checkpoint("c1", "trainer", release=True),
    "delete": lambda old: old.delete_checkpoint("c0"),
    "restore": lambda old: old.restore(RestoreArguments("x", "c1")),
    "retire": lambda old: old.retire_episodes([R1]),
}
HOLDING: dict[str, Changing] = {
    "resume": lambda old: old.resume_checkpoint("held"),
    "renew": lambda old: old.renew_checkpoint("held", gate_lease=90.0),
    "abort": lambda old: old.abort_checkpoint("held"),
}
CHANGING = [(changing, holding) for holding in (False, True) for changing in (HOLDING if holding else IDLE).values()]


@pytest.mark.parametrize(("changing", "holding"), CHANGING, ids=[*IDLE, *(f"{name} held" for name in HOLDING)])
async def test_whatever_an_older_coordinator_is_asked_first_changes_nothing(
    bare: Fleet, changing: Changing, holding: bool
) -> None:
    """X06: it has heard nothing of its successor, which holds a round open; it may believe that it holds one itself."""
    fleet = await assembled(bare)
    older = fleet.client
    for checkpoint_id in ("c0", "c1"):
        await fleet.checkpoint(checkpoint_id)
    await older.pin_checkpoint("c1", "trainer")
    held = CheckpointArguments("held", resume=ResumePolicy.BY_CALLER, gate_lease=60.0)
    if holding:
        await fleet.checkpoint(held)
    await fleet.coordinate()
    await fleet.register()
    await fleet.checkpoint(replace(held, checkpoint_id="successors"))
    del fleet.log[:]
    names, holdings = await fleet.names(""), [p.holds for p in fleet.all]

    with pytest.raises(StaleEpoch):
        await changing(older)

    assert await fleet.names("") == names
    assert [p.holds for p in fleet.all] == holdings
    assert fleet.gates() == {GateState.CLOSED}
    assert fleet.log == []


async def owner_of(fleet: Fleet, client: CoordinatorClient, checkpoint_id: str) -> int | None:
    """The epoch under which this coordinator can checkpoint; None when it was succeeded."""
    try:
        for participant in fleet.all:
            await client.register(participant.info, participant.holds)
        return (await client.checkpoint(CheckpointArguments(checkpoint_id))).epoch
    except StaleEpoch:
        return None


async def test_of_two_that_start_at_once_each_epoch_has_one_owner(bare: Fleet) -> None:
    """X06: the older of the two stops or is refused."""
    for kind in Kind:
        await bare.add(kind)
    started = await asyncio.gather(bare.coordinate(), bare.coordinate(), return_exceptions=True)
    clients = [client for client in started if isinstance(client, CoordinatorClient)]
    assert all(isinstance(error, StaleEpoch) for error in started if isinstance(error, BaseException))
    assert await bare.names("epochs") == [f"epochs/{n:020d}" for n in (1, 2)]
    owners = [await owner_of(bare, client, f"c{at}") for at, client in enumerate(clients)]
    assert [epoch for epoch in owners if epoch is not None] == [2]


async def test_a_member_that_neither_answers_nor_is_dead_is_waited_for(bare: Fleet) -> None:
    """X35, X06: every member has answered or is known dead before anything is decided."""
    fleet = await assembled(bare)
    await fleet.server.stop()
    fleet[Kind.AGENT].answering.clear()
    starting = asyncio.create_task(fleet.coordinate())
    await fleet.until(lambda: fleet[Kind.MODEL].epoch == 2)
    assert not starting.done()
    fleet[Kind.AGENT].answering.set()
    await asyncio.wait_for(starting, 5)
    assert {p.epoch for p in fleet.all} == {2}


async def test_a_member_that_a_person_knows_to_be_dead_is_not_waited_for(bare: Fleet) -> None:
    """X24: a host that is gone answers nothing, not even that nothing listens."""
    fleet = await assembled(bare)
    await fleet.server.stop()
    fleet[Kind.AGENT].answering.clear()
    await asyncio.wait_for(fleet.coordinate(gone=("agent/x",)), 10)
    assert {p.epoch for p in fleet.all if p.id.kind is not Kind.AGENT} == {2}
    assert len(await fleet.names("members")) == 3


async def test_a_dead_member_is_not_waited_for_but_is_missed(bare: Fleet) -> None:
    """X31: without --expect, the members of the last checkpoint are expected."""
    fleet = await assembled(bare)
    await fleet.checkpoint("c1")
    await fleet.server.stop()
    await fleet[Kind.RESOURCES].die()
    await fleet.coordinate()
    assert (await fleet.client.participants()).missing == (ParticipantId(Kind.RESOURCES, "x"),)
    with pytest.raises(MemberMissing, match="resources/x"):
        await fleet.checkpoint("c2")
    assert len(await fleet.names("members")) == 3
    await fleet.add(Kind.RESOURCES)
    await fleet.register(fleet[Kind.RESOURCES])
    assert (await fleet.checkpoint("c2")).stage is Stage.PUBLISHED


async def test_a_process_born_after_the_successor_hears_only_of_it(bare: Fleet) -> None:
    """X35: the older one may know it, and still cannot open a round for it."""
    fleet = await assembled(bare)
    older = fleet.client
    await fleet.coordinate()
    late = await fleet.add(Kind.AGENT, "late")
    late.epoch = 2  # read from the store when it was born
    await older.register(late.info, late.holds)
    with pytest.raises(StaleEpoch):
        await older.checkpoint(CheckpointArguments("c1"))
    assert not any(isinstance(step, Prepare) for step in late.told)


async def test_an_older_cut_is_never_latest(bare: Fleet) -> None:
    """X34: a cut that was published later, but belongs to an earlier round."""
    fleet = await assembled(bare)
    await fleet.checkpoint("c1")
    await fleet.checkpoint("c2")
    first = codec.decode_decision(await fleet.store.get_name("decisions/c1"))
    await fleet.store.put_name("intents/c0", codec.encode_intent(Intent(1, 1, (), "", b"")))
    await fleet.store.put_name("decisions/c0", codec.encode_decision(first))
    await fleet.coordinate()
    assert (await fleet.client.get_checkpoint("latest")).checkpoint.checkpoint_id == "c2"


async def test_rounds_of_a_successor_come_after_all_that_anyone_has_seen(bare: Fleet) -> None:
    """X34: a retire leaves no intent; its place in the order is not used again."""
    fleet = await assembled(bare)
    await fleet.checkpoint("c1")
    await fleet.client.retire_episodes([Episode("r7")])
    highest = max(fence.sequence for fence in fleet[Kind.MODEL].fences)
    await fleet.coordinate()
    await fleet.register()
    assert (await fleet.checkpoint("c2")).sequence > highest
