"""`python -m tests.e2e.trouble.served both|store|coordinator`: what `gymckpt serve` runs, in one process or in two.

The coordinator asks before it goes on. Each prints one JSON line once it serves, and ends only by a signal.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from gymckpt.coordinator import CoordinatorServer, Faults, Settings, serve
from gymckpt.coordinator.coordinator import Coordinator
from gymckpt.coordinator.servicer import CoordinatorServicer
from gymckpt.core.ids import ParticipantId
from gymckpt.rpc.server import RpcServer, start_server
from gymckpt.store import LocalStore, StoreClient, serve_store

PATIENCE_SECONDS = 5.0
DIE = b"die\n"


class Watched(Faults):
    """Tells each point to whoever listens at a Unix socket and goes on when that answers, or kills its own process when it is told so."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    async def reach(self, point: str) -> None:
        reader, writer = await asyncio.open_unix_connection(self._socket)
        try:
            writer.write(f"{point}\n".encode())
            if await reader.readline() == DIE:
                os.kill(os.getpid(), signal.SIGKILL)
        finally:
            writer.close()


async def serve_role(given: argparse.Namespace) -> None:
    async with AsyncExitStack() as stack:
        server = await _served(given, stack, Faults() if given.watch is None else Watched(given.watch))
        print(json.dumps({"address": server.address}), flush=True)
        await asyncio.Event().wait()


async def _served(given: argparse.Namespace, stack: AsyncExitStack, faults: Faults) -> RpcServer | CoordinatorServer:
    settings = Settings(interval=0.5, patience=given.patience, retry_after=0.2, install_timeout=4.0, retire_timeout=1.0)
    if given.role == "coordinator":
        return await _coordinator_only(given.store_at, given.listen, given.expect, settings, faults)
    local = await stack.enter_async_context(await LocalStore.open(given.store))
    if given.role == "store":
        return await serve_store(local, given.listen)
    return await serve(local, given.listen, expected=given.expect, settings=settings, faults=faults)


async def _coordinator_only(
    store_at: str, listen: str, expected: Sequence[ParticipantId], settings: Settings, faults: Faults
) -> CoordinatorServer:
    """A coordinator whose store is another process."""
    coordinator = Coordinator(StoreClient(store_at), expected=expected, settings=settings, faults=faults)
    server = CoordinatorServer(coordinator, await start_server([CoordinatorServicer(coordinator)], listen))
    await coordinator.start()
    return server


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=("both", "store", "coordinator"))
    parser.add_argument("--store", type=Path, help="directory of the store")
    parser.add_argument("--store-at", default="", help="address of a store that another process serves")
    parser.add_argument("--listen", default="127.0.0.1:0")
    parser.add_argument("--expect", type=ParticipantId.parse, action="append", default=[])
    parser.add_argument("--patience", type=float, default=PATIENCE_SECONDS, help="seconds a member may stay silent")
    parser.add_argument("--watch", type=Path, help="Unix socket that is told every point")
    given = parser.parse_args()
    logging.basicConfig(level="INFO")
    asyncio.run(serve_role(given))


if __name__ == "__main__":
    main()
