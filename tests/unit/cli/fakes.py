"""A coordinator that answers what a test gives it, and the command line run against it inside this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from gymckpt.cli.root import gymckpt
from gymckpt.cli.session import Session
from gymckpt.coordinator import (
    Checkpoint,
    CheckpointArguments,
    CheckpointPage,
    CheckpointProgress,
    CoordinatorClient,
    MemberReport,
    Membership,
    RestoreArguments,
    RestoreProgress,
    RestoreStage,
    Stage,
)
from gymckpt.core.ids import ParticipantId
from gymckpt.core.recovery import Recovery
from gymckpt.core.report import LostEpisode
from gymckpt.errors import Conflict, CoordinatorStarting, GymckptError


def published(**given: Any) -> Checkpoint:
    """A checkpoint step-1 that took some time and whose gates are open again."""
    times = {"prepare_seconds": 0.25, "pause_seconds": 0.5, "upload_seconds": 1.0}
    return Checkpoint("step-1", Stage.PUBLISHED, 1, 1, **(times | given))


@dataclass
class FakeCoordinator:
    """Every call about a checkpoint answers with this one."""

    checkpoint: Checkpoint = field(default_factory=published)
    lost: tuple[LostEpisode, ...] = ()
    reports: tuple[MemberReport, ...] = ()
    recovery: Recovery = field(default_factory=lambda: Recovery("", 0, 0, ()))
    restored: list[RestoreArguments] = field(default_factory=list)
    asked: list[CheckpointArguments] = field(default_factory=list)
    older: tuple[Checkpoint, ...] = ()  # newest first
    pinned: tuple[str, ...] = ()
    deleted: list[str] = field(default_factory=list)
    renewed: list[tuple[str, float]] = field(default_factory=list)
    opened: GymckptError | None = None  # what renewing is refused with
    starting: list[str] = field(default_factory=list)  # what it is waiting for, one question after the other
    missing: tuple[ParticipantId, ...] = ()
    unexplained: GymckptError | None = None  # why it cannot say what a crash would cost

    async def create_checkpoint(self, arguments: CheckpointArguments) -> AsyncIterator[CheckpointProgress]:
        self.asked.append(arguments)
        yield CheckpointProgress(self.checkpoint, self.reports)

    async def get_checkpoint(self, checkpoint_id: str, *, page_size: int = 0, page_token: str = "") -> CheckpointPage:
        assert checkpoint_id == self.checkpoint.checkpoint_id
        return CheckpointPage(self.checkpoint, lost=self.lost)

    async def restore_checkpoint(self, arguments: RestoreArguments) -> AsyncIterator[RestoreProgress]:
        self.restored.append(arguments)
        yield RestoreProgress(RestoreStage.RESTORED, self.checkpoint.checkpoint_id, 1, 1)

    async def abort_checkpoint(self, checkpoint_id: str, why: str = "") -> Checkpoint:
        return self.checkpoint

    async def list_checkpoints(self, *, page_size: int = 0, page_token: str = "") -> tuple[tuple[Checkpoint, ...], str]:
        return (self.checkpoint, *self.older) if self.checkpoint.checkpoint_id else (), ""

    async def delete_checkpoint(self, checkpoint_id: str) -> None:
        if checkpoint_id in self.pinned:
            raise Conflict(f"checkpoint {checkpoint_id!r} is pinned by me", details={"holders": "me"})
        self.deleted.append(checkpoint_id)

    async def renew_checkpoint(self, checkpoint_id: str, gate_lease: float = 0.0, export_lease: float = 0.0) -> None:
        if self.opened is not None:
            raise self.opened
        self.renewed.append((checkpoint_id, gate_lease))

    async def participants(self) -> Membership:
        if self.starting:
            raise CoordinatorStarting(self.starting.pop(0), retry_after=0.001)
        return Membership(1, (), self.missing)

    async def explain_recovery(self) -> Recovery:
        if self.unexplained is not None:
            raise self.unexplained
        return self.recovery

    async def explain_blockers(self) -> tuple[MemberReport, ...]:
        return self.reports


T = TypeVar("T")


@dataclass(slots=True)
class FakeSession(Session):
    """A session whose client is the fake coordinator itself."""

    fake: FakeCoordinator = field(default_factory=FakeCoordinator)

    def call(self, work: Callable[[CoordinatorClient], Coroutine[Any, Any, T]]) -> T:
        return asyncio.run(self.once_started(cast(CoordinatorClient, self.fake), work))


def command(fake: FakeCoordinator, *words: str) -> Any:
    """`gymckpt <words>`; returns the exit code, None standing for 0."""
    return gymckpt.main(list(words), prog_name="gymckpt", standalone_mode=False, obj=FakeSession(fake=fake))
