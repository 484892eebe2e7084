"""The store in a local directory, the default: blobs and names as files, all of it durable when a call returns."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, TypeVar
from weakref import WeakValueDictionary

from gymckpt.core.chunks import FRAME, is_large
from gymckpt.core.ids import Digest
from gymckpt.core.names import check_name, check_prefix, epoch_of
from gymckpt.errors import InvalidPhase, NameNotFound, StoreError
from gymckpt.store.backend import Backend, Upload, check_range
from gymckpt.store.interface import NameEntry, StoreInfo
from gymckpt.store.local_blobs import LocalBlobs
from gymckpt.store.local_files import DirectoryLock, Files, as_store_errors, files_below
from gymckpt.store.local_layout import Layout
from gymckpt.store.local_names import LocalNames
from gymckpt.store.local_upload import LocalUpload

WORK_THREADS = 8
READ_AT_ONCE = 64  # blobs that one thread reads before others get their turn

P = ParamSpec("P")
R = TypeVar("R")


class LocalStore(Backend):
    """Made by `open`; one process at a time. `async with` closes it."""

    def __init__(self, layout: Layout, files: Files, lock: DirectoryLock) -> None:
        super().__init__()
        self._lock = lock
        self._blobs = LocalBlobs(layout, files)
        self._names = LocalNames(layout, files)
        self._highest_epoch = max(map(epoch_of, self._names.all), default=0)
        self._threads = ThreadPoolExecutor(WORK_THREADS, thread_name_prefix="gymckpt-store")
        self._writing: WeakValueDictionary[Digest, asyncio.Lock] = WeakValueDictionary()

    @classmethod
    async def open(cls, directory: str | os.PathLike[str], files: Files | None = None) -> LocalStore:
        """Opens the store in `directory`, made when it is missing. Raises StoreFull, StoreUnavailable.

        The directory may be used by one store at a time: another process that has it open is named.
        """
        layout, used = Layout(Path(directory)), files or Files()
        lock = await asyncio.to_thread(_prepare, layout, used)
        try:
            with as_store_errors(f"opening the store at {layout.root}"):
                return await asyncio.to_thread(cls, layout, used, lock)
        except StoreError:
            lock.drop()
            raise

    async def close(self) -> None:
        """Waits for writes under way, then lets another process open the directory."""
        await asyncio.to_thread(self._threads.shutdown)
        await asyncio.to_thread(self._blobs.close)
        self._lock.release()

    async def __aenter__(self) -> LocalStore:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def run(self, do: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Does blocking work in a thread; when the caller stops waiting, the work goes on to its end."""
        return await asyncio.wrap_future(self._threads.submit(do, *args, **kwargs))

    async def find_missing(self, digests: Sequence[Digest]) -> list[Digest]:
        return await self.run(self._blobs.find_missing, list(digests))

    async def write_batch(self, blobs: Sequence[tuple[Digest, bytes]]) -> int:
        return await self.run(self._blobs.write_small, list(blobs))

    @asynccontextmanager
    async def upload(self, digest: Digest) -> AsyncIterator[Upload]:
        turn = self._writing.setdefault(digest, asyncio.Lock())
        await turn.acquire()
        upload = _LocalUploadInThreads(self._threads, digest)
        try:
            if await self.run(self._blobs.has, digest):
                upload.offset = digest.size
            else:
                await upload.begin(self._blobs)
            yield upload
        finally:
            loop = asyncio.get_running_loop()
            upload.end(lambda: loop.call_soon_threadsafe(turn.release))

    async def read(self, digests: Sequence[Digest]) -> list[bytes]:
        slices = [digests[at : at + READ_AT_ONCE] for at in range(0, len(digests), READ_AT_ONCE)]
        found = await asyncio.gather(*(self.run(self._blobs.read, some) for some in slices))
        return [blob for some in found for blob in some]

    async def read_range(self, digest: Digest, offset: int = 0, length: int = 0) -> AsyncIterator[bytes]:
        end = check_range(digest, offset, length)
        if not is_large(digest):
            (content,) = await self.read([digest])
            if offset < end:
                yield content[offset:end]
            return
        file, chunks = await self.run(self._blobs.open_large, digest)
        try:
            for start in range(offset, end, FRAME):
                frame = await self.run(self._blobs.read_frame, digest, file, chunks, start)
                yield frame[: end - start]
        finally:
            os.close(file)

    async def list_blobs(self) -> AsyncIterator[list[Digest]]:
        listing = self._blobs.by_shard()
        while (some := await self.run(next, listing, None)) is not None:
            yield some

    async def check_blob(self, digest: Digest) -> str:
        return await self.run(self._blobs.check, digest)

    async def _held(self, name: str) -> bytes | None:
        return await self.run(self._names.read, name)

    async def _create(self, name: str, value: bytes) -> tuple[bool, bytes]:
        if await self.run(self._names.create, name, value, self._blobs.temporary()):
            return True, value
        return False, await self.get_name(name)

    async def _remove(self, name: str) -> None:
        await self.run(self._names.remove, name)

    async def get_name(self, name: str) -> bytes:
        value = await self._held(check_name(name))
        if value is None:
            raise NameNotFound(f"there is no name {name!r}", details={"name": name})
        return value

    async def list_names(self, prefix: str, *, after: str = "", limit: int = 0) -> list[NameEntry]:
        check_prefix(prefix)
        return [NameEntry(name, value) for name, value in await self.run(self._names.below, prefix, after, limit)]

    async def info(self) -> StoreInfo:
        sizes = [digest.size async for some in self.list_blobs() for digest in some]
        return StoreInfo("directory", len(sizes), sum(sizes))


class _LocalUploadInThreads(Upload):
    """Each step runs in a thread; a caller that leaves early ends the upload when the step under way has ended."""

    def __init__(self, threads: ThreadPoolExecutor, digest: Digest) -> None:
        super().__init__(digest, 0)
        self._threads = threads
        self._begun: Future[LocalUpload] | None = None
        self._last: Future[Any] | None = None

    async def begin(self, blobs: LocalBlobs) -> None:
        self._begun = self._last = self._threads.submit(LocalUpload, blobs, self.digest)
        self.offset = (await asyncio.wrap_future(self._begun)).offset

    async def _keep(self, content: bytes, blake3: bytes) -> None:
        await self._step(self._files.append, content, blake3)

    async def finish(self) -> None:
        await self._step(self._files.finish)

    @property
    def _files(self) -> LocalUpload:
        if self._begun is None:
            raise InvalidPhase(f"blob {self.digest} is whole already; send no frames of it")
        return self._begun.result()

    async def _step(self, do: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        self._last = self._threads.submit(do, *args, **kwargs)
        await asyncio.wrap_future(self._last)

    def end(self, ended: Callable[[], object]) -> None:
        """Closes the files after the last step, then calls `ended`, from whichever thread that is."""
        if self._last is None:
            ended()
        else:
            self._last.add_done_callback(lambda _: self._close(ended))

    def _close(self, ended: Callable[[], object]) -> None:
        begun = self._begun
        if begun is not None and not begun.cancelled() and begun.exception() is None:
            begun.result().close()
        ended()


def _prepare(layout: Layout, files: Files) -> DirectoryLock:
    """Makes the directory ready and holds its lock."""
    with as_store_errors(f"opening the store at {layout.root}"):
        for path in reversed([layout.root, *layout.root.parents]):
            if not path.is_dir():
                files.make_dir(path)
        lock = DirectoryLock(layout.root)
        try:
            new = [path for path in layout.directories() if not path.is_dir()]
            for path in new:
                path.mkdir()
            for parent in dict.fromkeys(path.parent for path in new):
                files.sync_dir(parent)
            for leftover in files_below(layout.temporary):
                files.remove(leftover)
            if lock.after_kill:
                files.sync_all()
        except OSError:
            lock.drop()
            raise
        return lock
