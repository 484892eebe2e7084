"""Two who decide at once, and a store that fails meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from gymckpt.coordinator import CheckpointArguments, Stage
from gymckpt.core.kinds import ExportState, GateState, Kind
from gymckpt.core.transitions import Upload
from gymckpt.errors import CheckpointAborted, MissingBlobs, StaleEpoch, StoreUnavailable
from gymckpt.rpc import codec
from gymckpt.store import MemoryStore
from tests.contract.coordinator.fleet import Fleet, Following


class RacingStore(MemoryStore):
    """Lets both sides try to decide, and then the one that a test names be first."""

    def __init__(self, first: str) -> None:
        super().__init__()
        self.first = first
        self.tried: dict[str, asyncio.Event] = {"published": asyncio.Event(), "aborted": asyncio.Event()}
        self.won = asyncio.Event()

    async def put_name(self, name: str, value: bytes, *, epoch: int = 0) -> bytes:
        if not name.startswith("decisions/"):
            return await super().put_name(name, value, epoch=epoch)
        mine = "published" if codec.decode_decision(value).published else "aborted"
        self.tried[mine].set()
        for tried in self.tried.values():
            await tried.wait()
        if mine != self.first:
            await self.won.wait()
        held = await super().put_name(name, value, epoch=epoch)
        self.won.set()
        return held


class FailingStore(MemoryStore):
    """Refuses what a test says, as often as it says."""

    def __init__(self) -> None:
        super().__init__()
        self.failures: dict[str, int] = {}
        self.failed = asyncio.Event()

    async def put_name(self, name: str, value: bytes, *, epoch: int = 0) -> bytes:
        family = name.partition("/")[0]
        if self.failures.get(family, 0):
            self.failures[family] -= 1
            self.failed.set()
            raise StoreUnavailable(f"{family} cannot be written")
        return await super().put_name(name, value, epoch=epoch)


class JoiningStore(MemoryStore):
    """Lets somebody join at the last moment before the next epoch is taken."""

    def __init__(self) -> None:
        super().__init__()
        self.joining: Callable[[], Awaitable[object]] | None = None

    async def put_name(self, name: str, value: bytes, *, epoch: int = 0) -> bytes:
        if name.startswith("epochs/") and self.joining is not None:
            joining, self.joining = self.joining, None
            await joining()
        return await super().put_name(name, value, epoch=epoch)


async def assembled(stack: AsyncExitStack, store: MemoryStore) -> Fleet:
    fleet = Fleet(stack, store)
    for kind in Kind:
        await fleet.add(kind)
    await fleet.coordinate()
    await fleet.register()
    return fleet


@pytest.mark.parametrize("first", ["published", "aborted"])
async def test_of_a_publish_and_an_abort_one_decides_and_both_callers_are_told_the_same(first: str) -> None:
    """X25."""
    store = RacingStore(first)
    async with AsyncExitStack() as stack:
        fleet = await assembled(stack, store)
        following = Following(fleet.client.create_checkpoint(CheckpointArguments("c1")))
        await asyncio.wait_for(store.tried["published"].wait(), 5)
        aborted = await fleet.client.abort_checkpoint("c1")
        error = await following.end()
        decision = codec.decode_decision(await store.get_name("decisions/c1"))
        assert decision.published is (first == "published")
        assert aborted.stage is (Stage.PUBLISHED if decision.published else Stage.ABORTED)
        assert (error is None) is decision.published
        assert isinstance(error, CheckpointAborted | None)
        assert {(p.gate, p.export) for p in fleet.all} == {(GateState.OPEN, ExportState.NONE)}


async def test_a_process_that_joins_just_before_an_epoch_is_taken_is_heard_by_its_owner() -> None:
    """X35: it has read the epoch before, and its name is older than the new one, so that nobody else would tell it."""
    store = JoiningStore()
    async with AsyncExitStack() as stack:
        fleet = await assembled(stack, store)
        older = fleet.client
        store.joining = lambda: fleet.add(Kind.AGENT, "late")
        await fleet.coordinate()
        late = fleet[Kind.AGENT]
        assert (late.id.name, late.epoch) == ("late", 2)
        await older.register(late.info, late.holds)
        with pytest.raises(StaleEpoch):
            await older.checkpoint(CheckpointArguments("c1"))
        assert late.told == []


async def test_a_publish_waits_for_a_store_that_comes_back() -> None:
    store = FailingStore()
    async with AsyncExitStack() as stack:
        fleet = await assembled(stack, store)
        store.failures["decisions"] = 2
        assert (await fleet.checkpoint("c1")).stage is Stage.PUBLISHED


async def test_an_abort_opens_every_gate_although_the_store_is_away() -> None:
    """X04: the answer waits for the decision, the rollouts do not."""
    store = FailingStore()
    async with AsyncExitStack() as stack:
        fleet = await assembled(stack, store)
        fleet[Kind.AGENT].script[Upload] = asyncio.Event()
        following = Following(fleet.client.create_checkpoint(CheckpointArguments("c1")))
        await following.until_stage(Stage.UPLOADING)
        store.failures["decisions"] = 1_000_000
        aborting = asyncio.create_task(fleet.client.abort_checkpoint("c1"))
        await fleet.until(lambda: {(p.gate, p.export) for p in fleet.all} == {(GateState.OPEN, ExportState.NONE)})
        await asyncio.wait_for(store.failed.wait(), 5)
        assert not aborting.done()
        store.failures.clear()
        assert (await aborting).stage is Stage.ABORTED
        assert isinstance(await following.end(), CheckpointAborted)


async def test_an_upload_that_the_store_refuses_is_asked_for_again(fleet: Fleet) -> None:
    agent = fleet[Kind.AGENT]
    agent.script[Upload] = StoreUnavailable("away")
    following = Following(fleet.client.create_checkpoint(CheckpointArguments("c1")))
    await fleet.until(lambda: sum(isinstance(told, Upload) for told in agent.told) == 1)
    agent.script.clear()
    assert await following.end() is None
    assert sum(isinstance(told, Upload) for told in agent.told) == 2


async def test_a_manifest_that_names_missing_blobs_is_not_published(fleet: Fleet) -> None:
    """X05: the missing ones are listed."""
    from gymckpt.core.ids import Digest, Episode

    missing = Digest(b"\0" * 32, 5)
    fleet[Kind.AGENT].host(Episode("r1"), state=missing)
    with pytest.raises(MissingBlobs) as refused:
        await fleet.checkpoint("c1")
    assert refused.value.digests == [str(missing)]
    assert (await fleet.client.get_checkpoint("c1")).checkpoint.stage is Stage.ABORTED
