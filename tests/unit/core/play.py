"""A checkpoint round whose members answer when a test says so."""

from __future__ import annotations

from collections.abc import Sequence

from gymckpt.core.arguments import CheckpointArguments
from gymckpt.core.ids import Digest, ParticipantId
from gymckpt.core.kinds import Capture, ExportState, GateState, Kind
from gymckpt.core.manifest import Decision, ParticipantInfo
from gymckpt.core.orders import Order
from gymckpt.core.report import Report
from gymckpt.core.round import CheckpointRound
from gymckpt.core.standing import Stage
from gymckpt.core.transitions import (
    Abort,
    AbortDone,
    Answer,
    Decided,
    DecisionSeen,
    Prepare,
    Prepared,
    Renew,
    Renewed,
    Result,
    Resume,
    Resumed,
    Snapshot,
    SnapshotTaken,
    Transition,
    Upload,
    Uploaded,
)
from gymckpt.errors import (
    GymckptError,
)

PATIENCE = 5.0
MANIFEST = Digest(b"m" * 32, 1)
RESULTS: dict[type[Transition], Result] = {
    Snapshot: SnapshotTaken(1, 1, 0.0),
    Resume: Resumed(False),
    Upload: Uploaded(MANIFEST, 1, 1, 1),
    Abort: AbortDone(False),
    Decided: DecisionSeen(),
    Renew: Renewed(),
}


def info(kind: Kind, name: str = "x") -> ParticipantInfo:
    boot_id = f"{kind.value}{name.encode().hex()}".ljust(32, "0")
    return ParticipantInfo(ParticipantId(kind, name), "0", boot_id, "127.0.0.1:1", Capture.EXPORTED)


class Play:
    """A round whose members answer when the test says so."""

    def __init__(self, members: Sequence[ParticipantInfo] | None = None, **arguments: object) -> None:
        self.now = 0.0
        self.members = {str(m.id): m for m in (members or [info(kind) for kind in Kind])}
        wanted = CheckpointArguments("c1", **arguments)  # type: ignore[arg-type]
        self.round = CheckpointRound(wanted, list(self.members.values()), "", PATIENCE, self.now)
        self.orders: list[Order] = []

    def due(self) -> list[str]:
        """New orders as `kind/name step`; they stay open until answered."""
        new = self.round.due(self.now)
        self.orders.extend(new)
        return [f"{self.name(order.boot_id)} {type(order.transition).__name__.lower()}" for order in new]

    def stage(self) -> Stage:
        return self.round.stage

    def name(self, boot_id: str) -> str:
        return next(name for name, member in self.members.items() if member.boot_id == boot_id)

    def take(self, name: str, kind: type[Transition]) -> Order:
        boot_id = self.members[name].boot_id
        order = next(o for o in self.orders if o.boot_id == boot_id and isinstance(o.transition, kind))
        self.orders.remove(order)
        return order

    def answer(
        self, name: str, kind: type[Transition], gate: GateState = GateState.CLOSED, report: Report | None = None
    ) -> None:
        order = self.take(name, kind)
        result = Prepared(report or Report(), 7) if kind is Prepare else RESULTS[kind]
        answer = Answer(1, order.boot_id, gate, ExportState.NONE, result)
        self.round.answered(order.boot_id, order.transition, answer, self.now)

    def refuse(self, name: str, kind: type[Transition], error: GymckptError) -> None:
        order = self.take(name, kind)
        self.round.refused(order.boot_id, order.transition, error, self.now)

    def lose(self, name: str, kind: type[Transition] | None, *, gone: bool) -> None:
        boot_id = self.members[name].boot_id
        transition = self.take(name, kind).transition if kind else None
        self.round.lost(boot_id, transition, "it was killed", self.now, gone=gone)

    def answer_all(self, kind: type[Transition]) -> None:
        for order in [o for o in self.orders if isinstance(o.transition, kind)]:
            self.answer(self.name(order.boot_id), kind)

    def until_cut(self) -> None:
        for _ in Kind:
            self.due()
            self.answer_all(Prepare)
        self.due()
        self.answer_all(Snapshot)
        assert self.round.stage is Stage.UPLOADING

    def until_uploading(self) -> None:
        """Gates that may open are open, and everyone is asked for its upload."""
        self.until_cut()
        for _ in Kind:
            self.due()
            self.answer_all(Resume)
        self.due()

    def until_uploaded(self) -> None:
        self.until_uploading()
        self.answer_all(Upload)

    def decide(self, decision: Decision) -> None:
        self.round.decided(decision, self.now)
