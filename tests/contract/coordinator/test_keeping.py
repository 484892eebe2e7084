"""Deleting published checkpoints, and what keeps one from being deleted."""

from __future__ import annotations

import asyncio

import pytest

from gymckpt.coordinator import CheckpointArguments, RestoreArguments, ResumePolicy, Stage
from gymckpt.core.ids import Episode
from gymckpt.core.kinds import Kind
from gymckpt.core.manifest import StoredSession
from gymckpt.core.transitions import Install, Upload
from gymckpt.errors import ArgumentConflict, BlobNotFound, CheckpointNotFound, Conflict, DamagedBlob, StaleEpoch
from gymckpt.rpc import codec
from gymckpt.store import MemoryStore, NameEntry
from tests.contract.coordinator.fleet import Fleet, Following

R1 = Episode("r1")


class SlowPins(MemoryStore):
    """Carries out what concerns pins only when it is let; `asked` says that something does."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.going_on = asyncio.Event(), asyncio.Event()
        self.going_on.set()
        self.writes_only = False

    def hold(self, *, writes_only: bool = False) -> None:
        self.asked, self.going_on, self.writes_only = asyncio.Event(), asyncio.Event(), writes_only

    async def list_names(self, prefix: str, *, after: str = "", limit: int = 0) -> list[NameEntry]:
        found = await super().list_names(prefix, after=after, limit=limit)
        if not self.writes_only:
            await self._wait(prefix)
        return found

    async def create_name(self, name: str, value: bytes, *, epoch: int = 0) -> tuple[bool, bytes]:
        await self._wait(name)
        return await super().create_name(name, value, epoch=epoch)

    async def _wait(self, name: str) -> None:
        if name.startswith("pins/"):
            self.asked.set()
            await self.going_on.wait()


async def hosting(fleet: Fleet) -> Fleet:
    """Everyone holds R1 with state that is in the store."""
    (state,) = await fleet.store.write([codec.encode_session(StoredSession("fake/1", ()))])
    for participant in fleet.all:
        participant.host(R1, state=state)
        participant.stored = {R1}
    return fleet


async def listed(fleet: Fleet) -> list[str]:
    return [checkpoint.checkpoint_id for checkpoint in (await fleet.client.list_checkpoints())[0]]


async def assert_gone(fleet: Fleet, checkpoint_id: str) -> None:
    """Not listed, not shown as published, not restored, not pinned, and not taken again."""
    assert checkpoint_id not in await listed(fleet)
    shown = (await fleet.client.get_checkpoint(checkpoint_id)).checkpoint
    assert (shown.stage, shown.why_aborted, shown.manifest) == (Stage.ABORTED, "it was deleted", None)
    with pytest.raises(CheckpointNotFound, match="deleted"):
        await fleet.client.restore(RestoreArguments(f"of-{checkpoint_id}", checkpoint_id))
    with pytest.raises(CheckpointNotFound, match="deleted"):
        await fleet.client.pin_checkpoint(checkpoint_id, "me")
    for arguments in (CheckpointArguments(checkpoint_id), CheckpointArguments(checkpoint_id, full=True)):
        with pytest.raises(ArgumentConflict, match=f"'{checkpoint_id}' was used for a .* deleted; take a new id"):
            await fleet.checkpoint(arguments)


async def test_a_deleted_checkpoint_is_nowhere_any_more_and_its_id_stays_used(fleet: Fleet) -> None:
    """L10, X34: also for the next coordinator; `latest` is the newest that is left."""
    for checkpoint_id in ("c1", "c2", "c3"):
        await fleet.checkpoint(checkpoint_id)
    await fleet.client.delete_checkpoint("c3")
    await fleet.client.delete_checkpoint("c1")
    await fleet.client.delete_checkpoint("c1")  # again

    assert await fleet.names("deleted") == ["deleted/c1", "deleted/c3"]
    for _ in range(2):
        await assert_gone(fleet, "c1")
        await assert_gone(fleet, "c3")
        assert (await fleet.client.get_checkpoint("latest")).checkpoint.checkpoint_id == "c2"
        await fleet.server.stop()
        await fleet.coordinate()
        await fleet.register()
    assert await fleet.names("pins") == []


async def test_only_what_is_published_can_be_deleted(fleet: Fleet) -> None:
    await fleet.client.abort_checkpoint("c0", "never wanted")
    for checkpoint_id, why in (("c0", "aborted: never wanted"), ("nowhere", "not known")):
        with pytest.raises(CheckpointNotFound, match=why):
            await fleet.client.delete_checkpoint(checkpoint_id)
    assert await fleet.names("deleted") == []


async def test_a_pinned_checkpoint_is_kept_and_its_holders_are_named(fleet: Fleet) -> None:
    await fleet.checkpoint("c1")
    for holder in ("trainer", "archive"):
        await fleet.client.pin_checkpoint("c1", holder)
    with pytest.raises(Conflict, match="'c1' is pinned by archive, trainer;") as refused:
        await fleet.client.delete_checkpoint("c1")
    assert refused.value.details["holders"] == "archive,trainer"
    assert (await fleet.client.get_checkpoint("latest")).checkpoint.stage is Stage.PUBLISHED
    for holder in ("trainer", "archive"):
        await fleet.client.pin_checkpoint("c1", holder, release=True)
    await fleet.client.delete_checkpoint("c1")
    assert await listed(fleet) == []


@pytest.fixture
async def slow(bare: Fleet) -> tuple[Fleet, SlowPins]:
    """A fleet with a published c1."""
    bare.store = store = SlowPins()
    for kind in Kind:
        await bare.add(kind)
    await bare.coordinate()
    await bare.register()
    await bare.checkpoint("c1")
    return bare, store


async def test_a_pin_that_comes_while_its_checkpoint_is_being_deleted_is_refused(slow: tuple[Fleet, SlowPins]) -> None:
    """X40: the delete, which has read the pins already, does not see it."""
    fleet, store = slow
    store.hold()
    deleting = asyncio.create_task(fleet.client.delete_checkpoint("c1"))
    await store.asked.wait()
    with pytest.raises(CheckpointNotFound, match="deleted"):
        await fleet.client.pin_checkpoint("c1", "me")
    store.going_on.set()
    await deleting
    assert await fleet.names("pins") == []


async def test_a_pin_that_was_begun_before_its_checkpoint_was_deleted_is_taken_back(
    slow: tuple[Fleet, SlowPins],
) -> None:
    """X40."""
    fleet, store = slow
    store.hold(writes_only=True)
    pinning = asyncio.create_task(fleet.client.pin_checkpoint("c1", "me"))
    await store.asked.wait()
    await fleet.client.delete_checkpoint("c1")
    store.going_on.set()
    with pytest.raises(CheckpointNotFound, match="deleted"):
        await pinning
    assert await fleet.names("pins") == []


async def test_a_restore_that_pins_what_was_deleted_meanwhile_is_refused(slow: tuple[Fleet, SlowPins]) -> None:
    """X40, X28: it looks again once it has its pin, and nothing of it is begun."""
    fleet, store = slow
    store.hold(writes_only=True)
    restoring = asyncio.create_task(fleet.client.restore(RestoreArguments("one", "c1")))
    await store.asked.wait()
    await fleet.client.delete_checkpoint("c1")
    store.going_on.set()
    with pytest.raises(CheckpointNotFound, match="deleted"):
        await restoring
    assert (await fleet.names("pins"), await fleet.names("intents")) == ([], ["intents/c1"])
    assert not any(isinstance(step, Install) for _, step in fleet.log)


async def test_what_is_being_restored_is_kept_until_the_restore_has_ended(fleet: Fleet) -> None:
    """X28."""
    await (await hosting(fleet)).checkpoint("c1")
    fleet[Kind.AGENT].script[Install] = loading = asyncio.Event()
    restore = asyncio.create_task(fleet.client.restore(RestoreArguments("one", "c1")))
    await fleet.until(lambda: any(isinstance(step, Install) for step in fleet[Kind.AGENT].told))
    with pytest.raises(Conflict, match="pinned by restore-one"):
        await fleet.client.delete_checkpoint("c1")
    loading.set()
    assert [str(target.target) for target in await restore] == ["r1-a1"]
    await fleet.client.delete_checkpoint("c1")


async def test_a_round_that_has_not_ended_is_not_deleted(fleet: Fleet) -> None:
    """R01: published, with gates that a caller holds."""
    await fleet.checkpoint(CheckpointArguments("c1", resume=ResumePolicy.BY_CALLER))
    with pytest.raises(Conflict, match="'c1' has not ended"):
        await fleet.client.delete_checkpoint("c1")
    await fleet.client.resume_checkpoint("c1")
    await fleet.client.delete_checkpoint("c1")


async def test_deleting_the_base_of_a_checkpoint_under_way_harms_neither_it_nor_its_restore(fleet: Fleet) -> None:
    """X40: what it reuses of its base stays in the store."""
    await (await hosting(fleet)).checkpoint("c1")
    fleet[Kind.AGENT].script[Upload] = slow = asyncio.Event()
    following = Following(fleet.client.create_checkpoint(CheckpointArguments("c2")))
    taken = await following.until_stage(Stage.UPLOADING)
    assert taken.checkpoint.base_checkpoint_id == "c1"
    await fleet.client.delete_checkpoint("c1")
    slow.set()
    assert await following.end() is None

    assert following.seen[-1].checkpoint.stage is Stage.PUBLISHED
    for participant in fleet.all:
        participant.sessions.clear()
    assert [str(t.target) for t in await fleet.client.restore(RestoreArguments("one", "latest"))] == ["r1-a1"]
    async for progress in fleet.store.scrub():
        assert progress.damage == ()


async def test_a_delete_that_the_store_refuses_changes_nothing(fleet: Fleet) -> None:
    """X25: another coordinator owns the run."""
    await fleet.checkpoint("c1")
    await fleet.store.put_name("epochs/00000000000000000002", b"another")
    with pytest.raises(StaleEpoch):
        await fleet.client.delete_checkpoint("c1")
    assert await fleet.names("deleted") == []


@pytest.mark.parametrize("lost", ["missing", "damaged"])
async def test_a_checkpoint_whose_manifest_cannot_be_read_hides_no_other(fleet: Fleet, lost: str) -> None:
    """X08: the next coordinator lists it with what is known without it; a restore, and whoever wants its episodes, is refused; it can be pinned and deleted."""
    await hosting(fleet)
    manifests = {}
    for name in ("c1", "c2", "c3"):
        manifests[name] = (await fleet.checkpoint(CheckpointArguments(name, labels={"step": name}))).manifest
    store, manifest = fleet.store, manifests["c2"]
    assert isinstance(store, MemoryStore)
    assert manifest is not None
    await fleet.server.stop()
    content = store._blobs.pop(manifest)
    if lost == "damaged":
        store._blobs[manifest] = content[1:]
    await fleet.coordinate()
    await fleet.register()

    (c3, c2, c1), _ = await fleet.client.list_checkpoints()
    assert [(c.checkpoint_id, c.episodes, c.labels, c.why_unreadable) for c in (c1, c3)] == [
        ("c1", 1, {"step": "c1"}, ""),
        ("c3", 1, {"step": "c3"}, ""),
    ]
    assert (c2.checkpoint_id, c2.stage, c2.epoch, c2.sequence, c2.manifest) == ("c2", Stage.PUBLISHED, 1, 2, manifest)
    assert (c2.participants, c2.base_checkpoint_id) == (c1.participants, "c1")
    assert c1.unix_millis <= c2.unix_millis <= c3.unix_millis
    assert (c2.episodes, c2.labels, c2.why_aborted) == (0, {}, "")
    assert str(manifest) in c2.why_unreadable
    assert (await fleet.client.abort_checkpoint("c2")) == c2
    for ask in (fleet.client.get_checkpoint("c2"), fleet.client.restore(RestoreArguments("one", "c2"))):
        with pytest.raises(DamagedBlob if lost == "damaged" else BlobNotFound, match="manifest of checkpoint 'c2'"):
            await ask

    assert await fleet.client.pin_checkpoint("c2", "me") == "c2"
    await fleet.client.pin_checkpoint("c2", "me", release=True)
    await fleet.client.delete_checkpoint("c2")
    assert await listed(fleet) == ["c3", "c1"]


async def test_a_manifest_that_is_lost_while_its_coordinator_lives_is_told_with_its_checkpoint(fleet: Fleet) -> None:
    """X08."""
    await hosting(fleet)
    manifest = (await fleet.checkpoint("c1")).manifest
    await fleet.checkpoint("c2")
    assert isinstance(fleet.store, MemoryStore)
    assert manifest is not None
    del fleet.store._blobs[manifest]
    await fleet.client.get_checkpoint("c2")  # of all manifests the coordinator remembers the one that it read last
    with pytest.raises(BlobNotFound, match="manifest of checkpoint 'c1'"):
        await fleet.client.get_checkpoint("c1")
