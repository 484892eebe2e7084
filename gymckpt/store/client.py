"""The store over gRPC. What arrives is verified here again, so that a damaged wire or server is noticed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, TypeVar

import grpc

from gymckpt.core.chunks import FRAME, batches, digest_of, frames, hash_of, is_large
from gymckpt.core.ids import Digest
from gymckpt.core.names import check_name, check_prefix, check_value
from gymckpt.errors import DamagedFrame, InvalidField, StoreUnavailable, TransportFailed
from gymckpt.rpc import codec
from gymckpt.rpc.channel import open_channel
from gymckpt.rpc.status import from_rpc_error
from gymckpt.store.backend import check_range
from gymckpt.store.interface import ArtifactStore, Damage, NameEntry, ScrubProgress, StoreInfo
from gymckpt.v1 import artifact_store_pb2 as pb
from gymckpt.v1.artifact_store_pb2_grpc import ArtifactStoreServiceStub

SERVICE = "gymckpt.v1.ArtifactStoreService"
WINDOW = 8  # batches on their way before the first answer is awaited
MAX_FIND = 100_000
MAX_READ = 10_000
PAGE = 1000
LIST_PAGE = 10_000

T = TypeVar("T")


class StoreClient(ArtifactStore):
    """The store at `host:port` or `unix:<path>`. Connects when first used; `close`, or `async with`, ends it."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._channel = open_channel(address)
        self._stub: Any = ArtifactStoreServiceStub(self._channel)
        # The two that carry megabytes go without the copies of the generated code.
        self._write_stream: Any = self._channel.stream_stream(
            f"/{SERVICE}/Write", codec.write_request_serializer(), pb.WriteResponse.FromString
        )
        self._read_stream: Any = self._channel.unary_stream(
            f"/{SERVICE}/Read", pb.ReadRequest.SerializeToString, codec.decode_read_response
        )

    async def close(self) -> None:
        await self._channel.close()

    async def __aenter__(self) -> StoreClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """Around calls and the reading of their answers: failed ones as the store's own errors; StoreUnavailable when the store decided nothing, or answered
        what the protocol does not allow, which is no fault of whoever asked."""
        try:
            yield
        except InvalidField as wrong:
            raise StoreUnavailable(
                f"the store at {self.address} answered what the protocol does not allow: {wrong.message}; start a release of it that keeps to the protocol",
                details={"address": self.address, "field": wrong.field},
            ) from wrong
        except grpc.RpcError as failed:
            error = from_rpc_error(failed)
            if isinstance(error, TransportFailed):
                raise StoreUnavailable(
                    f"the store at {self.address} cannot be reached: {error.message}; retry",
                    details={"address": self.address},
                ) from failed
            raise error from failed

    async def _ask(self, call: Awaitable[T]) -> T:
        with self._refusals():
            return await call

    async def _answers(self, call: Any) -> AsyncIterator[Any]:
        """The answers of a stream; it is ended when the reader leaves early."""
        try:
            with self._refusals():
                async for answer in call:
                    yield answer
        finally:
            call.cancel()

    async def find_missing(self, digests: Sequence[Digest]) -> list[Digest]:
        wanted = list(dict.fromkeys(digests))
        missing: list[Digest] = []
        for at in range(0, len(wanted), MAX_FIND):
            asked = wanted[at : at + MAX_FIND]
            request = pb.FindMissingRequest(blobs=codec.digests_to_proto(asked))
            with self._refusals():
                answer = await self._stub.FindMissing(request)
                missing.extend(_some_of(asked, codec.digests_from_proto(answer.missing, "missing", least=0)))
        return missing

    async def write(self, blobs: Sequence[bytes]) -> list[Digest]:
        digests = await asyncio.to_thread(lambda: [digest_of(blob) for blob in blobs])
        contents = dict(zip(digests, blobs, strict=True))
        if contents:
            with self._refusals():
                await _Writing(self._write_stream()).send(contents)
        return digests

    async def read(self, digests: Sequence[Digest]) -> list[bytes]:
        found: list[bytes] = []
        for at in range(0, len(digests), MAX_READ):
            some = digests[at : at + MAX_READ]
            request = pb.ReadRequest(blobs=codec.digests_to_proto(some))
            found.extend([blob async for blob in _whole_blobs(self._answers(self._read_stream(request)), some)])
        return found

    async def read_range(self, digest: Digest, offset: int = 0, length: int = 0) -> AsyncIterator[bytes]:
        end = check_range(digest, offset, length)
        if not is_large(digest):
            (content,) = await self.read([digest])
            if offset < end:
                yield content[offset:end]
            return
        request = pb.ReadRequest(blobs=codec.digests_to_proto([digest]), offset=offset, length=length)
        async for response in self._answers(self._read_stream(request)):
            if isinstance(response, tuple):
                frame = _verified_frame(digest, response, offset)
                offset += len(frame)
                yield bytes(frame[: len(frame) - max(offset - end, 0)])
        _check_end(digest, offset, end)

    async def put_name(self, name: str, value: bytes, *, epoch: int = 0) -> bytes:
        check_name(name)
        check_value(value)
        answer = await self._ask(self._stub.PutName(pb.PutNameRequest(name=name, value=value, epoch=epoch)))
        return bytes(answer.value)

    async def get_name(self, name: str) -> bytes:
        return bytes((await self._ask(self._stub.GetName(pb.GetNameRequest(name=name)))).value)

    async def list_names(self, prefix: str, *, after: str = "", limit: int = 0) -> list[NameEntry]:
        check_prefix(prefix)
        found: list[NameEntry] = []
        while True:
            size = min(limit - len(found), LIST_PAGE) if limit else PAGE
            request = pb.ListNamesRequest(prefix=prefix, page_size=size, page_token=after)
            with self._refusals():
                page = await self._stub.ListNames(request)
                if page.next_page_token and page.next_page_token == after:
                    raise InvalidField(f"next_page_token {after!r} is that of the page before", field="next_page_token")
            found.extend(NameEntry(entry.name, entry.value) for entry in page.entries)
            after = page.next_page_token
            if not after or (limit and len(found) == limit):
                return found

    async def delete_name(self, name: str, *, epoch: int = 0) -> None:
        await self._ask(self._stub.DeleteName(pb.DeleteNameRequest(name=name, epoch=epoch)))

    async def scrub(self) -> AsyncIterator[ScrubProgress]:
        async for message in self._answers(self._stub.Scrub(pb.ScrubRequest())):
            with self._refusals():
                progress = _progress(message)
            yield progress

    async def info(self) -> StoreInfo:
        answer = await self._ask(self._stub.GetInfo(pb.GetInfoRequest()))
        return StoreInfo(answer.backend, answer.blobs, answer.bytes)


class _Writing:
    """One stream of Write."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self._unanswered = 0

    async def send(self, contents: dict[Digest, bytes]) -> None:
        """Sends all of them, and returns when all are durable."""
        try:
            digests = list(contents)
            for first, last in batches([digest.size for digest in digests]):
                if is_large(digests[first]):
                    await self._send_large(digests[first], contents[digests[first]])
                else:
                    await self._send_batch({digest: contents[digest] for digest in digests[first:last]})
            await self._drain(0)
            await self._call.done_writing()
        finally:
            self._call.cancel()

    async def _send_batch(self, blobs: dict[Digest, bytes]) -> None:
        batch = pb.Batch(
            data=b"".join(blobs.values()),
            sizes=[digest.size for digest in blobs],
            blake3=b"".join([digest.blake3 for digest in blobs]),
        )
        await self._write(pb.WriteRequest(batch=batch))
        self._unanswered += 1
        await self._drain(WINDOW)

    async def _drain(self, left: int) -> None:
        """Waits until at most `left` batches are unanswered."""
        while self._unanswered > left:
            await self._answer()
            self._unanswered -= 1

    async def _send_large(self, digest: Digest, blob: bytes) -> None:
        await self._drain(0)
        await self._write(pb.WriteRequest(begin=codec.digest_to_proto(digest)))
        durable = (await self._answer()).durable
        if durable.complete:
            return
        for offset, view in frames(blob, durable.offset):
            await self._write(codec.encode_frame_request(offset, view, hash_of(view)))
        durable = (await self._answer()).durable
        if not durable.complete:
            raise StoreUnavailable(f"the store took all of {digest} and did not say that it is durable; retry")

    async def _write(self, request: pb.WriteRequest | bytes) -> None:
        try:
            await self._call.write(request)
        except asyncio.InvalidStateError:
            # The call has ended; reading tells how.
            await self._answer()
            raise

    async def _answer(self) -> Any:
        answer = await self._call.read()
        if answer is grpc.aio.EOF:
            raise StoreUnavailable("the store ended a write before it answered all of it; retry")
        return answer


def _some_of(asked: Sequence[Digest], named: Sequence[Digest]) -> Sequence[Digest]:
    """Raises InvalidField when the answer names what was not asked for."""
    other = set(named).difference(asked)
    if other:
        raise InvalidField(f"missing names {min(other)}, which is none of the {len(asked)} asked for", field="missing")
    return named


async def _whole_blobs(responses: AsyncIterator[Any], wanted: Sequence[Digest]) -> AsyncIterator[bytes]:
    """The blobs of an answer to Read in the order wanted, verified. Raises DamagedFrame."""
    waiting = iter(wanted)
    digest, arrived, received = None, list[memoryview](), 0
    async for response in responses:
        if isinstance(response, tuple):
            if digest is None:
                raise DamagedFrame("a frame arrived that no blob announced; read again")
            arrived.append(_verified_frame(digest, response, received))
            received += len(arrived[-1])
            if received == digest.size:
                yield _verified(digest, b"".join(arrived))
        elif response.WhichOneof("item") == "batch":
            for blob in _split(response.batch):
                yield _verified(next(waiting), blob)
        else:
            digest, arrived, received = next(waiting), [], 0
    left = next(waiting, None)
    if left is not None:
        raise StoreUnavailable(f"the store ended its answer before blob {left}; retry")


def _split(batch: pb.Batch) -> Iterator[bytes]:
    data, at = batch.data, 0  # each look at the field copies it
    for size in batch.sizes:
        yield data[at : at + size]
        at += size


def _verified(digest: Digest, content: bytes) -> bytes:
    if digest_of(content) != digest:
        raise DamagedFrame(
            f"blob {digest} arrived as {digest_of(content)}; read it again", details={"digest": str(digest)}
        )
    return content


def _verified_frame(digest: Digest, frame: codec.Frame, expected: int) -> memoryview:
    offset, content, blake3 = frame
    if offset != expected or hash_of(content) != blake3 or len(content) > FRAME:
        raise DamagedFrame(
            f"a frame of {digest} at {offset} does not match its digest, or is not the one at {expected}; read again",
            details={"digest": str(digest), "offset": str(expected)},
        )
    return content


def _check_end(digest: Digest, offset: int, end: int) -> None:
    if offset < end:
        raise StoreUnavailable(f"the store ended blob {digest} at {offset}, before {end}; retry")


def _progress(message: pb.ScrubResponse) -> ScrubProgress:
    damage = tuple(
        Damage(
            codec.digest_from_proto(found.digest, f"damage[{at}].digest"),
            found.why,
            tuple(found.checkpoint_ids),
            tuple(found.rollout_ids),
        )
        for at, found in enumerate(message.damage)
    )
    return ScrubProgress(message.blobs_checked, message.bytes_checked, damage, message.done)
