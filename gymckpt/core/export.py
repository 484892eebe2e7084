"""The export of a cut: the other machine of a participant. It knows nothing of gates.

    NONE --take--> FROZEN --store--> UPLOADED --end--> NONE

A refused move raises and changes nothing. Times are monotonic seconds, passed in.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from gymckpt.core.ids import Fence
from gymckpt.core.kinds import ExportState
from gymckpt.core.lease import Lease
from gymckpt.errors import Conflict, InvalidPhase, StaleCheckpoint

C = TypeVar("C")

# What each move makes of each state; a missing entry is an illegal move.
MOVES: dict[tuple[ExportState, str], ExportState] = {
    (ExportState.NONE, "take"): ExportState.FROZEN,
    (ExportState.FROZEN, "store"): ExportState.UPLOADED,
    (ExportState.UPLOADED, "store"): ExportState.UPLOADED,
    (ExportState.FROZEN, "end"): ExportState.NONE,
    (ExportState.UPLOADED, "end"): ExportState.NONE,
    (ExportState.NONE, "end"): ExportState.NONE,
}


class Export(Generic[C]):
    """Holds at most one cut (`content`, whatever the shell freezes) for one round."""

    def __init__(self) -> None:
        self.state = ExportState.NONE
        self.fence: Fence | None = None
        self.content: C | None = None
        self.ended = 0  # highest sequence whose export has ended
        self.lease = Lease()

    def check_free(self, fence: Fence, now: float) -> None:
        """Raises Conflict while another round's export is held, StaleCheckpoint when this round's has ended."""
        if fence.same_round(self.fence):
            return
        if fence.sequence <= self.ended:
            raise StaleCheckpoint(
                f"the export of {fence.checkpoint_id!r} has ended here (sequence {fence.sequence}, ended up to {self.ended}); use a new id",
                details={
                    "checkpoint_id": fence.checkpoint_id,
                    "sequence": str(fence.sequence),
                    "ended": str(self.ended),
                },
            )
        if self.fence is not None:
            raise Conflict(
                f"the export of {self.fence.checkpoint_id!r} is still {self.state.name}; {fence.checkpoint_id!r} must wait until it is decided",
                details={"holder": self.fence.checkpoint_id, "checkpoint_id": fence.checkpoint_id},
                retry_after=1.0,
            )

    def take(self, fence: Fence, content: C, lease: float, now: float) -> None:
        """Holds the cut of this round. Raises Conflict, StaleCheckpoint, InvalidPhase (this round has one already)."""
        self.check_free(fence, now)
        if (self.state, "take") not in MOVES:
            raise InvalidPhase(f"{fence.checkpoint_id!r} has its export already; it is taken once")
        self.state = MOVES[self.state, "take"]
        self.fence, self.content = fence, content
        self.lease.start(lease, now)

    def of(self, fence: Fence) -> C:
        """This round's cut. Raises StaleCheckpoint when it has ended, InvalidPhase when there is none."""
        if not fence.same_round(self.fence) or self.content is None:
            if fence.sequence <= self.ended:
                raise StaleCheckpoint(
                    f"the export of {fence.checkpoint_id!r} has ended here; use a new id",
                    details={"checkpoint_id": fence.checkpoint_id},
                )
            held = self.fence.checkpoint_id if self.fence else "none"
            raise InvalidPhase(
                f"no export of {fence.checkpoint_id!r} is held here (held: {held}); take the snapshot first"
            )
        return self.content

    def store(self, fence: Fence) -> None:
        """All of it is durable. Raises like `of`."""
        self.of(fence)
        self.state = MOVES[self.state, "store"]

    def end(self, fence: Fence) -> bool:
        """Drops this round's export for good. Returns whether there was one; another round's stays."""
        self.ended = max(self.ended, fence.sequence)
        if not fence.same_round(self.fence):
            return False
        self.state = MOVES[self.state, "end"]
        self.fence, self.content = None, None
        self.lease.stop()
        return True
