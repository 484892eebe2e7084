"""The steps of a round as values: what a coordinator asks, and what a participant answers. See TransitionRequest in participant.proto.

Durations are seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

from gymckpt.core.ids import Digest, Episode, Fence
from gymckpt.core.kinds import ExportState, GateState
from gymckpt.core.report import LostEpisode, Report
from gymckpt.core.results import Acknowledgement


@dataclass(frozen=True, slots=True)
class Prepare:
    timeout: float
    gate_lease: float


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`scope` None is everything capturable; `base_checkpoint_id` "" reuses nothing."""

    closing: int
    export_lease: float
    base_checkpoint_id: str = ""
    scope: tuple[Episode, ...] | None = None


@dataclass(frozen=True, slots=True)
class Resume:
    pass


@dataclass(frozen=True, slots=True)
class Upload:
    pass


@dataclass(frozen=True, slots=True)
class Abort:
    why: str = ""


@dataclass(frozen=True, slots=True)
class Decided:
    published: bool


@dataclass(frozen=True, slots=True)
class Renew:
    """Zero keeps the length of the lease."""

    gate_lease: float = 0.0
    export_lease: float = 0.0


@dataclass(frozen=True, slots=True)
class InstallTarget:
    source: Episode
    attempt: int

    @property
    def target(self) -> Episode:
        return Episode(self.source.rollout_id, self.attempt)


@dataclass(frozen=True, slots=True)
class Install:
    manifest: Digest
    targets: tuple[InstallTarget, ...]
    lease: float


@dataclass(frozen=True, slots=True)
class Confirm:
    pass


@dataclass(frozen=True, slots=True)
class Activate:
    pass


@dataclass(frozen=True, slots=True)
class Discard:
    """Drops these targets; all of the restore when empty."""

    episodes: tuple[Episode, ...] = ()


@dataclass(frozen=True, slots=True)
class Retire:
    episodes: tuple[Episode, ...]
    timeout: float


@dataclass(frozen=True, slots=True)
class Forget:
    rollout_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """`timeout` is how long to wait for an open gate."""

    acknowledgements: tuple[Acknowledgement, ...]
    timeout: float


Transition = (
    Prepare
    | Snapshot
    | Resume
    | Upload
    | Abort
    | Decided
    | Renew
    | Install
    | Confirm
    | Activate
    | Discard
    | Retire
    | Forget
    | Acknowledge
)


@dataclass(frozen=True, slots=True)
class Prepared:
    """`closing` names this closing of the gate; 0 unless the gate is closed. `waited_for` is the number of blockers when it began."""

    report: Report
    closing: int
    waited_for: int = 0


@dataclass(frozen=True, slots=True)
class SnapshotTaken:
    sessions: int
    changed: int
    freeze_seconds: float


@dataclass(frozen=True, slots=True)
class Resumed:
    already: bool


@dataclass(frozen=True, slots=True)
class Uploaded:
    manifest: Digest
    blobs_sent: int
    bytes_sent: int
    sessions: int
    failed: tuple[LostEpisode, ...] = ()


@dataclass(frozen=True, slots=True)
class AbortDone:
    already: bool


@dataclass(frozen=True, slots=True)
class DecisionSeen:
    pass


@dataclass(frozen=True, slots=True)
class Renewed:
    pass


@dataclass(frozen=True, slots=True)
class Installed:
    sessions: int
    unloadable: tuple[LostEpisode, ...] = ()


@dataclass(frozen=True, slots=True)
class Confirmed:
    sessions: int


@dataclass(frozen=True, slots=True)
class Activated:
    sessions: int


@dataclass(frozen=True, slots=True)
class Discarded:
    pass


@dataclass(frozen=True, slots=True)
class Retired:
    pass


@dataclass(frozen=True, slots=True)
class Forgotten:
    pass


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """`unknown`: episodes of which no result is kept."""

    unknown: tuple[Episode, ...] = ()


Result = (
    Prepared
    | SnapshotTaken
    | Resumed
    | Uploaded
    | AbortDone
    | DecisionSeen
    | Renewed
    | Installed
    | Confirmed
    | Activated
    | Discarded
    | Retired
    | Forgotten
    | Acknowledged
)

RESULT_OF: Mapping[type, type] = dict(zip(get_args(Transition), get_args(Result), strict=True))
"""What each kind of transition gives: both are listed in the same order."""


@dataclass(frozen=True, slots=True)
class Request:
    """One transition under a fence, for one process."""

    fence: Fence
    number: int
    boot_id: str
    transition: Transition


@dataclass(frozen=True, slots=True)
class Answer:
    """What the transition gave, and both machines after it."""

    number: int
    boot_id: str
    gate: GateState
    export: ExportState
    result: Result


@dataclass(frozen=True, slots=True)
class Holdings:
    """What a participant holds of rounds under way; fences are None where nothing is held. The next round must come after `sequence`."""

    gate: GateState
    export: ExportState
    gate_fence: Fence | None = None
    export_fence: Fence | None = None
    restore_fence: Fence | None = None
    epoch: int = 0
    episodes: int = 0
    sequence: int = 0
