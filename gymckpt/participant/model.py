"""A policy model server's participant: its calls never wait for a checkpoint to end, their responses do."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, ClassVar

from gymckpt.core.admission import Running
from gymckpt.core.ids import Episode
from gymckpt.core.kinds import GateState, Kind
from gymckpt.core.manifest import Touch
from gymckpt.core.sessions import Session, check_owner
from gymckpt.errors import StaleAttempt
from gymckpt.participant.base import Participant, log
from gymckpt.participant.call import current_call
from gymckpt.participant.ledger import CallRow, Ledger
from gymckpt.participant.stopping import Stoppable


class ModelParticipant(Participant):
    """One session per rollout that called; its key is the rollout id, its state the calls that were delivered."""

    kind: ClassVar[Kind] = Kind.MODEL

    def __init__(
        self,
        name: str,
        ledger: Ledger,
        *,
        worker: str = "0",
        clock: Callable[[], float] = time.monotonic,
        new_id: Callable[[], str] = lambda: secrets.token_hex(16),
    ) -> None:
        super().__init__(name, state=ledger, worker=worker, clock=clock)
        self.ledger = ledger
        self._new_id = new_id
        self._calls: dict[str, set[ModelCall]] = {}
        self.held = 0  # responses that wait for the gate

    @contextlib.asynccontextmanager
    async def call(self, episode: Episode | None) -> AsyncIterator[ModelCall]:
        """One call of the policy; leaving the context normally delivers its response, if it has one.

        A call of an episode waits while the gate is not open, and its response too. One that names no episode, or runs within a step that a checkpoint waits
        for (the call of a tool), is let through and stays out of the ledger.

        Raises StaleAttempt (also at the end, when it was retired), StoreFull (too many calls of the rollout), StoreUnavailable.
        """
        serving = current_call()
        within = serving.within if serving is not None else None
        if within is not None:
            self.check_attempt(within)
            if self.gate.state is GateState.CLOSED:
                self.gate.let_in += 1
        elif episode is not None:
            await self._admit(episode)
        with Stoppable() as work:
            call = ModelCall(self, work, within or episode, None if within is not None else episode, self._new_id())
            call.count("within" if within is not None else "call", blocks=within is not None)
            try:
                yield call
                await call.deliver()
            finally:
                call.end()

    async def _admit(self, episode: Episode) -> None:
        """Waits for the gate and for restored state to become live, then makes sure that the rollout has its session."""
        key = episode.rollout_id
        while True:
            await self.open_gate()
            self.check_attempt(episode)
            session = self.sessions.get(key)
            if session is None and self.floors.born_after(episode):
                self._report_lost(episode)
                await self.has_moved()
            elif session is None:
                await self.ledger.open(episode)
                if self.gate.state is GateState.OPEN and self.sessions.get(key) is None:
                    self._open(episode)
            elif session.pending:
                await self.has_moved()
            else:
                check_owner(session, episode)
                self.ledger.check_room(key)
                session.restored = False
                return

    def _report_lost(self, episode: Episode) -> None:
        """Its calls before the restore are not here: it is held, as by every server that lost a session, until it is restored again or retired."""
        if episode not in self.lost:
            self.lost[episode] = (
                f"{self.id} was started after a restore gave out {episode}, and does not hold its calls"[:256]
            )
            log.warning("a call of %s is held: %s", episode, self.lost[episode])

    def _open(self, episode: Episode) -> None:
        try:
            self.check_attempt(episode)
        except StaleAttempt:
            self.ledger.discard(episode.rollout_id)
            raise
        self.sessions.open(episode, episode.rollout_id)

    def calls_of(self, rollout_id: str) -> set[ModelCall]:
        """Calls of the rollout that are running, to be kept up to date by them."""
        return self._calls.setdefault(rollout_id, set())

    def forget_calls(self, rollout_id: str) -> None:
        """Drops the set when it is empty."""
        if not self._calls.get(rollout_id):
            self._calls.pop(rollout_id, None)

    # What the base asks.

    def counts(self) -> Mapping[str, int]:
        return {"sessions": len(self.sessions), "calls": len(self.in_flight), "held": self.held}

    def describe(self, session: Session) -> tuple[str, tuple[Touch, ...]]:
        return self.ledger.last(session.key) or "", ()

    def restored(self, session: Session, boundary: str, touches: tuple[Touch, ...]) -> None:
        self.ledger.bind(session.episode)

    async def stop(self, episode: Episode) -> None:
        for call in list(self._calls.get(episode.rollout_id, ())):
            call.stop(episode)
        await super().stop(episode)
        await self.ledger.retire(episode)


class ModelCall:
    """One admitted call. All methods belong to the task that entered `call`."""

    def __init__(
        self,
        participant: ModelParticipant,
        work: Stoppable,
        episode: Episode | None,
        recorded: Episode | None,
        call_id: str,
    ) -> None:
        self._p = participant
        self._work = work
        self._episode = episode
        self._recorded = recorded
        self._ticket = 0
        self._sending = False
        self._finished = False
        self.call_id = call_id
        self.parent = participant.ledger.last(recorded.rollout_id) if recorded is not None else None
        """Id of the last call of the rollout that was delivered when this one was admitted, in this attempt or the one that it continues."""
        if episode is not None:
            participant.calls_of(episode.rollout_id).add(self)

    async def finished(self, row: Mapping[str, Any]) -> None:
        """The response is there. `row` (plain data: request digest, response ...) is durable in the ledger when this returns, and the response may be sent:
        that is once the gate is open, unless it is being streamed already.

        Raises StaleAttempt, StoreFull, StoreUnavailable, InvalidField.
        """
        if self._recorded is None:
            return
        row_kept = CallRow.of(self.call_id, self.parent, self._recorded, row)
        await self._p.ledger.append(self._recorded, row_kept)
        self._finished = True
        await self.streaming()

    async def streaming(self) -> None:
        """The first byte is about to go out: waits until the gate is open; from then on a checkpoint waits for the end of this call. Raises StaleAttempt."""
        if self._recorded is None or self._sending:
            return
        self._p.held += 1
        try:
            await self._p.open_gate()
        finally:
            self._p.held -= 1
        self._p.check_attempt(self._recorded)
        self._sending = True
        self.count("stream", blocks=True)

    def count(self, kind: str, *, blocks: bool) -> None:
        """Says how the call takes part in a checkpoint from now on."""
        if self._ticket:
            self._p.in_flight.leave(self._ticket)
        running = Running(kind, self._episode, self.call_id, self._p.clock(), blocks)
        self._ticket = self._p.in_flight.enter(running)

    async def deliver(self) -> None:
        """The response goes out."""
        if self._recorded is None or not self._finished:
            return
        self._finished = False
        session = self._p.sessions.get(self._recorded.rollout_id)
        if session is not None:
            session.touched(receipted=True)
        await self._p.ledger.deliver(self._recorded, self.call_id)

    def stop(self, retired: Episode) -> None:
        """Cancels it once if it belongs to this attempt or one before it."""
        if self._episode is not None and self._episode.attempt <= retired.attempt:
            details = {"episode": str(self._episode), "call_id": self.call_id}
            self._work.stop(
                StaleAttempt(f"{self._episode} was retired while its call {self.call_id} ran", details=details)
            )

    def end(self) -> None:
        """Nothing of it runs any more."""
        if self._finished and self._recorded is not None:
            self._p.ledger.drop(self._recorded.rollout_id, self.call_id)
        if self._episode is not None:
            self._p.calls_of(self._episode.rollout_id).discard(self)
            self._p.forget_calls(self._episode.rollout_id)
        self._p.in_flight.leave(self._ticket)
        self._p.notify()
