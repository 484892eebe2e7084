"""What every round of one coordinator works with."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gymckpt.coordinator.faults import Faults
from gymckpt.coordinator.members.link import Link, Lost, Outcome, Refusal
from gymckpt.coordinator.members.registry import Registry
from gymckpt.coordinator.records import Records
from gymckpt.coordinator.values import Settings
from gymckpt.core.ids import Fence
from gymckpt.core.transitions import (
    Acknowledge,
    Activated,
    Confirmed,
    Install,
    Installed,
    Retire,
    SnapshotTaken,
    Transition,
    Uploaded,
)

log = logging.getLogger("gymckpt.coordinator")


@dataclass(frozen=True, slots=True)
class Context:
    """The names, the members and the settings of one tenure."""

    records: Records
    registry: Registry
    settings: Settings
    faults: Faults

    def now(self) -> float:
        """Seconds of the event loop's clock. An event loop itself may tell its time only in milliseconds."""
        return time.monotonic()


async def send(link: Link, fence: Fence, transition: Transition, deadline: float | None) -> Outcome:
    """Sends one transition and logs one line about it."""
    began = time.monotonic()
    outcome = await link.send(fence, transition, deadline)
    log.info(
        "transition=%s checkpoint=%s participant=%s worker=%s episodes=%s epoch=%d sequence=%d seconds=%.4f outcome=%s",
        type(transition).__name__.lower(),
        fence.checkpoint_id,
        link.info.id,
        link.info.worker,
        _episodes(transition, outcome),
        fence.epoch,
        fence.sequence,
        time.monotonic() - began,
        _told(outcome),
    )
    return outcome


async def send_all(
    links: Sequence[Link], fence: Fence, transition: Transition, deadline: float | None
) -> dict[str, Outcome]:
    """To everyone at once; outcomes by boot id, whoever is slow."""
    outcomes = await asyncio.gather(*(send(link, fence, transition, deadline) for link in links))
    return {link.info.boot_id: outcome for link, outcome in zip(links, outcomes, strict=True)}


def troubles(links: Iterable[Link], outcomes: dict[str, Outcome]) -> dict[str, str]:
    """Members that did not do what they were asked, by name, with the reason."""
    found = {}
    for link in links:
        outcome = outcomes[link.info.boot_id]
        if isinstance(outcome, Lost):
            found[link.name] = outcome.why
        elif isinstance(outcome, Refusal):
            found[link.name] = outcome.error.message
    return found


def accident(task: asyncio.Task[Any]) -> BaseException | None:
    """The error of a task that nothing foresaw, told with its traceback; None when there is none."""
    error = None if task.cancelled() else task.exception()
    if error is not None:
        log.error("%s failed unexpectedly", task.get_name(), exc_info=error)
    return error


def _told(outcome: Outcome) -> str:
    match outcome:
        case Lost():
            return f"lost ({outcome.why})"
        case Refusal():
            return f"{outcome.error.reason} ({outcome.error.message})"
        case _:
            return f"gate {outcome.gate.name} export {outcome.export.name}"


def _episodes(transition: Transition, outcome: Outcome) -> str:
    """How many episodes or sessions it was about; `-` where it names none."""
    if isinstance(transition, Retire):
        return str(len(transition.episodes))
    if isinstance(transition, Acknowledge):
        return str(len(transition.acknowledgements))
    if isinstance(transition, Install):
        return str(len(transition.targets))
    if not isinstance(outcome, Lost | Refusal):
        result = outcome.result
        if isinstance(result, SnapshotTaken | Uploaded | Installed | Confirmed | Activated):
            return str(result.sessions)
    return "-"
