"""A web server on a real socket that is told to stop while it answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import uvicorn

from tests.unit.participant.rounds import until


async def stopped(
    app: Any, calls: Sequence[bytes], calling: Callable[[], object], *, http: str = "auto"
) -> list[bytes]:
    """What clients read, one for each of `calls`, when the server is told to stop and to give them no time, once `calling` holds."""
    config = uvicorn.Config(
        app, port=0, http=http, lifespan="off", log_level="critical", ws="none", timeout_graceful_shutdown=0
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    await until(lambda: server.started)
    port = server.servers[0].sockets[0].getsockname()[1]
    clients = [await asyncio.open_connection("127.0.0.1", port) for _ in calls]
    for (_, writer), call in zip(clients, calls, strict=True):
        writer.write(call)
    await until(calling)
    server.should_exit = True
    async with asyncio.timeout(5):
        read = [await reader.read() for reader, _ in clients]
        await serving
    for _, writer in clients:
        writer.close()
    return read
