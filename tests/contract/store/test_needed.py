"""Everything that a restore will read is read before, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Collection

import pytest

from gymckpt.core.chunks import FRAME
from gymckpt.core.ids import Digest, Episode
from gymckpt.errors import BlobNotFound, DamagedBlob, GymckptError
from gymckpt.store import ArtifactStore
from gymckpt.store.needed import BYTES_AT_ONCE, check_needed
from tests.contract.store.checkpoints import INFO, ROLLOUTS, Checkpoint, checkpoint
from tests.contract.store.conftest import Subject

LARGE = os.urandom(2 * FRAME + 3)
EVERYONE = [Episode(rollout) for rollout in ROLLOUTS]


async def check(store: ArtifactStore, made: Checkpoint, episodes: Collection[Episode] = tuple(EVERYONE)) -> None:
    await check_needed(store, made.digest("manifest"), episodes)


async def test_the_schemas_are_told_in_which_each_participant_would_find_its_state(store: ArtifactStore) -> None:
    """C22."""
    made = checkpoint()
    await store.write(list(made.blobs.values()))
    found = await check_needed(store, made.digest("manifest"), [Episode("r1"), Episode("r3"), Episode("stateless")])
    assert found == {INFO.id: {"counter/1": {"r1", "r3"}}}


async def refusal(store: ArtifactStore, made: Checkpoint) -> GymckptError:
    with pytest.raises(GymckptError) as refused:
        await check(store, made)
    return refused.value


@pytest.mark.parametrize(
    ("what", "rollouts"),
    [
        ("part r2", "r2"),
        ("session r3", "r3"),
        ("large", "r1"),
        ("shared", "r1,r2,r3"),
        ("participant", "r1,r2,r3"),
        ("manifest", "r1,r2,r3"),
    ],
)
async def test_a_blob_that_is_damaged_or_missing_is_told_with_the_rollouts_that_need_it(
    subject: Subject, what: str, rollouts: str
) -> None:
    """X08."""
    made = checkpoint(large=LARGE)
    await subject.store.write([blob for name, blob in made.blobs.items() if name != what])
    for kind in (BlobNotFound, DamagedBlob):
        error = await refusal(subject.store, made)
        assert (type(error), error.details) == (kind, {"digest": str(made.digest(what)), "rollouts": rollouts})
        await subject.store.write([made.blobs[what]])
        await check(subject.store, made)
        subject.damage(made.digest(what))


async def test_other_episodes_need_not_be_whole(subject: Subject) -> None:
    """C21, C22."""
    made = checkpoint(large=LARGE)
    await subject.store.write([blob for name, blob in made.blobs.items() if name not in ("part r2", "session r3")])
    await check(subject.store, made, [Episode("r1"), Episode("stateless")])


async def test_what_is_whole_and_no_session_is_told_as_damaged(store: ArtifactStore) -> None:
    """C39."""
    made = checkpoint()
    noise = b"\xff" * len(made.blobs["session r2"])
    (digest,) = await store.write([noise])
    made.blobs["participant"] = made.blobs["participant"].replace(made.digest("session r2").blake3, digest.blake3)
    old = checkpoint().digest("participant").blake3
    made.blobs["manifest"] = made.blobs["manifest"].replace(old, made.digest("participant").blake3)
    await store.write(list(made.blobs.values()))
    error = await refusal(store, made)
    assert (type(error), error.details) == (DamagedBlob, {"digest": str(digest), "rollouts": "r2"})


async def test_little_of_it_is_in_memory_at_a_time(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    """X08: states of any number and size are read in bounded memory."""
    made, read = checkpoint(large=bytes(2 * BYTES_AT_ONCE)), []
    await subject.store.write(list(made.blobs.values()))
    kept = subject.store.read

    async def counted(digests: list[Digest]) -> list[bytes]:
        read.append(sum(digest.size for digest in digests))
        return await kept(digests)

    monkeypatch.setattr(subject.store, "read", counted)
    await check(subject.store, made)
    assert max(read) <= BYTES_AT_ONCE
