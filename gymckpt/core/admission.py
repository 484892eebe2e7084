"""Whether one call may start now, and which calls are running. Decides only; the shell waits, refuses or lets in."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import NamedTuple

from gymckpt.core.ids import Episode
from gymckpt.core.kinds import GateState
from gymckpt.core.report import Blocker


class Entry(enum.Enum):
    """How a call takes part in a checkpoint."""

    EXEMPT = "exempt"  # concerns no episode
    REPLAY = "replay"  # runs again after a crash: never waited for
    WITHIN = "within"  # part of a step that the checkpoint waits for: holding it would hold the checkpoint for ever
    INSIDE = "inside"  # of a loop that can park: held while the gate is not open
    START = "start"  # begins an episode, sent by a controller that can come again: refused while the gate is not open


class Verdict(enum.Enum):
    """What to do with a call."""

    ADMIT = "admit"
    HOLD = "hold"
    REFUSE = "refuse"


TABLE: dict[tuple[Entry, GateState], Verdict] = {
    (Entry.EXEMPT, GateState.OPEN): Verdict.ADMIT,
    (Entry.EXEMPT, GateState.CLOSING): Verdict.ADMIT,
    (Entry.EXEMPT, GateState.CLOSED): Verdict.ADMIT,
    (Entry.REPLAY, GateState.OPEN): Verdict.ADMIT,
    (Entry.REPLAY, GateState.CLOSING): Verdict.ADMIT,
    (Entry.REPLAY, GateState.CLOSED): Verdict.ADMIT,
    (Entry.WITHIN, GateState.OPEN): Verdict.ADMIT,
    (Entry.WITHIN, GateState.CLOSING): Verdict.ADMIT,
    (Entry.WITHIN, GateState.CLOSED): Verdict.ADMIT,
    (Entry.INSIDE, GateState.OPEN): Verdict.ADMIT,
    (Entry.INSIDE, GateState.CLOSING): Verdict.HOLD,
    (Entry.INSIDE, GateState.CLOSED): Verdict.HOLD,
    (Entry.START, GateState.OPEN): Verdict.ADMIT,
    (Entry.START, GateState.CLOSING): Verdict.REFUSE,
    (Entry.START, GateState.CLOSED): Verdict.REFUSE,
}


def decide(entry: Entry, gate: GateState) -> Verdict:
    """The whole rule of admission."""
    return TABLE[entry, gate]


class Running(NamedTuple):
    """A call that is running: `type` is a blocker type, `since` monotonic seconds."""

    type: str
    episode: Episode | None
    subject: str
    since: float
    blocks: bool


class InFlight:
    """Calls that are running, counted, and found by rollout without a scan; only those that block a cut are blockers."""

    def __init__(self) -> None:
        self._running: dict[int, Running] = {}
        self._by_rollout: dict[str, dict[int, Running]] = {}
        self._next = 0
        self.blocking = 0

    def __len__(self) -> int:
        return len(self._running)

    def enter(self, running: Running) -> int:
        """Counts a call; returns its ticket."""
        self._next += 1
        self._running[self._next] = running
        if running.episode is not None:
            self._by_rollout.setdefault(running.episode.rollout_id, {})[self._next] = running
        self.blocking += running.blocks
        return self._next

    def leave(self, ticket: int) -> None:
        """Uncounts it, once."""
        running = self._running.pop(ticket)
        self.blocking -= running.blocks
        if running.episode is not None:
            siblings = self._by_rollout[running.episode.rollout_id]
            del siblings[ticket]
            if not siblings:
                del self._by_rollout[running.episode.rollout_id]

    def of_rollout(self, rollout_id: str) -> list[Running]:
        return list(self._by_rollout.get(rollout_id, {}).values())

    def blockers(self, now: float) -> Iterator[Blocker]:
        """One blocker for each running call that blocks; ages in seconds at `now`."""
        for running in self._running.values():
            if running.blocks:
                yield Blocker(running.type, running.episode, running.subject, now - running.since)
