"""A large blob on its way into files. Everything here blocks: the store calls it in threads."""

from __future__ import annotations

import os
from concurrent.futures import Future, wait

from blake3 import blake3

from gymckpt.core.chunks import DIGEST_BYTES, FRAME, chunk_at, frame_count, hash_of
from gymckpt.core.ids import Digest
from gymckpt.errors import DamagedFrame
from gymckpt.store.local_blobs import LocalBlobs
from gymckpt.store.local_files import as_store_errors

FLUSH_EVERY = 32 * FRAME  # the disk writes what is here while more arrives


class LocalUpload:
    """The files of a large blob on its way in; used by one thread at a time.

    `offset` bytes are here and verified. When all were here already, the blob is moved into place at once.
    """

    def __init__(self, blobs: LocalBlobs, digest: Digest) -> None:
        self._blobs = blobs
        self._files = blobs.files
        self._digest = digest
        self._whole = blake3()
        self._flushes: list[Future[None]] = []
        layout = blobs.layout
        self._path, self._chunks_path = layout.partial(digest), layout.partial_chunks(digest)
        flags = os.O_RDWR | os.O_CREAT
        with as_store_errors(f"opening the upload of {digest}"):
            self._file = self._files.open(self._path, flags)
            self._chunks = self._files.open(self._chunks_path, flags)
            self.offset = self._verified_prefix()
        if self.offset == digest.size:
            self.finish()

    def _verified_prefix(self) -> int:
        """Bytes of whole frames that match their digests, on the disk; what follows them is cut off.

        All of it, when the frames together are another blob.
        """
        offset, chunks = 0, os.pread(self._chunks, frame_count(self._digest.size) * DIGEST_BYTES, 0)
        while offset < self._digest.size:
            frame = os.pread(self._file, min(FRAME, self._digest.size - offset), offset)
            if not frame or hash_of(frame) != chunk_at(chunks, offset):
                break
            self._whole.update(frame)
            offset += len(frame)
        if offset == self._digest.size and self._whole.digest() != self._digest.blake3:
            offset, self._whole = 0, blake3()
        os.ftruncate(self._file, offset)
        os.ftruncate(self._chunks, frame_count(offset) * DIGEST_BYTES)
        if offset:
            self._sync()
            self._files.sync_dir(self._blobs.layout.partials)
        os.lseek(self._file, 0, os.SEEK_END)
        os.lseek(self._chunks, 0, os.SEEK_END)
        return offset

    def append(self, content: bytes, chunk: bytes) -> None:
        """Adds a verified frame. After a failure the upload must be opened again: what is there of the frame is cut off then."""
        with as_store_errors(f"writing {self._digest} at {self.offset}"):
            self._files.write_all(self._file, content)
            self._files.write_all(self._chunks, chunk)
        self._whole.update(content)
        self.offset += len(content)
        if self.offset % FLUSH_EVERY == 0:
            self._flushes.append(self._blobs.in_background(self._files.sync, self._file))

    def finish(self) -> None:
        """Moves the whole blob into place. Raises DamagedFrame, having dropped all of it, when it is another blob."""
        if self._whole.digest() != self._digest.blake3:
            self.drop()
            raise DamagedFrame(
                f"the frames of {self._digest} make digest {self._whole.hexdigest()}; send the blob again",
                details={"digest": str(self._digest)},
            )
        with as_store_errors(f"finishing {self._digest}"):
            self._sync()
            self._move()

    def _sync(self) -> None:
        """Syncs content and digests. What a failed sync leaves in memory cannot be told from what is on the disk: it is dropped."""
        try:
            for flush in self._flushes:
                flush.result()
            self._files.sync(self._file)
            self._files.sync(self._chunks)
        except OSError:
            self.drop()
            raise

    def _move(self) -> None:
        layout, files = self._blobs.layout, self._files
        listed = layout.chunk_list(self._digest)
        files.replace(self._chunks_path, listed)
        files.sync_dir(listed.parent)
        with self._blobs.appearing([self._digest]):
            files.replace(self._path, layout.blob(self._digest))
            files.sync_dir(layout.shard(self._digest))

    def drop(self) -> None:
        self._files.remove(self._path)
        self._files.remove(self._chunks_path)

    def close(self) -> None:
        wait(self._flushes)
        os.close(self._file)
        os.close(self._chunks)
