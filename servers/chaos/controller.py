"""A controller that plays every rollout to its result, whatever dies: an attempt that fails is continued when a restore says so, and starts over otherwise."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from gymckpt.coordinator import CoordinatorClient
from gymckpt.errors import (
    Conflict,
    CoordinatorStarting,
    DeadlineExceeded,
    GymckptError,
    InvalidPhase,
    ParticipantLost,
    StoreUnavailable,
    TransportFailed,
)
from gymckpt.participant import Episode
from servers.chaos.supervised import Told
from servers.demo.players import acknowledge
from servers.demo.rollouts import Result, Rollout, play
from servers.http.client import Outgoing, UnexpectedAnswer

RETRY_SECONDS = 0.2
ACKNOWLEDGE_SECONDS = 1.0
AGAIN = (
    Conflict,
    CoordinatorStarting,
    DeadlineExceeded,
    InvalidPhase,
    ParticipantLost,
    StoreUnavailable,
    TransportFailed,
)
"""What a request meets while the coordinator, or a server that must do something, is dead or comes back."""


@dataclass(frozen=True)
class Next:
    """The attempt of a rollout that may start, and from what."""

    attempt: int
    continues: bool


@dataclass
class Ledger:
    """What the controller has done and was told."""

    results: dict[str, Result] = field(default_factory=dict)
    continued: int = 0
    restarted: int = 0
    failures: list[str] = field(default_factory=list)


class Controller:
    """`urls` are environment servers, which rollouts take in turn."""

    def __init__(
        self, outgoing: Outgoing, coordinator: CoordinatorClient, urls: Sequence[str], concurrency: int
    ) -> None:
        self.ledger = Ledger()
        self._outgoing = outgoing
        self._coordinator = coordinator
        self._urls = urls
        self._free = asyncio.Semaphore(concurrency)
        self._next: dict[str, Next] = {}
        self._played_as: dict[str, int] = {}
        self._whole = 0  # how often the supervisor said that nothing is missing
        self._broken = True
        self._news = asyncio.Condition()

    async def hear(self, told: Told) -> None:
        """Takes one event of the supervisor."""
        async with self._news:
            if told["event"] == "restored":
                for fate in ("restored", "restarted"):
                    for target in told["restore"][fate]:
                        episode = Episode.parse(target["target"])
                        self._next[episode.rollout_id] = Next(episode.attempt, fate == "restored")
            elif told["event"] == "retired":
                for text in told["episodes"]:
                    episode = Episode.parse(text)
                    self._next[episode.rollout_id] = Next(episode.attempt + 1, continues=False)
            elif told["event"] == "whole":
                self._whole += 1
                self._broken = False
            elif told["event"] == "died":
                self._broken = True
            self._news.notify_all()

    async def play(self, rollouts: Sequence[Rollout]) -> None:
        """Returns when every rollout has its result. Results are acknowledged on the way: what is kept is in every checkpoint and restored with it."""
        acknowledging = asyncio.create_task(self._acknowledge())
        try:
            await asyncio.gather(*(self._play(rollout) for rollout in rollouts))
        finally:
            acknowledging.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await acknowledging

    async def _acknowledge(self) -> None:
        while True:
            await asyncio.sleep(ACKNOWLEDGE_SECONDS)
            await self._insist(lambda: acknowledge(self._coordinator, self.ledger.results))

    async def clear(self) -> None:
        """Once every rollout has its result: frees it, and what a restore brought back for a rollout that had it already. Nothing is left then, unless another
        server dies."""
        cleared = -1
        while self._broken or cleared < self._whole:
            async with self._news:
                await self._news.wait_for(lambda: not self._broken)
            cleared = self._whole
            later = {name: told.attempt for name, told in self._next.items() if told.attempt > self._played_as[name]}
            await self._retire([Episode(name, attempt) for name, attempt in later.items()])
            await self._insist(lambda: acknowledge(self._coordinator, self.ledger.results))

    async def _play(self, rollout: Rollout) -> None:
        async with self._free:
            now = Next(0, continues=False)
            while not await self._played(rollout, now):
                now = await self._after(rollout.rollout_id, now)
                self.ledger.continued += now.continues
                self.ledger.restarted += not now.continues
            self._played_as[rollout.rollout_id] = now.attempt

    async def _played(self, rollout: Rollout, now: Next) -> bool:
        url = self._urls[rollout.number % len(self._urls)]
        async with self._news:
            await self._news.wait_for(lambda: not self._broken)
        try:
            result = await play(self._outgoing, url, rollout, now.attempt, continues=now.continues)
        except (GymckptError, UnexpectedAnswer) as error:
            told = f"{Episode(rollout.rollout_id, now.attempt)}: {type(error).__name__}: {error}"
            self.ledger.failures.append(f"{time.time():.1f} {told}")
            return False
        self.ledger.results[rollout.rollout_id] = result
        return True

    async def _after(self, rollout_id: str, failed: Next) -> Next:
        """Waits for the word of the supervisor: an attempt above the failed one, or that nothing more will be restored. Then the failed one is retired, and
        the rollout starts over."""
        async with self._news:
            since = self._whole
            await self._news.wait_for(lambda: self._above(rollout_id, failed) or self._whole > since)
            told = self._above(rollout_id, failed)
        if told is None:
            await self._retire([Episode(rollout_id, failed.attempt)])
            told = Next(failed.attempt + 1, continues=False)
        return told

    def _above(self, rollout_id: str, failed: Next) -> Next | None:
        told = self._next.get(rollout_id)
        return told if told is not None and told.attempt > failed.attempt else None

    async def _retire(self, episodes: Sequence[Episode]) -> None:
        if episodes:
            await self._insist(lambda: self._coordinator.retire_episodes(episodes))

    async def _insist(self, ask: Callable[[], Awaitable[None]]) -> None:
        """Asks until it is done."""
        while True:
            try:
                await ask()
            except AGAIN as error:
                await asyncio.sleep(error.retry_after or RETRY_SECONDS)
            else:
                return
