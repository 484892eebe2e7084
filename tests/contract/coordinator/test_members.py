"""Who takes part, and who is missed."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Literal

import pytest

from gymckpt.coordinator import (
    Acknowledgement,
    CheckpointArguments,
    ResumePolicy,
    Settings,
    Stage,
    SyncCoordinatorClient,
)
from gymckpt.core.ids import Episode, ParticipantId
from gymckpt.core.kinds import GateState, Kind
from gymckpt.core.report import Blocker, LostEpisode
from gymckpt.core.transitions import Abort, Prepare, Retire, Snapshot, Upload
from gymckpt.errors import (
    CheckpointNotFound,
    Conflict,
    CutVoid,
    DeadlineExceeded,
    InvalidField,
    MemberMissing,
    ParticipantLost,
    StaleBoot,
)
from tests.contract.coordinator.fleet import Fleet, Following

BLOCKER = Blocker("stream", Episode("r1"), "responses", 1.5)
AGENT = ParticipantId(Kind.AGENT, "x")


async def test_a_checkpoint_without_an_expected_member_is_refused_and_names_it(bare: Fleet) -> None:
    """X31: nothing is asked of those that are here, and the id stays free."""
    for kind in (Kind.ENVIRONMENT, Kind.MODEL):
        await bare.add(kind)
    await bare.coordinate(expected=(AGENT, ParticipantId(Kind.MODEL, "x")))
    await bare.register()
    with pytest.raises(MemberMissing, match="agent/x"):
        await bare.checkpoint("c1")
    assert (await bare.client.participants()).missing == (AGENT,)
    assert bare.log == []
    await bare.register(await bare.add(Kind.AGENT))
    assert (await bare.checkpoint("c1")).stage is Stage.PUBLISHED


async def test_a_checkpoint_without_a_model_is_refused(bare: Fleet) -> None:
    """X31, O10."""
    await bare.add(Kind.AGENT)
    await bare.coordinate()
    await bare.register()
    with pytest.raises(MemberMissing, match="no model"):
        await bare.checkpoint("c1")


async def test_a_member_that_died_is_named_before_any_gate_closes(fleet: Fleet) -> None:
    """X31, X24."""
    await fleet[Kind.AGENT].die()
    with pytest.raises(MemberMissing, match="agent/x"):
        await fleet.checkpoint("c1")
    assert fleet.kinds_told(Prepare) == []
    assert await fleet.names("intents") == []


async def test_a_member_whose_place_another_process_took_is_missed_before_any_gate_closes(fleet: Fleet) -> None:
    """X26, X31: the newer one has not announced itself yet, and what it says of itself is no word of the member."""
    agent = fleet[Kind.AGENT]
    asked, agent.boot_id = agent.boot_id, "f" * 32
    with pytest.raises(MemberMissing, match=f"boot {asked} was replaced by boot {'f' * 32}"):
        await fleet.checkpoint("c1")
    assert fleet.kinds_told(Prepare) == []
    assert await fleet.names("intents") == []


async def test_whoever_was_in_the_last_checkpoint_is_missed_however_long_it_is_gone(bare: Fleet) -> None:
    """X31: only a member of no checkpoint may leave without a word."""
    guest = await bare.add(Kind.RESOURCES, "guest")
    for kind in Kind:
        await bare.add(kind)
    await bare.coordinate(settings=Settings(interval=0.001, patience=1.0))
    await bare.register(guest)
    await guest.die()
    await bare.register()
    assert (await bare.checkpoint("c1")).stage is Stage.PUBLISHED
    await bare[Kind.AGENT].die()
    for attempt in range(3):
        with pytest.raises(MemberMissing, match="agent/x"):
            await bare.checkpoint(f"after-{attempt}")


async def test_a_member_that_hangs_is_named_before_any_gate_closes(fleet: Fleet) -> None:
    """X24, O10: bounded."""
    fleet[Kind.AGENT].answering.clear()
    async with asyncio.timeout(5):
        with pytest.raises(MemberMissing, match="agent/x"):
            await fleet.checkpoint("c1")
    assert fleet.kinds_told(Prepare) == []


async def test_a_member_whose_gate_was_never_open_is_not_ready_to_take_part(fleet: Fleet) -> None:
    fleet[Kind.AGENT].gate = GateState.CLOSED
    with pytest.raises(MemberMissing, match="still starting"):
        await fleet.checkpoint("c1")


async def test_a_newer_process_takes_the_place_and_the_older_is_told_to_stop(fleet: Fleet) -> None:
    """X26."""
    older = fleet[Kind.AGENT]
    newer = await fleet.add(Kind.AGENT)
    assert (await fleet.client.register(newer.info, newer.holds)).admitted
    with pytest.raises(StaleBoot, match=newer.boot_id):
        await fleet.client.register(older.info, older.holds)
    await fleet.checkpoint("c1")
    assert len(newer.told) > 0
    assert [fence for fence in older.fences if fence.checkpoint_id == "c1"] == []


@pytest.mark.parametrize("address", ["", "nowhere", "127.0.0.1:70000"])
async def test_a_process_that_nobody_can_reach_takes_no_place(fleet: Fleet, address: str) -> None:
    """X20: whoever holds it is not told to stop for one that is refused."""
    agent = fleet[Kind.AGENT]
    with pytest.raises(InvalidField) as refused:
        await fleet.client.register(replace(agent.info, boot_id="f" * 32, address=address), agent.holds)
    assert refused.value.field == "participant.address"
    await fleet.register(agent)
    assert (await fleet.checkpoint("c1")).stage is Stage.PUBLISHED


async def test_a_member_whose_host_cannot_have_its_name_is_told_as_silent(fleet: Fleet) -> None:
    """X24, X31."""
    lost = await fleet.add(Kind.RESOURCES, "lost")
    await fleet.client.register(replace(lost.info, address=f"{'a' * 64}:1"), lost.holds)
    with pytest.raises(MemberMissing, match="resources/lost"):
        await fleet.checkpoint("c1")
    silent = [report.participant.id.name for report in await fleet.client.explain_blockers() if report.report is None]
    assert silent == ["lost"]


async def test_one_that_joins_during_a_round_waits_and_takes_no_part(fleet: Fleet) -> None:
    """X27: it keeps its gate closed until it is admitted."""
    fleet[Kind.MODEL].block(BLOCKER)
    following = Following(fleet.client.create_checkpoint(CheckpointArguments("c1")))
    await following.until(lambda progress: bool(progress.waiting_for))
    late = await fleet.add(Kind.RESOURCES, "late")
    assert not (await fleet.client.register(late.info, late.holds)).admitted
    fleet[Kind.MODEL].unblock()
    assert await following.end() is None
    assert late.told == []
    assert (await fleet.client.register(late.info, late.holds)).admitted


async def test_a_process_that_is_replaced_during_a_round_voids_its_cut(fleet: Fleet) -> None:
    """X01: known by its registration alone, while nothing is asked of it."""
    fleet[Kind.RESOURCES].block(BLOCKER)
    following = Following(fleet.client.create_checkpoint(CheckpointArguments("c1")))
    await following.until(lambda progress: bool(progress.waiting_for))
    newer = await fleet.add(Kind.AGENT)
    assert not (await fleet.client.register(newer.info, newer.holds)).admitted
    error = await following.end()
    assert isinstance(error, ParticipantLost)
    assert newer.boot_id in error.message
    assert fleet.kinds_told(Snapshot) == []


async def test_blockers_are_explained_and_a_silent_member_has_its_error(fleet: Fleet) -> None:
    """X24: changes nothing."""
    fleet[Kind.MODEL].block(BLOCKER)
    await fleet[Kind.AGENT].die()
    reports = {report.participant.id.kind: report for report in await fleet.client.explain_blockers()}
    model = reports[Kind.MODEL].report
    assert model is not None
    assert model.blockers == (BLOCKER,)
    assert reports[Kind.AGENT].report is None
    assert "nothing listens" in reports[Kind.AGENT].error
    assert fleet.log == []


async def test_who_holds_a_gate_and_what_is_lost_is_asked_now(fleet: Fleet) -> None:
    """X24: not what the members said when they registered."""
    await fleet.checkpoint(CheckpointArguments("c1", resume=ResumePolicy.BY_CALLER))
    lost = LostEpisode(Episode("r7"), "its session is not here")
    fleet[Kind.AGENT].lost = (lost,)
    for report in await fleet.client.explain_blockers():
        assert report.holds is not None
        assert report.holds.gate is GateState.CLOSED
        assert report.holds.gate_fence is not None
        assert report.holds.gate_fence.checkpoint_id == "c1"
        assert report.lost == ((lost,) if report.participant.id.kind is Kind.AGENT else ())


async def test_a_member_that_hangs_is_explained_as_silent_and_the_others_are_told_of(fleet: Fleet) -> None:
    """X24: bounded by the patience, however long it hangs."""
    fleet[Kind.MODEL].block(BLOCKER)
    fleet[Kind.AGENT].answering.clear()
    async with asyncio.timeout(10):
        reports = {report.participant.id.kind: report for report in await fleet.client.explain_blockers()}
    assert (reports[Kind.AGENT].report, reports[Kind.AGENT].error != "") == (None, True)
    for kind in (Kind.ENVIRONMENT, Kind.MODEL, Kind.RESOURCES):
        report = reports[kind].report
        assert report is not None
        assert report.blockers == ((BLOCKER,) if kind is Kind.MODEL else ())


@pytest.mark.parametrize("step", [Snapshot, Upload])
async def test_an_answer_of_another_process_counts_for_nothing(fleet: Fleet, step: type) -> None:
    """X26, X01: it took the place behind the same door, and says that it has done what the one before was asked."""
    agent = fleet[Kind.AGENT]
    agent.script[step] = going_on = asyncio.Event()
    following = Following(fleet.client.create_checkpoint(CheckpointArguments("c1")))
    await fleet.until(lambda: any(isinstance(told, step) for told in agent.told))
    asked, agent.boot_id = agent.boot_id, "f" * 32
    going_on.set()
    error = await following.end()
    assert isinstance(error, ParticipantLost)
    assert f"boot {'f' * 32} answered for boot {asked}" in error.message
    assert (await fleet.client.get_checkpoint("c1")).checkpoint.stage is Stage.ABORTED
    await fleet.until(lambda: {p.gate for p in fleet.all if p is not agent} == {GateState.OPEN})


async def test_a_retire_goes_from_callers_to_callees_and_is_written_first(fleet: Fleet) -> None:
    """O09."""
    await fleet.client.retire_episodes([Episode("r1", 2), Episode("r2")])
    assert fleet.kinds_told(Retire)[:2] == ["environment", "agent"]
    assert sorted(fleet.kinds_told(Retire)[2:]) == ["model", "resources"]
    assert {(p.retired["r1"], p.retired["r2"]) for p in fleet.all} == {(2, 0)}
    assert len(await fleet.names("floors")) == 1
    with pytest.raises(InvalidField, match="episodes"):
        await fleet.client.retire_episodes([])


async def test_a_retire_that_takes_too_long_names_who_has_not_stopped(fleet: Fleet) -> None:
    """X24."""
    fleet[Kind.AGENT].script[Retire] = DeadlineExceeded("still running")
    with pytest.raises(DeadlineExceeded, match="agent/x"):
        await fleet.client.retire_episodes([Episode("r1")])
    assert fleet[Kind.RESOURCES].retired["r1"] == 0


async def test_a_retire_goes_on_without_a_process_that_died(fleet: Fleet) -> None:
    """X24, X27: a dead process has stopped everything, and whoever follows it reads the floors."""
    await fleet.checkpoint("c1")
    await fleet[Kind.AGENT].die()
    await fleet.client.retire_episodes([Episode("r1")])
    assert [p.retired["r1"] for p in fleet.all if p.id.kind is not Kind.AGENT] == [0] * 3


async def test_a_retire_names_a_member_that_does_not_answer(fleet: Fleet) -> None:
    """X24."""
    fleet[Kind.AGENT].script[Retire] = asyncio.Event()
    with pytest.raises(ParticipantLost, match="agent/x"):
        await fleet.client.retire_episodes([Episode("r1")], timeout=0.1)
    assert fleet[Kind.RESOURCES].retired["r1"] == 0


async def test_a_retire_waits_for_open_gates_but_not_for_an_upload(fleet: Fleet) -> None:
    """C03: an upload may run, and its cut stays as it was taken."""
    fleet[Kind.AGENT].script[Upload] = slow = asyncio.Event()
    fleet[Kind.AGENT].block(BLOCKER)
    following = Following(fleet.client.create_checkpoint(CheckpointArguments("c1")))
    await following.until(lambda progress: bool(progress.waiting_for))
    with pytest.raises(Conflict, match="c1"):
        await fleet.client.retire_episodes([Episode("r1")])
    fleet[Kind.AGENT].unblock()
    await following.until(lambda progress: progress.checkpoint.pause_seconds > 0)
    await fleet.client.retire_episodes([Episode("r1")])
    slow.set()
    assert await following.end() is None


async def test_a_pin_names_what_latest_stood_for_and_can_be_released(fleet: Fleet) -> None:
    with pytest.raises(CheckpointNotFound):
        await fleet.client.pin_checkpoint("latest", "me")
    await fleet.checkpoint("c1")
    assert await fleet.client.pin_checkpoint("latest", "me") == "c1"
    assert await fleet.names("pins") == ["pins/c1/me"]
    await fleet.client.pin_checkpoint("c1", "me", release=True)
    assert await fleet.names("pins") == []


async def test_code_without_an_event_loop_can_do_the_same(fleet: Fleet) -> None:
    def work() -> tuple[Stage, list[Stage]]:
        with SyncCoordinatorClient(fleet.server.address) as client:
            made = client.checkpoint(CheckpointArguments("c1"))
            watched = [p.checkpoint.stage for p in client.follow(lambda c: c.watch_checkpoint("c1"))]
            return made.stage, watched

    assert await asyncio.to_thread(work) == (Stage.PUBLISHED, [Stage.PUBLISHED])


@pytest.mark.parametrize("step", [Prepare, Snapshot, Upload, Abort])
async def test_a_silent_process_whose_place_another_takes_is_not_waited_for(fleet: Fleet, step: type) -> None:
    """X24, X26: whatever it was given to answer."""
    silent = fleet[Kind.RESOURCES]
    silent.script[step] = asyncio.Event()
    if step is Abort:
        silent.script[Upload] = CutVoid("scripted")
    arguments = CheckpointArguments("c1", prepare_timeout=3600.0)
    following = Following(fleet.client.create_checkpoint(arguments))
    await fleet.until(lambda: any(isinstance(told, step) for told in silent.told))
    await fleet.register(await fleet.add(Kind.RESOURCES))
    error = await following.end()
    assert isinstance(error, CutVoid if step is Abort else ParticipantLost)
    aborted = (await fleet.client.get_checkpoint("c1")).checkpoint
    assert f"boot {silent.boot_id} was replaced by boot" in aborted.why_aborted
    assert fleet.gates() == {GateState.OPEN}


class Silence(asyncio.Event):
    """`asked` once anybody waits for an answer."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()

    async def wait(self) -> Literal[True]:
        self.asked.set()
        return await super().wait()


@pytest.mark.parametrize("ask", ["results", "acknowledge_results", "explain_blockers", "explain_recovery"])
async def test_whoever_asks_a_silent_process_is_told_when_another_takes_its_place(bare: Fleet, ask: str) -> None:
    """X24: at once, although the next round closes the way to it while the call is under way."""
    for kind in Kind:
        await bare.add(kind)
    await bare.coordinate(settings=Settings(patience=60.0))
    await bare.register()
    silent = bare[Kind.AGENT]
    silent.answering = silence = Silence()
    arguments = [[Acknowledgement(Episode("r1"), bytes(32))]] if ask == "acknowledge_results" else []
    asking = asyncio.ensure_future(getattr(bare.client, ask)(*arguments))
    await silence.asked.wait()

    await bare.register(await bare.add(Kind.AGENT))
    assert (await bare.checkpoint("c1")).stage is Stage.PUBLISHED

    async with asyncio.timeout(10):
        if ask.endswith("results"):
            with pytest.raises(ParticipantLost, match=f"agent/x.*boot {silent.boot_id} was replaced by boot"):
                await asking
        elif ask == "explain_blockers":
            (error,) = (report.error for report in await asking if report.report is None)
            assert f"boot {silent.boot_id} was replaced by boot" in error
        else:
            assert (await asking).silent == (AGENT,)
