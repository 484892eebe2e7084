"""Announcing a process to the coordinator, again and again; its gate opens for the first time when it is admitted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import grpc

from gymckpt.core.report import LostEpisode
from gymckpt.errors import GymckptError, StaleBoot
from gymckpt.rpc.channel import open_channel
from gymckpt.rpc.codec import holdings_to_proto, lost_to_proto, participant_to_proto
from gymckpt.rpc.status import from_rpc_error
from gymckpt.v1 import coordinator_pb2 as pb
from gymckpt.v1 import coordinator_pb2_grpc as pb_grpc

if TYPE_CHECKING:
    from gymckpt.participant.base import Participant

log = logging.getLogger("gymckpt.participant")

RETRY = 0.2  # seconds between tries while the coordinator cannot be reached or does not admit this process yet
LONGEST_TRY = 5.0  # seconds that one announcement may take
MAX_LOST = 10_000  # lost episodes in one announcement


async def announce(p: Participant, coordinator: str, admitted: Callable[[], Awaitable[None]]) -> None:
    """Registers again and again; calls `admitted` once, when the coordinator lets this process take part. Returns when another process took its place."""
    is_admitted, failures = False, 0
    async with open_channel(coordinator) as channel:
        stub: pb_grpc.CoordinatorServiceAsyncStub = pb_grpc.CoordinatorServiceStub(channel)
        while True:
            try:
                response = await stub.Register(_request(p), timeout=LONGEST_TRY)
            except grpc.aio.AioRpcError as failed:
                error = from_rpc_error(failed)
                if isinstance(error, StaleBoot):
                    log.error(
                        "%s takes no more calls: %s; processes of one participant each need a worker of their own",
                        p.id,
                        error.message,
                    )
                    return
                failures += 1
                _complain(p, coordinator, error, failures)
                await asyncio.sleep(RETRY)
                continue
            failures = 0
            if response.admitted and not is_admitted:
                is_admitted = True
                await admitted()
                continue  # say at once that the gate is open
            await asyncio.sleep(max(RETRY, response.interval.ToNanoseconds() / 1e9) if is_admitted else RETRY)


def _request(p: Participant) -> pb.RegisterRequest:
    lost = [LostEpisode(episode, p.lost[episode]) for episode in sorted(p.lost)[:MAX_LOST]]
    return pb.RegisterRequest(
        participant=participant_to_proto(p.info),
        holds=holdings_to_proto(p.holdings()),
        lost=[lost_to_proto(entry) for entry in lost],
    )


def _complain(p: Participant, coordinator: str, error: GymckptError, failures: int) -> None:
    """Says it at once, then ever more rarely."""
    if failures & (failures - 1) == 0:
        log.warning("%s cannot register at %s (%d tries): %s", p.id, coordinator, failures, error.message)
