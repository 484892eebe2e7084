"""The store service itself, spoken to in raw messages: every field that can be wrong, and every frame."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable
from typing import Any

import grpc
import pytest

from gymckpt.core.chunks import FRAME, digest_of, frames, hash_of
from gymckpt.core.ids import MAX_BLOB
from gymckpt.errors import (
    BlobNotFound,
    DamagedFrame,
    GymckptError,
    InvalidField,
    NotImplementedHere,
    StoreUnavailable,
    WrongOffset,
)
from gymckpt.rpc import codec
from gymckpt.rpc.channel import open_channel
from gymckpt.rpc.server import RpcServer, start_server
from gymckpt.rpc.status import from_rpc_error
from gymckpt.store import MemoryStore, StoreClient, StoreServicer, serve_store
from gymckpt.v1 import artifact_store_pb2 as pb
from gymckpt.v1 import types_pb2
from gymckpt.v1.artifact_store_pb2_grpc import ArtifactStoreServiceStub

LARGE = os.urandom(3 * FRAME + 5)
SMALL = digest_of(b"small")


class Held(MemoryStore):
    """Tells what it holds, to see that a refusal changed nothing."""

    def everything(self) -> tuple[int, int, int]:
        return len(self._blobs), len(self._names), sum(len(some) for some in self._partial.values())


@pytest.fixture
def store() -> Held:
    return Held()


@pytest.fixture
async def server(store: Held) -> AsyncIterator[RpcServer]:
    async with await serve_store(store) as running:
        yield running


@pytest.fixture
async def stub(server: RpcServer) -> AsyncIterator[Any]:
    async with open_channel(server.address) as channel:
        yield ArtifactStoreServiceStub(channel)


async def refusal(call: Any) -> GymckptError:
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await call
    return from_rpc_error(failed.value)


async def answers(stream: Any) -> list[Any]:
    return [answer async for answer in stream]


def begin(content: bytes = LARGE) -> pb.WriteRequest:
    return pb.WriteRequest(begin=codec.digest_to_proto(digest_of(content)))


def frame(offset: int, data: bytes, blake3: bytes | None = None) -> pb.WriteRequest:
    return pb.WriteRequest(frame=pb.Frame(offset=offset, data=data, blake3=hash_of(data) if blake3 is None else blake3))


def batch(data: bytes, sizes: Iterable[int], blake3: bytes) -> pb.WriteRequest:
    return pb.WriteRequest(batch=pb.Batch(data=data, sizes=sizes, blake3=blake3))


def columns(blake3: bytes, sizes: Iterable[int]) -> types_pb2.DigestColumns:
    return types_pb2.DigestColumns(blake3=blake3, sizes=sizes)


H = hash_of(b"small")
FIND, READ, PUT, GET, LIST, DELETE = (
    pb.FindMissingRequest,
    pb.ReadRequest,
    pb.PutNameRequest,
    pb.GetNameRequest,
    pb.ListNamesRequest,
    pb.DeleteNameRequest,
)
UNARY = [
    ("FindMissing", FIND(), "blobs.sizes"),
    ("FindMissing", FIND(blobs=columns(H, [])), "blobs.sizes"),
    ("FindMissing", FIND(blobs=columns(H[:31], [5])), "blobs.blake3"),
    ("FindMissing", FIND(blobs=columns(H, [5, 5])), "blobs.blake3"),
    ("FindMissing", FIND(blobs=columns(H * 2, [5, MAX_BLOB + 1])), "blobs.sizes[1]"),
    ("FindMissing", FIND(blobs=columns(b"", [0] * 100_001)), "blobs.sizes"),
    ("Read", READ(), "blobs.sizes"),
    ("Read", READ(blobs=columns(b"", [0] * 10_001)), "blobs.sizes"),
    ("Read", READ(blobs=columns(H * 2, [2 * FRAME] * 2), offset=FRAME), "blobs"),
    ("Read", READ(blobs=columns(H, [5]), offset=FRAME), "offset"),
    ("Read", READ(blobs=columns(H, [5]), length=1), "length"),
    ("Read", READ(blobs=columns(H, [2 * FRAME]), offset=7), "offset"),
    ("Read", READ(blobs=columns(H, [2 * FRAME]), offset=3 * FRAME), "offset"),
    ("Read", READ(blobs=columns(H, [2 * FRAME]), length=2 * FRAME + 1), "length"),
    ("Read", READ(blobs=columns(H, [2 * FRAME]), offset=2**64 - FRAME), "offset"),
    ("PutName", PUT(value=b"x"), "name"),
    ("PutName", PUT(name="../x"), "name"),
    ("PutName", PUT(name="a", value=bytes(15 * 2**20 + 1)), "value"),
    ("PutName", PUT(name="a", epoch=2**63), "epoch"),
    ("PutName", PUT(name="decisions/c1"), "value"),
    ("PutName", PUT(name="epochs/1"), "name"),
    ("GetName", GET(), "name"),
    ("GetName", GET(name="a//b"), "name"),
    ("ListNames", LIST(prefix="a/"), "prefix"),
    ("ListNames", LIST(page_size=10_001), "page_size"),
    ("ListNames", LIST(page_token=".."), "page_token"),
    ("DeleteName", DELETE(), "name"),
    ("DeleteName", DELETE(name="decisions/c1"), "name"),
    ("DeleteName", DELETE(name="pins/a", epoch=2**63), "epoch"),
]
FIRST = LARGE[:FRAME]
WRITES = [
    ([pb.WriteRequest()], "item"),
    ([batch(b"", [], b"")], "batch.sizes"),
    ([batch(b"small", [4], H)], "batch.sizes"),
    ([batch(b"small", [5], H[:31])], "batch.blake3"),
    ([batch(b"small", [5, 0], H)], "batch.blake3"),
    ([batch(b"", [0] * 10_001, H * 10_001)], "batch.sizes"),
    ([batch(bytes(FRAME + 1), [FRAME + 1], H)], "batch.data"),
    ([pb.WriteRequest(begin=types_pb2.Digest(blake3=H[:5], size=2 * FRAME))], "begin.blake3"),
    ([pb.WriteRequest(begin=types_pb2.Digest(blake3=H, size=MAX_BLOB + 1))], "begin.size"),
    ([pb.WriteRequest(begin=types_pb2.Digest(blake3=H, size=FRAME))], "begin.size"),
    ([begin(), begin()], "begin"),
    ([frame(0, FIRST)], "frame"),
    ([begin(), frame(0, FIRST, b"short")], "frame.blake3"),
    ([begin(), frame(0, b"")], "frame.data"),
    ([begin(), frame(0, FIRST[:-1])], "frame.data"),
    ([begin(), frame(0, FIRST + b"x")], "frame.data"),
]


@pytest.mark.parametrize(("method", "request_", "field"), UNARY, ids=lambda value: str(value)[:40].replace("\n", " "))
async def test_every_wrong_field_of_a_request_is_refused_by_name_and_changes_nothing(
    stub: Any, store: Held, method: str, request_: Any, field: str
) -> None:
    """X20."""
    call = getattr(stub, method)(request_)
    error = await refusal(answers(call) if method == "Read" else call)
    assert isinstance(error, InvalidField), error
    assert error.field == field
    assert store.everything() == (0, 0, 0)


@pytest.mark.parametrize(("requests", "field"), WRITES, ids=lambda value: value if isinstance(value, str) else "")
async def test_every_wrong_field_of_a_write_is_refused_by_name_and_changes_nothing(
    stub: Any, store: Held, requests: list[pb.WriteRequest], field: str
) -> None:
    """X20."""
    error = await refusal(answers(stub.Write(iter(requests))))
    assert isinstance(error, InvalidField), error
    assert error.field == field
    assert store.everything() == (0, 0, 0)


async def test_a_damaged_frame_is_refused_at_that_frame_and_those_before_it_stay(stub: Any, store: Held) -> None:
    """X08."""
    sent = [begin(), frame(0, FIRST), frame(FRAME, FIRST[:-1] + b"x", hash_of(FIRST)), frame(2 * FRAME, FIRST)]
    error = await refusal(answers(stub.Write(iter(sent))))
    assert isinstance(error, DamagedFrame)
    assert error.details["offset"] == str(FRAME)
    (durable,) = await answers(stub.Write(iter([begin()])))
    assert (durable.durable.offset, durable.durable.complete) == (FRAME, False)


async def test_a_damaged_small_blob_is_refused_with_its_batch(stub: Any, store: Held) -> None:
    """X08."""
    error = await refusal(answers(stub.Write(iter([batch(b"smallsmalm", [5, 5], H * 2)]))))
    assert isinstance(error, DamagedFrame)
    assert (error.details["index"], error.details["digest"]) == ("1", str(SMALL))
    assert store.everything() == (0, 0, 0)


async def test_a_frame_that_starts_elsewhere_is_told_where_to_go_on(stub: Any) -> None:
    for offset in (FRAME, 7, 2**63):
        error = await refusal(answers(stub.Write(iter([begin(), frame(offset, FIRST)]))))
        assert isinstance(error, WrongOffset)
        assert error.offset == 0


async def test_one_stream_carries_batches_between_and_within_large_blobs(stub: Any, store: Held) -> None:
    pieces = [frame(offset, bytes(data)) for offset, data in frames(LARGE)]
    small = batch(b"small", [5], H)
    got = await answers(stub.Write(iter([small, begin(), pieces[0], small, *pieces[1:], begin(), small])))
    kinds = [answer.WhichOneof("item") for answer in got]
    assert kinds == ["stored", "durable", "stored", "durable", "durable", "stored"]
    assert [answer.durable.complete for answer in got if answer.HasField("durable")] == [False, True, True]
    assert [(answer.stored.created, answer.stored.existing) for answer in got if answer.HasField("stored")] == [
        (1, 0),
        (0, 1),
        (0, 1),
    ]
    assert await store.read([digest_of(LARGE), SMALL]) == [LARGE, b"small"]


async def test_a_stream_that_ends_early_keeps_its_whole_frames(stub: Any) -> None:
    """X09."""
    got = await answers(stub.Write(iter([begin(), frame(0, FIRST)])))
    assert len(got) == 1
    (durable,) = await answers(stub.Write(iter([begin()])))
    assert durable.durable.offset == FRAME


async def test_a_reader_gets_digests_with_everything(stub: Any, store: Held) -> None:
    await store.write([LARGE, b"small"])
    request = pb.ReadRequest(blobs=codec.digests_to_proto([SMALL, digest_of(LARGE), SMALL, SMALL]))
    got = await answers(stub.Read(request))
    assert [answer.WhichOneof("item") for answer in got] == ["batch", "begin", *["frame"] * 4, "batch"]
    assert got[-1].batch.blake3 == H * 2
    for answer in got:
        if answer.HasField("frame"):
            assert hash_of(answer.frame.data) == answer.frame.blake3
    gone = await refusal(answers(stub.Read(pb.ReadRequest(blobs=codec.digests_to_proto([digest_of(b"gone")])))))
    assert isinstance(gone, BlobNotFound)


async def test_a_page_of_names_ends_early_when_its_values_are_large(stub: Any, store: Held) -> None:
    for number in range(4):
        await store.put_name(f"pins/c/{number}", bytes(3 * 2**20))
    page = await stub.ListNames(pb.ListNamesRequest(prefix="pins"))
    assert [entry.name for entry in page.entries] == ["pins/c/0", "pins/c/1"]
    assert page.next_page_token == "pins/c/1"


async def test_what_this_release_does_not_have_is_said_so(stub: Any) -> None:
    assert isinstance(await refusal(answers(stub.CollectGarbage(pb.CollectGarbageRequest()))), NotImplementedHere)


async def test_a_store_tells_its_bounds(stub: Any) -> None:
    info = await stub.GetInfo(pb.GetInfoRequest())
    assert (info.backend, info.contract_revision) == ("memory", 1)
    assert (info.limits.frame_bytes, info.limits.message_bytes) == (FRAME, 16 * FRAME)


class Lying(StoreServicer):
    """A store whose answers are damaged on their way, or are none of the protocol's."""

    missing = types_pb2.DigestColumns()

    async def FindMissing(self, request: Any, context: Any) -> pb.FindMissingResponse:
        return pb.FindMissingResponse(missing=self.missing)

    async def ListNames(self, request: Any, context: Any) -> pb.ListNamesResponse:
        return pb.ListNamesResponse(next_page_token="a")

    async def Scrub(self, request: Any, context: Any) -> AsyncIterator[pb.ScrubResponse]:
        yield pb.ScrubResponse(damage=[pb.Damage()])

    async def Read(self, request: Any, context: Any) -> AsyncIterator[Any]:
        async for response in super().Read(request, context):
            part = response.batch if response.HasField("batch") else response.frame
            if part.data:
                part.data = part.data[:-1] + bytes([part.data[-1] ^ 1])
            yield response


async def test_a_client_refuses_what_was_damaged_on_its_way(store: Held) -> None:
    """X08."""
    digests = await store.write([b"small", LARGE])
    async with await start_server([Lying(store)]) as server, StoreClient(server.address) as client:
        for digest in digests:
            with pytest.raises(DamagedFrame, match=digest.blake3.hex()):
                await client.read([digest])
            with pytest.raises(DamagedFrame, match=digest.blake3.hex()):
                await anext(client.read_range(digest))


async def test_a_wrong_answer_is_told_as_the_stores_fault(store: Held) -> None:
    """X20: with its address and the field; what was asked for was allowed."""
    lying = Lying(store)
    async with await start_server([lying]) as server, StoreClient(server.address) as client:
        where = rf"{server.address} answered what the protocol does not allow: .*"
        lying.missing = types_pb2.DigestColumns(blake3=b"short", sizes=[5])
        with pytest.raises(StoreUnavailable, match=rf"{where}missing"):
            await client.find_missing([SMALL])
        lying.missing = codec.digests_to_proto([digest_of(b"other")])
        with pytest.raises(StoreUnavailable, match=rf"{where}{digest_of(b'other')}"):
            await client.find_missing([SMALL])
        with pytest.raises(StoreUnavailable, match=rf"{where}next_page_token"):
            await asyncio.wait_for(client.list_names("members"), timeout=30)
        with pytest.raises(StoreUnavailable, match=rf"{where}damage"):
            await answers(client.scrub())


async def test_a_store_that_is_not_there_is_unavailable_and_named() -> None:
    async with StoreClient("127.0.0.1:1") as client:
        for asking in (client.find_missing([SMALL]), client.write([b"x"]), client.read([SMALL]), client.info()):
            with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1"):
                await asyncio.wait_for(asking, timeout=30)
