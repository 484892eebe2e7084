"""A coordinator with its store that is killed, and started again on what it left on disk."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from gymckpt.coordinator import CheckpointArguments, CoordinatorClient, RestoreArguments, ResumePolicy, Stage
from gymckpt.core.ids import Episode
from gymckpt.core.kinds import ExportState, Fate, GateState, Kind
from gymckpt.core.manifest import StoredSession
from gymckpt.errors import CheckpointAborted, RestoreAborted, TransportFailed
from gymckpt.rpc import codec
from gymckpt.store import StoreClient
from tests.contract.coordinator.fake import FakeParticipant, Told

ROOT = Path(__file__).resolve().parents[3]
R1 = Episode("r1")


class Run:
    """A directory, the process that serves it, and participants that outlive that process."""

    def __init__(self, stack: AsyncExitStack, directory: Path) -> None:
        self.stack = stack
        self.directory = directory
        self.listen = "127.0.0.1:0"
        self.told = Told()
        self.all: list[FakeParticipant] = []
        self.process: asyncio.subprocess.Process
        self.client: CoordinatorClient
        self.store: StoreClient

    async def start(self, point: str = "") -> None:
        """Serves at the same address as before, as soon as it has taken over."""
        arguments = [str(Path(__file__).with_name("process.py")), str(self.directory), self.listen, point]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, *arguments, stdout=asyncio.subprocess.PIPE, env=environment
        )
        self.stack.push_async_callback(self.kill)
        assert self.process.stdout is not None
        line = await asyncio.wait_for(self.process.stdout.readline(), 30)
        self.listen = line.decode().strip()
        self.client = await self.stack.enter_async_context(CoordinatorClient(self.listen))
        self.store = await self.stack.enter_async_context(StoreClient(self.listen))

    async def kill(self) -> None:
        """As kill -9; one that is gone already is fine."""
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()

    async def add_members(self) -> None:
        (state,) = await self.store.write([codec.encode_session(StoredSession("fake/1", ()))])
        for kind in Kind:
            participant = await FakeParticipant(kind, "x", self.store, self.told).start()
            self.stack.push_async_callback(participant.die)
            participant.host(R1, state=state)
            participant.stored = {R1}
            self.all.append(participant)

    async def register(self) -> None:
        for participant in self.all:
            participant.store = self.store
            await self.client.register(participant.info, participant.holds)


@pytest.fixture
async def run(tmp_path: Path) -> AsyncIterator[Run]:
    async with AsyncExitStack() as stack:
        yield Run(stack, tmp_path / "store")


CHECKPOINT_POINTS = [
    "checkpoint.intended",
    "checkpoint.freezing",
    "checkpoint.uploading",
    "checkpoint.publish",
    "checkpoint.decided",
]


@pytest.mark.parametrize("point", CHECKPOINT_POINTS)
async def test_a_killed_coordinator_leaves_one_decision_and_nobody_paused(run: Run, point: str) -> None:
    """X07."""
    await run.start(point)
    await run.add_members()
    await run.register()
    same = CheckpointArguments("c1", resume=ResumePolicy.AFTER_PUBLISH)
    with pytest.raises(TransportFailed):
        await run.client.checkpoint(same)
    assert await run.process.wait() == 9
    await run.start()
    assert {(p.gate, p.export) for p in run.all} == {(GateState.OPEN, ExportState.NONE)}
    decision = codec.decode_decision(await run.store.get_name("decisions/c1"))
    assert decision.published is (point == "checkpoint.decided")
    await run.register()
    if decision.published:
        assert (await run.client.checkpoint(same)).stage is Stage.PUBLISHED
    else:
        with pytest.raises(CheckpointAborted):
            await run.client.checkpoint(same)
    assert (await run.client.checkpoint(CheckpointArguments("c2"))).stage is Stage.PUBLISHED


@pytest.mark.parametrize("point", ["restore.pinned", "restore.installed", "restore.decided"])
async def test_a_killed_restore_is_everywhere_or_nowhere(run: Run, point: str) -> None:
    """X28, X29, X14."""
    await run.start(point)
    await run.add_members()
    await run.register()
    await run.client.checkpoint(CheckpointArguments("c1"))
    with pytest.raises(TransportFailed):
        await run.client.restore(RestoreArguments("one", "c1"))
    assert await run.process.wait() == 9
    await run.start()
    installed = point == "restore.decided"
    assert [p.live for p in run.all] == [{Episode("r1", 1)} if installed else set()] * 4
    assert [p.pending for p in run.all] == [set()] * 4
    assert await run.store.list_names("pins") == []
    await run.register()
    if point == "restore.installed":
        with pytest.raises(RestoreAborted):
            await run.client.restore(RestoreArguments("one", "c1"))
    else:
        (target,) = await run.client.restore(RestoreArguments("one", "c1"))
        assert (target.attempt, target.fate) == (1, Fate.RESTORED)


async def test_everything_killed_at_once_is_restored_from_disk_by_new_processes(run: Run) -> None:
    """C09, X06: new boots, a new epoch, the same checkpoint."""
    await run.start()
    await run.add_members()
    await run.register()
    made = await run.client.checkpoint(CheckpointArguments("c1", labels={"step": "1"}))
    await run.kill()
    for participant in run.all:
        await participant.die()
    run.all.clear()
    await run.start()
    await run.add_members()
    await run.register()
    page = await run.client.get_checkpoint("latest")
    assert page.checkpoint.manifest == made.manifest
    assert (await run.client.participants()).epoch == 2
    (target,) = await run.client.restore(RestoreArguments("one", "latest"))
    assert [p.live for p in run.all] == [{target.target}] * 4
