"""Finished results of all members: listing them, and acknowledging them by exact receipt."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from gymckpt.coordinator.context import Context, send
from gymckpt.coordinator.members.link import Link, Lost, Refusal
from gymckpt.core.ids import Episode, Fence
from gymckpt.core.kinds import Kind
from gymckpt.core.results import MAX_ACKNOWLEDGED, Acknowledgement, FinishedResult, nothing_kept
from gymckpt.core.transitions import Acknowledge, Acknowledged
from gymckpt.errors import GymckptError, ParticipantLost, TransportFailed

KEEPERS = (Kind.ENVIRONMENT, Kind.AGENT)  # whoever a controller calls for a result


async def list_results(
    context: Context, size: int, after: Episode | None
) -> tuple[tuple[FinishedResult, ...], Episode | None]:
    """All results of the first `size` episodes behind `after`, and the last of these episodes when there are more.

    Raises ParticipantLost, StoreUnavailable, StoreFull.
    """
    links = keepers(context)
    pages = await asyncio.gather(*(_asked(context, link, size, after=after) for link in links))
    found = _joined(result for page, _ in pages for result in page)
    episodes = list(dict.fromkeys(result.episode for result in found))
    shown = set(episodes[:size])
    more = len(episodes) > size or any(more for _, more in pages)
    return tuple(result for result in found if result.episode in shown), episodes[:size][-1] if more else None


async def acknowledge(
    context: Context, acknowledgements: Sequence[Acknowledgement], timeout: float
) -> tuple[Episode, ...]:
    """Compares all receipts with what is kept anywhere, then tells each member its share; returns the episodes of which nothing is kept.

    Raises ReceiptMismatch and then has changed nothing; ParticipantLost, DeadlineExceeded when a member has not freed its share.
    """
    links = keepers(context)
    only = sorted({each.episode for each in acknowledgements})
    pages = await asyncio.gather(*(_asked(context, link, MAX_ACKNOWLEDGED, only=only) for link in links))
    kept = [{(result.episode, result.receipt) for result in page} for page, _ in pages]
    receipts: dict[Episode, set[bytes]] = {}
    for episode, receipt in set().union(*kept):
        receipts.setdefault(episode, set()).add(receipt)
    unknown = set(nothing_kept(receipts, acknowledgements))
    shares = {
        link: tuple(each for each in acknowledgements if (each.episode, each.receipt) in held)
        for link, held in zip(links, kept, strict=True)
    }
    return tuple(
        sorted(unknown | await _told(context, {link: share for link, share in shares.items() if share}, timeout))
    )


def keepers(context: Context) -> list[Link]:
    """Members that keep results."""
    return [member.link for member in context.registry.members if member.info.id.kind in KEEPERS]


async def _told(context: Context, shares: dict[Link, tuple[Acknowledgement, ...]], timeout: float) -> set[Episode]:
    """Frees each share at its member; returns what was gone by then. Raises what a member refused with, naming it, once all have answered."""
    if not shares:
        return set()
    sequence = context.records.next_sequence()
    fence = Fence(context.records.epoch, sequence, f"acknowledge-{sequence}")
    deadline = context.now() + timeout + context.settings.patience
    outcomes = await asyncio.gather(
        *(send(link, fence, Acknowledge(share, timeout), deadline) for link, share in shares.items())
    )
    gone: set[Episode] = set()
    failures: list[GymckptError] = []
    for link, outcome in zip(shares, outcomes, strict=True):
        if isinstance(outcome, Refusal):
            failures.append(_named(link, outcome.error))
        elif isinstance(outcome, Lost):
            failures.append(_lost(link, outcome.why))
        elif isinstance(outcome.result, Acknowledged):
            gone.update(outcome.result.unknown)
    if failures:
        raise failures[0]
    return gone


async def _asked(
    context: Context, link: Link, size: int, *, after: Episode | None = None, only: Sequence[Episode] = ()
) -> tuple[tuple[FinishedResult, ...], bool]:
    try:
        return await link.results(size, after, only, timeout=context.settings.patience)
    except TransportFailed as error:
        raise _lost(link, error.message) from error
    except GymckptError as error:
        raise _named(link, error) from error


def _joined(results: Iterable[FinishedResult]) -> list[FinishedResult]:
    """In order; a result that several members keep once, and durable if it is so anywhere."""
    found: dict[tuple[Episode, bytes], FinishedResult] = {}
    for result in results:
        known = found.get((result.episode, result.receipt))
        if known is None or result.durable:
            found[result.episode, result.receipt] = result
    return [found[key] for key in sorted(found)]


def _lost(link: Link, why: str) -> ParticipantLost:
    return ParticipantLost(
        f"{link.name} does not answer: {why}; retry, and start it again if it is dead",
        details={"participant": str(link.info.id), "results": "1"},
    )


def _named(link: Link, error: GymckptError) -> GymckptError:
    """The same refusal, with the name of whoever refused."""
    return type(error)(f"{link.name}: {error.message}", details=error.details, retry_after=error.retry_after)
