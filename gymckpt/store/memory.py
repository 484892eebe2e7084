"""The store in memory: the reference that the others are held against, and the store of tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from weakref import WeakValueDictionary

from gymckpt.core.chunks import digest_of, frames
from gymckpt.core.ids import Digest
from gymckpt.core.names import check_name, check_prefix, is_below
from gymckpt.errors import BlobNotFound, DamagedBlob, DamagedFrame, NameNotFound
from gymckpt.store.backend import Backend, Upload, check_range
from gymckpt.store.interface import NameEntry, StoreInfo


class MemoryStore(Backend):
    """Lost with its process. Content is verified when it is read, like everywhere."""

    def __init__(self) -> None:
        super().__init__()
        self._blobs: dict[Digest, bytes] = {}
        self._quarantined: dict[Digest, bytes] = {}
        self._partial: dict[Digest, list[bytes]] = {}
        self._names: dict[str, bytes] = {}
        self._writing: WeakValueDictionary[Digest, asyncio.Lock] = WeakValueDictionary()

    async def find_missing(self, digests: Sequence[Digest]) -> list[Digest]:
        return [digest for digest in dict.fromkeys(digests) if digest not in self._blobs]

    async def write_batch(self, blobs: Sequence[tuple[Digest, bytes]]) -> int:
        new = {digest: blob for digest, blob in blobs if digest not in self._blobs}
        self._blobs.update(new)
        return len(new)

    @asynccontextmanager
    async def upload(self, digest: Digest) -> AsyncIterator[Upload]:
        async with self._writing.setdefault(digest, asyncio.Lock()):
            if digest in self._blobs:
                yield _MemoryUpload(self, digest, digest.size)
                return
            here = sum(map(len, self._partial.setdefault(digest, [])))
            if here == digest.size:  # the writer left before it was told: whole frames are checked when they come again
                here, self._partial[digest] = 0, []
            yield _MemoryUpload(self, digest, here)

    def add_frame(self, digest: Digest, content: bytes) -> None:
        self._partial[digest].append(content)

    def finish_upload(self, digest: Digest) -> None:
        """Raises DamagedFrame when the frames together are another blob."""
        content = b"".join(self._partial.pop(digest))
        if digest_of(content) != digest:
            raise DamagedFrame(
                f"the frames of {digest} make {digest_of(content)}; send the blob again",
                details={"digest": str(digest)},
            )
        self._blobs[digest] = content

    async def read(self, digests: Sequence[Digest]) -> list[bytes]:
        return [self._verified(digest) for digest in digests]

    async def read_range(self, digest: Digest, offset: int = 0, length: int = 0) -> AsyncIterator[bytes]:
        end = check_range(digest, offset, length)
        for _, frame in frames(self._verified(digest)[:end], offset):
            yield bytes(frame)

    def _verified(self, digest: Digest) -> bytes:
        if digest in self._blobs and digest_of(self._blobs[digest]) != digest:
            self._quarantined[digest] = self._blobs.pop(digest)
        details = {"digest": str(digest)}
        if digest in self._blobs:
            return self._blobs[digest]
        if digest in self._quarantined:
            raise DamagedBlob(
                f"blob {digest} is damaged at rest and quarantined; run `gymckpt store verify`", details=details
            )
        raise BlobNotFound(f"there is no blob {digest}", details=details)

    async def list_blobs(self) -> AsyncIterator[list[Digest]]:
        waiting = iter(sorted(self._blobs))
        while some := list(islice(waiting, 1000)):
            yield some

    async def check_blob(self, digest: Digest) -> str:
        try:
            self._verified(digest)
        except DamagedBlob as damaged:
            return damaged.message
        except BlobNotFound as gone:
            return gone.message
        return ""

    async def _held(self, name: str) -> bytes | None:
        return self._names.get(name)

    async def _create(self, name: str, value: bytes) -> tuple[bool, bytes]:
        created = name not in self._names
        return created, self._names.setdefault(name, value)

    async def _remove(self, name: str) -> None:
        self._names.pop(name, None)

    async def get_name(self, name: str) -> bytes:
        if check_name(name) not in self._names:
            raise NameNotFound(f"there is no name {name!r}", details={"name": name})
        return self._names[name]

    async def list_names(self, prefix: str, *, after: str = "", limit: int = 0) -> list[NameEntry]:
        check_prefix(prefix)
        names = sorted(name for name in self._names if is_below(name, prefix) and name > after)
        return [NameEntry(name, self._names[name]) for name in (names[:limit] if limit else names)]

    async def info(self) -> StoreInfo:
        return StoreInfo("memory", len(self._blobs), sum(digest.size for digest in self._blobs))


class _MemoryUpload(Upload):
    def __init__(self, store: MemoryStore, digest: Digest, offset: int) -> None:
        super().__init__(digest, offset)
        self._store = store

    async def _keep(self, content: bytes, blake3: bytes) -> None:
        self._store.add_frame(self.digest, content)

    async def finish(self) -> None:
        self._store.finish_upload(self.digest)
