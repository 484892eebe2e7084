"""Blobs: what every implementation of the store must hold."""

from __future__ import annotations

import asyncio
import json
import random

import pytest

from gymckpt.core.chunks import FRAME, digest_of
from gymckpt.core.ids import Digest
from gymckpt.errors import BlobNotFound, DamagedBlob, InvalidField
from gymckpt.store import ArtifactStore
from tests.contract.store.conftest import Subject


def content(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


SIZES = (0, 1, 31, FRAME - 1, FRAME, FRAME + 1, 2 * FRAME, 3 * FRAME + 17)


async def frames_of(store: ArtifactStore, digest: Digest, offset: int = 0, length: int = 0) -> list[bytes]:
    return [frame async for frame in store.read_range(digest, offset, length)]


async def test_what_is_written_is_read_back_at_every_size(store: ArtifactStore) -> None:
    blobs = [content(size, size) for size in SIZES]
    digests = await store.write(blobs)
    assert digests == [digest_of(blob) for blob in blobs]
    assert await store.read(digests) == blobs
    assert await store.read(digests[::-1]) == blobs[::-1]
    assert await store.find_missing(digests) == []


async def test_bytes_are_opaque(store: ArtifactStore) -> None:
    """C44: no content is looked into, whatever it would mean elsewhere."""
    blobs = [
        json.dumps({"n": 2**70}).encode(),
        b"\x00" * 100,
        b"NaN",
        bytes(range(256)),
        b"\xff\xfe\n\r\n",
        b"../../etc",
    ]
    assert await store.read(await store.write(blobs)) == blobs


async def test_missing_blobs_are_named_in_order_and_once(store: ArtifactStore) -> None:
    here, gone, also_gone = (digest_of(blob) for blob in (b"here", b"gone", b"also gone"))
    await store.write([b"here"])
    assert await store.find_missing([also_gone, here, gone, also_gone]) == [also_gone, gone]


async def test_equal_blobs_are_stored_once(store: ArtifactStore) -> None:
    """X11."""
    large = content(2 * FRAME + 1)
    for _ in range(2):
        await store.write([b"equal", b"equal", large, large])
    info = await store.info()
    assert (info.blobs, info.bytes) == (2, 5 + len(large))


async def test_a_size_that_is_not_the_blobs_is_another_blob(store: ArtifactStore) -> None:
    (digest,) = await store.write([b"12345"])
    other = Digest(digest.blake3, 4)
    assert await store.find_missing([other]) == [other]
    with pytest.raises(BlobNotFound):
        await store.read([other])


async def test_thousands_of_small_blobs_go_in_one_call(store: ArtifactStore) -> None:
    blobs = [f"blob {number}".encode() * 20 for number in range(3000)]
    digests = await store.write(blobs)
    assert await store.read(digests) == blobs


async def test_writers_of_the_same_content_at_once_all_succeed(store: ArtifactStore) -> None:
    """C40: the loser of a race leaves nothing and replaces nothing."""
    blobs = [b"small", content(3 * FRAME, 5)]
    digests = await asyncio.gather(*(store.write(blobs) for _ in range(6)))
    assert {tuple(some) for some in digests} == {tuple(digest_of(blob) for blob in blobs)}
    assert await store.read(digests[0]) == blobs
    assert (await store.info()).blobs == 2


async def test_a_blob_that_was_never_written_is_not_found_by_name(store: ArtifactStore) -> None:
    gone = digest_of(b"never written")
    for reading in (store.read([gone]), frames_of(store, gone), frames_of(store, digest_of(content(FRAME + 1)))):
        with pytest.raises(BlobNotFound, match="there is no blob"):
            await reading


@pytest.mark.parametrize(
    ("offset", "length", "expected"),
    [
        (0, 0, slice(None)),
        (FRAME, 0, slice(FRAME, None)),
        (FRAME, FRAME, slice(FRAME, 2 * FRAME)),
        (2 * FRAME, 5, slice(2 * FRAME, 2 * FRAME + 5)),
        (0, FRAME + 9, slice(0, FRAME + 9)),
        (3 * FRAME, 17, slice(3 * FRAME, None)),
    ],
)
async def test_any_range_is_read_alone(store: ArtifactStore, offset: int, length: int, expected: slice) -> None:
    blob = content(3 * FRAME + 17, 9)
    (digest,) = await store.write([blob])
    assert b"".join(await frames_of(store, digest, offset, length)) == blob[expected]


@pytest.mark.parametrize(
    ("offset", "length", "field"),
    [(1, 0, "offset"), (-FRAME, 0, "offset"), (4 * FRAME, 0, "offset"), (0, 4 * FRAME, "length"), (0, -1, "length")],
)
async def test_a_range_outside_the_blob_is_refused_by_field(
    store: ArtifactStore, offset: int, length: int, field: str
) -> None:
    """X20."""
    (digest,) = await store.write([content(3 * FRAME, 1)])
    with pytest.raises(InvalidField) as refused:
        await frames_of(store, digest, offset, length)
    assert refused.value.field == field


@pytest.mark.parametrize("size", [100, FRAME, 2 * FRAME + 100])
async def test_a_damaged_blob_is_never_served_and_can_be_written_anew(subject: Subject, size: int) -> None:
    """X08, C10."""
    store, blob = subject.store, content(size, 3)
    digest, sound = await store.write([blob, b"sound"])
    subject.damage(digest)
    for _ in range(2):
        with pytest.raises(DamagedBlob, match=digest.blake3.hex()):
            await store.read([sound, digest])
    assert await store.find_missing([digest, sound]) == [digest]
    assert await store.read([sound]) == [b"sound"]
    await store.write([blob])
    assert await store.read([digest]) == [blob]


async def test_the_sound_frames_before_a_damaged_one_are_served(subject: Subject) -> None:
    """X08: the damaged frame itself never is."""
    blob = content(5 * FRAME, 4)
    (digest,) = await subject.store.write([blob])
    subject.damage(digest)  # in the middle: the third frame
    served = bytearray()

    async def collect() -> None:
        async for frame in subject.store.read_range(digest):
            served.extend(frame)

    with pytest.raises(DamagedBlob):
        await collect()
    assert bytes(served) == blob[: len(served)]
    assert len(served) <= 2 * FRAME


async def test_a_cancelled_write_leaves_a_store_that_takes_it_again(store: ArtifactStore) -> None:
    """C24."""
    blobs = [content(4 * FRAME, 6), *(f"{number}".encode() for number in range(500))]
    writing = asyncio.ensure_future(store.write(blobs))
    await asyncio.sleep(0)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert await store.read(await store.write(blobs)) == blobs
    assert (await store.info()).blobs == len(blobs)
