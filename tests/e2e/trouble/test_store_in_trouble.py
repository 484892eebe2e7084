"""A store in a process of its own that stops answering, dies, or has no room left: rounds wait for it or end typed, rollouts never do."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from gymckpt.coordinator import CheckpointArguments, RestoreArguments, Stage
from gymckpt.errors import CheckpointAborted, NameNotFound, RestoreAborted, StoreFull, StoreUnavailable
from gymckpt.participant import Episode
from tests.e2e.disks import small_store
from tests.e2e.fleets import COORDINATOR, PATIENCE_SECONDS, until
from tests.e2e.trouble.run import COUNTER, STORE, Run, assert_rewarded, started

pytestmark = pytest.mark.asyncio(loop_scope="module")

DISK = "12m"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the run is; its store is on a small disk of its own when this user may mount one."""
    with small_store(tmp_path_factory.mktemp("run"), DISK) as directory:
        yield directory


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def run(directory: Path) -> AsyncIterator[Run]:
    async with started(directory, apart=True) as run_:
        yield run_


@pytest.fixture
def disk(run: Run) -> Path:
    """The store's own disk."""
    store = run.directory / "store"
    if not store.is_mount():
        pytest.skip("a small disk for the store could not be mounted; run as a user who may mount a tmpfs")
    return store


def fill(file: Path) -> None:
    with file.open("wb", buffering=0) as content:
        while True:
            content.write(bytes(4096))


@contextmanager
def filled(disk: Path) -> Iterator[None]:
    """The disk has no room while this lasts."""
    filler = disk / "filler"
    try:
        with pytest.raises(OSError, match="No space"):
            fill(filler)
        yield
    finally:
        filler.unlink()


@contextmanager
def read_only(disk: Path) -> Iterator[None]:
    """Nothing of the disk can be written while this lasts."""
    subprocess.run(["mount", "--bind", str(disk), str(disk)], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(disk)], check=True)
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def signalled(run: Run, server: str, number: signal.Signals) -> None:
    os.kill(run.fleet.servers[server].pid, number)


async def retried(run: Run, checkpoint_id: str) -> None:
    """A caller that does as the refusal says, until the coordinator has found the store again."""
    last = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return await run.checkpoint(checkpoint_id)
        except StoreUnavailable:
            assert time.monotonic() < last, "the store was not found again"
            await asyncio.sleep(0.1)


async def test_rollouts_run_on_while_the_store_says_nothing_and_the_upload_goes_on_after(run: Run) -> None:
    """X02, X33: the gates are open, whatever the store does."""
    rollout = await run.playing("silent")
    run.watch.hold_at("checkpoint.uploading")
    taking = run.taking("silent")
    await run.watch.reached()
    signalled(run, STORE, signal.SIGSTOP)
    run.watch.go_on()
    await assert_rewarded(rollout)
    assert not taking.done()
    signalled(run, STORE, signal.SIGCONT)
    assert (await taking).stage is Stage.PUBLISHED
    await run.assert_accepting()


@pytest.mark.parametrize("point", ["checkpoint.uploading", "checkpoint.publish"])
async def test_a_store_that_was_killed_is_waited_for(run: Run, point: str) -> None:
    """X02, X09, C41: the same export is sent again, and the decision is made once."""
    name = f"killed-{point}"
    rollout = await run.playing(name)
    run.watch.hold_at(point)
    taking = run.taking(name)
    await run.watch.reached()
    await run.fleet.kill([STORE])
    run.watch.go_on()
    await assert_rewarded(rollout)
    assert not taking.done()
    await run.start_store()
    assert (await taking).stage is Stage.PUBLISHED
    decision = await run.decision(name)
    assert decision is not None
    assert decision.published
    (target,) = await run.client.restore(RestoreArguments(name, name, (Episode(name),)))
    await run.assert_goes_on(name, target.attempt)
    await run.assert_accepting()


async def test_nothing_begins_without_a_store(run: Run) -> None:
    """X07: a typed error, every gate open, and the same id may be used later."""
    rollout = await run.playing("absent")
    await run.checkpoint("absent-before")
    await run.fleet.kill([STORE])
    with pytest.raises(StoreUnavailable):
        await run.checkpoint("absent")
    with pytest.raises(StoreUnavailable):
        await run.client.restore(RestoreArguments("absent", "absent-before", (Episode("absent"),)))
    await run.assert_accepting()
    await assert_rewarded(rollout)
    await run.start_store()
    await retried(run, "absent")


async def test_an_upload_waits_until_there_is_room(run: Run, disk: Path) -> None:
    """C24: the members say STORE_FULL and keep their export; once there is room, the same is published."""
    rollout = await run.playing("full")
    run.watch.hold_at("checkpoint.uploading")
    taking = run.taking("full")
    await run.watch.reached()
    with filled(disk):
        run.watch.go_on()
        await until(lambda: "outcome=STORE_FULL" in run.said(COORDINATOR), "an upload to a full disk")
        await assert_rewarded(rollout)
        assert not taking.done()
    assert (await taking).stage is Stage.PUBLISHED
    (target,) = await run.client.restore(RestoreArguments("full", "full", (Episode("full"),)))
    await run.assert_goes_on("full", target.attempt)
    await run.assert_accepting()


async def test_an_abort_on_a_full_disk_opens_every_gate_at_once(run: Run, disk: Path) -> None:
    """X04: `aborted` is written as soon as there is room; nobody waits for it but whoever asked for it."""
    rollout = await run.playing("abort")
    run.watch.hold_at("checkpoint.uploading")
    taking = run.taking("abort")
    await run.watch.reached()
    with filled(disk):
        run.watch.go_on()
        aborting = asyncio.create_task(run.client.abort_checkpoint("abort", "no room"))
        await assert_rewarded(rollout)
        await until(
            lambda: "checkpoint=abort: its abort is not written yet" in run.said(COORDINATOR), "an abort on a full disk"
        )
        await run.assert_accepting()
    assert (await aborting).stage is Stage.ABORTED
    with pytest.raises(CheckpointAborted):
        await taking
    await run.checkpoint("abort-later")


async def test_nothing_begins_on_a_full_disk(run: Run, disk: Path) -> None:
    """C24: STORE_FULL to the caller, nothing is changed, and the same id may be used once there is room."""
    rollout = await run.playing("no-room")
    await run.checkpoint("no-room-before")
    with filled(disk):
        with pytest.raises(StoreFull):
            await run.client.checkpoint(CheckpointArguments("no-room"))
        with pytest.raises(StoreFull):
            await run.client.restore(RestoreArguments("no-room", "no-room-before", (Episode("no-room"),)))
        await run.assert_accepting()
        await assert_rewarded(rollout)
    for name in ("intents/no-room", "decisions/no-room", "intents/restore-no-room"):
        with pytest.raises(NameNotFound):
            await run.store.get_name(name)
    await run.checkpoint("no-room")


@pytest.mark.parametrize("point", ["restore.intended", "restore.confirmed"])
async def test_a_restore_whose_disk_fills_up_is_decided_once_there_is_room(run: Run, disk: Path, point: str) -> None:
    """X28, X39: before everyone holds it, it is given up; after that, it waits for its decision."""
    name, restored = f"full-{point}", point == "restore.confirmed"
    await run.playing(name)
    await run.checkpoint(name)
    run.watch.hold_at(point)
    restoring = run.restoring(name, name, name)
    await run.watch.reached()
    with filled(disk):
        run.watch.go_on()
        waiting = f"restore={name} is not decided yet"
        await until(lambda: waiting in run.said(COORDINATOR), "a restore that cannot be decided")
        assert not restoring.done()
    if not restored:
        with pytest.raises(RestoreAborted, match="No space"):
            await restoring
        restoring = run.restoring(f"{name}-again", name, name)
    (target,) = await restoring
    assert target.attempt == (1 if restored else 2)
    await run.assert_goes_on(name, target.attempt)
    await run.assert_accepting()
    await run.checkpoint(f"{name}-later")


async def test_a_server_that_starts_while_the_disk_is_full_takes_part_once_there_is_room(run: Run, disk: Path) -> None:
    """X27: its name is not written yet, so its gate stays closed; nothing else is needed to go on than room."""
    dead = run.members[COUNTER].boot_id
    await run.fleet.kill([COUNTER])
    with filled(disk):
        await run.start(COUNTER)
        waiting = re.compile("waits for the artifact store .*no space left")
        await until(lambda: waiting.search(run.said(COUNTER)) is not None, "a start without room")
    await run.complete(without=[dead])
    await run.checkpoint("room-again")


async def test_an_upload_waits_until_the_directory_can_be_written(run: Run, disk: Path) -> None:
    """X02, X33: the members say why; what can be read meanwhile is read, and the same export is published."""
    rollout = await run.playing("unwritable")
    await run.checkpoint("unwritable-before")
    run.watch.hold_at("checkpoint.uploading")
    taking = run.taking("unwritable")
    await run.watch.reached()
    with read_only(disk):
        run.watch.go_on()
        refused = re.compile(r"checkpoint=unwritable .*outcome=STORE_UNAVAILABLE .*Read-only file system")
        await until(lambda: refused.search(run.said(COORDINATOR)) is not None, "an upload that cannot be written")
        await assert_rewarded(rollout)
        assert not taking.done()
        assert (await run.client.get_checkpoint("unwritable-before")).episodes == (Episode("unwritable"),)
        await run.assert_published_is_whole()
    assert (await taking).stage is Stage.PUBLISHED
    (target,) = await run.client.restore(RestoreArguments("unwritable", "unwritable", (Episode("unwritable"),)))
    await run.assert_goes_on("unwritable", target.attempt)
    await run.assert_accepting()


async def test_nothing_begins_in_a_directory_that_cannot_be_written(run: Run, disk: Path) -> None:
    """X07: the caller is told what to look at, every gate is open, and the same ids may be used later."""
    await run.playing("begun")
    await run.checkpoint("begun-before")
    restore = RestoreArguments("begun", "begun-before", (Episode("begun"),))
    with read_only(disk):
        with pytest.raises(StoreUnavailable, match=r"Read-only file system.*check the directory"):
            await run.checkpoint("begun")
        with pytest.raises(StoreUnavailable, match=r"Read-only file system.*check the directory"):
            await run.client.restore(restore)
        await run.assert_accepting()
    await run.checkpoint("begun")
    (target,) = await run.client.restore(restore)
    await run.assert_goes_on("begun", target.attempt)
