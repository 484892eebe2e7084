"""Waiting for the end of a round while showing where it is."""

from __future__ import annotations

from collections.abc import AsyncIterator

from gymckpt.cli.output import Step
from gymckpt.coordinator import CheckpointProgress, RestoreProgress
from gymckpt.errors import TransportFailed


async def checkpoint(news: AsyncIterator[CheckpointProgress], step: Step) -> CheckpointProgress:
    """The last of the news. Raises what the round failed with, and TransportFailed when the stream ended without any."""
    last: CheckpointProgress | None = None
    async for last in news:
        step.show(f"{last.checkpoint.checkpoint_id} {_waiting(last)}", last.uploaded, last.participants)
    if last is None:
        raise TransportFailed("the coordinator ended the answer before it said anything; try again with the same id")
    return last


async def restore(news: AsyncIterator[RestoreProgress], step: Step) -> RestoreProgress:
    """The last of the news. Raises what the restore failed with, and TransportFailed when the stream ended without any."""
    last: RestoreProgress | None = None
    async for last in news:
        step.show(f"{last.checkpoint_id} {last.stage.name}", last.finished, last.participants)
    if last is None:
        raise TransportFailed(
            "the coordinator ended the answer before it said anything; try again with the same restore id"
        )
    return last


def _waiting(progress: CheckpointProgress) -> str:
    names = ", ".join(str(answer.participant.id) for answer in progress.waiting_for)
    return f"{progress.checkpoint.stage.name}" + (f", waiting for {names}" if names else "")
