"""The local directory: what is durable when, and what happens when the disk refuses."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from gymckpt.core.chunks import FRAME, digest_of, frames, hash_of
from gymckpt.core.names import epoch_name
from gymckpt.errors import DamagedBlob, DamagedFrame, StaleEpoch, StoreError, StoreFull, StoreUnavailable, WrongOffset
from gymckpt.store import LocalStore
from gymckpt.store.local_files import Files, store_error

LARGE = os.urandom(3 * FRAME + 5)


class FailingFiles(Files):
    """A file layer in which one operation fails while `failing` names it."""

    def __init__(self, code: int) -> None:
        self.code = code
        self.failing = ""

    def _reach(self, operation: str) -> None:
        if operation == self.failing:
            raise OSError(self.code, os.strerror(self.code))

    def write_all(self, file: int, content: bytes | memoryview) -> None:
        if self.failing == "write_all":
            super().write_all(file, content[: len(content) // 2])
        self._reach("write_all")
        super().write_all(file, content)

    def sync(self, file: int) -> None:
        self._reach("sync")
        super().sync(file)

    def sync_dir(self, path: Path) -> None:
        self._reach("sync_dir")
        super().sync_dir(path)

    def replace(self, source: Path, target: Path) -> None:
        self._reach("replace")
        super().replace(source, target)

    def link_new(self, source: Path, target: Path) -> bool:
        self._reach("link_new")
        return super().link_new(source, target)

    def open(self, path: Path, flags: int) -> int:
        self._reach("open")
        return super().open(path, flags)


class RecordingFiles(Files):
    """A file layer that notes the order of what makes things durable and visible."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def sync(self, file: int) -> None:
        super().sync(file)
        self.done.append("sync file")

    def sync_dir(self, path: Path) -> None:
        super().sync_dir(path)
        self.done.append(f"sync {path.parent.name}/{path.name}")

    def sync_all(self) -> None:
        super().sync_all()
        self.done.append("sync all")

    def replace(self, source: Path, target: Path) -> None:
        super().replace(source, target)
        self.done.append("move")

    def link_new(self, source: Path, target: Path) -> bool:
        self.done.append("link")
        return super().link_new(source, target)


class SlowFiles(Files):
    """A file layer whose syncs wait until `go` is set."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.go.set()

    def sync(self, file: int) -> None:
        self.go.wait()
        super().sync(file)


def temporary_files(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / "tmp.v1").iterdir())


async def visible(store: LocalStore) -> tuple[int, list[str]]:
    return (await store.info()).blobs, [entry.name for entry in await store.list_names("")]


WRITES: dict[str, Callable[[LocalStore], object]] = {
    "small": lambda store: store.write([b"one", b"two", b"three"]),
    "large": lambda store: store.write([LARGE]),
    "name": lambda store: store.put_name("intents/c1", b"value"),
}


@pytest.mark.parametrize(
    ("kind", "operation"),
    [(kind, operation) for kind in WRITES for operation in ("open", "write_all", "sync", "sync_dir")]
    + [("small", "replace"), ("large", "replace"), ("name", "link_new")],
)
@pytest.mark.parametrize(
    ("code", "error"),
    [(errno.ENOSPC, StoreFull), (errno.EROFS, StoreUnavailable)],
)
async def test_a_disk_that_refuses_is_told_by_type_and_a_retry_succeeds(
    tmp_path: Path, kind: str, operation: str, code: int, error: type[StoreError]
) -> None:
    """C18: after a failure nothing is held to be here; what is written again is."""
    files = FailingFiles(code)
    async with await LocalStore.open(tmp_path, files) as store:
        files.failing = operation
        with pytest.raises(error, match=os.strerror(code)) as failed:
            await WRITES[kind](store)  # type: ignore[misc]
        assert type(failed.value) is error
        files.failing = ""
        if operation != "sync_dir":
            assert await visible(store) == (0, [])
        assert await store.find_missing([digest_of(LARGE), digest_of(b"one")]) == [digest_of(LARGE), digest_of(b"one")]
        assert temporary_files(tmp_path) == []
        await WRITES[kind](store)  # type: ignore[misc]
        assert (await visible(store)) == {"small": (3, []), "large": (1, []), "name": (0, ["intents/c1"])}[kind]


@pytest.mark.parametrize(
    ("code", "error"), [(errno.ENOSPC, StoreFull), (errno.EDQUOT, StoreFull), (errno.EIO, StoreUnavailable)]
)
def test_only_lack_of_space_is_a_full_store(code: int, error: type[StoreError]) -> None:
    assert type(store_error(OSError(code, os.strerror(code)), "testing")) is error


async def test_an_upload_that_has_all_its_frames_is_finished_by_whoever_begins_it_again(tmp_path: Path) -> None:
    """X09."""
    digest = digest_of(LARGE)
    async with await LocalStore.open(tmp_path) as store:
        async with store.upload(digest) as upload:
            for offset, frame in frames(LARGE):
                await upload.append(offset, bytes(frame), hash_of(frame))
        assert await store.find_missing([digest]) == [digest]
        async with store.upload(digest) as upload:
            assert upload.whole
        assert await store.read([digest]) == [LARGE]


async def test_a_blob_appears_only_after_it_is_synced_and_is_answered_after_its_directory(tmp_path: Path) -> None:
    """C18."""
    files = RecordingFiles()
    async with await LocalStore.open(tmp_path, files) as store:
        files.done.clear()
        (digest,) = await store.write([b"small"])
        assert files.done == ["sync file", "move", f"sync blobs.v1/{digest.blake3[:1].hex()}"]
        files.done.clear()
        (large,) = await store.write([LARGE])
        chunks, shard = f"sync {tmp_path.name}/chunks.v1", f"sync blobs.v1/{large.blake3[:1].hex()}"
        assert files.done == ["sync file", "sync file", "move", chunks, "move", shard]


async def test_a_name_appears_only_after_its_value_and_every_new_directory_above_are_synced(tmp_path: Path) -> None:
    files = RecordingFiles()
    async with await LocalStore.open(tmp_path / "new" / "store", files) as store:
        assert files.done[:2] == [f"sync {tmp_path.parent.name}/{tmp_path.name}", f"sync {tmp_path.name}/new"]
        files.done.clear()
        await store.put_name("pins/c1/holder", b"value")
        assert files.done == ["sync store/names.v1", "sync names.v1/pins", "sync file", "link", "sync pins/c1"]


async def test_a_write_slower_than_the_deadline_shows_nothing_and_a_retry_stores_it_once(tmp_path: Path) -> None:
    """C24, C18."""
    files = SlowFiles()
    async with await LocalStore.open(tmp_path, files) as store:
        files.go.clear()
        for writing in (store.write([b"slow"]), store.put_name("intents/c1", b"slow")):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(writing, timeout=0.05)
        assert await store.find_missing([digest_of(b"slow")]) == [digest_of(b"slow")]
        files.go.set()
        await store.write([b"slow"])
        assert await store.put_name("intents/c1", b"slow") == b"slow"
        assert await visible(store) == (1, ["intents/c1"])
        assert await store.read([digest_of(b"slow")]) == [b"slow"]
    assert temporary_files(tmp_path) == []


async def test_what_a_store_held_is_there_when_it_is_opened_again(tmp_path: Path) -> None:
    """X06: the epoch too."""
    async with await LocalStore.open(tmp_path) as store:
        digests = await store.write([b"small", LARGE])
        for name in (epoch_name(3), "a", "a/b"):
            await store.put_name(name, name.encode())
    (tmp_path / "tmp.v1" / "17").write_bytes(b"left behind by a process that was killed")
    async with await LocalStore.open(tmp_path) as store:
        assert await store.read(digests) == [b"small", LARGE]
        assert [entry.name for entry in await store.list_names("")] == ["a", "a/b", epoch_name(3)]
        with pytest.raises(StaleEpoch):
            await store.put_name("intents/x", b"", epoch=2)
    assert temporary_files(tmp_path) == []


async def test_a_second_store_on_the_same_directory_is_refused_and_told_who_holds_it(tmp_path: Path) -> None:
    async with await LocalStore.open(tmp_path):
        with pytest.raises(StoreUnavailable, match=f"in use by process {os.getpid()}"):
            await LocalStore.open(tmp_path)
    async with await LocalStore.open(tmp_path) as store:
        assert await store.write([b"x"])


async def test_a_directory_is_synced_when_its_last_process_was_killed_and_only_then(tmp_path: Path) -> None:
    """X09: what that process had moved into place counts as durable from now on."""
    files = RecordingFiles()
    for left_by_a_killed_process in (False, True, False):
        files.done.clear()
        if left_by_a_killed_process:
            (tmp_path / "lock").write_text("4711\n")
        async with await LocalStore.open(tmp_path, files):
            assert ("sync all" in files.done) == left_by_a_killed_process


async def test_a_place_that_cannot_be_a_directory_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreUnavailable, match="file"):
        await LocalStore.open(tmp_path / "file" / "store")


async def test_a_directory_that_may_only_be_read_is_refused_when_opened(tmp_path: Path) -> None:
    files = FailingFiles(errno.EROFS)
    files.failing = "sync_dir"
    with pytest.raises(StoreUnavailable, match="Read-only"):
        await LocalStore.open(tmp_path / "store", files)
    async with await LocalStore.open(tmp_path / "store") as store:
        assert await store.write([b"the lock was not left behind"])


async def test_an_upload_that_stopped_goes_on_at_its_last_whole_frame(tmp_path: Path) -> None:
    """X09: also when the end of what was there is torn or damaged."""
    digest, pieces = digest_of(LARGE), [bytes(frame) for _, frame in frames(LARGE)]
    async with await LocalStore.open(tmp_path) as store:
        async with store.upload(digest) as upload:
            for at in range(3):
                await upload.append(at * FRAME, pieces[at], hash_of(pieces[at]))
        async with store.upload(digest) as upload:
            assert upload.offset == 3 * FRAME
    partial = tmp_path / "partial.v1" / f"{digest.blake3.hex()}.{digest.size}"
    content = bytearray(partial.read_bytes())
    content[2 * FRAME + 7] ^= 1
    partial.write_bytes(content + b"torn")
    async with await LocalStore.open(tmp_path) as store:
        async with store.upload(digest) as upload:
            assert upload.offset == 2 * FRAME
            for at in (2, 3):
                await upload.append(at * FRAME, pieces[at], hash_of(pieces[at]))
            await upload.finish()
        assert await store.read([digest]) == [LARGE]
        assert list((tmp_path / "partial.v1").iterdir()) == []


async def test_frames_that_make_another_blob_leave_nothing(tmp_path: Path) -> None:
    """X08."""
    announced = digest_of(LARGE)
    other = os.urandom(len(LARGE))
    async with await LocalStore.open(tmp_path) as store:
        async with store.upload(announced) as upload:
            for offset, frame in frames(other):
                await upload.append(offset, bytes(frame), hash_of(frame))
            with pytest.raises(DamagedFrame, match=announced.blake3.hex()):
                await upload.finish()
        async with store.upload(announced) as upload:
            assert upload.offset == 0
        assert await store.find_missing([announced]) == [announced]


async def test_a_frame_that_is_not_the_next_one_is_refused_with_the_offset_to_go_on_at(tmp_path: Path) -> None:
    async with await LocalStore.open(tmp_path) as store, store.upload(digest_of(LARGE)) as upload:
        first = LARGE[:FRAME]
        await upload.append(0, first, hash_of(first))
        for offset in (0, 2 * FRAME):
            with pytest.raises(WrongOffset) as refused:
                await upload.append(offset, first, hash_of(first))
            assert refused.value.offset == FRAME


@pytest.mark.parametrize("state", ["gone", "damaged", "short"])
async def test_a_chunk_list_that_was_lost_costs_a_pass_and_no_blob(tmp_path: Path, state: str) -> None:
    async with await LocalStore.open(tmp_path) as store:
        (digest,) = await store.write([LARGE])
        path = tmp_path / "chunks.v1" / f"{digest.blake3.hex()}.{digest.size}"
        if state == "gone":
            path.unlink()
        else:
            path.write_bytes(bytes(len(path.read_bytes())) if state == "damaged" else b"")
        assert b"".join([frame async for frame in store.read_range(digest)]) == LARGE
        assert await store.find_missing([digest]) == []


@pytest.mark.parametrize("cut", [0, FRAME, len(LARGE) - 1])
async def test_a_large_blob_cut_short_is_missing_and_never_served(tmp_path: Path, cut: int) -> None:
    """X08."""
    async with await LocalStore.open(tmp_path) as store:
        (digest,) = await store.write([LARGE])
        os.truncate(tmp_path / "blobs.v1" / digest.blake3[:1].hex() / f"{digest.blake3.hex()}.{digest.size}", cut)
        assert await store.find_missing([digest]) == [digest]
        with pytest.raises(DamagedBlob):
            await store.read([digest])
        await store.write([LARGE])
        assert await store.read([digest]) == [LARGE]


async def test_a_damaged_name_is_never_served(tmp_path: Path) -> None:
    """C10."""
    async with await LocalStore.open(tmp_path) as store:
        await store.put_name("intents/c1", b"value")
        path = tmp_path / "names.v1" / "intents" / "c1@"
        path.write_bytes(path.read_bytes().replace(b"value", b"walue"))
        with pytest.raises(DamagedBlob, match="intents/c1"):
            await store.get_name("intents/c1")
