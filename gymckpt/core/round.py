"""One checkpoint round as a pure machine: it says which transitions are due to which members, given the answers so far.

    PREPARING --all closed--> FREEZING --all frozen--> UPLOADING --decided--> PUBLISHED
    PREPARING --not ready, HOLD--> HELD --go on--> PREPARING        any, until decided, --failure--> ABORTED

Gates reopen before the uploads or after them, as the resume policy says. Times are monotonic seconds, passed in. The shell sends what `due` returns, tells
every answer, refusal and loss, decides what `wants` asks for, and calls `tick` at `wake_at`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence

from gymckpt.core import orders
from gymckpt.core.arguments import CheckpointArguments, OnNotReady, ResumePolicy
from gymckpt.core.ids import Episode
from gymckpt.core.kinds import GateState
from gymckpt.core.manifest import Decision, ParticipantInfo
from gymckpt.core.orders import Order
from gymckpt.core.report import Report
from gymckpt.core.standing import (
    Export,
    Gate,
    News,
    Stage,
    Standing,
    Times,
    all_restarts,
    not_ready,
    participant_lost,
    reopened_too_soon,
    restart_in_scope,
)
from gymckpt.core.transitions import (
    Abort,
    Answer,
    Decided,
    Prepare,
    Prepared,
    Renew,
    Resume,
    Snapshot,
    SnapshotTaken,
    Transition,
    Upload,
    Uploaded,
)
from gymckpt.errors import CheckpointAborted, GymckptError, InvalidPhase, StaleEpoch, StoreFull, StoreUnavailable

UPLOAD_RETRY_SECONDS = 1.0


class Decide(enum.Enum):
    """What the round asks its shell to decide."""

    PUBLISH = "publish"
    ABORT = "abort"


class CheckpointRound:
    """See the module. `patience` is how long a member may stay silent beyond what it was given."""

    def __init__(
        self, arguments: CheckpointArguments, members: Sequence[ParticipantInfo], base: str, patience: float, now: float
    ) -> None:
        self.arguments = arguments
        self.base_checkpoint_id = base
        self.patience = patience
        self.standings = {info.boot_id: Standing(info, now) for info in members}
        self.stage = Stage.PREPARING
        self.failure: GymckptError | None = None
        self.decision: Decision | None = None
        self.superseded = False  # a newer coordinator exists: this one says nothing more
        self.times = Times()
        self.gate_lease, self.export_lease = arguments.gate_lease, arguments.export_lease
        self._scope = frozenset(arguments.episodes)
        self._prepare_deadline = now + arguments.prepare_timeout
        self._gate_end: float | None = None  # when a forgotten caller's gates open
        self.writing = False  # `published` may be on its way to the store
        self._resume_asked = False
        self._renew_at = now + self._renew_every()

    # --- what is due ---

    def due(self, now: float) -> list[Order]:
        """Orders not given before; calling it says that they are being carried out."""
        everyone, deadline = list(self.standings.values()), now + self.patience
        if self.superseded:
            return []
        if self.stage is Stage.ABORTED or (self.failure is not None and not self.writing):
            why = self.failure.message[:1024] if self.failure else ""
            return list(orders.news(everyone, Abort(why), deadline))
        found: list[Order] = []
        if self.stage is Stage.PREPARING:
            timeout = max(self._prepare_deadline - now, 0.001)
            prepare = Prepare(timeout, self.gate_lease)
            found.extend(orders.prepares(everyone, prepare, self._prepare_deadline, self.patience))
            if found and self.times.first_closing is None:
                self.times.first_closing = now
        elif self.stage is Stage.FREEZING:
            scope = self.arguments.episodes or None
            found.extend(orders.snapshots(everyone, self.export_lease, self.base_checkpoint_id, scope, deadline))
        elif self.stage in (Stage.UPLOADING, Stage.PUBLISHED):
            found.extend(self._after_the_cut(everyone, now, deadline))
        if self._renewable() and now >= self._renew_at:
            self._renew_at = now + self._renew_every()
            found.extend(orders.renewals(everyone, deadline))
        return found

    def _after_the_cut(self, everyone: Sequence[Standing], now: float, deadline: float) -> Iterator[Order]:
        """Encoding slows the reopening of gates down: uploads begin once no gate is to be opened now, or the pause would grow with the bytes of state."""
        if self._may_resume():
            yield from orders.resumes(everyone, deadline)
        if self.gates_open or not self._may_resume():
            yield from orders.uploads(everyone, now)
        if self.decision is not None:
            yield from orders.news(everyone, Decided(published=True), deadline)

    @property
    def wants(self) -> Decide | None:
        """The decision that is due; None when there is none, or it was made."""
        if self.decision is not None or self.superseded:
            return None
        if self.failure is not None:
            return Decide.ABORT
        uploaded = all(standing.export is Export.UPLOADED for standing in self.standings.values())
        return Decide.PUBLISH if self.stage is Stage.UPLOADING and uploaded else None

    @property
    def settled(self) -> bool:
        """All that callers wait for has happened; at most a caller that holds the gates has something left to do."""
        if self.superseded:
            return True
        if self.decision is None or not all(standing.informed for standing in self.standings.values()):
            return False
        return self.stage is Stage.ABORTED or self.gates_open or not self._may_resume()

    @property
    def ended(self) -> bool:
        """Nothing is left to do: decided, told to everyone who can be reached, every gate open."""
        return self.settled and (self.superseded or self.stage is Stage.ABORTED or self.gates_open)

    @property
    def gates_open(self) -> bool:
        """Whether every gate that can be reached is open again after the cut."""
        return self.times.cut is not None and all(standing.reopened for standing in self.standings.values())

    @property
    def restarts(self) -> dict[Episode, str]:
        """Episodes that some member cannot capture, and why."""
        return all_restarts(self.standings.values())

    @property
    def unreached(self) -> dict[str, str]:
        """Members that could not be told something, by name, with the reason."""
        return {s.name: s.lost or s.trouble for s in self.standings.values() if s.lost or s.trouble}

    def wake_at(self) -> float | None:
        """When `tick` or `due` may have something to do without news."""
        if self.ended:
            return None
        moments = [self._gate_end] if self._gate_end is not None else []
        moments.extend(s.retry_at for s in self.standings.values() if s.export is Export.FROZEN and s.retry_at)
        if self._renewable():
            moments.append(self._renew_at)
        return min(moments, default=None)

    # --- what happened ---

    def answered(self, boot_id: str, transition: Transition, answer: Answer, now: float) -> None:
        """A member carried out `transition`."""
        standing, result = self.standings[boot_id], answer.result
        standing.heard = now
        if isinstance(transition, Prepare) and isinstance(result, Prepared):
            self._prepared(standing, answer.gate, result, now)
        elif isinstance(result, SnapshotTaken) and standing.export is Export.FREEZING:
            standing.export = Export.FROZEN
            self._frozen(now)
        elif isinstance(result, Uploaded) and standing.export is Export.UPLOADING:
            standing.export, standing.uploaded = Export.UPLOADED, result
        elif isinstance(transition, Resume):
            standing.gate = Gate.OPEN
            self._reopened(now)
        elif isinstance(transition, Renew):
            standing.renewing = False
        elif isinstance(transition, Decided | Abort):
            standing.news = News.TOLD

    def refused(self, boot_id: str, transition: Transition, error: GymckptError, now: float) -> None:
        """A member refused `transition`."""
        standing = self.standings[boot_id]
        standing.heard = now
        if isinstance(error, StaleEpoch):
            self.succeeded(error)
        elif isinstance(transition, Upload) and isinstance(error, StoreUnavailable | StoreFull):
            self._retry_upload(standing, error, now)
        elif isinstance(transition, Prepare | Snapshot | Upload):
            self.fail(
                type(error)(f"{standing.name}: {error.message}", details=error.details, retry_after=error.retry_after)
            )
        elif isinstance(transition, Renew):
            standing.renewing = False
        elif isinstance(transition, Resume):
            self._unreached_gate(standing, error.message, now)
        else:
            standing.lost = standing.lost or error.message

    def lost(self, boot_id: str, transition: Transition | None, why: str, now: float, *, gone: bool) -> None:
        """A member's process is gone, or it stayed silent beyond its deadline. What that means depends on how far it came."""
        standing = self.standings[boot_id]
        if not gone and isinstance(transition, Resume):
            self._unreached_gate(standing, why, now)
            return
        if not gone and isinstance(transition, Renew) and now - standing.heard < self.export_lease:
            standing.renewing = False
            return
        if standing.export is not Export.UPLOADED:
            self.fail(participant_lost(standing, self.stage, why))
        # One that is only silent is still told the end of the round: its gate may be closed.
        if gone or isinstance(transition, Abort | Decided):
            standing.lost = standing.lost or why
            self._reopened(now)

    def reported(self, boot_id: str, report: Report) -> None:
        """Readiness changed while the gate is closing; such a report leaves restarts out."""
        standing = self.standings[boot_id]
        if standing.gate is Gate.CLOSING:
            standing.report = report

    def decided(self, decision: Decision, now: float) -> None:
        """The store holds this decision, whoever made it."""
        self.decision = decision
        self.times.decided = now
        self.stage = Stage.PUBLISHED if decision.published else Stage.ABORTED
        if decision.published:
            self.failure = None
        elif self.failure is None:
            self.failure = CheckpointAborted(
                f"checkpoint {self.arguments.checkpoint_id!r} was aborted: {decision.why}; take a new one",
                details={"checkpoint_id": self.arguments.checkpoint_id, "why": decision.why},
            )

    def publishing(self) -> None:
        """The shell begins to write `published`: from now on only the store's answer counts."""
        self.writing = True

    def fail(self, error: GymckptError) -> None:
        """The round cannot succeed. The first failure stands; after the decision there is none."""
        if self.decision is None and self.failure is None:
            self.failure = error
            self._gate_end = None

    def succeeded(self, error: StaleEpoch) -> None:
        """A newer coordinator exists."""
        self.superseded = True
        self.failure = error

    # --- what callers ask ---

    def resume(self) -> None:
        """Opens the gates. Raises InvalidPhase before the cut is complete."""
        if self.times.cut is None:
            raise InvalidPhase(
                f"checkpoint {self.arguments.checkpoint_id!r} is {self.stage.name}: its cut is not complete; abort it instead",
                details={"checkpoint_id": self.arguments.checkpoint_id, "stage": self.stage.name},
            )
        self._resume_asked = True
        self._gate_end = None

    def go_on(self, now: float) -> None:
        """Waits on, after HELD, for as long as at first."""
        if self.stage is Stage.HELD and self.failure is None:
            self.stage = Stage.PREPARING
            self._gate_end = None
            self._prepare_deadline = now + self.arguments.prepare_timeout
            self._renew_at = now  # those that closed long ago wait on, too
            for standing in self.standings.values():
                if standing.gate is Gate.NOT_READY:
                    standing.gate = Gate.UNTOUCHED

    def renew(self, gate_lease: float, export_lease: float, now: float) -> list[Order]:
        """Restarts the leases here and at the members; zero keeps a length."""
        self.gate_lease = gate_lease or self.gate_lease
        self.export_lease = export_lease or self.export_lease
        if self._gate_end is not None:
            self._gate_end = now + self.gate_lease
        self._renew_at = now + self._renew_every()
        renew = Renew(gate_lease, export_lease)
        holding = [standing for standing in self.standings.values() if standing.holds]
        return [Order(standing.info.boot_id, renew, now + self.patience) for standing in holding]

    def tick(self, now: float) -> None:
        """Time passed: a forgotten caller's gates open."""
        if self._gate_end is None or now < self._gate_end:
            return
        self._gate_end = None
        if self.stage is Stage.HELD:
            self.fail(not_ready(self.standings.values(), "the gate lease ended while the checkpoint was held"))
        else:
            self._resume_asked = True

    # --- how ---

    def _prepared(self, standing: Standing, gate: GateState, result: Prepared, now: float) -> None:
        if standing.gate is not Gate.CLOSING:
            return
        standing.report = result.report
        if gate is GateState.OPEN:
            self.fail(reopened_too_soon(standing))
        elif gate is GateState.CLOSING:
            self._late(standing, now)
        else:
            standing.gate, standing.closing, standing.waited_for = Gate.CLOSED, result.closing, result.waited_for
            refusal = restart_in_scope(standing, self._scope, result.report)
            if refusal is not None:
                self.fail(refusal)
            elif self.failure is None and all(s.gate is Gate.CLOSED for s in self.standings.values()):
                self.times.last_closed = now
                self.stage = Stage.FREEZING

    def _late(self, standing: Standing, now: float) -> None:
        """Not ready in time; one whose wait was prolonged meanwhile is asked again."""
        if self.stage is Stage.PREPARING and standing.asked_until < self._prepare_deadline:
            standing.gate = Gate.UNTOUCHED
            return
        standing.gate = Gate.NOT_READY
        if self.arguments.on_not_ready is OnNotReady.ABORT:
            self.fail(not_ready(self.standings.values(), "not ready by the deadline"))
        elif self.stage is Stage.PREPARING and self.failure is None:
            self.stage = Stage.HELD
            self._gate_end = now + self.gate_lease

    def _frozen(self, now: float) -> None:
        if self.failure is None and all(s.export is Export.FROZEN for s in self.standings.values()):
            self.times.cut = now
            self.stage = Stage.UPLOADING
            if self.arguments.resume is ResumePolicy.BY_CALLER:
                self._gate_end = now + self.gate_lease

    def _retry_upload(self, standing: Standing, error: GymckptError, now: float) -> None:
        """The export is kept: ask again, for as long as its lease would last from the cut."""
        if self.times.cut is None or now - self.times.cut > self.export_lease:
            self.fail(error)
            return
        standing.export = Export.FROZEN
        standing.retry_at = now + max(error.retry_after or 0.0, UPLOAD_RETRY_SECONDS)

    def _may_resume(self) -> bool:
        policy = self.arguments.resume
        if self._resume_asked or policy is ResumePolicy.AFTER_SNAPSHOT:
            return self.times.cut is not None
        return policy is ResumePolicy.AFTER_PUBLISH and self.stage is Stage.PUBLISHED

    def _reopened(self, now: float) -> None:
        if self.gates_open and self.times.reopened is None:
            self.times.reopened = now

    def _unreached_gate(self, standing: Standing, why: str, now: float) -> None:
        standing.gate, standing.trouble = Gate.UNREACHED, f"resume: {why}"
        self._reopened(now)

    def _renew_every(self) -> float:
        return min(self.gate_lease, self.export_lease) / 3

    def _renewable(self) -> bool:
        """A lease bounds a forgotten caller: nothing is renewed while only a caller can go on."""
        if self.failure is not None or self.decision is not None or self.stage is Stage.HELD:
            return False
        by_caller = self.arguments.resume is ResumePolicy.BY_CALLER and not self._resume_asked
        return not (by_caller and self.times.cut is not None)
