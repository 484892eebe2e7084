"""Blobs in files. Everything here blocks: the store calls it in threads."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from blake3 import blake3

from gymckpt.core.chunks import DIGEST_BYTES, FRAME, chunk_at, frame_count, hash_of, is_large
from gymckpt.core.ids import Digest
from gymckpt.errors import BlobNotFound, DamagedBlob
from gymckpt.store.local_files import Files, as_store_errors
from gymckpt.store.local_layout import SHARDS, Layout, digest_of_file

SYNC_THREADS = 16  # the disk puts the syncs of so many files into few writes of its journal

T = TypeVar("T")
R = TypeVar("R")


class LocalBlobs:
    """The blobs of one directory."""

    def __init__(self, layout: Layout, files: Files) -> None:
        self.layout = layout
        self.files = files
        self._syncing = ThreadPoolExecutor(SYNC_THREADS, thread_name_prefix="gymckpt-store-sync")
        self._serial = itertools.count()
        # Moved into place, their directory not synced yet: still missing to everyone else.
        self._unsynced: set[Digest] = set()

    def close(self) -> None:
        self._syncing.shutdown()

    def has(self, digest: Digest) -> bool:
        """Whether the blob is here and durable."""
        return digest not in self._unsynced and self.files.size(self.layout.blob(digest)) == digest.size

    def find_missing(self, digests: Iterable[Digest]) -> list[Digest]:
        with as_store_errors("looking for blobs"):
            return [digest for digest in dict.fromkeys(digests) if not self.has(digest)]

    def write_small(self, blobs: Sequence[tuple[Digest, bytes]]) -> int:
        """Makes all of them durable; how many were new. Files are synced side by side, then each directory once."""
        with as_store_errors(f"writing {len(blobs)} blobs"):
            new = [(digest, blob) for digest, blob in dict(blobs).items() if not self.has(digest)]
            written = [(self.temporary(), digest, blob) for digest, blob in new]
            try:
                self._each(lambda item: self.files.write_synced(item[0], item[2]), written)
                with self.appearing([digest for digest, _ in new]):
                    for path, digest, _ in written:
                        self.files.replace(path, self.layout.blob(digest))
                    self._each(self.files.sync_dir, list({self.layout.shard(digest) for digest, _ in new}))
            finally:
                for path, _, _ in written:
                    self.files.remove(path)
            return len(new)

    @contextmanager
    def appearing(self, digests: Sequence[Digest]) -> Iterator[None]:
        """Around moving blobs into place and syncing: they count as missing before, and after a failure."""
        self._unsynced.update(digests)
        yield
        self._unsynced.difference_update(digests)

    def temporary(self) -> Path:
        """A path that no other write of this process uses."""
        return self.layout.temporary / f"{next(self._serial)}"

    def _each(self, do: Callable[[T], R], items: Sequence[T]) -> None:
        """Does it for all of them side by side; raises the first failure after all have ended."""
        if len(items) == 1:
            do(items[0])
            return
        waiting = [self._syncing.submit(do, item) for item in items]
        failures = [failure for future in waiting if (failure := future.exception()) is not None]
        if failures:
            raise failures[0]

    def in_background(self, do: Callable[[int], None], file: int) -> Future[None]:
        """Syncs a file that is still being written."""
        return self._syncing.submit(do, file)

    def read(self, digests: Iterable[Digest]) -> list[bytes]:
        """Whole verified blobs. Raises BlobNotFound, DamagedBlob; a damaged one is quarantined."""
        return [self._read_one(digest) for digest in digests]

    def _read_one(self, digest: Digest) -> bytes:
        with as_store_errors(f"reading blob {digest}"):
            try:
                content = self.files.read(self.layout.blob(digest))
            except FileNotFoundError:
                raise self._absent(digest) from None
            if len(content) != digest.size or hash_of(content) != digest.blake3:
                raise self.quarantine(digest, f"{len(content)} bytes with digest {hash_of(content).hex()}")
            return content

    def _absent(self, digest: Digest) -> BlobNotFound | DamagedBlob:
        details = {"digest": str(digest)}
        if self.files.size(self.layout.quarantined(digest)) >= 0:
            return DamagedBlob(
                f"blob {digest} was found damaged and is quarantined",
                details=details,
            )
        return BlobNotFound(f"there is no blob {digest}", details=details)

    def quarantine(self, digest: Digest, found: str) -> DamagedBlob:
        """Takes a damaged blob out of the store, so that it is never served and can be written anew."""
        self.files.replace(self.layout.blob(digest), self.layout.quarantined(digest))
        self.files.sync_dir(self.layout.shard(digest))
        self.files.sync_dir(self.layout.quarantine)
        return DamagedBlob(
            f"blob {digest} is damaged at rest ({found}), now quarantined",
            details={"digest": str(digest)},
        )

    def open_large(self, digest: Digest) -> tuple[int, bytes]:
        """A descriptor and the chunk list of a large blob. Raises BlobNotFound, DamagedBlob."""
        with as_store_errors(f"opening blob {digest}"):
            try:
                file = self.files.open(self.layout.blob(digest), os.O_RDONLY)
            except FileNotFoundError:
                raise self._absent(digest) from None
            path = self.layout.chunk_list(digest)
            chunks = self.files.read(path) if self.files.size(path) >= 0 else b""
            try:
                if len(chunks) != frame_count(digest.size) * DIGEST_BYTES:
                    chunks = self._listed(digest, file)
            except (OSError, DamagedBlob):
                os.close(file)
                raise
            return file, chunks

    def _listed(self, digest: Digest, file: int) -> bytes:
        """The chunk list made anew from content that was verified whole. Raises DamagedBlob."""
        chunks, whole = bytearray(), blake3()
        for offset in range(0, digest.size, FRAME):
            frame = os.pread(file, FRAME, offset)
            whole.update(frame)
            chunks += hash_of(frame)
        if whole.digest() != digest.blake3 or os.fstat(file).st_size != digest.size:
            raise self.quarantine(digest, f"digest {whole.hexdigest()}")
        return bytes(chunks)

    def read_frame(self, digest: Digest, file: int, chunks: bytes, offset: int) -> bytes:
        """One verified frame. Raises DamagedBlob."""
        with as_store_errors(f"reading blob {digest}"):
            frame = os.pread(file, FRAME, offset)
            # It may be the chunk list that is damaged: only the whole blob tells.
            if hash_of(frame) != chunk_at(chunks, offset) and hash_of(frame) != chunk_at(
                self._listed(digest, file), offset
            ):
                raise self.quarantine(digest, f"the frame at {offset} changes while it is read")
            return frame

    def check(self, digest: Digest) -> str:
        """How the blob is damaged, "" when it is not; reads a large one frame by frame."""
        try:
            if is_large(digest):
                self._check_large(digest)
            else:
                self._read_one(digest)
        except (DamagedBlob, BlobNotFound) as damaged:
            return damaged.message
        return ""

    def _check_large(self, digest: Digest) -> None:
        with as_store_errors(f"reading blob {digest}"):
            with self.files.opened(self.layout.blob(digest), os.O_RDONLY) as file:
                whole, size = blake3(), os.fstat(file).st_size
                for offset in range(0, size, FRAME):
                    whole.update(os.pread(file, FRAME, offset))
            if size != digest.size or whole.digest() != digest.blake3:
                raise self.quarantine(digest, f"{size} bytes with digest {whole.hexdigest()}")

    def by_shard(self) -> Iterator[list[Digest]]:
        """Every blob, a directory at a time."""
        for shard in SHARDS:
            with as_store_errors("listing blobs"):
                found = [digest_of_file(Path(name)) for name in sorted(os.listdir(self.layout.blobs / shard))]
            yield [digest for digest in found if digest is not None]
