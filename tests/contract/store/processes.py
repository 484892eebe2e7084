"""The two ends of a store as processes of their own, to be killed.

python -m tests.contract.store.processes serve <directory>
python -m tests.contract.store.processes upload <address> <file> <frames>
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from gymckpt.core.chunks import digest_of, frames, hash_of
from gymckpt.rpc import codec
from gymckpt.rpc.channel import open_channel
from gymckpt.store import LocalStore, serve_store
from gymckpt.v1 import artifact_store_pb2 as pb
from gymckpt.v1.artifact_store_pb2_grpc import ArtifactStoreServiceStub


async def serve(directory: str) -> None:
    async with await LocalStore.open(directory) as store, await serve_store(store) as server:
        print(server.address, flush=True)
        await server.wait()


async def upload_some(address: str, content: bytes, count: int) -> Any:
    """Sends the first `count` frames that the store lacks and returns once the store has taken them in; the stream stays open."""
    call: Any = ArtifactStoreServiceStub(open_channel(address)).Write()
    await call.write(pb.WriteRequest(begin=codec.digest_to_proto(digest_of(content))))
    start = (await call.read()).durable.offset
    for offset, frame in list(frames(content, start))[:count]:
        data = bytes(frame)
        await call.write(pb.WriteRequest(frame=pb.Frame(offset=offset, data=data, blake3=hash_of(data))))
    # What follows frames on a stream is answered after them.
    await call.write(pb.WriteRequest(batch=pb.Batch(data=b"x", sizes=[1], blake3=hash_of(b"x"))))
    await call.read()
    return call


async def upload(address: str, file: str, count: int) -> None:
    call = await upload_some(address, await asyncio.to_thread(Path(file).read_bytes), count)
    print("sent", flush=True)
    await call.read()


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        asyncio.run(serve(sys.argv[2]))
    else:
        asyncio.run(upload(sys.argv[2], sys.argv[3], int(sys.argv[4])))
