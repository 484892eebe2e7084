"""The waiting side of core/steps.py, which environments and agents share: parking, deadlines, and stopping work once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from gymckpt.core.ids import Episode
from gymckpt.core.steps import EpisodeSteps
from gymckpt.errors import DeadlineExceeded, GymckptError
from gymckpt.participant.stopping import Stoppable

if TYPE_CHECKING:
    from gymckpt.participant.base import Participant

B = TypeVar("B")

Mode = Literal["wait", "replay"]


@dataclass(slots=True)
class Work:
    """What runs for one live episode."""

    stoppable: Stoppable
    timeout: asyncio.Timeout
    ends_at: float | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class Stepping(Generic[B]):
    """All live episodes of one participant, by the key of their session."""

    def __init__(self, participant: Participant, blocker_type: str) -> None:
        self._p = participant
        self.steps = EpisodeSteps[B](blocker_type)
        self._work: dict[str, Work] = {}

    @contextlib.asynccontextmanager
    async def running(
        self,
        key: str,
        episode: Episode,
        *,
        boundary: B | None = None,
        allowance: float | None = None,
        within: bool = False,
    ) -> AsyncIterator[None]:
        """Tracks the episode while the calling task works on it, for at most `allowance` seconds; whoever stands at a boundary at the end leaves only once
        the gate is open.

        Raises DuplicateEpisode; DeadlineExceeded when the time is over; what `stop` was given when the work was stopped.
        """
        self.steps.begin(key, episode, self._p.clock(), boundary=boundary, allowance=allowance, within=within)
        work = self._work[key] = Work(Stoppable(), asyncio.timeout(None))
        try:
            with work.stoppable:
                async with work.timeout, self._leaving(key):
                    self._keep_time(key)
                    yield
        except TimeoutError as error:
            if not work.timeout.expired():
                raise
            message = (
                f"{episode} took more than its {allowance:g} seconds, the time at boundaries during checkpoints aside"
            )
            raise DeadlineExceeded(message, details={"episode": str(episode)}) from error
        finally:
            self.steps.end(key)
            del self._work[key]
            work.ended.set()
            self._p.notify()

    @contextlib.asynccontextmanager
    async def _leaving(self, key: str) -> AsyncIterator[None]:
        """Whoever is counted at a boundary is gone only once the gate is open, or it would be missing from the cut."""
        try:
            yield
        except Exception:
            await self.pause(key)
            raise
        await self.pause(key)

    async def boundary(self, key: str, boundary: B) -> None:
        """Records it; returns once the gate is open. Raises StaleAttempt when the episode was retired."""
        parked = self.steps.boundary(key, boundary, self._p.clock())
        self.changed(key)
        if parked:
            await self._wait(key)

    async def pause(self, key: str) -> None:
        """Waits for the gate at the boundary before, unless the checkpoint waits for this episode."""
        if self.steps.pause(key, self._p.clock()):
            await self._wait(key)

    @contextlib.asynccontextmanager
    async def step(self, key: str, name: str, mode: Mode, *, keeps_boundary: bool = False) -> AsyncIterator[None]:
        """One step. `keeps_boundary`: failing undoes nothing that the boundary before it needs."""
        while not self.steps.enter(key, name, mode, self._p.clock()):
            await self._wait(key)
        self._after(key)
        failed = True
        try:
            yield
            failed = False
        finally:
            held = self.steps[key].boundary
            self.steps.leave(key, self._p.clock(), failed=failed and not keeps_boundary)
            if self.steps[key].boundary is not held:
                self.changed(key)
            self._after(key)

    async def stop(self, key: str, error: GymckptError) -> None:
        """Cancels the work once, unless its final cleanup has begun, and waits until it has ended; its caller gets `error`.

        Called again, waits for the same.
        """
        work = self._work.get(key)
        if work is None:
            return
        if self.steps.retire(key, self._p.clock()):
            work.stoppable.stop(error)
        self._after(key)
        await work.ended.wait()

    async def ended(self, key: str) -> None:
        """Waits until nothing runs under this key."""
        work = self._work.get(key)
        if work is not None:
            await work.ended.wait()

    def mark_restart(self, key: str, why: str) -> None:
        self.steps.mark_restart(key, why)
        self._after(key)

    def mark_finishing(self, key: str) -> None:
        self.steps.mark_finishing(key)
        self._after(key)

    def changed(self, key: str) -> None:
        """What a cut would take of the session is no longer the same."""
        session = self._p.sessions.get(key)
        if session is not None:
            session.touched(receipted=True)

    def gate_closing(self) -> None:
        self.steps.close(self._p.clock())
        self._keep_all_times()

    def gate_opened(self) -> None:
        self.steps.open(self._p.clock())
        self._keep_all_times()

    async def _wait(self, key: str) -> None:
        """A parked episode; one that a newer checkpoint overtakes before it runs stays parked."""
        self._after(key)
        try:
            while not self.steps.wake(key, self._p.clock()):
                await self._p.open_gate()
        except asyncio.CancelledError:
            self.steps.interrupt(key, self._p.clock())
            raise
        finally:
            self._after(key)

    def _after(self, key: str) -> None:
        self._keep_time(key)
        self._p.notify()

    def _keep_all_times(self) -> None:
        for key in self._work:
            self._keep_time(key)

    def _keep_time(self, key: str) -> None:
        """Sets the timer to what the deadline has become; one that ran out stays so."""
        work, ends_at = self._work[key], self.steps[key].ends_at
        if ends_at == work.ends_at or work.timeout.expired():
            return
        work.ends_at = ends_at
        loop = asyncio.get_running_loop()
        work.timeout.reschedule(None if ends_at is None else loop.time() + ends_at - self._p.clock())
