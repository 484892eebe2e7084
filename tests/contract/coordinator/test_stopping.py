"""A coordinator that was asked to stop and has some time left: what it ends, what it leaves, and what callers are told."""

from __future__ import annotations

import asyncio

import pytest

from gymckpt.coordinator import CheckpointArguments, OnNotReady, RestoreArguments, ResumePolicy, Stage
from gymckpt.core.ids import Episode
from gymckpt.core.kinds import ExportState, GateState, Kind
from gymckpt.core.report import Blocker
from gymckpt.core.transitions import Abort, Install, Renew, Retire, Upload
from gymckpt.errors import CheckpointAborted, Conflict, InvalidPhase, ParticipantLost, TransportFailed
from gymckpt.rpc import codec
from tests.contract.coordinator.fleet import Fleet, Following

BLOCKER = Blocker("tool_call", Episode("r1"), "/x", 1.0)
LONG = 20.0  # seconds; a stop that uses them up fails the tests' own time-outs


def taking(fleet: Fleet, checkpoint_id: str = "c1", **arguments: object) -> Following:
    return Following(fleet.client.create_checkpoint(CheckpointArguments(checkpoint_id, **arguments)))  # type: ignore[arg-type]


async def until_stopping(fleet: Fleet) -> None:
    """Nothing more begins."""
    async with asyncio.timeout(5):
        while True:
            try:
                await fleet.client.retire_episodes([Episode("r9")])
            except Conflict as refused:
                if "stopping" in refused.details:
                    return
            await asyncio.sleep(0)


async def decided(fleet: Fleet, round_id: str) -> str:
    """`published`, or why it was aborted."""
    decision = codec.decode_decision(await fleet.store.get_name(f"decisions/{round_id}"))
    return "published" if decision.published else decision.why


async def test_an_idle_coordinator_stops_at_once(fleet: Fleet) -> None:
    async with asyncio.timeout(2):
        await fleet.server.stop(LONG)


async def test_a_round_before_its_cut_is_aborted_at_once_and_every_gate_opens(fleet: Fleet) -> None:
    """L09, X14: no gate waits for its lease, and the caller is told why."""
    fleet[Kind.AGENT].block(BLOCKER)
    following = taking(fleet)
    await following.until(lambda progress: bool(progress.waiting_for))
    async with asyncio.timeout(3):
        await fleet.server.stop(LONG)
    error = await following.end()
    assert isinstance(error, CheckpointAborted)
    assert "the coordinator was asked to stop" in error.message
    assert fleet.gates() == {GateState.OPEN}
    assert "asked to stop" in await decided(fleet, "c1")


async def test_a_held_round_is_aborted_too(fleet: Fleet) -> None:
    """L09, C02."""
    fleet[Kind.AGENT].block(BLOCKER)
    following = taking(fleet, on_not_ready=OnNotReady.HOLD, prepare_timeout=0.1)
    await following.until_stage(Stage.HELD)
    await following.end()
    async with asyncio.timeout(3):
        await fleet.server.stop(LONG)
    assert fleet.gates() == {GateState.OPEN}
    assert "asked to stop" in await decided(fleet, "c1")


@pytest.mark.parametrize("resume", list(ResumePolicy))
async def test_a_round_past_its_cut_is_published_and_every_gate_opens(fleet: Fleet, resume: ResumePolicy) -> None:
    """L09, X14: what a caller would have to open, or nobody any more, is opened."""
    fleet[Kind.AGENT].script[Upload] = slow = asyncio.Event()
    following = taking(fleet, resume=resume)
    await following.until_stage(Stage.UPLOADING)
    stopping = asyncio.create_task(fleet.server.stop(LONG))
    await until_stopping(fleet)
    slow.set()
    async with asyncio.timeout(3):
        await stopping
    assert await following.end() is None
    assert following.seen[-1].checkpoint.stage is Stage.PUBLISHED
    assert await decided(fleet, "c1") == "published"
    assert fleet.gates() == {GateState.OPEN}


@pytest.mark.parametrize("resume", list(ResumePolicy))
async def test_an_upload_that_does_not_end_in_time_is_aborted_within_the_grace(
    fleet: Fleet, resume: ResumePolicy
) -> None:
    """L09, X14."""
    fleet[Kind.AGENT].script[Upload] = asyncio.Event()
    following = taking(fleet, resume=resume)
    await following.until_stage(Stage.UPLOADING)
    async with asyncio.timeout(4):
        await fleet.server.stop(1.0)
    assert isinstance(await following.end(), CheckpointAborted)
    assert "asked to stop" in await decided(fleet, "c1")
    assert fleet.gates() == {GateState.OPEN}
    assert {participant.export for participant in fleet.all} == {ExportState.NONE}


async def test_a_member_that_does_not_answer_does_not_prolong_the_grace(fleet: Fleet) -> None:
    """X24: the others are open, and the next coordinator ends it at that one."""
    fleet[Kind.AGENT].block(BLOCKER)
    following = taking(fleet)
    await following.until(lambda progress: bool(progress.waiting_for))
    fleet[Kind.ENVIRONMENT].script[Abort] = asyncio.Event()
    async with asyncio.timeout(4):
        await fleet.server.stop(0.5)
    await following.end()
    assert {p.gate for p in fleet.all if p.id.kind is not Kind.ENVIRONMENT} == {GateState.OPEN}
    assert "asked to stop" in await decided(fleet, "c1")


async def test_a_restore_ends_when_it_can(fleet: Fleet) -> None:
    """X28."""
    await fleet.checkpoint("c1")
    fleet[Kind.AGENT].script[Install] = loading = asyncio.Event()
    restore = asyncio.create_task(fleet.client.restore(RestoreArguments("one", "c1")))
    await fleet.until(lambda: any(isinstance(step, Install) for step in fleet[Kind.AGENT].told))
    stopping = asyncio.create_task(fleet.server.stop(LONG))
    await until_stopping(fleet)
    loading.set()
    async with asyncio.timeout(3):
        await stopping
    assert await restore == ()
    assert await fleet.names("pins") == []


async def test_a_restore_that_does_not_end_in_time_is_left_to_the_next_coordinator(fleet: Fleet) -> None:
    """X28, X39: nobody is told that it failed before it has; its caller is told to ask again."""
    await fleet.checkpoint("c1")
    fleet[Kind.AGENT].script[Install] = asyncio.Event()
    restore = asyncio.create_task(fleet.client.restore(RestoreArguments("one", "c1")))
    await fleet.until(lambda: any(isinstance(step, Install) for step in fleet[Kind.AGENT].told))
    async with asyncio.timeout(4):
        await fleet.server.stop(0.3)
    with pytest.raises(TransportFailed, match="the coordinator stops; its successor decides this restore"):
        await restore
    assert await fleet.names("decisions/restore-one") == []
    assert await fleet.names("pins") == ["pins/c1/restore-one"]
    await fleet.coordinate()
    assert "succeeded" in await decided(fleet, "restore-one")


async def test_a_retire_under_way_is_waited_for(fleet: Fleet) -> None:
    fleet[Kind.AGENT].script[Retire] = stopping_work = asyncio.Event()
    retire = asyncio.create_task(fleet.client.retire_episodes([Episode("r1")], timeout=5.0))
    await fleet.until(lambda: any(isinstance(step, Retire) for step in fleet[Kind.AGENT].told))
    stopping = asyncio.create_task(fleet.server.stop(LONG))
    await until_stopping(fleet)
    stopping_work.set()
    async with asyncio.timeout(3):
        await stopping
    await retire


async def test_nothing_begins_any_more_and_whoever_asks_is_told_why(fleet: Fleet) -> None:
    """X24: rounds of every kind; what only reads still answers."""
    await fleet.checkpoint("c0")
    fleet[Kind.AGENT].script[Upload] = slow = asyncio.Event()
    following = taking(fleet)
    await following.until_stage(Stage.UPLOADING)
    stopping = asyncio.create_task(fleet.server.stop(LONG))
    await until_stopping(fleet)
    with pytest.raises(Conflict, match="asked to stop"):
        await fleet.checkpoint("c2")
    with pytest.raises(Conflict, match="asked to stop") as refused:
        await fleet.client.restore(RestoreArguments("one", "c0"))
    assert refused.value.retry_after == 1.0
    assert (await fleet.client.get_checkpoint("latest")).checkpoint.checkpoint_id == "c0"
    slow.set()
    await stopping
    assert await fleet.names("intents") == ["intents/c0", "intents/c1"]


async def test_without_a_grace_nothing_is_decided(fleet: Fleet) -> None:
    """X07: as a process that was killed."""
    fleet[Kind.AGENT].block(BLOCKER)
    following = taking(fleet)
    await following.until(lambda progress: bool(progress.waiting_for))
    await fleet.server.stop()
    assert isinstance(await following.end(), TransportFailed)
    assert await fleet.names("decisions") == []


async def test_a_renew_names_the_members_that_did_not_renew(fleet: Fleet) -> None:
    """O08, R01: whoever holds gates closed learns that one of them opened."""
    await fleet.checkpoint(CheckpointArguments("c1", resume=ResumePolicy.BY_CALLER))
    await fleet.client.renew_checkpoint("c1", gate_lease=90.0)
    fleet[Kind.AGENT].script[Renew] = InvalidPhase("agent/x holds nothing of 'c1'")
    with pytest.raises(ParticipantLost, match=r"agent/x.*holds nothing") as refused:
        await fleet.client.renew_checkpoint("c1", gate_lease=90.0)
    assert refused.value.details["participants"] == "agent/x (0)"
