"""How a checkpoint comes to be, or does not."""

from __future__ import annotations

import asyncio
import logging

import pytest

from gymckpt.coordinator import CheckpointArguments, OnNotReady, ResumePolicy, Stage
from gymckpt.core.ids import Episode, ParticipantId
from gymckpt.core.kinds import ExportState, GateState, Kind
from gymckpt.core.manifest import EpisodeRecord, Touch
from gymckpt.core.report import Blocker, LostEpisode, Report, Restart
from gymckpt.core.transitions import Abort, Decided, Prepare, Renew, Resume, Snapshot, Upload
from gymckpt.errors import (
    ArgumentConflict,
    CheckpointAborted,
    CheckpointNotFound,
    Conflict,
    CutVoid,
    InvalidPhase,
    MemberMissing,
    NotReady,
    ParticipantLost,
    RestartInScope,
)
from tests.contract.coordinator.fleet import Fleet, Following

BLOCKER = Blocker("stream", Episode("r1"), "responses", 1.5)


async def test_a_checkpoint_is_published_and_every_gate_is_open_again(fleet: Fleet) -> None:
    """O01, O04: prepare goes environment, model, agent, resources; resume goes backwards."""
    for participant in fleet.all:
        participant.host(Episode("r1"), Episode("r2", 1))
    checkpoint = await fleet.checkpoint(CheckpointArguments("c1", labels={"step": "7"}, controller_state=b"mine"))
    assert checkpoint.stage is Stage.PUBLISHED
    assert checkpoint.episodes == 2
    assert checkpoint.pause_seconds >= checkpoint.prepare_seconds > 0
    assert fleet.kinds_told(Prepare) == ["environment", "model", "agent", "resources"]
    assert fleet.kinds_told(Resume) == ["resources", "agent", "model", "environment"]
    assert {(p.gate, p.export) for p in fleet.all} == {(GateState.OPEN, ExportState.NONE)}
    page = await fleet.client.get_checkpoint("latest")
    assert page.checkpoint.checkpoint_id == "c1"
    assert page.episodes == (Episode("r1"), Episode("r2", 1))
    assert page.controller_state == b"mine"
    assert page.checkpoint.labels == {"step": "7"}


async def test_the_exact_scope_reaches_everyone_and_only_it_is_kept(fleet: Fleet) -> None:
    """O05."""
    for participant in fleet.all:
        participant.host(Episode("r1"), Episode("r2"))
    await fleet.checkpoint(CheckpointArguments("c1", (Episode("r2"), Episode("r9"))))
    assert {step.scope for _, step in fleet.log if isinstance(step, Snapshot)} == {(Episode("r2"), Episode("r9"))}
    page = await fleet.client.get_checkpoint("c1")
    assert page.episodes == (Episode("r2"),)
    assert page.lost == (LostEpisode(Episode("r9"), "no participant exported it"),)


async def test_one_that_is_not_ready_is_named_and_every_gate_opens(fleet: Fleet) -> None:
    """O02: later kinds are not prepared; O03: the abort reaches them all the same."""
    fleet[Kind.MODEL].block(BLOCKER)
    with pytest.raises(NotReady, match="model/x stream r1 responses"):
        await fleet.checkpoint(CheckpointArguments("c1", prepare_timeout=0.2))
    assert fleet.kinds_told(Prepare) == ["environment", "model"]
    assert sorted(fleet.kinds_told(Abort)) == ["agent", "environment", "model", "resources"]
    assert fleet.gates() == {GateState.OPEN}
    assert (await fleet.client.get_checkpoint("c1")).checkpoint.stage is Stage.ABORTED


async def test_a_checkpoint_tells_how_much_work_it_waited_for(fleet: Fleet) -> None:
    """O01: who measures its pause must tell the wait from the work."""
    assert (await fleet.checkpoint("c1")).waited_for == 0
    fleet[Kind.MODEL].block(BLOCKER)
    fleet[Kind.AGENT].block(BLOCKER)
    taking = asyncio.create_task(fleet.checkpoint("c2"))
    for kind in (Kind.MODEL, Kind.AGENT):
        await fleet.until(lambda kind=kind: fleet[kind].gate is GateState.CLOSING)  # type: ignore[misc]
        fleet[kind].unblock()
    assert (await taking).waited_for == 2
    assert (await fleet.client.get_checkpoint("c2")).checkpoint.waited_for == 2


async def test_a_held_checkpoint_goes_on_when_its_caller_comes_again(fleet: Fleet) -> None:
    """C02."""
    fleet[Kind.MODEL].block(BLOCKER)
    arguments = CheckpointArguments("c1", prepare_timeout=0.2, on_not_ready=OnNotReady.HOLD)
    assert (await fleet.checkpoint(arguments)).stage is Stage.HELD
    assert fleet[Kind.ENVIRONMENT].gate is GateState.CLOSED
    with pytest.raises(Conflict, match="c1"):
        await fleet.checkpoint("c2")
    fleet[Kind.MODEL].unblock()
    assert (await fleet.checkpoint(arguments)).stage is Stage.PUBLISHED


async def test_a_held_checkpoint_that_is_forgotten_ends_with_its_gate_lease(fleet: Fleet) -> None:
    fleet[Kind.MODEL].block(BLOCKER)
    arguments = CheckpointArguments("c1", prepare_timeout=0.1, gate_lease=0.6, on_not_ready=OnNotReady.HOLD)
    assert (await fleet.checkpoint(arguments)).stage is Stage.HELD
    following = Following(fleet.client.watch_checkpoint("c1"))
    assert (await following.until_stage(Stage.ABORTED)).checkpoint.why_aborted.startswith("the gate lease ended")
    assert not [step for _, step in fleet.log if isinstance(step, Renew)]


async def test_restarts_are_named_and_refused_in_a_scope(fleet: Fleet) -> None:
    """C56, O11."""
    fleet[Kind.ENVIRONMENT].host(Episode("r1"), Episode("r2"))
    fleet[Kind.AGENT].report = Report(restarts=(Restart(Episode("r1"), "restart only"),))
    with pytest.raises(RestartInScope, match="r1"):
        await fleet.checkpoint(CheckpointArguments("c1", (Episode("r1"),)))
    await fleet.checkpoint("c2")
    page = await fleet.client.get_checkpoint("c2")
    assert page.episodes == (Episode("r2"),)
    assert page.restarts == (Restart(Episode("r1"), "agent/x: restart only"),)


async def test_one_that_dies_before_its_turn_is_not_waited_for(fleet: Fleet) -> None:
    """X24: an agent whose tool call went to it cannot become ready, however long the prepare lasts."""
    fleet[Kind.AGENT].block(BLOCKER)
    following = Following(fleet.client.create_checkpoint(CheckpointArguments("c1", prepare_timeout=600.0)))
    await fleet.until(lambda: fleet[Kind.AGENT].gate is GateState.CLOSING)
    await fleet[Kind.RESOURCES].die()
    error = await following.end()
    assert isinstance(error, ParticipantLost)
    assert "resources/x" in error.message
    assert {participant.gate for participant in fleet.all if participant is not fleet[Kind.RESOURCES]} == {
        GateState.OPEN
    }


async def test_an_abort_interrupts_a_waiting_prepare_at_once(fleet: Fleet) -> None:
    """X04, C04, C05."""
    fleet[Kind.AGENT].block(BLOCKER)
    following = Following(fleet.client.create_checkpoint(CheckpointArguments("c1", prepare_timeout=600.0)))
    await following.until(lambda progress: progress.checkpoint.stage is Stage.PREPARING)
    async with asyncio.timeout(1.0):
        aborted = await fleet.client.abort_checkpoint("c1", "enough")
    assert aborted.stage is Stage.ABORTED
    assert "enough" in aborted.why_aborted
    assert isinstance(await following.end(), CheckpointAborted)
    assert fleet.gates() == {GateState.OPEN}
    with pytest.raises(CheckpointAborted):
        await fleet.checkpoint(CheckpointArguments("c1", prepare_timeout=600.0))


@pytest.mark.parametrize("step", [Snapshot, Upload])
async def test_an_abort_interrupts_freezing_and_uploading_at_once(fleet: Fleet, step: type) -> None:
    """X04: nothing of the checkpoint is ever published."""
    fleet[Kind.RESOURCES].script[step] = stuck = asyncio.Event()
    following = Following(fleet.client.create_checkpoint(CheckpointArguments("c1")))
    await following.until_stage(Stage.FREEZING if step is Snapshot else Stage.UPLOADING)
    async with asyncio.timeout(1.0):
        assert (await fleet.client.abort_checkpoint("c1")).stage is Stage.ABORTED
    assert isinstance(await following.end(), CheckpointAborted)
    stuck.set()
    assert {(p.gate, p.export) for p in fleet.all} == {(GateState.OPEN, ExportState.NONE)}
    with pytest.raises(CheckpointNotFound):
        await fleet.client.get_checkpoint("latest")


async def test_an_id_that_is_aborted_before_it_is_opened_is_never_opened(fleet: Fleet) -> None:
    """C05."""
    assert (await fleet.client.abort_checkpoint("c1", "no")).stage is Stage.ABORTED
    with pytest.raises(CheckpointAborted, match="no"):
        await fleet.checkpoint("c1")
    assert fleet.log == []


async def test_an_abort_after_the_publish_is_told_so(fleet: Fleet) -> None:
    """X25."""
    await fleet.checkpoint("c1")
    assert (await fleet.client.abort_checkpoint("c1")).stage is Stage.PUBLISHED


async def test_an_abort_opens_the_gates_of_a_published_checkpoint_that_its_caller_holds(fleet: Fleet) -> None:
    """X25, X33."""
    await fleet.checkpoint(CheckpointArguments("c1", resume=ResumePolicy.BY_CALLER))
    assert fleet.gates() == {GateState.CLOSED}
    assert (await fleet.client.abort_checkpoint("c1")).stage is Stage.PUBLISHED
    assert fleet.gates() == {GateState.OPEN}


async def test_a_void_cut_publishes_nothing(fleet: Fleet) -> None:
    """X01."""
    fleet[Kind.AGENT].script[Snapshot] = CutVoid("work was let in")
    with pytest.raises(CutVoid, match="agent/x"):
        await fleet.checkpoint("c1")
    assert (await fleet.client.get_checkpoint("c1")).checkpoint.stage is Stage.ABORTED
    assert fleet.gates() == {GateState.OPEN}


@pytest.mark.parametrize("step", [Prepare, Snapshot, Upload])
async def test_a_participant_that_dies_before_its_manifest_is_stored_is_named(fleet: Fleet, step: type) -> None:
    """X01, X26: its successor process is told nothing of the round."""
    victim = fleet[Kind.RESOURCES]
    victim.script[step] = asyncio.Event()
    following = Following(fleet.client.create_checkpoint(CheckpointArguments("c1")))
    await fleet.until(lambda: any(isinstance(told, step) for told in victim.told))
    address = victim.info.address
    await victim.die()
    newer = await fleet.add(Kind.RESOURCES, listen=address)
    error = await following.end()
    assert isinstance(error, ParticipantLost)
    assert "resources/x" in error.message
    assert newer.fences == []
    assert fleet.gates() == {GateState.OPEN}


async def test_a_participant_that_dies_after_its_manifest_is_stored_changes_nothing(fleet: Fleet) -> None:
    """X01: the cut is older than the loss."""
    fleet[Kind.MODEL].script[Upload] = slow = asyncio.Event()
    following = Following(fleet.client.create_checkpoint(CheckpointArguments("c1")))
    await following.until(lambda progress: progress.uploaded == 3)
    await fleet[Kind.AGENT].die()
    slow.set()
    assert await following.end() is None
    assert following.seen[-1].checkpoint.stage is Stage.PUBLISHED


async def test_a_hanging_participant_is_named_and_delays_nobody_elses_answer(fleet: Fleet) -> None:
    """X24, O10: bounded by the deadline and the patience."""
    fleet[Kind.AGENT].script[Prepare] = asyncio.Event()
    with pytest.raises(ParticipantLost, match="agent/x"):
        await fleet.checkpoint(CheckpointArguments("c1", prepare_timeout=0.2))
    assert fleet.gates() == {GateState.OPEN}


async def test_a_network_that_breaks_streams_is_answered_by_unary_calls(fleet: Fleet) -> None:
    for participant in fleet.all:
        participant.streaming = False
    assert (await fleet.checkpoint("c1")).stage is Stage.PUBLISHED


async def test_gates_open_while_an_upload_is_still_running(fleet: Fleet) -> None:
    """X33, X02: resume leaves the export alone, and upload the gate."""
    fleet[Kind.AGENT].script[Upload] = slow = asyncio.Event()
    following = Following(fleet.client.create_checkpoint(CheckpointArguments("c1")))
    await following.until(lambda progress: progress.checkpoint.pause_seconds > 0)
    assert fleet.gates() == {GateState.OPEN}
    assert fleet[Kind.AGENT].export is ExportState.FROZEN
    slow.set()
    assert await following.end() is None


async def test_by_caller_keeps_every_gate_until_the_caller_resumes(fleet: Fleet) -> None:
    arguments = CheckpointArguments("c1", resume=ResumePolicy.BY_CALLER)
    assert (await fleet.checkpoint(arguments)).stage is Stage.PUBLISHED
    assert fleet.gates() == {GateState.CLOSED}
    with pytest.raises(Conflict, match="c1"):
        await fleet.checkpoint("c2")
    await fleet.client.renew_checkpoint("c1", gate_lease=90.0)
    assert (await fleet.client.resume_checkpoint("c1")).pause_seconds > 0
    assert fleet.gates() == {GateState.OPEN}
    assert (await fleet.client.resume_checkpoint("c1")).stage is Stage.PUBLISHED
    with pytest.raises(InvalidPhase, match="PUBLISHED"):
        await fleet.client.renew_checkpoint("c1")


async def test_a_caller_that_forgets_to_resume_loses_its_gates_with_the_lease(fleet: Fleet) -> None:
    await fleet.checkpoint(CheckpointArguments("c1", resume=ResumePolicy.BY_CALLER, gate_lease=0.3))
    following = Following(fleet.client.watch_checkpoint("c1"))
    await following.end()
    await fleet.until(lambda: fleet.gates() == {GateState.OPEN})


async def test_resume_before_the_cut_is_refused(fleet: Fleet) -> None:
    fleet[Kind.AGENT].block(BLOCKER)
    following = Following(fleet.client.create_checkpoint(CheckpointArguments("c1")))
    await following.until(lambda progress: progress.checkpoint.stage is Stage.PREPARING)
    with pytest.raises(InvalidPhase, match="abort it instead"):
        await fleet.client.resume_checkpoint("c1")
    fleet[Kind.AGENT].unblock()
    assert await following.end() is None


async def test_a_silent_member_does_not_keep_the_others_closed_and_is_named(fleet: Fleet) -> None:
    """O04: the resume goes on past failures and lists every one."""
    await fleet.checkpoint(CheckpointArguments("c1", resume=ResumePolicy.BY_CALLER))
    fleet[Kind.RESOURCES].script[Resume] = fleet[Kind.MODEL].script[Resume] = asyncio.Event()
    with pytest.raises(ParticipantLost) as failed:
        await fleet.client.resume_checkpoint("c1")
    assert "resources/x" in failed.value.message
    assert "model/x" in failed.value.message
    assert {fleet[kind].gate for kind in (Kind.AGENT, Kind.ENVIRONMENT)} == {GateState.OPEN}


async def test_after_publish_opens_the_gates_only_when_it_is_decided(fleet: Fleet) -> None:
    await fleet.checkpoint(CheckpointArguments("c1", resume=ResumePolicy.AFTER_PUBLISH))
    steps = [type(step) for _, step in fleet.log]
    assert steps.index(Resume) > max(index for index, step in enumerate(steps) if step is Upload)
    assert len(fleet.kinds_told(Decided)) == 4


async def test_the_same_request_gives_the_same_answer_and_another_one_is_refused(fleet: Fleet) -> None:
    first = await fleet.checkpoint(CheckpointArguments("c1", labels={"a": "1"}))
    told = len(fleet.log)
    again = await fleet.checkpoint(CheckpointArguments("c1", labels={"a": "1"}))
    assert again == first
    with pytest.raises(ArgumentConflict):
        await fleet.checkpoint("c1")
    assert len(fleet.log) == told


async def test_a_caller_that_goes_away_stops_only_its_own_waiting(fleet: Fleet) -> None:
    """X33."""
    fleet[Kind.AGENT].block(BLOCKER)
    following = Following(fleet.client.create_checkpoint(CheckpointArguments("c1", prepare_timeout=30.0)))
    await following.until(lambda progress: bool(progress.waiting_for))
    following.task.cancel()
    watching = Following(fleet.client.watch_checkpoint("c1"))
    assert (await watching.until_stage(Stage.PREPARING)).checkpoint.checkpoint_id == "c1"
    fleet[Kind.AGENT].unblock()
    assert await watching.end() is None
    assert watching.seen[-1].checkpoint.stage is Stage.PUBLISHED


async def test_a_second_checkpoint_is_told_who_runs_and_when_to_come_back(fleet: Fleet) -> None:
    fleet[Kind.AGENT].block(BLOCKER)
    following = Following(fleet.client.create_checkpoint(CheckpointArguments("c1")))
    await following.until(lambda progress: progress.checkpoint.stage is Stage.PREPARING)
    with pytest.raises(Conflict, match="c1") as refused:
        await fleet.checkpoint("c2")
    assert refused.value.retry_after == pytest.approx(0.1)
    fleet[Kind.AGENT].unblock()
    assert await following.end() is None
    assert (await fleet.checkpoint("c2")).base_checkpoint_id == "c1"


async def test_full_reuses_nothing(fleet: Fleet) -> None:
    await fleet.checkpoint("c1")
    assert (await fleet.checkpoint(CheckpointArguments("c2", full=True))).base_checkpoint_id == ""


async def test_a_long_upload_is_kept_alive(fleet: Fleet) -> None:
    """A lease restarts with whatever is heard of the round."""
    fleet[Kind.AGENT].script[Upload] = slow = asyncio.Event()
    following = Following(fleet.client.create_checkpoint(CheckpointArguments("c1", export_lease=0.3)))
    await following.until(lambda progress: progress.uploaded == 3)
    before = fleet.kinds_told(Renew)
    await fleet.until(lambda: all(fleet.kinds_told(Renew).count(str(k)) >= before.count(str(k)) + 3 for k in Kind))
    slow.set()
    assert await following.end() is None


async def test_checkpoints_are_listed_newest_first_a_page_at_a_time(fleet: Fleet) -> None:
    for name in ("c1", "c2", "c3"):
        await fleet.checkpoint(name)
    first, token = await fleet.client.list_checkpoints(page_size=2)
    second, end = await fleet.client.list_checkpoints(page_size=2, page_token=token)
    assert [c.checkpoint_id for c in (*first, *second)] == ["c3", "c2", "c1"]
    assert end == ""


async def test_every_transition_is_logged_with_what_it_was_about(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    fleet[Kind.AGENT].host(Episode("r1"))
    with caplog.at_level(logging.INFO, logger="gymckpt.coordinator"):
        await fleet.checkpoint("c1")
    (line,) = [
        r.getMessage() for r in caplog.records if "transition=upload" in r.getMessage() and "agent/x" in r.getMessage()
    ]
    for word in ("checkpoint=c1", "participant=agent/x", "episodes=1", "epoch=1", "seconds=0.", "outcome=gate"):
        assert word in line


async def test_a_boundary_that_names_a_stranger_publishes_nothing(fleet: Fleet) -> None:
    """X31."""
    stranger = ParticipantId(Kind.RESOURCES, "elsewhere")
    fleet[Kind.AGENT].sessions[Episode("r1"), "s"] = EpisodeRecord(Episode("r1"), "s", None, touches=(Touch(stranger),))
    with pytest.raises(MemberMissing, match="resources/elsewhere"):
        await fleet.checkpoint("c1")
    assert fleet.gates() == {GateState.OPEN}


async def test_a_round_that_was_tried_by_hand_does_not_make_the_next_one_stale(fleet: Fleet) -> None:
    """C05, X34: whatever sequence a person gave it, the next round comes after it."""
    fleet[Kind.MODEL].tried = fleet[Kind.MODEL].ended = 1000
    checkpoint = await fleet.checkpoint("c1")
    assert (checkpoint.stage, checkpoint.sequence) == (Stage.PUBLISHED, 1001)
