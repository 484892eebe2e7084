"""How `gymckpt checkpoint create` waits: to the end of the round, with closed gates if they are to stay so, and what it lets go of afterwards."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from gymckpt.cli import follow
from gymckpt.cli.output import Step, counted
from gymckpt.coordinator import CheckpointArguments, CheckpointProgress, CoordinatorClient, Stage
from gymckpt.coordinator.older import delete_older
from gymckpt.core.report import LostEpisode
from gymckpt.errors import InvalidPhase, ParticipantLost

RENEWALS = 3  # within one gate lease


@dataclass(frozen=True, slots=True)
class Taken:
    """How the round ended, which episodes it lost, which older checkpoints were deleted, and which were left beyond those to keep, with the reason."""

    end: CheckpointProgress
    lost: tuple[LostEpisode, ...] = ()
    deleted: tuple[str, ...] = ()
    kept: tuple[tuple[str, str], ...] = ()

    def kept_in_words(self) -> str:
        """One line about the checkpoints that could not be deleted."""
        return f"{counted(len(self.kept), 'older checkpoint')} not deleted: " + "; ".join(why for _, why in self.kept)


async def take(
    client: CoordinatorClient, arguments: CheckpointArguments, step: Step, *, then_stop: bool, keep: int | None
) -> Taken:
    """Takes a checkpoint, or joins it. Raises what the round failed with; InvalidPhase when gates opened that were to stay closed."""
    news = client.create_checkpoint(arguments)
    end = await follow.checkpoint(_keeping_closed(client, arguments, news) if then_stop else news, step)
    if end.checkpoint.stage is not Stage.PUBLISHED:
        return Taken(end)
    lost: tuple[LostEpisode, ...] = ()
    if end.checkpoint.lost:  # progress only counts them
        lost = (await client.get_checkpoint(arguments.checkpoint_id, page_size=1)).lost
    deleted, kept = await delete_older(client, keep) if keep is not None else ([], [])
    if then_stop:  # last, so that whoever stops the servers has the whole lease for it
        await _check_closed(client, arguments)
    return Taken(end, lost, tuple(deleted), tuple(kept))


async def _keeping_closed(
    client: CoordinatorClient, arguments: CheckpointArguments, news: AsyncIterator[CheckpointProgress]
) -> AsyncIterator[CheckpointProgress]:
    """The news. From the cut on only a caller that lives keeps the gates closed: the lease of one that died opens them."""
    renewing: asyncio.Task[None] | None = None
    try:
        async for progress in news:
            if renewing is None and progress.checkpoint.stage is Stage.UPLOADING:
                renewing = asyncio.create_task(_renew(client, arguments))
            yield progress
    finally:
        if renewing is not None:
            renewing.cancel()
            await asyncio.gather(
                renewing, return_exceptions=True
            )  # the news tell of a coordinator that cannot be reached


async def _renew(client: CoordinatorClient, arguments: CheckpointArguments) -> None:
    while True:
        # How the round ends is told by its news, and whether all gates are closed by the last renewal.
        with contextlib.suppress(InvalidPhase, ParticipantLost):
            await client.renew_checkpoint(arguments.checkpoint_id, arguments.gate_lease)
        await asyncio.sleep(arguments.gate_lease / RENEWALS)


async def _check_closed(client: CoordinatorClient, arguments: CheckpointArguments) -> None:
    """Restarts the lease at every member; each says whether it still holds its gate. Raises InvalidPhase."""
    checkpoint_id = arguments.checkpoint_id
    try:
        await client.renew_checkpoint(checkpoint_id, arguments.gate_lease)
    except (InvalidPhase, ParticipantLost) as opened:
        raise InvalidPhase(
            f"checkpoint {checkpoint_id!r} is published, but not every gate stayed closed: {opened.message}; "
            "what ran since is not in it and would run again after a restore",
            details={**opened.details, "checkpoint_id": checkpoint_id, "published": "1"},
        ) from opened
