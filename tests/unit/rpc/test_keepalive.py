"""Both sides agree on how often a quiet connection is probed."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from gymckpt.rpc import server
from gymckpt.rpc.channel import CHANNEL_OPTIONS

FASTER = 20


def faster(options: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
    """The same options in a world whose clocks run FASTER times as fast: 20 seconds between probes become one."""
    return tuple((name, value // FASTER if name.endswith("_ms") else value) for name, value in options)


@pytest.mark.slow
async def test_a_connection_that_nobody_uses_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that takes the probes for an attack ends the connection, and with it every call that is waiting on it."""
    monkeypatch.setattr(server, "SERVER_OPTIONS", faster(server.SERVER_OPTIONS))
    async with await server.start_server([]) as running:
        channel = grpc.aio.insecure_channel(running.address, options=faster(CHANNEL_OPTIONS))
        try:
            await asyncio.wait_for(channel.channel_ready(), 10)
            # The fourth probe that comes too soon is the last.
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(channel.wait_for_state_change(grpc.ChannelConnectivity.READY), 5.5)
        finally:
            await channel.close()
