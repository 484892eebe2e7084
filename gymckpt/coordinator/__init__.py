"""The coordinator of checkpoints: `serve` runs one, `CoordinatorClient` calls it."""

from gymckpt.coordinator.client import CoordinatorClient, SyncCoordinatorClient
from gymckpt.coordinator.faults import POINTS, Faults
from gymckpt.coordinator.serve import CoordinatorServer, serve
from gymckpt.coordinator.values import (
    Checkpoint,
    CheckpointPage,
    CheckpointProgress,
    MemberReport,
    Membership,
    MemberStatus,
    Registration,
    RestoreProgress,
    RestoreStage,
    Settings,
)
from gymckpt.core.arguments import CheckpointArguments, OnNotReady, OnUnloadable, RestoreArguments, ResumePolicy
from gymckpt.core.kinds import Fate
from gymckpt.core.manifest import RestoreTarget
from gymckpt.core.recovery import Recovery, Trouble
from gymckpt.core.results import Acknowledgement, FinishedResult
from gymckpt.core.standing import Stage

__all__ = [
    "POINTS",
    "Acknowledgement",
    "Checkpoint",
    "CheckpointArguments",
    "CheckpointPage",
    "CheckpointProgress",
    "CoordinatorClient",
    "CoordinatorServer",
    "Fate",
    "Faults",
    "FinishedResult",
    "MemberReport",
    "MemberStatus",
    "Membership",
    "OnNotReady",
    "OnUnloadable",
    "Recovery",
    "Registration",
    "RestoreArguments",
    "RestoreProgress",
    "RestoreStage",
    "RestoreTarget",
    "ResumePolicy",
    "Settings",
    "Stage",
    "SyncCoordinatorClient",
    "Trouble",
    "serve",
]
