"""Stopping attempts everywhere: callers before the servers that they call."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from gymckpt.coordinator.context import Context, send
from gymckpt.coordinator.members.link import Link, Lost, Refusal
from gymckpt.core.decisions import retired_floors
from gymckpt.core.ids import Episode, Fence
from gymckpt.core.kinds import RETIRE_ORDER
from gymckpt.core.transitions import Retire
from gymckpt.errors import DeadlineExceeded, GymckptError, ParticipantLost, StaleEpoch

RETRY_SECONDS = 0.5

log = logging.getLogger(__name__)


async def retire(context: Context, links: Sequence[Link], episodes: tuple[Episode, ...], timeout: float) -> None:
    """Refuses the episodes for good and waits until they have stopped. Raises DeadlineExceeded or ParticipantLost naming every member that failed."""
    sequence = context.records.next_sequence()
    fence = Fence(context.records.epoch, sequence, f"retire-{sequence}")
    await context.records.raise_floors(fence.checkpoint_id, retired_floors(episodes))
    await context.faults.reach("retire.floored")
    failed: dict[str, GymckptError] = {}
    for kinds in RETIRE_ORDER:
        failed.update(await retire_at(context, _of(links, kinds), fence, episodes, timeout))
    if not failed:
        return
    said = "; ".join(f"{name}: {error.message}" for name, error in failed.items())
    details = {"participants": ",".join(failed), "refused": str(len(episodes))}
    if all(isinstance(error, ParticipantLost) for error in failed.values()):
        raise ParticipantLost(f"{said}; the attempts are refused everywhere from now on; retry", details=details)
    if all(isinstance(error, DeadlineExceeded | ParticipantLost) for error in failed.values()):
        raise DeadlineExceeded(f"{said}; the attempts are refused already, retry to wait for them", details=details)
    raise next(error for error in failed.values() if not isinstance(error, DeadlineExceeded | ParticipantLost))


async def retire_at(
    context: Context, links: Sequence[Link], fence: Fence, episodes: tuple[Episode, ...], timeout: float
) -> dict[str, GymckptError]:
    """Retires at these members at once. A dead process has stopped everything; every other failure is named."""
    deadline = context.now() + timeout + context.settings.patience
    outcomes = await asyncio.gather(*(send(link, fence, Retire(episodes, timeout), deadline) for link in links))
    failed: dict[str, GymckptError] = {}
    for link, outcome in zip(links, outcomes, strict=True):
        if isinstance(outcome, Refusal):
            failed[link.name] = outcome.error
        elif isinstance(outcome, Lost) and not outcome.gone:
            failed[link.name] = ParticipantLost(outcome.why, details={"participant": str(link.info.id)})
    return failed


async def retire_for_certain(
    context: Context, links: Sequence[Link], fence: Fence, episodes: tuple[Episode, ...]
) -> None:
    """Asks until every member has stopped the episodes or its process is dead: then nothing can run them. Raises StaleEpoch."""
    if not episodes:
        return
    for kinds in RETIRE_ORDER:
        waiting = _of(links, kinds)
        while waiting:
            failed = await retire_at(context, waiting, fence, episodes, context.settings.retire_timeout)
            for name, error in failed.items():
                if isinstance(error, StaleEpoch):
                    raise error
                log.warning(
                    "%s: %s has not retired %d episodes: %s", fence.checkpoint_id, name, len(episodes), error.message
                )
            waiting = [link for link in waiting if link.name in failed]
            if waiting:
                await asyncio.sleep(RETRY_SECONDS)


def _of(links: Sequence[Link], kinds: Sequence[object]) -> list[Link]:
    return [link for link in links if link.info.id.kind in kinds]
