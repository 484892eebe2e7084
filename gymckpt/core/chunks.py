"""How content is named and cut: digests, frames and chunk lists of large blobs, batches of small ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from blake3 import blake3

from gymckpt.core.ids import Digest

FRAME = 2**20  # bytes of a frame, of the data of a batch, and the size above which a blob is large
BATCH_ENTRIES = 10_000
DIGEST_BYTES = 32

Content = bytes | bytearray | memoryview


def hash_of(content: Content) -> bytes:
    """BLAKE3 of the content, 32 bytes."""
    return blake3(content).digest()


def digest_of(content: Content) -> Digest:
    """The name of the content as a blob. Raises InvalidField above 64 GiB."""
    return Digest(blake3(content).digest(), len(content))


def is_large(digest: Digest) -> bool:
    """Whether the blob travels as frames and has a chunk list."""
    return digest.size > FRAME


def frames(content: Content, offset: int = 0) -> Iterator[tuple[int, memoryview]]:
    """Offset and content of each frame from `offset`, a multiple of a frame, to the end."""
    view = memoryview(content)
    for start in range(offset, len(view), FRAME):
        yield start, view[start : start + FRAME]


def frame_count(size: int) -> int:
    """How many frames `size` bytes have."""
    return -(-size // FRAME)


def frame_size(size: int, offset: int) -> int:
    """Bytes of the frame at `offset` of a blob of `size` bytes."""
    return min(FRAME, size - offset)


def chunk_list(content: Content) -> bytes:
    """The joined digests of the frames: with it any range of the content is verified alone."""
    return b"".join(hash_of(frame) for _, frame in frames(content))


def chunk_at(chunks: bytes, offset: int) -> bytes:
    """The digest of the frame at `offset`; empty when the list does not reach so far."""
    at = offset // FRAME * DIGEST_BYTES
    return chunks[at : at + DIGEST_BYTES]


def batches(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Cuts a list of blobs into runs [first, last) that each fit a batch; a blob larger than a frame is a run of its own."""
    first, total = 0, 0
    for at, size in enumerate(sizes):
        if at > first and (total + size > FRAME or at - first == BATCH_ENTRIES):
            yield first, at
            first, total = at, 0
        total += size
    if first < len(sizes):
        yield first, len(sizes)
