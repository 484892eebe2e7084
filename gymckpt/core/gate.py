"""The gate of new work: one of the two machines of a participant. It knows nothing of exports.

    OPEN --close--> CLOSING --settle--> CLOSED        CLOSING | CLOSED --open--> OPEN

A refused move raises and changes nothing. Times are monotonic seconds, passed in.
"""

from __future__ import annotations

from gymckpt.core.ids import Fence
from gymckpt.core.kinds import GateState
from gymckpt.core.lease import Lease
from gymckpt.errors import Conflict, CutVoid, InvalidPhase, StaleCheckpoint, StaleEpoch

# What each move makes of each state; a missing entry is an illegal move.
MOVES: dict[tuple[GateState, str], GateState] = {
    (GateState.OPEN, "close"): GateState.CLOSING,
    (GateState.CLOSING, "close"): GateState.CLOSING,
    (GateState.CLOSED, "close"): GateState.CLOSED,
    (GateState.CLOSING, "settle"): GateState.CLOSED,
    (GateState.CLOSING, "open"): GateState.OPEN,
    (GateState.CLOSED, "open"): GateState.OPEN,
    (GateState.OPEN, "open"): GateState.OPEN,
}


class Authority:
    """Highest epoch seen: an older coordinator is refused from then on."""

    def __init__(self) -> None:
        self.epoch = 0
        self.sequence = 0  # highest of any round that was obeyed here, whoever began it

    def observe(self, epoch: int) -> None:
        """Raises StaleEpoch for an epoch below one already seen."""
        if epoch < self.epoch:
            raise StaleEpoch(
                f"epoch {epoch} was succeeded by epoch {self.epoch}; ask the newer coordinator",
                details={"epoch": str(epoch), "highest_epoch": str(self.epoch)},
            )
        self.epoch = epoch


class Gate:
    """Starts CLOSED and held by nobody: a process admits nothing before it knows the epoch and the floors."""

    def __init__(self) -> None:
        self.state = GateState.CLOSED
        self.fence: Fence | None = None
        self.closing = 0  # counts closings; names the present one
        self.ended = 0  # highest sequence whose closing has ended
        self.let_in = 0  # work let in since the gate settled; any makes the cut void
        self.lease = Lease()

    def start(self) -> None:
        """First opening of a process that is ready to serve."""
        if self.fence is None:
            self.state = GateState.OPEN

    def close(self, fence: Fence, lease: float, now: float) -> None:
        """Begins a closing, or goes on with it. Raises StaleCheckpoint, Conflict, InvalidPhase (not started)."""
        if not fence.same_round(self.fence):
            self._check_free(fence, now)
            self.closing += 1
            self.let_in = 0
        self.state = MOVES[self.state, "close"]
        self.fence = fence
        self.lease.start(lease, now)

    def _check_free(self, fence: Fence, now: float) -> None:
        if fence.sequence <= self.ended:
            raise StaleCheckpoint(
                f"checkpoint {fence.checkpoint_id!r} has ended here (sequence {fence.sequence}, ended up to {self.ended}); use a new id",
                details={
                    "checkpoint_id": fence.checkpoint_id,
                    "sequence": str(fence.sequence),
                    "ended": str(self.ended),
                },
            )
        if self.fence is not None:
            raise Conflict(
                f"checkpoint {self.fence.checkpoint_id!r} holds the gate; {fence.checkpoint_id!r} must wait until it ends",
                details={"holder": self.fence.checkpoint_id, "checkpoint_id": fence.checkpoint_id},
                retry_after=self.lease.remaining(now),
            )
        if self.state is not GateState.OPEN:
            raise InvalidPhase("this process is still starting: its gate was never open; wait until it is a member")

    def settle(self) -> None:
        """Nothing blocks any more. Raises InvalidPhase unless CLOSING (a CLOSED gate stays so)."""
        if self.state is GateState.CLOSED and self.fence is not None:
            return
        if (self.state, "settle") not in MOVES:
            raise InvalidPhase(f"the gate is {self.state.name}, only a CLOSING gate settles")
        self.state = MOVES[self.state, "settle"]
        self.let_in = 0

    def confirm(self, fence: Fence, closing: int) -> None:
        """Raises CutVoid or InvalidPhase unless the gate has been CLOSED without a break, and nothing was let in, since that closing settled."""
        if not fence.same_round(self.fence) and fence.sequence > self.ended:
            raise InvalidPhase(f"{fence.checkpoint_id!r} did not close this gate ({self.state.name}); prepare first")
        if not fence.same_round(self.fence) or closing != self.closing:
            raise CutVoid(
                f"the gate was reopened since the prepare of {fence.checkpoint_id!r} (closing {closing}, now {self.closing}, {self.state.name})",
                details={"checkpoint_id": fence.checkpoint_id, "closing": str(closing), "now": str(self.closing)},
            )
        if self.state is not GateState.CLOSED:
            raise InvalidPhase(f"the gate is {self.state.name}: {fence.checkpoint_id!r} is not prepared; prepare first")
        if self.let_in:
            raise CutVoid(
                f"{self.let_in} calls were let in after {fence.checkpoint_id!r} was prepared",
                details={"checkpoint_id": fence.checkpoint_id, "let_in": str(self.let_in)},
            )

    def open(self, fence: Fence) -> bool:
        """Ends this round's closing; rounds up to it cannot begin one again. Returns whether this round held the gate; another's hold stays."""
        self.ended = max(self.ended, fence.sequence)
        if not fence.same_round(self.fence):
            return False
        self.state = MOVES[self.state, "open"]
        self.fence = None
        self.lease.stop()
        return True
