"""What a coordinator tells its callers. Durations are seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from gymckpt.core.ids import Digest, Episode, ParticipantId
from gymckpt.core.manifest import ParticipantInfo, RestoreTarget
from gymckpt.core.report import LostEpisode, Report, Restart
from gymckpt.core.standing import Stage
from gymckpt.core.transitions import Holdings


@dataclass(frozen=True, slots=True)
class Settings:
    """How patient a coordinator is: seconds between registrations, seconds a member may stay silent, seconds told to whoever finds a round under way."""

    interval: float = 5.0
    patience: float = 10.0
    retry_after: float = 0.5
    restore_lease: float = 120.0
    install_timeout: float = 600.0
    retire_timeout: float = 30.0


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One checkpoint; see Checkpoint in coordinator.proto."""

    checkpoint_id: str
    stage: Stage
    epoch: int = 0
    sequence: int = 0
    unix_millis: int = 0
    base_checkpoint_id: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    participants: tuple[ParticipantId, ...] = ()
    episodes: int = 0
    restarts: int = 0
    lost: int = 0
    manifest: Digest | None = None
    why_aborted: str = ""
    prepare_seconds: float = 0.0
    pause_seconds: float = 0.0
    upload_seconds: float = 0.0
    blobs_sent: int = 0
    bytes_sent: int = 0
    waited_for: int = 0
    why_unreadable: str = ""


@dataclass(frozen=True, slots=True)
class CheckpointPage:
    """A checkpoint with a page of its episodes; restarts, lost and controller state come with the first page."""

    checkpoint: Checkpoint
    episodes: tuple[Episode, ...] = ()
    restarts: tuple[Restart, ...] = ()
    lost: tuple[LostEpisode, ...] = ()
    controller_state: bytes = b""
    next_page_token: str = ""


@dataclass(frozen=True, slots=True)
class MemberReport:
    """What one member answered about its readiness: a report, or why there is none. What it `holds` and has `lost` is told by `explain` alone."""

    participant: ParticipantInfo
    report: Report | None = None
    error: str = ""
    holds: Holdings | None = None
    lost: tuple[LostEpisode, ...] = ()


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """A member as the coordinator sees it; `silent` is how long ago it was heard."""

    participant: ParticipantInfo
    holds: Holdings
    silent: float = 0.0
    lost: tuple[LostEpisode, ...] = ()


@dataclass(frozen=True, slots=True)
class Membership:
    """Who is here, and who is expected and is not."""

    epoch: int
    members: tuple[MemberStatus, ...]
    missing: tuple[ParticipantId, ...] = ()


@dataclass(frozen=True, slots=True)
class Registration:
    """Answer to a process that announced itself."""

    epoch: int
    admitted: bool
    interval: float


@dataclass(frozen=True, slots=True)
class CheckpointProgress:
    """A checkpoint under way."""

    checkpoint: Checkpoint
    waiting_for: tuple[MemberReport, ...] = ()
    uploaded: int = 0
    participants: int = 0


class RestoreStage(IntEnum):
    """Where a restore is. Values are those of the wire."""

    INSTALLING = 1
    ACTIVATING = 2
    RESTORED = 3


@dataclass(frozen=True, slots=True)
class RestoreProgress:
    """A restore under way; `outcome` is every asked episode with what became of it, only once RESTORED."""

    stage: RestoreStage
    checkpoint_id: str
    finished: int = 0
    participants: int = 0
    outcome: tuple[RestoreTarget, ...] = ()
