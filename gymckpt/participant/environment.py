"""An environment server's participant: it owns the stages of an episode, declares the boundaries between them, and keeps the result."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from gymckpt.core.chunks import digest_of
from gymckpt.core.ids import Episode
from gymckpt.core.kinds import GateState, Kind
from gymckpt.core.manifest import Touch
from gymckpt.core.sessions import Session
from gymckpt.errors import AdmissionClosed, AlreadyRestored, InvalidField, NotRestored, StaleAttempt, TaskMismatch
from gymckpt.participant.environment_state import Boundary, EnvironmentState, Finished, task_digest
from gymckpt.participant.parking import RETRY_AFTER, ParkingParticipant
from gymckpt.participant.results import FINISHED, result_body
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
        at boundaries during checkpoints does not count. Where this attempt has finished, its `/run` was repeated or continues a restored result: the run has
        it as `reply`, and there is nothing to play.

        Raises AdmissionClosed (a checkpoint is open; retry), StaleAttempt, DuplicateEpisode, TaskMismatch, NotRestored,
        AlreadyRestored, InvalidField; at the end StaleAttempt when it was retired, DeadlineExceeded when its time was over.
        """
        key, digest = episode.rollout_id, task_digest(task)
        session = await self._start(episode, digest, continues)
        if session.result is not None:
            yield Run(self._stepping, key, reply=json.loads(self.body(session)))
            return
        boundary = self._kept.restored.pop(key, None)
        run = Run(self._stepping, key, boundary, keeps=self.enabled)
        try:
            async with self._stepping.running(key, episode, boundary=boundary, allowance=deadline):
                self._kept.tasks[key] = digest
                yield run
        finally:
            self._end(session, run.body, continues)

    async def _start(self, episode: Episode, digest: str, continues: bool) -> Session:
        """The session to play on, or the one that has finished. Everything that may be refused comes before restored state is claimed: a refused start leaves
        it as it was."""
        key = episode.rollout_id
        while True:
            self.check_attempt(episode)
            session = self.sessions.get(key)
            if (
                session is not None
                and session.episode == episode
                and session.result is not None
                and not session.pending
            ):
                self._check_repeated(session, digest, continues)
                return session
            self._check_open(episode)
            if session is None or not session.pending:
                break
            await self.has_moved()
        self._stepping.steps.check_free(key, episode)
        if continues and session is not None and session.episode == episode:
            self._check_task(session, digest)
        await self.claim(episode, key, continues=continues)
        if session is not None and session.result is not None and session.episode.attempt < episode.attempt:
            self.free(session)
        return self.sessions.open(episode, key)

    def _end(self, session: Session, body: bytes | None, continues: bool) -> None:
        """A finished episode stays for its result, in the same step in which its work ends: no cut finds neither."""
        if body is None:
            self.free(session)
            return
        self._kept.finished[session.key] = Finished(body, continues)
        session.touched(receipted=True)
        self.sessions.finish(session, digest_of(body))

    def _check_open(self, episode: Episode) -> None:
        if self.gate.state is not GateState.OPEN:
            holder = self.gate.fence.checkpoint_id if self.gate.fence is not None else "its start"
            raise AdmissionClosed(
                f"{episode} cannot start now: the gate of {self.id} is {self.gate.state.name} (held by {holder}); retry",
                details={"episode": str(episode), "holder": holder},
                retry_after=RETRY_AFTER,
            )

    def _check_task(self, session: Session, digest: str) -> None:
        episode, held = session.episode, self._kept.tasks[session.key]
        if held != digest:
            raise TaskMismatch(
                f"{episode} was {'restored' if session.restored else 'played'} for the task with digest {held[:16]}, not {digest[:16]}; "
                "send the task that it began with",
                details={"episode": str(episode), "restored": held, "task": digest},
            )

    def _check_repeated(self, session: Session, digest: str, continues: bool) -> None:
        """Whoever asks for the result again asks in the same way."""
        if self._kept.finished[session.key].continues and not continues:
            raise AlreadyRestored(
                f"{session.episode} has finished here, and continued restored state; continue it, or retire it before starting from input"
            )
        if continues and not self._kept.finished[session.key].continues:
            raise NotRestored(f"{session.episode} has finished here, and began with its input; repeat it as it began")
        self._check_task(session, digest)

    # What the base asks.

    def counts(self) -> Mapping[str, int]:
        return {
            "sessions": self.sessions.live,
            "episodes": len(self._stepping.steps),
            "results": self.sessions.results,
        }

    def body(self, session: Session) -> bytes:
        return self._kept.finished[session.key].body

    def describe(self, session: Session) -> tuple[str, tuple[Touch, ...]]:
        if session.result is not None:
            return FINISHED, ()
        boundary = self._kept.boundary(session.key)
        return (boundary.stage, boundary.touches) if boundary is not None else ("", ())

    def restored(self, session: Session, boundary: str, touches: tuple[Touch, ...]) -> None:
        held = self._kept.restored.get(session.key)
        if held is not None:
            self._kept.restored[session.key] = replace(held, touches=touches)
        if session.key in self._kept.finished:
            self.sessions.finish(session, digest_of(self.body(session)))

    async def stop(self, episode: Episode) -> None:
        steps, key = self._stepping.steps, episode.rollout_id
        if key in steps and steps[key].episode.attempt <= episode.attempt:
            running = steps[key].episode
            await self._stepping.stop(
                key, StaleAttempt(f"{running} was retired while it ran", details={"episode": str(running)})
            )


class Run:
    """A live episode, as its environment sees it. All methods belong to the task that entered `episode`. When `reply` is set nothing is to be played."""

    def __init__(
        self,
        stepping: Stepping[Boundary],
        key: str,
        boundary: Boundary | None = None,
        *,
        keeps: bool = False,
        reply: Any = None,
    ) -> None:
        self._stepping = stepping
        self._key = key
        self._keeps = keeps
        self.reply = reply
        """The result, a JSON value, once the episode has completed."""
        self.body: bytes | None = None
        """The result as it is kept; None before `complete`, and where checkpointing is off."""
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

    def complete(self, result: Any) -> None:
        """The episode has its result, a JSON value other than None; it counts when the context is left. It is kept until it is acknowledged or retired, or a
        later attempt of the rollout starts here; not where checkpointing is off. Raises InvalidField.
        """
        if result is None:
            raise InvalidField("a result must not be None, which is a run without one", field="result")
        self.body = result_body(result) if self._keeps else None
        self.reply = result

    async def mark_restart(self, why: str) -> None:
        """Something that the episode touches cannot be captured: it is not exported, and restarts after a crash. During a checkpoint that holds after it."""
        self._stepping.mark_restart(self._key, why)
