"""Stopping attempts for good: refuse first, then stop, then free, then answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gymckpt.core.ids import Episode, Fence
from gymckpt.core.kinds import GateState
from gymckpt.core.transitions import Forget, Forgotten, Retire, Retired
from gymckpt.errors import DeadlineExceeded, InvalidPhase, NotImplementedHere

if TYPE_CHECKING:
    from gymckpt.participant.base import Participant


class Retiring:
    """Retire and forget."""

    def __init__(self, participant: Participant) -> None:
        self._p = participant
        self._stopping: dict[Episode, asyncio.Task[None]] = {}

    def moves(self) -> dict[type, Callable[..., Any]]:
        return {Retire: self.retire, Forget: self.forget}

    async def retire(self, fence: Fence, retire: Retire) -> Retired:
        """The refusal comes before the stopping, and stays whatever happens: a call on its way must not slip in behind."""
        p = self._p
        if p.gate.state is not GateState.OPEN:
            holder = p.gate.fence.checkpoint_id if p.gate.fence is not None else "none"
            raise InvalidPhase(
                f"the gate of {p.id} is {p.gate.state.name} (held by {holder}): work on its way to a boundary cannot be stopped; resume or abort first"
            )
        for episode in retire.episodes:
            p.floors.refuse(episode)
        p.moved()
        tasks = {self._stop(episode) for episode in retire.episodes}
        _, running = await asyncio.wait(tasks, timeout=retire.timeout)
        if running:
            late = sorted(str(episode) for episode, task in self._stopping.items() if task in running)
            raise DeadlineExceeded(
                f"{p.id}: {len(running)} attempts have not stopped after {retire.timeout} s, first {late[:3]}; retire them again"
            )
        for task in tasks:
            task.result()
        return Retired()

    def _stop(self, episode: Episode) -> asyncio.Task[None]:
        """One task per attempt, whoever asks and however often."""
        if episode not in self._stopping:
            task = asyncio.create_task(self._stop_and_free(episode), name=f"retire {episode}")
            self._stopping[episode] = task
            task.add_done_callback(lambda _: self._stopping.pop(episode, None))
        return self._stopping[episode]

    async def _stop_and_free(self, episode: Episode) -> None:
        p = self._p
        await p.stop(episode)
        for session in p.sessions.of_rollout(episode.rollout_id):
            if session.episode.attempt <= episode.attempt:
                p.sessions.remove(session.key)
                if p.state is not None:
                    p.state.discard(session.key)
        p.lost = {
            lost: why
            for lost, why in p.lost.items()
            if lost.rollout_id != episode.rollout_id or lost.attempt > episode.attempt
        }
        p.notify()

    async def forget(self, fence: Fence, forget: Forget) -> Forgotten:
        raise NotImplementedHere("forgetting rollouts is not part of this release; their refusals stay")
