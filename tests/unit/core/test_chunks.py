"""Names and cuts of content."""

from __future__ import annotations

from itertools import pairwise

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from gymckpt.core import chunks
from gymckpt.core.chunks import BATCH_ENTRIES, DIGEST_BYTES, FRAME


def content(size: int) -> bytes:
    return bytes(range(251)) * (size // 251) + bytes(range(size % 251))


SIZES = [0, 1, FRAME - 1, FRAME, FRAME + 1, 2 * FRAME, 3 * FRAME + 5]


@pytest.mark.parametrize("size", SIZES)
def test_frames_cover_the_content_in_order_and_only_the_last_is_short(size: int) -> None:
    data = content(size)
    cut = list(chunks.frames(data))
    assert b"".join(bytes(frame) for _, frame in cut) == data
    assert len(cut) == chunks.frame_count(size)
    assert [len(frame) for _, frame in cut] == [chunks.frame_size(size, offset) for offset, _ in cut]
    assert all(len(frame) == FRAME for _, frame in cut[:-1])
    assert [offset for offset, _ in cut] == list(range(0, size, FRAME))


def test_frames_go_on_from_any_frame() -> None:
    data = content(3 * FRAME + 5)
    assert b"".join(bytes(frame) for _, frame in chunks.frames(data, 2 * FRAME)) == data[2 * FRAME :]
    assert list(chunks.frames(data, 4 * FRAME)) == []


@pytest.mark.parametrize("size", SIZES)
def test_a_chunk_list_verifies_every_frame_alone(size: int) -> None:
    """X08: a range needs no more than its own frames and the list."""
    data = content(size)
    listed = chunks.chunk_list(data)
    assert len(listed) == DIGEST_BYTES * chunks.frame_count(size)
    for offset, frame in chunks.frames(data):
        assert chunks.chunk_at(listed, offset) == blake3(frame).digest()
    assert chunks.chunk_at(listed, chunks.frame_count(size) * FRAME) == b""


def test_a_digest_is_the_hash_and_the_size() -> None:
    digest = chunks.digest_of(b"abc")
    assert (digest.blake3, digest.size) == (blake3(b"abc").digest(), 3)
    assert chunks.digest_of(memoryview(b"abc")) == digest


def test_a_blob_is_large_from_one_byte_over_a_frame() -> None:
    assert [chunks.is_large(chunks.digest_of(content(size))) for size in (FRAME, FRAME + 1)] == [False, True]


@given(st.lists(st.integers(0, 3 * FRAME) | st.integers(0, 2000), max_size=60))
def test_batches_hold_every_blob_once_and_fit(sizes: list[int]) -> None:
    cut = list(chunks.batches(sizes))
    assert [at for first, last in cut for at in range(first, last)] == list(range(len(sizes)))
    for first, last in cut:
        assert last - first == 1 or sum(sizes[first:last]) <= FRAME
    for (first, _), (start, last) in pairwise(cut):
        # No two neighbours would have fitted one batch.
        assert sum(sizes[first:start]) + sizes[start] > FRAME or last == start


def test_a_batch_has_at_most_10000_entries() -> None:
    assert list(chunks.batches([0] * 25_000)) == [
        (0, BATCH_ENTRIES),
        (BATCH_ENTRIES, 2 * BATCH_ENTRIES),
        (2 * BATCH_ENTRIES, 25_000),
    ]
