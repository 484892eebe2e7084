"""Stopping attempts for good: refuse first, then stop, then free, then answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gymckpt.core.ids import Episode, Fence
from gymckpt.core.report import Blocker
from gymckpt.core.transitions import Forget, Forgotten, Retire, Retired
from gymckpt.errors import DeadlineExceeded, InvalidPhase, NotImplementedHere

if TYPE_CHECKING:
    from gymckpt.participant.base import Participant


@dataclass(frozen=True, slots=True)
class Stopping:
    """An attempt that is being stopped, or whose stopping failed: it blocks a cut until all of it is freed."""

    task: asyncio.Task[None]
    since: float


class Retiring:
    """Retire and forget."""

    def __init__(self, participant: Participant) -> None:
        self._p = participant
        self._stopping: dict[Episode, Stopping] = {}

    def moves(self) -> dict[type, Callable[..., Any]]:
        return {Retire: self.retire, Forget: self.forget}

    @property
    def count(self) -> int:
        """Attempts that are refused but not yet freed."""
        return len(self._stopping)

    def blockers(self, now: float) -> Iterator[Blocker]:
        """One blocker for each of them."""
        for episode, stopping in self._stopping.items():
            yield Blocker("retiring", episode, "", now - stopping.since)

    async def retire(self, fence: Fence, retire: Retire) -> Retired:
        """The refusal comes before the stopping, and stays whatever happens: a call on its way must not slip in behind.

        A gate that nobody holds was never open, and nothing is on its way here.
        """
        p = self._p
        if p.gate.fence is not None:
            raise InvalidPhase(
                f"the gate of {p.id} is {p.gate.state.name} (held by {p.gate.fence.checkpoint_id}): work on its way to a boundary cannot be stopped; "
                "resume or abort first"
            )
        for episode in retire.episodes:
            p.floors.refuse(episode)
        p.restoring.drop_refused()
        p.drop_lost()
        p.moved()
        tasks = {self._stop(episode): episode for episode in retire.episodes}
        _, running = await asyncio.wait(tasks, timeout=retire.timeout)
        if running:
            late = sorted(str(tasks[task]) for task in running)
            raise DeadlineExceeded(
                f"{p.id}: {len(running)} attempts have not stopped after {retire.timeout:g} s, first {late[:3]}; retire them again"
            )
        for task in tasks:
            task.result()
        return Retired()

    def _stop(self, episode: Episode) -> asyncio.Task[None]:
        """One task per attempt, whoever asks and however often; one that failed is tried again."""
        stopping = self._stopping.get(episode)
        if stopping is None or stopping.task.done():
            task = self._p.spawn(self._stop_and_free(episode), f"retirement of {episode}")
            stopping = self._stopping[episode] = Stopping(task, self._p.clock())
        return stopping.task

    async def _stop_and_free(self, episode: Episode) -> None:
        p = self._p
        await p.stop(episode)
        for session in p.sessions.of_rollout(episode.rollout_id):
            if session.episode.attempt <= episode.attempt:
                p.free(session)
        del self._stopping[episode]
        p.notify()

    async def forget(self, fence: Fence, forget: Forget) -> Forgotten:
        raise NotImplementedHere("forgetting rollouts is not part of this release; their refusals stay")
