"""An environment server's participant: it owns the stages of an episode, and declares the boundaries between them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from gymckpt.core.ids import Episode
from gymckpt.core.kinds import GateState, Kind
from gymckpt.core.manifest import Touch
from gymckpt.core.sessions import Session
from gymckpt.errors import AdmissionClosed, StaleAttempt, TaskMismatch
from gymckpt.participant.environment_state import Boundary, EnvironmentState, task_digest
from gymckpt.participant.parking import RETRY_AFTER, ParkingParticipant
from gymckpt.participant.stepping import Mode, Stepping


class EnvironmentParticipant(ParkingParticipant[Boundary]):
    """One session per episode; its key is the rollout id."""

    kind: ClassVar[Kind] = Kind.ENVIRONMENT

    def __init__(self, name: str, *, worker: str = "0", clock: Callable[[], float] = time.monotonic) -> None:
        stepping = Stepping[Boundary](self, "step")
        self._kept = EnvironmentState(stepping.steps)
        super().__init__(name, stepping=stepping, state=self._kept, worker=worker, clock=clock)

    @contextlib.asynccontextmanager
    async def episode(
        self, episode: Episode, *, task: Any, continues: bool = False, deadline: float | None = None
    ) -> AsyncIterator[Run]:
        """One `/run`: from a restored boundary when it `continues`, else from its input.

        `task` is a JSON value that tells tasks apart. `deadline` is in seconds of the episode's own time: what it stands
        at boundaries during checkpoints does not count.

        Raises AdmissionClosed (a checkpoint is open; retry), StaleAttempt, DuplicateEpisode, TaskMismatch, NotRestored,
        AlreadyRestored, InvalidField; at the end StaleAttempt when it was retired, DeadlineExceeded when its time was over.
        """
        key, digest = episode.rollout_id, task_digest(task)
        claimed = await self._start(episode, digest, continues)
        boundary = self._kept.restored.pop(key, None) if claimed is not None else None
        try:
            async with self._stepping.running(key, episode, boundary=boundary, allowance=deadline):
                self._kept.tasks[key] = digest
                yield Run(self._stepping, key, boundary)
        finally:
            self.sessions.remove(key)
            self._kept.discard(key)

    async def _start(self, episode: Episode, digest: str, continues: bool) -> Session | None:
        """Everything that may be refused comes before the restored state is claimed: a refused start leaves it as it was."""
        while True:
            self.check_attempt(episode)
            self._check_open(episode)
            session = self.sessions.get(episode.rollout_id)
            if session is None or not session.pending:
                break
            await self.has_moved()
        self._stepping.steps.check_free(episode.rollout_id, episode)
        if continues and session is not None and session.episode == episode:
            self._check_task(episode, digest)
        claimed = await self.claim(episode, episode.rollout_id, continues=continues)
        self.sessions.open(episode, episode.rollout_id)
        return claimed

    def _check_open(self, episode: Episode) -> None:
        if self.gate.state is not GateState.OPEN:
            holder = self.gate.fence.checkpoint_id if self.gate.fence is not None else "its start"
            raise AdmissionClosed(
                f"{episode} cannot start now: the gate of {self.id} is {self.gate.state.name} (held by {holder}); retry",
                details={"episode": str(episode), "holder": holder},
                retry_after=RETRY_AFTER,
            )

    def _check_task(self, episode: Episode, digest: str) -> None:
        held = self._kept.tasks[episode.rollout_id]
        if held != digest:
            raise TaskMismatch(
                f"{episode} was restored for the task with digest {held[:16]}, not {digest[:16]}; send the task that it began with",
                details={"episode": str(episode), "restored": held, "task": digest},
            )

    # What the base asks.

    def counts(self) -> Mapping[str, int]:
        return {"sessions": len(self.sessions), "episodes": len(self._stepping.steps)}

    def describe(self, session: Session) -> tuple[str, tuple[Touch, ...]]:
        boundary = self._kept.boundary(session.key)
        return (boundary.stage, boundary.touches) if boundary is not None else ("", ())

    def restored(self, session: Session, boundary: str, touches: tuple[Touch, ...]) -> None:
        held = self._kept.restored.get(session.key)
        if held is not None:
            self._kept.restored[session.key] = replace(held, touches=touches)

    async def stop(self, episode: Episode) -> None:
        steps, key = self._stepping.steps, episode.rollout_id
        if key in steps and steps[key].episode.attempt <= episode.attempt:
            running = steps[key].episode
            await self._stepping.stop(
                key, StaleAttempt(f"{running} was retired while it ran", details={"episode": str(running)})
            )


class Run:
    """A live episode, as its environment sees it. All methods belong to the task that entered `episode`."""

    def __init__(self, stepping: Stepping[Boundary], key: str, boundary: Boundary | None) -> None:
        self._stepping = stepping
        self._key = key
        self.continuation = boundary.continuation if boundary is not None else None
        """The payload of the restored boundary and its `stage`; None: start from the input."""

    async def boundary(self, stage: str, payload: Mapping[str, Any], touches: Sequence[Touch] = ()) -> None:
        """Declares that `stage` comes next and needs `payload` (plain data, without a key `stage`); waits there while a checkpoint is open.

        Raises InvalidField, StaleAttempt.
        """
        await self._stepping.boundary(self._key, Boundary.of(stage, payload, touches))

    def step(self, mode: Mode, name: str = "") -> contextlib.AbstractAsyncContextManager[None]:
        """One step between boundaries: a checkpoint waits for the end of a `wait` step; it does not wait for a `replay` step, which may run again."""
        return self._stepping.step(self._key, name or mode, mode)

    @contextlib.asynccontextmanager
    async def finishing(self) -> AsyncIterator[None]:
        """The final cleanup: who retires the episode waits for it, and never interrupts it.

        During a checkpoint it begins only if the checkpoint waits for this episode: it may undo what the boundary needs.
        """
        self._stepping.mark_finishing(self._key)
        await self._stepping.pause(self._key)
        yield

    async def mark_restart(self, why: str) -> None:
        """Something that the episode touches cannot be captured: it is not exported, and restarts after a crash. During a checkpoint that holds after it."""
        self._stepping.mark_restart(self._key, why)
