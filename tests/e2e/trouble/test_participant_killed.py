"""SIGKILL of one server of each kind in every phase of a round; a new process of it starts at the same address."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from gymckpt.coordinator import CheckpointArguments, RestoreArguments, ResumePolicy, Stage
from gymckpt.errors import MemberMissing, ParticipantLost, RestoreAborted
from gymckpt.participant import Episode
from tests.e2e.fleets import ENVIRONMENT, MODEL
from tests.e2e.trouble.run import MEMBERS, Run

pytestmark = pytest.mark.asyncio(loop_scope="module")

CHECKPOINT_POINTS = {
    "checkpoint.preparing": False,
    "checkpoint.freezing": False,
    "checkpoint.uploading": False,
    "checkpoint.publish": True,
    "checkpoint.published": True,
}
"""Whether what was being taken is published: it is once everyone's part is stored, for the cut is older than the loss."""
RESTORE_POINTS = {
    "restore.intended": False,
    "restore.installed": False,
    "restore.decided": False,
    "restore.activated": True,
}
"""Whether what was being restored is told to be live: it is once every process said so."""


async def killed(run: Run, server: str, point: str) -> None:
    """Kills the server while the coordinator is at `point`, and lets that go on."""
    await run.watch.reached()
    await run.fleet.kill([server])
    run.watch.go_on()


async def assert_over(rollout: asyncio.Task[httpx.Response], server: str) -> None:
    """The attempt that lost `server` was refused, or lost its own connection: no error of a dead or new process became a tool's answer (X38). Only a model that
    comes back has nothing that an attempt would miss."""
    try:
        answer = await rollout
    except httpx.TransportError:
        assert server == ENVIRONMENT
        return
    if server == MODEL and answer.status_code == 200:
        assert answer.json()["reward"] == 1.0
    else:
        assert (answer.status_code, answer.headers["x-gymckpt-reason"]) == (409, "STALE_ATTEMPT")


@pytest.mark.parametrize("server", MEMBERS)
@pytest.mark.parametrize("point", CHECKPOINT_POINTS)
async def test_a_checkpoint_is_whole_or_was_never_there(run: Run, server: str, point: str) -> None:
    """X01, X24, X26, X31: the lost server is named, whoever lives is accepting at once, and the rollout continues from the last cut that is whole."""
    name, published = f"{server}-{point}", CHECKPOINT_POINTS[point]
    rollout = await run.playing(name)
    await run.checkpoint(f"{name}-before")
    run.watch.hold_at(point)
    taking = run.taking(name, ResumePolicy.AFTER_PUBLISH)
    await killed(run, server, point)
    if published:
        assert (await taking).stage is Stage.PUBLISHED
    else:
        with pytest.raises(ParticipantLost, match=MEMBERS[server]):
            await taking
    await run.assert_accepting(without=server)
    decision = await run.decision(name)
    assert decision is not None
    assert decision.published is published
    with pytest.raises(MemberMissing, match=MEMBERS[server]):
        await run.client.checkpoint(CheckpointArguments(f"{name}-incomplete"))
    assert await run.decision(f"{name}-incomplete") is None
    await run.replace(server)
    whole = name if published else f"{name}-before"
    (target,) = await run.client.restore(RestoreArguments(name, whole, (Episode(name),)))
    await run.assert_goes_on(name, target.attempt)
    await assert_over(rollout, server)
    await run.assert_accepting()
    await run.checkpoint(f"{name}-later")


@pytest.mark.parametrize("server", MEMBERS)
@pytest.mark.parametrize("point", RESTORE_POINTS)
async def test_a_restore_is_live_everywhere_or_nowhere(run: Run, server: str, point: str) -> None:
    """X28, X39, X14: what it gave out is retired when anyone may lack it, and the same checkpoint restores again."""
    name, restored = f"{server}-{point}", RESTORE_POINTS[point]
    rollout = await run.playing(name)
    await run.checkpoint(name)
    run.watch.hold_at(point)
    restoring = run.restoring(name, name, name)
    await killed(run, server, point)
    if restored:
        assert [target.attempt for target in await restoring] == [1]
    else:
        with pytest.raises(RestoreAborted, match=MEMBERS[server]):
            await restoring
    await run.assert_accepting(without=server)
    await run.replace(server)
    if not restored:
        refused = await run.play(name, 1, continues=True)
        assert (refused.status_code, refused.headers["x-gymckpt-reason"]) == (409, "STALE_ATTEMPT")
    (target,) = await run.client.restore(RestoreArguments(f"{name}-again", name, (Episode(name),)))
    assert target.attempt == 2
    await run.assert_goes_on(name, 2)
    await assert_over(rollout, server)
    await run.assert_accepting()
    await run.checkpoint(f"{name}-later")
