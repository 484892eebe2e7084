"""What every back end shares: the rules about names, cutting writes, and scrub. A back end adds only where things lie."""

from __future__ import annotations

import abc
import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from gymckpt.core.chunks import FRAME, digest_of, frame_size, frames, hash_of, is_large
from gymckpt.core.ids import Digest
from gymckpt.core.names import check_deletable, check_epoch, check_name, check_value, epoch_of, publishes
from gymckpt.errors import DamagedFrame, InvalidField, MissingBlobs, StaleEpoch, WrongOffset
from gymckpt.rpc import codec
from gymckpt.store.closure import closure_of
from gymckpt.store.interface import ScrubProgress
from gymckpt.store.scrub import Scrubbed, scrub

T = TypeVar("T")
HASHED_INLINE = 256 * 1024  # bytes that are hashed faster than a thread is asked


class Upload(abc.ABC):
    """A large blob on its way in. `offset` bytes of it are here, verified; the next frame starts there.

    One that is whole from the start is in the store; one that became whole by its last frame must be finished.
    """

    def __init__(self, digest: Digest, offset: int) -> None:
        self.digest = digest
        self.offset = offset

    @property
    def whole(self) -> bool:
        return self.offset == self.digest.size

    async def append(self, offset: int, content: bytes, blake3: bytes) -> None:
        """Adds a frame. Raises WrongOffset, InvalidField, DamagedFrame, StoreFull; the frame is not kept then."""
        if offset != self.offset:
            raise WrongOffset(
                f"a frame of {self.digest} starts at {offset}, the next one starts at {self.offset}; go on there",
                offset=self.offset,
            )
        expected = frame_size(self.digest.size, offset)
        if len(content) != expected or expected == 0:
            raise InvalidField(
                f"frame.data at {offset} of {self.digest} must have {expected} bytes, got {len(content)}",
                field="frame.data",
            )
        if hash_of(content) != blake3:
            raise DamagedFrame(
                f"the frame at {offset} of {self.digest} does not match its digest; send it again",
                details={"digest": str(self.digest), "offset": str(offset)},
            )
        await self.add(content, blake3)

    async def add(self, content: bytes, blake3: bytes) -> None:
        """Adds the next frame, whose digest is known to be this. Raises StoreFull."""
        await self._keep(content, blake3)
        self.offset += len(content)

    @abc.abstractmethod
    async def _keep(self, content: bytes, blake3: bytes) -> None:
        """Adds verified content."""

    @abc.abstractmethod
    async def finish(self) -> None:
        """Makes the whole blob durable and visible. Raises DamagedFrame when it is not the announced one; nothing is kept then."""


class Backend(Scrubbed):
    """A store in this process."""

    def __init__(self) -> None:
        self._naming = asyncio.Lock()
        self._highest_epoch = 0
        self._finishing: set[asyncio.Task[Any]] = set()

    @abc.abstractmethod
    async def write_batch(self, blobs: Sequence[tuple[Digest, bytes]]) -> int:
        """Makes small blobs, whose digests were checked, durable; returns how many were new. Raises StoreFull."""

    @abc.abstractmethod
    def upload(self, digest: Digest) -> AbstractAsyncContextManager[Upload]:
        """Begins or continues a large blob, one writer at a time; what is durable stays when the writer leaves early."""

    @abc.abstractmethod
    async def _held(self, name: str) -> bytes | None:
        """What a name holds; None when there is no such name."""

    @abc.abstractmethod
    async def _create(self, name: str, value: bytes) -> tuple[bool, bytes]:
        """Creates the name durably unless it exists: whether it was created, and what it holds."""

    @abc.abstractmethod
    async def _remove(self, name: str) -> None:
        """Removes the name durably if it exists."""

    async def write(self, blobs: Sequence[bytes]) -> list[Digest]:
        if sum(map(len, blobs)) > HASHED_INLINE:
            digests = await asyncio.to_thread(lambda: [digest_of(blob) for blob in blobs])
        else:
            digests = [digest_of(blob) for blob in blobs]
        contents = dict(zip(digests, blobs, strict=True))
        small = [(digest, blob) for digest, blob in contents.items() if not is_large(digest)]
        if small:
            await self.write_batch(small)
        for digest, blob in contents.items():
            if is_large(digest):
                await self._write_large(digest, blob)
        return digests

    async def _write_large(self, digest: Digest, blob: bytes) -> None:
        async with self.upload(digest) as upload:
            if upload.whole:
                return
            for _, frame in frames(blob, upload.offset):
                content = bytes(frame)
                await upload.add(content, hash_of(content))
            await upload.finish()

    async def put_name(self, name: str, value: bytes, *, epoch: int = 0) -> bytes:
        return (await self.create_name(name, value, epoch=epoch))[1]

    async def create_name(self, name: str, value: bytes, *, epoch: int = 0) -> tuple[bool, bytes]:
        """As put_name, and whether this call created it."""
        check_name(name)
        check_value(value)
        check_epoch(epoch)
        self._refuse_stale(epoch)
        held = await self._held(name)
        if held is not None:
            return False, held
        if name.startswith("decisions/"):
            await self._check_decision(name, value)
        return await self._to_the_end(self._create_fenced(name, value, epoch))

    async def _create_fenced(self, name: str, value: bytes, epoch: int) -> tuple[bool, bytes]:
        async with self._naming:
            self._refuse_stale(epoch)
            created, held = await self._create(name, value)
            self._highest_epoch = max(self._highest_epoch, epoch_of(name))
            return created, held

    async def delete_name(self, name: str, *, epoch: int = 0) -> None:
        check_deletable(name)
        check_epoch(epoch)
        await self._to_the_end(self._remove_fenced(name, epoch))

    async def _remove_fenced(self, name: str, epoch: int) -> None:
        async with self._naming:
            self._refuse_stale(epoch)
            await self._remove(name)

    async def _to_the_end(self, step: Coroutine[Any, Any, T]) -> T:
        """Runs a change of names to its end although its caller stops waiting: no name may appear after the fence moved."""
        task = asyncio.ensure_future(step)
        self._finishing.add(task)
        task.add_done_callback(self._finishing.discard)
        return await asyncio.shield(task)

    def _refuse_stale(self, epoch: int) -> None:
        if 0 < epoch < self._highest_epoch:
            raise StaleEpoch(
                f"epoch {epoch} is over, epoch {self._highest_epoch} exists; stop and ask the newer coordinator",
                details={"epoch": str(epoch), "highest": str(self._highest_epoch)},
            )

    async def _check_decision(self, name: str, value: bytes) -> None:
        decision = codec.decode_decision(value, lambda why: InvalidField(f"value of {name}: {why}", field="value"))
        if decision.manifest is None or not publishes(name):
            return
        lacking = sorted((await closure_of(self, decision.manifest)).lacking)
        if lacking:
            raise MissingBlobs(
                f"{name} cannot be published, the store lacks {len(lacking)} blobs below manifest {decision.manifest}, "
                f"the first is {lacking[0]}; upload them, then retry",
                digests=[str(digest) for digest in lacking],
                details={"name": name, "count": str(len(lacking))},
            )

    def scrub(self) -> AsyncIterator[ScrubProgress]:
        return scrub(self)


def check_range(digest: Digest, offset: int, length: int) -> int:
    """Where the range ends. Raises InvalidField unless it lies in the blob and starts at a frame."""
    if offset % FRAME or not 0 <= offset <= digest.size:
        raise InvalidField(f"offset must be a multiple of {FRAME} up to {digest.size}, got {offset}", field="offset")
    end = offset + length if length else digest.size
    if length < 0 or end > digest.size:
        raise InvalidField(f"length must be 0 to {digest.size - offset} from {offset}, got {length}", field="length")
    return end
