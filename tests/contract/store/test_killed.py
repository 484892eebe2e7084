"""A store and its writers, killed with SIGKILL in the middle of it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from gymckpt.core.chunks import FRAME, digest_of
from gymckpt.core.names import epoch_name
from gymckpt.errors import StaleEpoch, StoreUnavailable
from gymckpt.rpc import codec
from gymckpt.rpc.channel import open_channel
from gymckpt.store import LocalStore, StoreClient
from gymckpt.v1 import artifact_store_pb2 as pb
from gymckpt.v1.artifact_store_pb2_grpc import ArtifactStoreServiceStub
from tests.contract.store.processes import upload_some

LARGE = os.urandom(8 * FRAME + 11)


@contextmanager
def process(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process of processes.py and the first line that it says; killed at the end."""
    command = [sys.executable, "-m", "tests.contract.store.processes", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            yield running, running.stdout.readline().strip()
        finally:
            running.kill()


def kill(running: subprocess.Popen[str]) -> None:
    running.kill()
    running.wait(timeout=30)


async def durable_offset(address: str) -> int:
    """Where the store wants the upload of LARGE to go on."""
    async with open_channel(address) as channel:
        call: Any = ArtifactStoreServiceStub(channel).Write(
            iter([pb.WriteRequest(begin=codec.digest_to_proto(digest_of(LARGE)))])
        )
        (offset,) = [answer.durable.offset async for answer in call]
        return int(offset)


@asynccontextmanager
async def store_after_kill(tmp_path: Path, running: subprocess.Popen[str]) -> AsyncIterator[str]:
    """The address of a new process on the directory of a killed one."""
    kill(running)
    with process("serve", str(tmp_path / "store")) as (_, address):
        yield address


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    with process("serve", str(tmp_path / "store")) as both:
        yield both


async def test_an_upload_goes_on_after_the_store_was_killed(
    tmp_path: Path, served: tuple[subprocess.Popen[str], str]
) -> None:
    """X09."""
    running, address = served
    call = await upload_some(address, LARGE, 3)
    async with store_after_kill(tmp_path, running) as new:
        call.cancel()
        assert await durable_offset(new) == 3 * FRAME
        async with StoreClient(new) as client:
            assert await client.find_missing([digest_of(LARGE)]) == [digest_of(LARGE)]
            await client.write([LARGE])
            assert await client.read([digest_of(LARGE)]) == [LARGE]


async def test_an_upload_goes_on_after_the_writer_was_killed(
    tmp_path: Path, served: tuple[subprocess.Popen[str], str]
) -> None:
    """X09."""
    _, address = served
    (tmp_path / "content").write_bytes(LARGE)
    for count in (2, 5):
        with process("upload", address, str(tmp_path / "content"), str(count - (count > 2) * 2)) as (writer, said):
            assert said == "sent"
            kill(writer)
        assert await durable_offset(address) == count * FRAME
    async with StoreClient(address) as client:
        await client.write([LARGE])
        assert await client.read([digest_of(LARGE)]) == [LARGE]


async def test_an_upload_goes_on_after_both_were_killed(tmp_path: Path) -> None:
    """X09."""
    (tmp_path / "content").write_bytes(LARGE)
    with ExitStack() as stack:
        running, address = stack.enter_context(process("serve", str(tmp_path / "store")))
        writer, said = stack.enter_context(process("upload", address, str(tmp_path / "content"), "4"))
        assert said == "sent"
        kill(running)
        kill(writer)
    async with await LocalStore.open(tmp_path / "store") as store:
        async with store.upload(digest_of(LARGE)) as upload:
            assert upload.offset == 4 * FRAME
        await store.write([LARGE])
        assert await store.read([digest_of(LARGE)]) == [LARGE]


async def test_a_download_goes_on_where_it_was_when_the_store_was_killed(
    tmp_path: Path, served: tuple[subprocess.Popen[str], str]
) -> None:
    """X09."""
    running, address = served
    digest, got = digest_of(LARGE), bytearray()
    async with StoreClient(address) as client:
        await client.write([LARGE])
        async for frame in client.read_range(digest, 0, 2 * FRAME):
            got += frame
        kill(running)
        with pytest.raises(StoreUnavailable):
            await client.read([digest])
    async with store_after_kill(tmp_path, running) as new, StoreClient(new) as client:
        async for frame in client.read_range(digest, len(got)):
            got += frame
    assert bytes(got) == LARGE


async def test_what_was_answered_before_the_kill_is_there_after_it(
    tmp_path: Path, served: tuple[subprocess.Popen[str], str]
) -> None:
    """X06: an older epoch stays refused, too."""
    running, address = served
    blobs = [f"blob {number}".encode() for number in range(300)]
    async with StoreClient(address) as client:
        digests = await client.write(blobs)
        for epoch in (1, 2):
            await client.put_name(epoch_name(epoch), b"", epoch=epoch)
    async with store_after_kill(tmp_path, running) as new, StoreClient(new) as client:
        assert await client.find_missing(digests) == []
        assert await client.read(digests) == blobs
        with pytest.raises(StaleEpoch, match="epoch 1 is over"):
            await client.put_name("intents/c1", b"", epoch=1)
        assert [entry.name for entry in await client.list_names("")] == [epoch_name(1), epoch_name(2)]


async def test_a_directory_is_held_against_a_second_process_until_the_first_is_killed(
    tmp_path: Path, served: tuple[subprocess.Popen[str], str]
) -> None:
    running, _ = served
    with pytest.raises(StoreUnavailable, match=f"in use by process {running.pid}"):
        await LocalStore.open(tmp_path / "store")
    kill(running)
    async with await LocalStore.open(tmp_path / "store") as store:
        assert await store.list_names("") == []
