"""A server that is stopped (SIGSTOP) in the middle of a round and wakes up (SIGCONT) after it."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from gymckpt.coordinator import CheckpointArguments, RestoreArguments, ResumePolicy
from gymckpt.errors import MemberMissing, ParticipantLost, RestoreAborted
from gymckpt.participant import Episode
from tests.e2e.fleets import ENVIRONMENT, until
from tests.e2e.trouble.run import COUNTER, MEMBERS, STEPS, Run, assert_rewarded, started

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def run(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Run]:
    """One whose coordinator is not patient with silent members."""
    async with started(tmp_path_factory.mktemp("run"), patience=2.0) as run_:
        yield run_


async def stopped_at(run: Run, server: str, point: str) -> None:
    """Stops the server while the coordinator is at `point`, and lets that go on."""
    await run.watch.reached()
    os.kill(run.fleet.servers[server].pid, signal.SIGSTOP)
    run.watch.go_on()


@pytest.mark.parametrize("server", [COUNTER, ENVIRONMENT])
async def test_a_silent_server_voids_the_cut_and_the_others_go_on(run: Run, server: str) -> None:
    """X24, X01: it is named, nobody else stays closed, and when it wakes up it takes part as before."""
    rollout = await run.playing(server)
    run.watch.hold_at("checkpoint.freezing")
    taking = run.taking(server, ResumePolicy.AFTER_PUBLISH)
    await stopped_at(run, server, "checkpoint.freezing")
    with pytest.raises(ParticipantLost, match=MEMBERS[server]):
        await taking
    await run.assert_accepting(without=server)
    with pytest.raises(MemberMissing, match=MEMBERS[server]):
        await run.client.checkpoint(CheckpointArguments(f"{server}-incomplete"))
    os.kill(run.fleet.servers[server].pid, signal.SIGCONT)
    await run.checkpoint(f"{server}-later")
    await run.assert_accepting()
    await assert_rewarded(rollout)
    assert run.increments(server) == STEPS


async def test_that_a_restore_failed_is_told_once_the_silent_server_has_retired_it(run: Run) -> None:
    """X39, X28: until then it might still run the attempt."""
    await run.playing("silent")
    await run.checkpoint("silent")
    run.watch.hold_at("restore.installed")
    restoring = run.restoring("silent", "silent", "silent")
    await stopped_at(run, COUNTER, "restore.installed")
    await until(lambda: "has not retired 1 episodes" in run.said("coordinator"), "a retirement without an answer")
    assert not restoring.done()
    os.kill(run.fleet.servers[COUNTER].pid, signal.SIGCONT)
    with pytest.raises(RestoreAborted, match=MEMBERS[COUNTER]):
        await restoring
    refused = await run.play("silent", 1, continues=True)
    assert (refused.status_code, refused.headers["x-gymckpt-reason"]) == (409, "STALE_ATTEMPT")
    (target,) = await run.client.restore(RestoreArguments("again", "silent", (Episode("silent"),)))
    assert target.attempt == 2
    await run.assert_goes_on("silent", 2)
    await run.assert_accepting()
