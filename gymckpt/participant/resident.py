"""A participant that keeps its episodes in its process and nowhere else: checkpoints name them, restores let them go on, and they die with it."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping

from gymckpt.core.ids import Episode, Fence
from gymckpt.core.kinds import Capture, GateState
from gymckpt.core.manifest import EpisodeRecord
from gymckpt.core.report import LostEpisode
from gymckpt.core.sessions import Session
from gymckpt.core.transitions import Discard, Discarded, Install, Installed
from gymckpt.errors import StaleAttempt
from gymckpt.participant.base import Participant
from gymckpt.participant.loading import own_records
from gymckpt.participant.restoring import Restoring, Shelf
from gymckpt.participant.stopping import Stoppable


class Staying(Restoring):
    """A restore of what never left: runs that the checkpoint names of this very process go on, and are of the target attempt from their activation on.

    Nothing else of a target's rollout may: other runs of it are stopped.
    """

    def __init__(self, participant: ResidentParticipant) -> None:
        super().__init__(participant)
        self._resident = participant
        self._staying: list[tuple[Session, Episode]] = []

    def _check_unused(self, install: Install) -> None:
        """Live work is what goes on."""

    async def _fill(self, shelf: Shelf) -> Installed:
        p, request = self._resident, shelf.request
        targets = {target.source: target.target for target in request.targets}
        records = await own_records(p, p.require_store(), request)
        ended = {targets[record.episode]: record for record in records if self._run_of(record) is None}
        staying = [(self._run_of(record), targets[record.episode]) for record in records]
        self._staying = [(run, target) for run, target in staying if run is not None and target not in ended]
        kept = {run.key for run, _ in self._staying}
        rollouts = {target.source.rollout_id for target in request.targets}
        runs = [run for rollout_id in sorted(rollouts) for run in p.sessions.of_rollout(rollout_id)]
        await p.end([run for run in runs if run.key not in kept])
        why = "{} has ended here since the checkpoint"
        return Installed(
            len(self._staying),
            tuple(LostEpisode(target, why.format(ended[target].session)) for target in sorted(ended)),
        )

    def _run_of(self, record: EpisodeRecord) -> Session | None:
        """Keys are never used twice by one process: the same key is the same run, whatever attempt it has become."""
        return self._resident.sessions.get(record.session)

    async def discard(self, fence: Fence, discard: Discard) -> Discarded:
        """Listed targets start over: what would have become one of them is stopped."""
        discarded = await super().discard(fence, discard)
        dropped = set(discard.episodes)
        leaving = [run for run, target in self._staying if target in dropped]
        self._staying = [(run, target) for run, target in self._staying if target not in dropped]
        await self._resident.end(leaving)
        return discarded

    def _activate(self, shelf: Shelf) -> None:
        if not shelf.live:
            for run, target in self._staying:
                run.episode = target
        super()._activate(shelf)


class ResidentParticipant(Participant):
    """Always ready: whatever runs, a cut takes nothing of it. A session is one run, and its key is never used again; what works for it can be cancelled."""

    def __init__(self, name: str, *, worker: str = "0", clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(name, state=None, worker=worker, capture=Capture.RESIDENT, clock=clock)
        self._working: dict[str, set[Stoppable]] = defaultdict(set)

    def make_restoring(self) -> Restoring:
        return Staying(self)

    async def begin(self, episode: Episode, key: str) -> Session:
        """A run of the episode, or the one of this key that goes on.

        Waits until this process is a member: before that it does not know what is refused, and no checkpoint would name the run. Raises StaleAttempt, Conflict.
        """
        while self.gate.state is GateState.CLOSED and self.gate.fence is None:
            await self.has_moved()
        known = self.sessions.get(key)
        if known is not None and known.episode.rollout_id == episode.rollout_id:
            return known
        self.floors.check_start(episode)
        return self.sessions.open(episode, key)

    @contextlib.contextmanager
    def working(self, run: Session) -> Iterator[None]:
        """The calling task works for the run. Leaving raises StaleAttempt when the run was ended meanwhile."""
        with Stoppable() as work:
            self._working[run.key].add(work)
            try:
                yield
            finally:
                self._working[run.key].discard(work)
                if not self._working[run.key]:
                    del self._working[run.key]
                self.notify()

    async def end(self, runs: Iterable[Session]) -> None:
        """Cancels what works for these runs, waits until it has stopped, and forgets them."""
        runs = list(runs)
        for run in runs:
            for work in self._working.get(run.key, ()):
                details = {"episode": str(run.episode)}
                work.stop(StaleAttempt(f"{run.episode} was retired while it ran at {self.id}", details=details))
        while any(run.key in self._working for run in runs):
            await self.readiness_changed()
        for run in runs:
            self.free(run)

    # What the base asks.

    def counts(self) -> Mapping[str, int]:
        return {"sessions": len(self.sessions)}

    async def stop(self, episode: Episode) -> None:
        runs = self.sessions.of_rollout(episode.rollout_id)
        await self.end([run for run in runs if run.episode.attempt <= episode.attempt])
