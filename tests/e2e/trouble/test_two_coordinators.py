"""An old coordinator that was only stopped wakes up beside its successor, which serves at another address from the same store."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from gymckpt.coordinator import CheckpointArguments, CoordinatorClient, RestoreArguments, ResumePolicy
from gymckpt.coordinator.members.client import ParticipantClient
from gymckpt.core.ids import Digest, Fence
from gymckpt.core.manifest import Decision
from gymckpt.core.results import Acknowledgement
from gymckpt.core.transitions import (
    Abort,
    Acknowledge,
    Activate,
    Confirm,
    Decided,
    Discard,
    Forget,
    Install,
    InstallTarget,
    Prepare,
    Renew,
    Request,
    Resume,
    Retire,
    Snapshot,
    Transition,
    Upload,
)
from gymckpt.errors import StaleEpoch
from gymckpt.participant import Episode
from gymckpt.rpc import codec
from tests.e2e.fleets import COORDINATOR
from tests.e2e.trouble.run import MEMBERS, STEPS, STORE, Run, assert_rewarded, started

pytestmark = pytest.mark.asyncio(loop_scope="module")

EVERY_KIND_OF_ORDER: list[Transition] = [
    Prepare(1.0, 30.0),
    Snapshot(1, 60.0),
    Resume(),
    Upload(),
    Abort("by the old one"),
    Decided(published=True),
    Renew(1.0, 1.0),
    Install(Digest(bytes(32), 1), (InstallTarget(Episode("two"), 1),), 1.0),
    Confirm(),
    Activate(),
    Discard(),
    Retire((Episode("two"),), 1.0),
    Forget(("two",)),
    Acknowledge((Acknowledgement(Episode("two"), bytes(32)),), 1.0),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def run(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Run]:
    async with started(tmp_path_factory.mktemp("run"), apart=True) as run_:
        yield run_


async def test_the_old_one_is_refused_by_everyone(run: Run) -> None:
    """X06, X25, X35: by every participant, by the store and by itself, also for the round that it had under way; the new one is not disturbed."""
    old, old_epoch = run.client, (await run.client.participants()).epoch
    rollout = await run.playing("two")
    run.watch.hold_at("checkpoint.uploading")
    taking = run.taking("two", ResumePolicy.AFTER_PUBLISH)
    await run.watch.reached()
    os.kill(run.fleet.servers[COORDINATOR].pid, signal.SIGSTOP)
    new = await run.start_coordinator("successor")
    await run.connect(new, run.fleet.address(STORE))
    await run.assert_accepting()
    await run.checkpoint("by-new")

    os.kill(run.fleet.servers[COORDINATOR].pid, signal.SIGCONT)
    run.watch.go_on()
    with pytest.raises(StaleEpoch):
        await taking
    decision = await run.decision("two")
    assert decision is not None
    assert not decision.published
    await refused_as_coordinator(old)
    await refused_by_participants(run, old_epoch)
    with pytest.raises(StaleEpoch):
        await run.store.put_name("decisions/by-old", codec.encode_decision(Decision(None, "late")), epoch=old_epoch)
    assert await run.decision("by-old") is None

    await run.assert_accepting()
    await assert_rewarded(rollout)
    assert run.increments("two") == STEPS
    await run.checkpoint("by-new-later")


async def test_epochs_outlive_every_process(run: Run) -> None:
    """X06, X35, X27: whoever is born later obeys none of the coordinators before its own."""
    dead = [info.boot_id for info in run.members.values()]
    await run.fleet.kill()
    await run.start_store()
    await run.coordinate()
    await run.start(*MEMBERS)
    await run.complete(without=dead)
    present = (await run.client.participants()).epoch
    assert present >= 2
    for epoch in range(1, present):
        await refused_by_participants(run, epoch)
        with pytest.raises(StaleEpoch):
            await run.store.put_name(
                f"decisions/by-{epoch}", codec.encode_decision(Decision(None, "late")), epoch=epoch
            )
    await run.checkpoint("by-the-last")


async def test_the_old_one_installs_nothing_that_its_successor_has_aborted(run: Run) -> None:
    """X06, X28, X39: it slept after everyone had confirmed, and wakes up to decide."""
    await run.playing("three")
    await run.checkpoint("three")
    run.watch.hold_at("restore.confirmed")
    restoring = run.restoring("three", "three", "three")
    await run.watch.reached()
    old = run.fleet.servers[COORDINATOR].pid
    os.kill(old, signal.SIGSTOP)
    await run.connect(await run.start_coordinator("another"), run.fleet.address(STORE))
    os.kill(old, signal.SIGCONT)
    run.watch.go_on()
    with pytest.raises(StaleEpoch):
        await restoring
    decision = await run.decision("restore-three")
    assert decision is not None
    assert not decision.published
    refused = await run.play("three", 1, continues=True)
    assert (refused.status_code, refused.headers["x-gymckpt-reason"]) == (409, "STALE_ATTEMPT")
    (target,) = await run.client.restore(RestoreArguments("again", "three", (Episode("three"),)))
    assert target.attempt == 2
    await run.assert_goes_on("three", 2)
    await run.assert_accepting()


async def refused_as_coordinator(old: CoordinatorClient) -> None:
    with pytest.raises(StaleEpoch):
        await old.checkpoint(CheckpointArguments("by-old"))
    with pytest.raises(StaleEpoch):
        await old.restore(RestoreArguments("by-old", "by-new", (Episode("two"),)))
    with pytest.raises(StaleEpoch):
        await old.retire_episodes([Episode("two")])
    with pytest.raises(StaleEpoch):
        await old.abort_checkpoint("by-new")


async def refused_by_participants(run: Run, old_epoch: int) -> None:
    """Orders as the old one would give them, sent past it."""
    for info in run.members.values():
        participant = ParticipantClient(info.address)
        for number, order in enumerate(EVERY_KIND_OF_ORDER, 1):
            with pytest.raises(StaleEpoch):
                await participant.transition(Request(Fence(old_epoch, 10_000, "by-old"), number, info.boot_id, order))
        await participant.close()
