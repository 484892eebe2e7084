"""An agent server's participant: sessions that an environment opens, activations of the loop, and whole `/run` episodes."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import ClassVar

from gymckpt.core.admission import Running
from gymckpt.core.chunks import digest_of
from gymckpt.core.ids import Episode
from gymckpt.core.kinds import GateState, Kind
from gymckpt.core.manifest import Touch
from gymckpt.core.sessions import Session, check_owner
from gymckpt.errors import (
    ActivationOutOfOrder,
    AdmissionClosed,
    AlreadyRestored,
    Conflict,
    EpisodeNotFound,
    InvalidPhase,
    StaleAttempt,
    TaskMismatch,
)
from gymckpt.participant.activation import Activation
from gymckpt.participant.agent_state import IDLE, AgentSession, AgentState, JsonObject, Loop, check_plain
from gymckpt.participant.base import log
from gymckpt.participant.call import current_call
from gymckpt.participant.closed import ClosedSessions
from gymckpt.participant.parking import RETRY_AFTER, ParkingParticipant
from gymckpt.participant.results import FINISHED, result_body
from gymckpt.participant.stepping import Stepping


class AgentParticipant(ParkingParticipant[Loop]):
    """Sessions by the key that their caller gives. Work within a step that a checkpoint waits for (an agent used as a tool) neither waits nor parks."""

    kind: ClassVar[Kind] = Kind.AGENT

    def __init__(self, name: str, *, worker: str = "0", clock: Callable[[], float] = time.monotonic) -> None:
        stepping = Stepping[Loop](self, "activation")
        self._kept = AgentState(stepping.steps)
        self._closed = ClosedSessions(clock)
        self._seeds: set[tuple[str, asyncio.Task[object] | None]] = set()
        self._closing: set[str] = set()
        self._indexes: dict[str, int] = {}
        super().__init__(name, stepping=stepping, state=self._kept, worker=worker, clock=clock)

    @contextlib.asynccontextmanager
    async def seeding(self, episode: Episode, key: str) -> AsyncIterator[None]:
        """What a session needs is being built: waits while the gate is not open, then a checkpoint waits for it, and so does a retire. Raises StaleAttempt."""
        seed = (key, asyncio.current_task())
        if seed in self._seeds:
            yield
            return
        await self._let_in(episode)
        ticket = self.in_flight.enter(Running("seed", episode, key, self.clock(), blocks=True))
        self._seeds.add(seed)
        try:
            yield
        finally:
            self._seeds.discard(seed)
            self.in_flight.leave(ticket)
            self.notify()

    async def open_session(
        self, episode: Episode, key: str, request: JsonObject, *, continues: bool = False
    ) -> AgentSession:
        """Opens the session, or binds again to the one that this attempt has: what it holds stays.

        `continues`: this attempt follows one that a restore brought back. Where it opens a session under a new key, the seed that the cut interrupted is
        made again, and what that seed had opened is freed.

        Raises InvalidField, StaleAttempt (retired, or another attempt owns the key), Conflict (another rollout does), AlreadyRestored (a start from input,
        and restored state is here).
        """
        request = check_plain(request, "request")
        async with self.seeding(episode, key):
            session = self.sessions.get(key)
            if session is None:
                await self._take_place(episode, continues=continues)
                await self.claim(episode, key, continues=False)
            elif session.pending or session.restored:
                await self.claim(episode, key, continues=continues)
            self.check_attempt(episode)
            session = self.sessions.open(episode, key)
            if self.lost.pop(episode, None) is not None:
                self.moved()
            return self._kept.sessions.setdefault(session.key, AgentSession(episode, key, request))

    async def _take_place(self, episode: Episode, *, continues: bool) -> None:
        """Frees what an interrupted seed of the episode left. Raises AlreadyRestored unless it continues, StaleAttempt."""
        await self._decided(episode)
        left = [session for session in self.sessions.of(episode) if session.restored]
        if left and not continues:
            raise AlreadyRestored(
                f"{episode} holds restored state at {self.id}; continue it, or retire it before starting from input"
            )
        for session in left:
            self.free(session)

    async def _decided(self, episode: Episode) -> None:
        """Waits while it is open whether a restore comes to anything. Raises StaleAttempt."""
        while any(session.pending for session in self.sessions.of(episode)):
            await self.has_moved()
            self.check_attempt(episode)

    @contextlib.asynccontextmanager
    async def activation(self, episode: Episode, key: str, index: int | None = None) -> AsyncIterator[Activation]:
        """One activation of the session's loop, one at a time.

        `index` counts from 0; with it a repeated activation waits for the first and gives its `reply`. An activation that ends without `complete` stays
        where its last boundary was, and the next one continues there. A call for a session that is not here (the process was replaced) is held and its
        episode reported as lost.

        Raises StaleAttempt, Conflict (another activation runs), ActivationOutOfOrder, EpisodeNotFound (no such session, checkpointing is off); at the end
        StaleAttempt when it was retired, InvalidPhase when the session was closed.
        """
        act = await self._ready(episode, key, index)
        if act.reply is not None:
            yield act
            return
        steps, left_at = self._stepping.steps, self._kept.loop(key)
        self._indexes[key] = self._kept.sessions[key].activations
        try:
            async with self._stepping.running(key, episode, boundary=left_at, within=self._is_within()):
                try:
                    yield act
                finally:
                    left_at = steps[key].boundary
        finally:
            del self._indexes[key]
            act.settle(left_at)

    async def _ready(self, episode: Episode, key: str, index: int | None) -> Activation:
        """Waits until the activation may run; gives the finished one when it was completed before."""
        while True:
            self.check_attempt(episode)
            session = self.sessions.get(key)
            if session is None:
                self._report_lost(episode, key)
                await self.has_moved()
                continue
            check_owner(session, episode)
            if self._must_wait(session):
                await self.has_moved()
            elif key in self._closing:
                raise InvalidPhase(f"session {key!r} of {episode} is being closed; it takes no more activations")
            elif key in self._stepping.steps:
                await self._wait_for_same(episode, key, index)
            else:
                act = self._in_order(session, index)
                self._count_let_in()
                session.restored = False
                return act

    def _in_order(self, session: Session, index: int | None) -> Activation:
        held = self._kept.sessions[session.key]
        if index is None or index == held.activations:
            return Activation(self._stepping, held)
        if index == held.activations - 1 and held.reply is not None:
            return Activation(self._stepping, held, reply=held.reply)
        raise ActivationOutOfOrder(
            f"session {held.key!r} of {held.episode} has completed {held.activations} activations; index {index} is neither the next nor the last",
            details={"session": held.key, "index": str(index), "completed": str(held.activations)},
        )

    async def _wait_for_same(self, episode: Episode, key: str, index: int | None) -> None:
        running = self._indexes[key]
        if index != running:
            raise Conflict(
                f"activation {running} of session {key!r} of {episode} is running; activations run one at a time",
                details={"session": key, "running": str(running), "index": str(index)},
                retry_after=RETRY_AFTER,
            )
        await self._stepping.ended(key)

    def _report_lost(self, episode: Episode, key: str) -> None:
        if self.store is None:
            raise EpisodeNotFound(f"{self.id} has no session {key!r} of {episode}; open it first")
        if episode not in self.lost:
            self.lost[episode] = f"{self.id} does not hold session {key!r}"[:256]
            log.warning("an activation of %s is held: %s", episode, self.lost[episode])

    async def close_session(self, episode: Episode, key: str) -> JsonObject | None:
        """Ends the session and gives its facts; closed again, gives the same for a while. None: no such session of this attempt. A running activation is
        cancelled once; a checkpoint waits until it has stopped.

        Raises nothing for a retired attempt: closing is never refused.
        """
        while self._must_wait(self.sessions.get(key)):
            await self.has_moved()
        held = self._owned(episode, key)
        if held is None:
            return self._closed.facts(episode, key)
        ticket = self.in_flight.enter(Running("close", episode, key, self.clock(), blocks=True))
        self._closing.add(key)
        try:
            error = InvalidPhase(f"session {key!r} of {episode} was closed while its activation ran")
            await self._stepping.stop(key, error)
            if self._owned(episode, key) is held:
                self._end(held)
            return held.facts
        finally:
            self._closing.discard(key)
            self.in_flight.leave(ticket)
            self.notify()

    def _owned(self, episode: Episode, key: str) -> AgentSession | None:
        session = self.sessions.get(key)
        return self._kept.sessions.get(key) if session is not None and session.episode == episode else None

    def _end(self, held: AgentSession) -> None:
        self._closed.remember(held)
        self.sessions.remove(held.key)
        self._kept.discard(held.key)

    @contextlib.asynccontextmanager
    async def run_episode(
        self, episode: Episode, request: JsonObject, *, continues: bool = False, front: bool = True
    ) -> AsyncIterator[Activation]:
        """A whole `/run`: a session of its own with one activation, gone when that ends.

        `front`: the controller calls this server itself, and is refused while a checkpoint is open instead of being held. A run within a step that the
        checkpoint waits for is neither. What has completed is kept as the result until it is acknowledged or retired, or a later attempt of the rollout
        starts here: a `/run` that is repeated, or continues a restored result, has it as `reply`. Where checkpointing is off it is kept for a while.

        Raises AdmissionClosed, TaskMismatch, and what `open_session` and `activation` raise.
        """
        key = f"run:{episode.rollout_id}"
        kept = self._result(episode, key, request, continues)
        if kept is None and front and not self._admits():
            raise AdmissionClosed(
                f"{episode} cannot start now: the gate of {self.id} is {self.gate.state.name}; retry",
                retry_after=RETRY_AFTER,
            )
        while True:
            await self._decided(episode)
            if self._owned(episode, key) is not None:
                await self._stepping.ended(key)
            reply = self._result(episode, key, request, continues) or self._closed.reply(episode, key)
            if reply is not None:
                yield Activation(self._stepping, AgentSession(episode, key, request), reply=reply)
                return
            session = self.sessions.get(key)
            earlier = session is not None and session.result is not None and session.episode.attempt < episode.attempt
            if continues and (session is None or earlier):
                await self.claim(episode, key, continues=True)
            if session is not None and earlier:
                self.free(session)
            await self.open_session(episode, key, request, continues=continues)
            if key not in self._stepping.steps:
                break
        try:
            async with self.activation(episode, key, 0) as act:
                yield act
        finally:
            held = self._owned(episode, key)
            if held is not None and key not in self._stepping.steps:
                self._end_run(held)

    def _end_run(self, held: AgentSession) -> None:
        """In the same step in which its activation ends: no cut finds it between the two. What was part of another step is no result of the rollout."""
        session = self.sessions.get(held.key)
        if session is None or held.reply is None or not self.enabled or self._is_within():
            self._end(held)
            return
        self.sessions.finish(session, digest_of(self.body(session)))

    def _result(self, episode: Episode, key: str, request: JsonObject, continues: bool) -> JsonObject | None:
        """The result that is kept of this attempt. Raises StaleAttempt, TaskMismatch, AlreadyRestored."""
        session = self.sessions.get(key)
        if session is None or session.episode != episode or session.result is None or session.pending:
            return None
        self.check_attempt(episode)
        if session.restored and not continues:
            raise AlreadyRestored(f"{episode} holds a restored result at {self.id}; continue it, or retire it")
        held = self._kept.sessions[key]
        if held.request != check_plain(request, "request"):
            raise TaskMismatch(
                f"{episode} has finished at {self.id} with another request; send the one that it began with"
            )
        return held.reply

    # What the base asks.

    def counts(self) -> Mapping[str, int]:
        return {
            "sessions": self.sessions.live,
            "activations": len(self._stepping.steps),
            "results": self.sessions.results,
        }

    def body(self, session: Session) -> bytes:
        return result_body(self._kept.sessions[session.key].reply)

    def describe(self, session: Session) -> tuple[str, tuple[Touch, ...]]:
        if session.result is not None:
            return FINISHED, ()
        loop = self._kept.loop(session.key)
        if loop is None:
            return IDLE, tuple(self._kept.sessions[session.key].touches())
        return loop.name, tuple(loop.touches())

    def restored(self, session: Session, boundary: str, touches: tuple[Touch, ...]) -> None:
        self._kept.bind(session.key, session.episode, touches)
        if boundary == FINISHED and self._kept.loop(session.key) is None:
            self.sessions.finish(session, digest_of(self.body(session)))

    async def stop(self, episode: Episode) -> None:
        """Seeds and closes on their way are waited for, activations are cancelled once."""
        stopping = [
            self._stepping.stop(session.key, StaleAttempt(f"{session.episode} was retired while its activation ran"))
            for session in self.sessions.of_rollout(episode.rollout_id)
            if session.episode.attempt <= episode.attempt
        ]
        await asyncio.gather(super().stop(episode), *stopping)

    # Admission.

    async def _let_in(self, episode: Episode) -> None:
        self.check_attempt(episode)
        if self._is_within():
            self._count_let_in()
            return
        await self.open_gate()
        self.check_attempt(episode)

    def _must_wait(self, session: Session | None) -> bool:
        """Whether a call for the session waits for `has_moved`."""
        if session is None:
            return False
        return session.pending or not self._admits()

    def _admits(self) -> bool:
        """Whether the call that is being served may go on now."""
        return self.gate.state is GateState.OPEN or self._is_within()

    def _count_let_in(self) -> None:
        """Work that began after the gate settled makes the cut void."""
        if self.gate.state is GateState.CLOSED:
            self.gate.let_in += 1

    def _is_within(self) -> bool:
        call = current_call()
        return call is not None and call.within is not None
