"""The store as a gRPC service: checks every field, then asks the back end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import grpc

from gymckpt.core.chunks import BATCH_ENTRIES, FRAME, batches, digest_of, hash_of, is_large
from gymckpt.core.ids import Digest
from gymckpt.core.names import check_name, check_prefix
from gymckpt.errors import DamagedFrame, InvalidField, NotImplementedHere
from gymckpt.rpc import codec
from gymckpt.rpc.server import RpcServer, start_server
from gymckpt.store.backend import Backend, Upload, check_range
from gymckpt.store.interface import ScrubProgress
from gymckpt.v1 import artifact_store_pb2 as pb
from gymckpt.v1.artifact_store_pb2_grpc import (
    ArtifactStoreServiceServicer,
    add_ArtifactStoreServiceServicer_to_server,
)

CONTRACT_REVISION = 1
DEFAULT_PAGE = 1000
MAX_PAGE = 10_000
PAGE_BYTES = 8 * 2**20
MAX_READ = 10_000

Context = Any  # grpc.aio.ServicerContext, which only the type checker can subscript


class StoreServicer(ArtifactStoreServiceServicer):
    """Serves one back end. Refusals are raised; the server's interceptor gives them their status."""

    service_name = "gymckpt.v1.ArtifactStoreService"

    def __init__(self, store: Backend) -> None:
        self._store = store

    def add_to(self, server: grpc.aio.Server) -> None:
        add_ArtifactStoreServiceServicer_to_server(self, server)

    async def FindMissing(self, request: pb.FindMissingRequest, context: Context) -> pb.FindMissingResponse:
        digests = codec.digests_from_proto(request.blobs, "blobs")
        return pb.FindMissingResponse(missing=codec.digests_to_proto(await self._store.find_missing(digests)))

    async def Write(self, request_iterator: Any, context: Context) -> AsyncIterator[pb.WriteResponse]:
        upload: Upload | None = None
        async with AsyncExitStack() as uploading:
            async for request in request_iterator:
                item = codec.required(request, "item")
                if item == "batch":
                    yield pb.WriteResponse(stored=await self._write_batch(request.batch))
                elif item == "begin":
                    digest = _large_digest(request.begin, upload)
                    upload = await uploading.enter_async_context(self._store.upload(digest))
                    yield _durable(upload, complete=upload.whole)
                else:
                    upload = await _add_frame(request.frame, upload)
                    if upload.whole:
                        await upload.finish()
                        yield _durable(upload, complete=True)
                if upload is not None and upload.whole:
                    upload = None
                    await uploading.aclose()

    async def _write_batch(self, batch: pb.Batch) -> pb.Stored:
        blobs = _blobs_of(batch)
        created = await self._store.write_batch(blobs)
        return pb.Stored(created=created, existing=len(blobs) - created)

    async def Read(self, request: pb.ReadRequest, context: Context) -> AsyncIterator[pb.ReadResponse]:
        digests = codec.digests_from_proto(request.blobs, "blobs", most=MAX_READ)
        if request.offset or request.length:
            _check_ranged(digests, request.offset, request.length)
        for first, last in batches([digest.size for digest in digests]):
            if is_large(digests[first]):
                async for response in self._frames(digests[first], request.offset, request.length):
                    yield response
            else:
                yield pb.ReadResponse(batch=_batch(digests[first:last], await self._store.read(digests[first:last])))

    async def _frames(self, digest: Digest, offset: int, length: int) -> AsyncIterator[pb.ReadResponse]:
        yield pb.ReadResponse(begin=codec.digest_to_proto(digest))
        # Whole frames, also where the range ends within one: only those carry a digest that says something.
        end = check_range(digest, offset, length)
        whole = min(-(-end // FRAME) * FRAME, digest.size) - offset
        if whole == 0:
            return
        async for content in self._store.read_range(digest, offset, whole):
            yield pb.ReadResponse(frame=pb.Frame(offset=offset, data=content, blake3=hash_of(content)))
            offset += len(content)

    async def PutName(self, request: pb.PutNameRequest, context: Context) -> pb.PutNameResponse:
        created, value = await self._store.create_name(request.name, request.value, epoch=request.epoch)
        return pb.PutNameResponse(created=created, value=value)

    async def GetName(self, request: pb.GetNameRequest, context: Context) -> pb.GetNameResponse:
        return pb.GetNameResponse(value=await self._store.get_name(request.name))

    async def ListNames(self, request: pb.ListNamesRequest, context: Context) -> pb.ListNamesResponse:
        check_prefix(request.prefix)
        if request.page_token:
            check_name(request.page_token, "page_token")
        size = codec.number(request.page_size, "page_size", most=MAX_PAGE) or DEFAULT_PAGE
        found = await self._store.list_names(request.prefix, after=request.page_token, limit=size + 1)
        page = pb.ListNamesResponse()
        held = 0
        for at, entry in enumerate(found):
            held += len(entry.name) + len(entry.value)
            if at == size or (at and held > PAGE_BYTES):
                page.next_page_token = found[at - 1].name
                break
            page.entries.add(name=entry.name, value=entry.value)
        return page

    async def DeleteName(self, request: pb.DeleteNameRequest, context: Context) -> pb.DeleteNameResponse:
        await self._store.delete_name(request.name, epoch=request.epoch)
        return pb.DeleteNameResponse()

    async def Scrub(self, request: pb.ScrubRequest, context: Context) -> AsyncIterator[pb.ScrubResponse]:
        async for progress in self._store.scrub():
            yield _scrubbed(progress)

    async def CollectGarbage(
        self, request: pb.CollectGarbageRequest, context: Context
    ) -> AsyncIterator[pb.CollectGarbageResponse]:
        nothing: list[pb.CollectGarbageResponse] = []
        for response in nothing:
            yield response
        raise NotImplementedHere("this release collects no garbage; to free space, start with another directory")

    async def GetInfo(self, request: pb.GetInfoRequest, context: Context) -> pb.GetInfoResponse:
        info = await self._store.info()
        return pb.GetInfoResponse(
            backend=info.backend,
            blobs=info.blobs,
            bytes=info.bytes,
            limits=codec.limits_to_proto(),
            contract_revision=CONTRACT_REVISION,
        )


async def serve_store(store: Backend, listen: str = "127.0.0.1:0") -> RpcServer:
    """Serves the store alone at `listen`. Raises InvalidField, TransportFailed."""
    return await start_server([StoreServicer(store)], listen)


def _large_digest(message: Any, upload: Upload | None) -> Digest:
    digest: Digest = codec.digest_from_proto(message, "begin")
    if upload is not None:
        raise InvalidField(
            f"begin announces {digest} while {upload.digest} is at {upload.offset} of {upload.digest.size}; "
            "send its frames first, or use another stream",
            field="begin",
        )
    if not is_large(digest):
        raise InvalidField(
            f"begin.size must be over {FRAME}, got {digest.size}; send small blobs in a batch", field="begin.size"
        )
    return digest


async def _add_frame(frame: pb.Frame, upload: Upload | None) -> Upload:
    if upload is None:
        raise InvalidField(
            "frame belongs to no blob; announce one with begin, and stop when it is whole", field="frame"
        )
    (blake3,) = codec.split_digests(frame.blake3, 1, "frame.blake3")
    await upload.append(frame.offset, frame.data, blake3)
    return upload


def _durable(upload: Upload, *, complete: bool) -> pb.WriteResponse:
    digest = codec.digest_to_proto(upload.digest)
    return pb.WriteResponse(durable=pb.Durable(digest=digest, offset=upload.offset, complete=complete))


def _blobs_of(batch: pb.Batch) -> list[tuple[Digest, bytes]]:
    """The blobs of a batch with their digests. Raises InvalidField, and DamagedFrame for content that is another's."""
    codec.size(batch.sizes, "batch.sizes", least=1, most=BATCH_ENTRIES)
    data = batch.data  # each look at the field copies it
    codec.size(data, "batch.data", most=FRAME)
    if sum(batch.sizes) != len(data):
        raise InvalidField(
            f"batch.sizes must sum to the {len(data)} bytes of batch.data, got {sum(batch.sizes)}",
            field="batch.sizes",
        )
    blobs: list[tuple[Digest, bytes]] = []
    at = 0
    for blake3, size in zip(
        codec.split_digests(batch.blake3, len(batch.sizes), "batch.blake3"), batch.sizes, strict=True
    ):
        content = data[at : at + size]
        if hash_of(content) != blake3:
            raise DamagedFrame(
                f"blob {len(blobs)} of the batch has digest {digest_of(content)}, not {blake3.hex()}; send it again",
                details={"digest": f"{blake3.hex()}:{size}", "index": str(len(blobs))},
            )
        blobs.append((Digest(blake3, size), content))
        at += size
    return blobs


def _batch(digests: list[Digest], contents: list[bytes]) -> pb.Batch:
    return pb.Batch(
        data=b"".join(contents),
        sizes=[digest.size for digest in digests],
        blake3=b"".join([digest.blake3 for digest in digests]),
    )


def _check_ranged(digests: list[Digest], offset: int, length: int) -> None:
    if len(digests) != 1:
        raise InvalidField(f"blobs must be exactly one with an offset or a length, got {len(digests)}", field="blobs")
    if not is_large(digests[0]):
        raise InvalidField(
            f"offset and length need a blob over {FRAME} bytes, got {digests[0].size}; read it whole",
            field="offset" if offset else "length",
        )
    check_range(digests[0], offset, length)


def _scrubbed(progress: ScrubProgress) -> pb.ScrubResponse:
    response = pb.ScrubResponse(
        blobs_checked=progress.blobs_checked, bytes_checked=progress.bytes_checked, done=progress.done
    )
    for damage in progress.damage:
        response.damage.add(
            digest=codec.digest_to_proto(damage.digest),
            why=damage.why,
            checkpoint_ids=damage.checkpoint_ids,
            rollout_ids=damage.rollout_ids,
        )
    return response
