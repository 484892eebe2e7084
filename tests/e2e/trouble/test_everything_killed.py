"""SIGKILL of every process in the middle of a round, and all of them started again where they were."""

from __future__ import annotations

import asyncio

import pytest

from gymckpt.coordinator import RestoreArguments, ResumePolicy
from gymckpt.errors import TransportFailed
from gymckpt.participant import Episode
from tests.e2e.trouble.run import MEMBERS, Run

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def killed_and_started(run: Run) -> None:
    """Every process dies where it stands, and a new one of each starts."""
    await run.watch.reached()
    dead = [info.boot_id for info in run.members.values()]
    await run.fleet.kill()
    await run.coordinate()
    await run.start(*MEMBERS)
    await run.complete(without=dead)


@pytest.mark.parametrize("point", ["checkpoint.freezing", "checkpoint.publish", "checkpoint.decided"])
async def test_the_last_checkpoint_that_is_whole_restores(run: Run, point: str) -> None:
    """P14, X07, X14: a cut that was being taken counts from its decision on, never before."""
    rollout = await run.playing(point)
    await run.checkpoint(f"{point}-before")
    run.watch.hold_at(point)
    taking = run.taking(point, ResumePolicy.AFTER_PUBLISH)
    await killed_and_started(run)
    ended = await asyncio.gather(taking, rollout, return_exceptions=True)
    assert isinstance(ended[0], TransportFailed)
    arguments = RestoreArguments(point, "latest", (Episode(point),))
    stages = [progress async for progress in run.client.restore_checkpoint(arguments)]
    assert stages[-1].checkpoint_id == (point if point == "checkpoint.decided" else f"{point}-before")
    assert [target.attempt for target in stages[-1].outcome] == [1]
    await run.assert_goes_on(point, 1)
    await run.assert_accepting()
    await run.checkpoint(f"{point}-later")


@pytest.mark.parametrize("point", ["restore.intended", "restore.installed", "restore.decided"])
async def test_a_restore_that_died_with_everyone_is_done_again(run: Run, point: str) -> None:
    """X14, X28, X29: to the same state, as an attempt that nobody ever had."""
    name = f"at-{point}"
    await run.playing(name)
    await run.checkpoint(name)
    run.watch.hold_at(point)
    restoring = run.restoring(name, name, name)
    await killed_and_started(run)
    with pytest.raises(TransportFailed):
        await restoring
    for attempt in (0, 1):
        refused = await run.play(name, attempt, continues=attempt > 0)
        assert (refused.status_code, refused.headers["x-gymckpt-reason"]) == (409, "STALE_ATTEMPT")
    (target,) = await run.client.restore(RestoreArguments(f"{name}-again", name, (Episode(name),)))
    assert target.attempt == 2
    await run.assert_goes_on(name, 2)
    await run.assert_accepting()
    await run.checkpoint(f"{name}-later")
