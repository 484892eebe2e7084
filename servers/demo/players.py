"""Attempts at rollouts, played side by side, and what a controller says of results that have arrived."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Sequence

import httpx

from gymckpt.coordinator import CoordinatorClient
from gymckpt.errors import GymckptError, TransportFailed
from servers.demo.rollouts import Result, Rollout, play
from servers.http.client import Outgoing, UnexpectedAnswer

ACKNOWLEDGED = 1_000  # results in one acknowledgement


async def acknowledge(coordinator: CoordinatorClient, arrived: Container[str]) -> None:
    """Frees the kept results of the rollouts that have arrived, whatever attempt played them. Raises what the coordinator raises."""
    results = [result for result in await coordinator.results() if result.episode.rollout_id in arrived]
    for start in range(0, len(results), ACKNOWLEDGED):
        await coordinator.acknowledge_results(results[start : start + ACKNOWLEDGED])


class Players:
    """`urls` are environment servers, which rollouts take in turn.

    `results` by rollout id, as they come in; `failed` says why others have none. An attempt whose server died is in neither.
    """

    def __init__(self, http: httpx.AsyncClient, urls: Sequence[str]) -> None:
        self.results: dict[str, Result] = {}
        self.failed: dict[str, str] = {}
        # Without patience: when the server is gone, the attempt is over.
        self._outgoing = Outgoing(http, patience=0.0)
        self._urls = urls
        self._playing: set[asyncio.Task[None]] = set()

    def start(self, rollout: Rollout, attempt: int = 0, *, continues: bool = False) -> None:
        """Begins an attempt, from its restored state when it `continues`."""
        self._playing.add(
            asyncio.create_task(self.play(rollout, attempt, continues=continues), name=rollout.rollout_id)
        )

    @property
    def playing(self) -> int:
        """How many attempts have not ended."""
        return len(self._playing)

    async def ended(self) -> None:
        """Returns when all attempts have ended."""
        while self._playing:
            done, _ = await asyncio.wait(self._playing, return_when=asyncio.FIRST_COMPLETED)
            self._playing -= done
            for task in done:
                task.result()

    async def cancel(self) -> None:
        """Gives up whatever is still being played."""
        for task in self._playing:
            task.cancel()
        await asyncio.gather(*self._playing, return_exceptions=True)
        self._playing.clear()

    async def play(self, rollout: Rollout, attempt: int = 0, *, continues: bool = False) -> None:
        """Plays an attempt to its end."""
        key = rollout.rollout_id
        url = self._urls[rollout.number % len(self._urls)]
        try:
            self.results[key] = await play(self._outgoing, url, rollout, attempt, continues=continues)
        except TransportFailed:
            return
        except (GymckptError, UnexpectedAnswer) as error:
            self.failed[key] = f"{type(error).__name__}: {error}"
