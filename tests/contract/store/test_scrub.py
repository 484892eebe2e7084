"""Scrub finds every damage, quarantines it, and names who is hit."""

from __future__ import annotations

import os

import pytest

from gymckpt.core.chunks import FRAME
from gymckpt.core.ids import Digest
from gymckpt.core.manifest import Decision
from gymckpt.errors import DamagedBlob
from gymckpt.rpc import codec
from gymckpt.store import ArtifactStore, Damage, closure_of
from tests.contract.store.checkpoints import ROLLOUTS, checkpoint
from tests.contract.store.conftest import Subject

LARGE = os.urandom(2 * FRAME + 3)


async def scrubbed(store: ArtifactStore) -> dict[Digest, Damage]:
    progress = [step async for step in store.scrub()]
    assert [step.done for step in progress] == [False] * (len(progress) - 1) + [True]
    blobs = [step.blobs_checked for step in progress]
    assert blobs == sorted(blobs)
    return {damage.digest: damage for step in progress for damage in step.damage}


async def publish(store: ArtifactStore, checkpoint_id: str) -> None:
    made = checkpoint(checkpoint_id, LARGE)
    await store.write(list(made.blobs.values()))
    await store.put_name(f"decisions/{checkpoint_id}", made.decision)


async def test_a_sound_store_has_no_damage_and_every_blob_was_checked(store: ArtifactStore) -> None:
    await publish(store, "c1")
    assert await scrubbed(store) == {}
    info = await store.info()
    last = [step async for step in store.scrub()][-1]
    assert (last.blobs_checked, last.bytes_checked) == (info.blobs, info.bytes)


@pytest.mark.parametrize(
    ("what", "checkpoints", "rollouts"),
    [
        ("part r2", ("c2",), ("r2",)),
        ("session r3", ("c2",), ("r3",)),
        ("large", ("c1", "c2"), ("r1",)),
        ("shared", ("c1", "c2"), ROLLOUTS),
        ("participant", ("c2",), ROLLOUTS),
        ("manifest", ("c2",), ()),
    ],
)
async def test_a_damaged_blob_is_quarantined_and_the_checkpoints_and_rollouts_hit_are_named(
    subject: Subject, what: str, checkpoints: tuple[str, ...], rollouts: tuple[str, ...]
) -> None:
    """X08."""
    for checkpoint_id in ("c1", "c2"):
        await publish(subject.store, checkpoint_id)
    digest = checkpoint("c2", LARGE).digest(what)
    subject.damage(digest)
    found = await scrubbed(subject.store)
    assert list(found) == [digest]
    assert found[digest].why.startswith("damaged")
    assert (found[digest].checkpoint_ids, found[digest].rollout_ids) == (checkpoints, rollouts)
    with pytest.raises(DamagedBlob, match="quarantined"):
        await subject.store.read([digest])
    again = await scrubbed(subject.store)
    assert again[digest].why == "missing"
    assert again[digest].checkpoint_ids == checkpoints


async def test_damage_that_no_checkpoint_needs_is_told_too(subject: Subject) -> None:
    await publish(subject.store, "c1")
    (digest,) = await subject.store.write([b"needed by nobody"])
    subject.damage(digest)
    found = await scrubbed(subject.store)
    assert [(damage.digest, damage.checkpoint_ids) for damage in found.values()] == [(digest, ())]


async def test_aborted_and_deleted_checkpoints_need_nothing(subject: Subject) -> None:
    store = subject.store
    await publish(store, "c1")
    await store.put_name("decisions/c2", codec.encode_decision(Decision(None, "by a test")))
    await store.put_name("deleted/c1", b"")
    subject.damage(checkpoint("c1", LARGE).digest("part r1"))
    (damage,) = (await scrubbed(store)).values()
    assert damage.checkpoint_ids == ()


async def test_a_closure_knows_every_blob_and_who_needs_it(store: ArtifactStore) -> None:
    made = checkpoint("c1", LARGE)
    await store.write(list(made.blobs.values()))
    closure = await closure_of(store, made.digest("manifest"))
    assert closure.checkpoint_id == "c1"
    assert closure.lacking == {}
    assert set(closure.needs) == {made.digest(what) for what in made.blobs}
    assert closure.needs[made.digest("shared")] == set(ROLLOUTS)
    assert closure.needs[made.digest("chunks")] == {"r1"}
    assert closure.needs[made.digest("part r2")] == {"r2"}
