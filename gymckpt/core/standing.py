"""Where the members of a checkpoint round are, and how a round fails because of them."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from gymckpt.core.ids import Episode
from gymckpt.core.kinds import Kind
from gymckpt.core.manifest import ParticipantInfo
from gymckpt.core.report import Report
from gymckpt.core.transitions import Uploaded
from gymckpt.errors import CutVoid, NotReady, ParticipantLost, RestartInScope


class Stage(enum.IntEnum):
    """Where a checkpoint is. Values are those of the wire."""

    PREPARING = 1
    HELD = 2
    FREEZING = 3
    UPLOADING = 4
    PUBLISHED = 5
    ABORTED = 6


class Gate(enum.Enum):
    """What is known of a member's gate. UNREACHED: told to open, and silent since; its lease opens it."""

    UNTOUCHED = enum.auto()
    CLOSING = enum.auto()
    NOT_READY = enum.auto()
    CLOSED = enum.auto()
    OPENING = enum.auto()
    OPEN = enum.auto()
    UNREACHED = enum.auto()


class Export(enum.Enum):
    """What is known of a member's export."""

    NONE = enum.auto()
    FREEZING = enum.auto()
    FROZEN = enum.auto()
    UPLOADING = enum.auto()
    UPLOADED = enum.auto()


class News(enum.Enum):
    """Whether the member was told the decision."""

    UNTOLD = enum.auto()
    TELLING = enum.auto()
    TOLD = enum.auto()


@dataclass(slots=True)
class Standing:
    """One member in the round. `lost` says why it can no longer be reached in this round."""

    info: ParticipantInfo
    heard: float
    gate: Gate = Gate.UNTOUCHED
    export: Export = Export.NONE
    news: News = News.UNTOLD
    asked_until: float = 0.0  # the deadline of the prepare that it was sent
    closing: int = 0
    waited_for: int = 0
    report: Report | None = None
    uploaded: Uploaded | None = None
    retry_at: float = 0.0
    renewing: bool = False
    trouble: str = ""
    lost: str = ""

    @property
    def name(self) -> str:
        return f"{self.info.id} ({self.info.worker})"

    @property
    def reopened(self) -> bool:
        return bool(self.lost) or self.gate in (Gate.OPEN, Gate.UNREACHED)

    @property
    def informed(self) -> bool:
        return bool(self.lost) or self.news is News.TOLD

    @property
    def holds(self) -> bool:
        """Whether a lease of the round runs there: the decision ends that of the export, only opening ends that of the gate."""
        gate = self.gate not in (Gate.UNTOUCHED, Gate.OPEN)
        export = self.export not in (Export.NONE, Export.FREEZING) and self.news is News.UNTOLD
        return not self.lost and (gate or export)


@dataclass(slots=True)
class Times:
    """Moments of the round; None until they came."""

    first_closing: float | None = None
    last_closed: float | None = None
    cut: float | None = None
    reopened: float | None = None
    decided: float | None = None


def of_kinds(standings: Iterable[Standing], kinds: tuple[Kind, ...]) -> list[Standing]:
    return [standing for standing in standings if standing.info.id.kind in kinds]


def all_restarts(standings: Iterable[Standing]) -> dict[Episode, str]:
    """Episodes that some member cannot capture, and why."""
    found: dict[Episode, str] = {}
    for standing in standings:
        for restart in standing.report.restarts if standing.report else ():
            found.setdefault(restart.episode, f"{standing.info.id}: {restart.why}"[:256])
    return found


def not_ready(standings: Iterable[Standing], why: str) -> NotReady:
    """Names every blocker of those that are not ready."""
    blocked = [s for s in standings if s.gate in (Gate.NOT_READY, Gate.CLOSING)]
    lines = [
        f"{s.info.id} {blocker.type} {blocker.episode or '-'} {blocker.subject}".replace(",", ";")
        for s in blocked
        for blocker in (s.report.blockers if s.report else ())
    ]
    count = sum(s.report.blocker_count for s in blocked if s.report)
    names = ", ".join(s.name for s in blocked)
    return NotReady(
        f"{why}: {count} {'blocker' if count == 1 else 'blockers'} at {names}, e.g. {'; '.join(lines[:3])}; wait or retire them, then take a new checkpoint",
        details={"blockers": ",".join(lines), "count": str(count), "participants": names},
    )


def restart_in_scope(standing: Standing, scope: frozenset[Episode], report: Report) -> RestartInScope | None:
    """The refusal when the member cannot capture episodes of the scope."""
    inside = [str(restart.episode) for restart in report.restarts if restart.episode in scope]
    if not inside:
        return None
    return RestartInScope(
        f"{standing.name} cannot capture {', '.join(inside[:20])} of the scope; leave them out",
        details={"episodes": ",".join(inside), "participant": str(standing.info.id)},
    )


def participant_lost(standing: Standing, stage: Stage, why: str) -> ParticipantLost:
    return ParticipantLost(
        f"{standing.name} was lost while the checkpoint was {stage.name}: {why}; start it again, then take a new checkpoint",
        details={"participant": str(standing.info.id), "boot_id": standing.info.boot_id, "stage": stage.name},
    )


def reopened_too_soon(standing: Standing) -> CutVoid:
    return CutVoid(
        f"the gate of {standing.name} opened before it was ready: its lease ended, or the round was ended there",
        details={"participant": str(standing.info.id)},
    )
