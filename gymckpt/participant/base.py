"""What all kinds of participant share: the gate, the export, floors, sessions, and the one function behind both doors."""

from __future__ import annotations

import contextlib
import itertools
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, ClassVar

from gymckpt.core.admission import InFlight
from gymckpt.core.export import Export
from gymckpt.core.floors import Floors
from gymckpt.core.gate import Authority, Gate
from gymckpt.core.ids import Episode, ParticipantId, check_id
from gymckpt.core.kinds import Capture, GateState, Kind
from gymckpt.core.manifest import ParticipantInfo
from gymckpt.core.report import Report
from gymckpt.core.sessions import Session, SessionTable
from gymckpt.core.transitions import Answer, Holdings, Request
from gymckpt.errors import (
    AlreadyRestored,
    DuplicateEpisode,
    GymckptError,
    InvalidPhase,
    NotRestored,
    StaleBoot,
    StoreUnavailable,
)
from gymckpt.participant.call import Call
from gymckpt.participant.cut import Checkpointing, Cut
from gymckpt.participant.hooks import Hooks
from gymckpt.participant.loop import OnLoop
from gymckpt.participant.restoring import Restoring
from gymckpt.participant.results import Results
from gymckpt.participant.retiring import Retiring
from gymckpt.participant.serving import serve
from gymckpt.participant.state import SessionState

if TYPE_CHECKING:
    from gymckpt.store.interface import ArtifactStore

log = logging.getLogger("gymckpt.participant")


class Participant(Hooks, OnLoop):
    """The checkpointable part of one server process.

    Until `serving` is entered with a coordinator configured, checkpointing is off: the gate is open and stays so, nothing is exported, no port is bound.
    All methods belong to one event loop. `clock` gives monotonic seconds.
    """

    kind: ClassVar[Kind]

    def __init__(
        self,
        name: str,
        *,
        state: SessionState[Any, Any] | None,
        worker: str = "0",
        capture: Capture = Capture.EXPORTED,
        cookie_only: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self.id = ParticipantId(self.kind, name)
        self.worker = check_id(worker, "worker")
        self.boot_id = secrets.token_hex(16)
        self.capture = capture
        self.cookie_only = cookie_only
        self.state = state
        self.clock = clock
        self.address = ""
        self.relayed = False
        self.store: ArtifactStore | None = None
        self.authority = Authority()
        self.gate = Gate()
        self.gate.start()
        self.export: Export[Cut] = Export()
        self.floors = Floors()
        self.sessions = SessionTable()
        self.in_flight = InFlight()
        self.lost: dict[Episode, str] = {}
        self.enabled = False  # checkpointing is on: calls are admitted, held and counted
        self.started = True  # the epoch and the floors are known
        self.leaving = False  # the process is about to end
        self.checkpointing = Checkpointing(self)
        self.restoring = self.make_restoring()
        self.retiring = Retiring(self)
        self.results = Results(self)
        self._moves: dict[type, Callable[..., Any]] = {
            **self.checkpointing.moves(),
            **self.restoring.moves(),
            **self.retiring.moves(),
            **self.results.moves(),
        }

    def make_restoring(self) -> Restoring:
        """The participant's share of restores."""
        return Restoring(self)

    async def stop(self, episode: Episode) -> None:
        """Stops all work of this attempt and the ones before it; returns when it has stopped. Called again, waits for the same."""
        while any(
            running.episode and running.episode.attempt <= episode.attempt
            for running in self.in_flight.of_rollout(episode.rollout_id)
        ):
            await self.readiness_changed()

    @contextlib.asynccontextmanager
    async def admit(self, call: Call) -> AsyncIterator[Session | None]:
        """Lets one call run. This default only refuses stale attempts: the kinds that park do so inside the handler. Raises StaleAttempt."""
        if call.episode is not None:
            self.check_attempt(call.episode)
        yield None

    # What kinds and servers use.

    @property
    def info(self) -> ParticipantInfo:
        """Who this process is."""
        schemas = (self.state.schema,) if self.state is not None else ()
        return ParticipantInfo(
            self.id,
            self.worker,
            self.boot_id,
            self.address,
            self.capture,
            state_schemas=schemas,
            cookie_only=self.cookie_only,
            relayed=self.relayed,
        )

    def serving(
        self,
        *,
        listen: str | None = None,
        advertise: str | None = None,
        coordinator: str | None = None,
        store: str | None = None,
        grace: float = 5.0,
    ) -> contextlib.AbstractAsyncContextManager[None]:
        """Serves ParticipantService beside the data plane, on this event loop, and announces it to the coordinator.

        Addresses are `host:port`. What is not given is taken from GYMCKPT_LISTEN (default `127.0.0.1:0`), GYMCKPT_ADVERTISE, GYMCKPT_COORDINATOR and
        GYMCKPT_STORE (default: the coordinator's). Without a coordinator checkpointing is off and this does nothing.

        `advertise` is where the coordinator reaches this process when that is not where it listens: behind a port mapping, a relay or a load balancer. A
        refused connection there is no proof that the process is dead, so a death is noticed only when its successor announces itself; where nothing stands
        between, listen on the address itself. Raises InvalidField for an address that is none, or that nobody else can reach.

        On leaving, a cut that is frozen here gets up to `grace` seconds to be stored and decided, and is dropped then; without one nothing is waited for.
        """
        return serve(self, listen=listen, advertise=advertise, coordinator=coordinator, store=store, grace=grace)

    async def open_gate(self) -> None:
        """Waits until the gate is OPEN."""
        while self.gate.state is not GateState.OPEN:
            await self.has_moved()

    def check_attempt(self, episode: Episode) -> None:
        """Raises StaleAttempt for an attempt that is retired or replaced."""
        self.floors.check(episode)

    async def claim(self, episode: Episode, key: str, *, continues: bool) -> Session | None:
        """The restored session that a replacement continues, handed out once; None for a start from input.

        Raises StaleAttempt; NotRestored for a continue without restored state; AlreadyRestored for a start from input onto restored state;
        DuplicateEpisode for a continue of what was claimed already.
        """
        while True:
            self.check_attempt(episode)
            session = self.sessions.get(key)
            if session is None or session.episode != episode:
                session = None
            if session is None or not session.pending:
                break
            await self.has_moved()
        if session is not None and session.restored:
            if not continues:
                raise AlreadyRestored(
                    f"{episode} holds restored state here; continue it, or retire it before starting from input"
                )
            session.restored = False
            return session
        if continues:
            if session is not None:
                raise DuplicateEpisode(f"{episode} was continued here already")
            raise NotRestored(f"{episode} has no restored state here; start it from input as a new attempt")
        self.floors.check_start(episode)
        return None

    # The doors.

    async def apply(self, request: Request) -> Answer:
        """Carries out one transition: the one function behind Control and Transition. Raises what participant.proto lists."""
        if not self.started:
            raise StoreUnavailable(
                f"{self.id} is starting: it has not read the epoch and the floors yet; retry", retry_after=1.0
            )
        self.check_boot(request.boot_id)
        self.authority.observe(request.fence.epoch)
        name, began = type(request.transition).__name__.lower(), self.clock()
        outcome = "failed"
        try:
            result = await self._moves[type(request.transition)](request.fence, request.transition)
            outcome = "ok"
            self.authority.sequence = max(self.authority.sequence, request.fence.sequence)
        except GymckptError as error:
            outcome = error.reason
            raise
        finally:
            log.info(
                "%s %s of %s at %s (epoch %d, %d sessions, %.1f ms): %s",
                name,
                request.number,
                request.fence.checkpoint_id,
                self.id,
                request.fence.epoch,
                len(self.sessions),
                (self.clock() - began) * 1e3,
                outcome,
            )
        return Answer(request.number, self.boot_id, self.gate.state, self.export.state, result)

    def check_boot(self, boot_id: str) -> None:
        """Raises StaleBoot for what is meant for another process."""
        if boot_id != self.boot_id:
            raise StaleBoot(
                f"boot {boot_id} was replaced by boot {self.boot_id}, which serves here",
                details={"boot_id": boot_id, "this_boot_id": self.boot_id},
            )

    def observe_epoch(self, epoch: int) -> None:
        """A question with authority: lower epochs are refused from now on. Raises StaleEpoch, StoreUnavailable while starting."""
        if not self.started:
            raise StoreUnavailable(
                f"{self.id} is starting: it has not read the epoch and the floors yet; retry", retry_after=1.0
            )
        self.authority.observe(epoch)

    def blocking(self) -> int:
        """How much stops a cut right now: the kind's work, and attempts that are being retired."""
        return self.blocker_count() + self.retiring.count

    def report(self) -> Report:
        """Readiness now."""
        count = self.blocking()
        blockers = itertools.chain(self.blockers(), self.retiring.blockers(self.clock())) if count else ()
        return Report.of(blockers, count, self.restarts(), self.counts())

    def holdings(self) -> Holdings:
        """What this process holds of rounds under way."""
        return Holdings(
            gate=self.gate.state,
            export=self.export.state,
            gate_fence=self.gate.fence,
            export_fence=self.export.fence,
            restore_fence=self.restoring.pending_fence,
            epoch=self.authority.epoch,
            episodes=len({session.episode for session in self.sessions}),
            sequence=self.authority.sequence,
        )

    def tick(self) -> None:
        """Ends the leases that are over."""
        now = self.clock()
        self.restoring.tick(now)
        if self.export.fence is not None and self.export.lease.expired(now):
            log.warning(
                "export lease of %s ended at %s: the export is dropped", self.export.fence.checkpoint_id, self.id
            )
            self.checkpointing.drop_export(self.export.fence)
        if self.gate.fence is not None and self.gate.lease.expired(now):
            log.warning("gate lease of %s ended at %s: the gate opens", self.gate.fence.checkpoint_id, self.id)
            self.checkpointing.open_gate(self.gate.fence)

    def free(self, session: Session) -> None:
        """Drops a session and its state; one that is gone already is fine. State whose key a newer session has taken stays."""
        if self.sessions.get(session.key) is session:
            if self.state is not None:
                self.state.discard(session.key)
            self.sessions.remove(session.key)

    def drop_lost(self) -> None:
        """Attempts that are refused now are no longer missed."""
        if self.lost:
            self.lost = {episode: why for episode, why in self.lost.items() if not self.floors.refuses(episode)}

    def require_store(self) -> ArtifactStore:
        """The store of a serving participant. Raises InvalidPhase when checkpointing is off."""
        if self.store is None:
            raise InvalidPhase(f"{self.id} is not serving: no artifact store is configured")
        return self.store
