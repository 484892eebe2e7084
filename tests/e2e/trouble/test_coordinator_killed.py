"""SIGKILL of the coordinator, with its store, at every point of a round; its successor serves the same directory at the same address."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from gymckpt.coordinator import CheckpointArguments, OnNotReady, RestoreArguments, ResumePolicy, Stage
from gymckpt.coordinator.faults import POINTS
from gymckpt.core.kinds import GateState
from gymckpt.errors import CheckpointAborted, RestoreAborted, TransportFailed
from gymckpt.participant import Episode
from servers.demo.fleet import ServerFailed
from tests.e2e.fleets import COORDINATOR, ENVIRONMENT
from tests.e2e.trouble.run import COUNTER, STEPS, Run, assert_rewarded

pytestmark = pytest.mark.asyncio(loop_scope="module")

CHECKPOINT_POINTS = {
    "checkpoint.intended": False,
    "checkpoint.preparing": False,
    "checkpoint.freezing": False,
    "checkpoint.uploading": False,
    "checkpoint.publish": False,
    "checkpoint.decided": True,
    "checkpoint.published": True,
}
"""Whether what was being taken is published."""
RESTORE_POINTS = {
    "restore.pinned": None,
    "restore.intended": False,
    "restore.floored": False,
    "restore.retired": False,
    "restore.installed": False,
    "restore.confirmed": False,
    "restore.decided": True,
    "restore.activated": True,
}
"""Whether what was being restored is live; None: there was nothing to decide yet."""


async def killed(run: Run, round_: asyncio.Task[Any]) -> None:
    """Returns when the coordinator has died at the point where it was to; whoever waited for the round is told that it cannot say how it ended."""
    await run.watch.reached()
    with pytest.raises(TransportFailed):
        await round_
    await run.fleet.kill([COORDINATOR])


@pytest.mark.parametrize("point", CHECKPOINT_POINTS)
async def test_a_checkpoint_ends_once_and_its_rollouts_go_on_in_place(run: Run, point: str) -> None:
    """X07, X25, C37, X33: nobody stays paused, nothing is done twice, and the id is never opened again."""
    name = f"at-{point}"
    rollout = await run.playing(name)
    run.watch.kill_at(point)
    await killed(run, run.taking(name, ResumePolicy.AFTER_PUBLISH))
    await run.coordinate()
    await run.assert_accepting()
    decision = await run.decision(name)
    assert decision is not None
    assert decision.published is CHECKPOINT_POINTS[point]
    await assert_rewarded(rollout)
    assert run.increments(name) == STEPS
    same = CheckpointArguments(name, resume=ResumePolicy.AFTER_PUBLISH)
    if decision.published:
        taken = await run.client.checkpoint(same)
        assert (taken.stage, taken.manifest) == (Stage.PUBLISHED, decision.manifest)
    else:
        with pytest.raises(CheckpointAborted):
            await run.client.checkpoint(same)
    await run.complete()
    await run.checkpoint(f"{name}-later")


@pytest.mark.parametrize("point", RESTORE_POINTS)
async def test_a_restore_ends_everywhere_alike(run: Run, point: str) -> None:
    """X28, X07, X29, X39: live at every server or at none; the attempts that it gave out are not given again."""
    name, expected = f"at-{point}", RESTORE_POINTS[point]
    rollout = await run.playing(name)
    await run.checkpoint(name)
    run.watch.kill_at(point)
    await killed(run, run.restoring(name, name, name))
    await run.coordinate()
    await run.assert_accepting()
    decision = await run.decision(f"restore-{name}")
    assert (None if decision is None else decision.published) is expected
    again = RestoreArguments(name, name, (Episode(name),))
    attempt = 1
    if expected is not None and not expected:
        with pytest.raises(RestoreAborted):
            await run.client.restore(again)
        again, attempt = RestoreArguments(f"{name}-again", name, (Episode(name),)), 2
    if not expected:
        await run.complete()
    (target,) = await run.client.restore(again)
    assert target.attempt == attempt
    await run.assert_goes_on(name, attempt)
    older = await rollout
    if point in ("restore.pinned", "restore.intended", "restore.floored") and older.status_code == 200:
        await assert_rewarded(rollout)  # it ended while nobody coordinated, before anyone stopped it
    else:
        assert (older.status_code, older.headers["x-gymckpt-reason"]) == (409, "STALE_ATTEMPT")
    await run.complete()
    await run.checkpoint(f"{name}-later")


@pytest.mark.parametrize("point", ["epoch.created", "takeover.answered", "takeover.decided"])
async def test_a_successor_that_dies_while_it_takes_over_is_succeeded(run: Run, point: str) -> None:
    """X07, X35: the round that the first one left open is decided by the third."""
    name = f"at-{point}"
    rollout = await run.playing(name)
    run.watch.kill_at("checkpoint.freezing")
    await killed(run, run.taking(name))
    run.watch.kill_at(point)
    with pytest.raises(ServerFailed, match="status -9"):
        await run.coordinate()
    await run.coordinate()
    await run.assert_accepting()
    decision = await run.decision(name)
    assert decision is not None
    assert not decision.published
    await assert_rewarded(rollout)
    await run.complete()
    await run.checkpoint(f"{name}-later")


@pytest.mark.parametrize("point", ["checkpoint.held", "checkpoint.aborted"])
async def test_a_checkpoint_that_waits_for_a_tool_is_aborted_by_the_successor(run: Run, point: str) -> None:
    """X07, X25, C37: also when the first one had decided so and told nobody; the tool's answer arrives, once."""
    name = f"at-{point}"
    rollout = await run.playing(name)
    run.watch.hold_at("checkpoint.preparing")
    held = CheckpointArguments(name, prepare_timeout=1.0, on_not_ready=OnNotReady.HOLD)
    waiting = asyncio.create_task(run.client.checkpoint(held))
    await run.watch.reached()
    os.kill(run.fleet.servers[COUNTER].pid, signal.SIGSTOP)
    await run.calling_a_tool(rollout)
    run.watch.kill_at(point)
    await asyncio.wait([waiting])
    error = waiting.exception()
    assert isinstance(error, TransportFailed) if error else waiting.result().stage is Stage.HELD
    if point == "checkpoint.aborted":
        with pytest.raises(TransportFailed):
            await run.client.abort_checkpoint(name, "it takes too long")
    await run.watch.reached()
    await run.fleet.kill([COORDINATOR])
    os.kill(run.fleet.servers[COUNTER].pid, signal.SIGCONT)
    await run.coordinate()
    await run.assert_accepting()
    decision = await run.decision(name)
    assert decision is not None
    assert not decision.published
    await assert_rewarded(rollout)
    assert run.increments(name) == STEPS
    await run.complete()
    await run.checkpoint(f"{name}-later")


async def test_a_restore_that_was_given_up_stays_so(run: Run) -> None:
    """X28, X39, X29: what it gave out is retired already, and is retired again before anyone is told."""
    name = "at-restore.aborted"
    await run.playing(name)
    await run.checkpoint(name)
    run.watch.hold_at("restore.installed")
    restoring = run.restoring(name, name, name)
    await run.watch.reached()
    await run.fleet.kill([COUNTER])
    run.watch.kill_at("restore.aborted")
    await killed(run, restoring)
    await run.coordinate()
    await run.replace(COUNTER)
    with pytest.raises(RestoreAborted):
        await run.client.restore(RestoreArguments(name, name, (Episode(name),)))
    refused = await run.play(name, 1, continues=True)
    assert (refused.status_code, refused.headers["x-gymckpt-reason"]) == (409, "STALE_ATTEMPT")
    (target,) = await run.client.restore(RestoreArguments(f"{name}-again", name, (Episode(name),)))
    assert target.attempt == 2
    await run.assert_goes_on(name, 2)
    await run.assert_accepting()
    await run.checkpoint(f"{name}-later")


async def test_rollouts_go_on_when_the_gate_lease_ends_and_nobody_succeeds(run: Run) -> None:
    """C19, X07, X33: the gates open by themselves; what was frozen is dropped by whoever succeeds at last."""
    name = "at-nobody"
    rollout = await run.playing(name)
    run.watch.kill_at("checkpoint.uploading")
    arguments = CheckpointArguments(name, gate_lease=1.0, resume=ResumePolicy.AFTER_PUBLISH)
    await killed(run, asyncio.create_task(run.client.checkpoint(arguments)))
    await assert_rewarded(rollout)
    assert run.increments(name) == STEPS
    assert {status.holds.gate for status in (await run.statuses()).values()} == {GateState.OPEN}
    await run.coordinate()
    await run.assert_accepting()
    decision = await run.decision(name)
    assert decision is not None
    assert not decision.published
    await run.complete()
    await run.checkpoint(f"{name}-later")


async def test_a_retirement_that_was_begun_holds_for_whoever_is_born_later_and_is_repeated(run: Run) -> None:
    """X27, C13, C14: its floor is written before anyone is told."""
    name = "at-retire.floored"
    await run.playing(name)
    run.watch.kill_at("retire.floored")
    await killed(run, asyncio.create_task(run.client.retire_episodes([Episode(name)])))
    await run.coordinate()
    await run.assert_accepting()
    await run.fleet.kill([ENVIRONMENT])
    await run.replace(ENVIRONMENT)
    for _ in range(2):
        refused = await run.play(name)
        assert (refused.status_code, refused.headers["x-gymckpt-reason"]) == (409, "STALE_ATTEMPT")
        await run.client.retire_episodes([Episode(name)])
    await run.checkpoint(f"{name}-later")
    assert Episode(name) not in (await run.client.get_checkpoint(f"{name}-later")).episodes


async def test_every_named_point_was_died_at(run: Run, record_property: Callable[[str, object], None]) -> None:
    """X07: the tests above leave no point out."""
    if not run.watch.killed:
        pytest.skip("it counts the tests before it; run the whole module")
    record_property("crash points", f"killed at {len(run.watch.killed)} of {len(POINTS)}")
    assert run.watch.killed == set(POINTS)
