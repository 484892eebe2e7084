"""Where each live episode stands between two of its boundaries, and what that means for a checkpoint.

    RUNNING    works between steps; a checkpoint waits for it
    WAIT       inside a step that must not run twice; a checkpoint waits for it
    REPLAY     inside a step that may run twice; a checkpoint takes the boundary before it
    REPLAYED   such a step ended while the gate was not open; still counted at that boundary, until the next one
    PARKED     waits at a boundary for the gate

An entry is named by the key of its session; one episode may have several (an agent's). Boundaries are opaque here. Times are those of one monotonic clock, in
seconds, and are given by the caller. Illegal moves raise before anything changes.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from gymckpt.core.ids import Episode
from gymckpt.core.report import Blocker
from gymckpt.errors import DuplicateEpisode, StaleAttempt

B = TypeVar("B")


class Doing(enum.Enum):
    """See the table above."""

    RUNNING = "running"
    WAIT = "wait"
    REPLAY = "replay"
    REPLAYED = "replayed"
    PARKED = "parked"


class Move(enum.Enum):
    """What an episode does next."""

    BOUNDARY = "declare a boundary"
    PAUSE = "stop at the boundary before"
    WAKE = "go on after the gate opened"
    INTERRUPT = "stop waiting at a boundary"
    ENTER_WAIT = "enter a wait step"
    ENTER_REPLAY = "enter a replay step"
    LEAVE = "leave a step"
    FAIL = "fail in a step"


_OPEN: dict[tuple[Doing, Move], Doing] = {
    (Doing.RUNNING, Move.BOUNDARY): Doing.RUNNING,
    (Doing.RUNNING, Move.PAUSE): Doing.RUNNING,
    (Doing.RUNNING, Move.ENTER_WAIT): Doing.WAIT,
    (Doing.RUNNING, Move.ENTER_REPLAY): Doing.REPLAY,
    (Doing.WAIT, Move.LEAVE): Doing.RUNNING,
    (Doing.WAIT, Move.FAIL): Doing.RUNNING,
    (Doing.REPLAY, Move.LEAVE): Doing.RUNNING,
    (Doing.REPLAY, Move.FAIL): Doing.RUNNING,
    (Doing.PARKED, Move.WAKE): Doing.RUNNING,
    (Doing.PARKED, Move.INTERRUPT): Doing.RUNNING,
}
# While the gate is not open. A wait step after a replay step would leave the boundary that the cut takes: it parks first.
_CLOSED: dict[tuple[Doing, Move], Doing] = _OPEN | {
    (Doing.RUNNING, Move.BOUNDARY): Doing.PARKED,
    (Doing.REPLAY, Move.LEAVE): Doing.REPLAYED,
    (Doing.REPLAY, Move.FAIL): Doing.REPLAYED,
    (Doing.REPLAYED, Move.BOUNDARY): Doing.PARKED,
    (Doing.REPLAYED, Move.PAUSE): Doing.PARKED,
    (Doing.REPLAYED, Move.ENTER_WAIT): Doing.PARKED,
    (Doing.REPLAYED, Move.ENTER_REPLAY): Doing.REPLAY,
    (Doing.PARKED, Move.WAKE): Doing.PARKED,
    (Doing.PARKED, Move.INTERRUPT): Doing.REPLAYED,
}
_BUSY = frozenset({Doing.RUNNING, Doing.WAIT})


@dataclass(slots=True)
class Entry(Generic[B]):
    """One live episode. `ends_at` is its deadline, None while there is none or it is suspended with `left` seconds to go.

    `within`: it is part of a step that the checkpoint waits for, so that parking it would park the checkpoint. `restart` says why it cannot be captured;
    `will_restart` becomes that once no checkpoint is open, so that what one checkpoint reports and exports never changes under it.
    """

    episode: Episode
    since: float
    boundary: B | None
    ends_at: float | None
    within: bool
    doing: Doing = Doing.RUNNING
    step: str = ""
    restart: str = ""
    will_restart: str = ""
    retired: bool = False
    finishing: bool = False
    left: float | None = None

    @property
    def blocks(self) -> bool:
        return self.retired or (not self.restart and (self.within or self.doing in _BUSY))

    @property
    def at_boundary(self) -> bool:
        """Whether a cut may take its boundary now."""
        return not self.blocks and not self.restart


class EpisodeSteps(Generic[B]):
    """All live episodes of one participant. The number of those that block a checkpoint is kept up to date, never counted."""

    def __init__(self, blocker_type: str = "step") -> None:
        self.blocking = 0
        self._entries: dict[str, Entry[B]] = {}
        self._closed = False
        self._blocker_type = blocker_type

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, key: str) -> Entry[B]:
        return self._entries[key]

    def check_free(self, key: str, episode: Episode) -> None:
        """Raises DuplicateEpisode while something runs under this key."""
        if key in self._entries:
            live = self._entries[key].episode
            raise DuplicateEpisode(
                f"{episode} cannot start: {live} runs here under the same key {key!r}; wait for it or retire it",
                details={"episode": str(episode), "live": str(live)},
            )

    def begin(
        self,
        key: str,
        episode: Episode,
        now: float,
        *,
        boundary: B | None = None,
        allowance: float | None = None,
        within: bool = False,
    ) -> None:
        """Starts to track an episode, at a restored boundary if there is one, with `allowance` seconds to live. Raises DuplicateEpisode."""
        self.check_free(key, episode)
        ends_at = None if allowance is None else now + allowance
        entry = Entry(episode, now, boundary, ends_at, within)
        self._entries[key] = entry
        self.blocking += entry.blocks

    def end(self, key: str) -> None:
        """Stops to track it; nothing of it runs any more."""
        self.blocking -= self._entries.pop(key).blocks

    def boundary(self, key: str, boundary: B, now: float) -> bool:
        """Records a boundary. True: the episode is parked there and waits for the gate. Raises StaleAttempt when it was retired."""
        entry = self._entries[key]
        if entry.retired:
            raise StaleAttempt(
                f"{entry.episode} was retired; stop its work", details={"episode": str(entry.episode), "key": key}
            )
        self._move(entry, Move.BOUNDARY, now)
        entry.boundary = boundary
        return entry.doing is Doing.PARKED

    def pause(self, key: str, now: float) -> bool:
        """Parks an episode that is counted at its last boundary; one that a checkpoint waits for goes on. True: it is parked."""
        return self._move(self._entries[key], Move.PAUSE, now) is Doing.PARKED

    def wake(self, key: str, now: float) -> bool:
        """True: the parked episode goes on. False: the gate closed again before it ran, and it stays parked for that cut too."""
        return self._move(self._entries[key], Move.WAKE, now) is Doing.RUNNING

    def interrupt(self, key: str, now: float) -> None:
        """Its wait was cancelled: it no longer waits, and stays counted at the boundary until it has ended or parks again."""
        self._move(self._entries[key], Move.INTERRUPT, now)

    def enter(self, key: str, step: str, mode: str, now: float) -> bool:
        """Begins a step of mode `wait` or `replay`. False: it has not begun; the episode is parked, wake it and try again."""
        entry = self._entries[key]
        self._move(entry, {"wait": Move.ENTER_WAIT, "replay": Move.ENTER_REPLAY}[mode], now)
        if entry.doing is Doing.PARKED:
            return False
        entry.step = step
        return True

    def leave(self, key: str, now: float, *, failed: bool = False) -> None:
        """Ends the step. What a failed replay step cleans up may be what its boundary needs: during a checkpoint the boundary is given up."""
        entry = self._entries[key]
        if self._move(entry, Move.FAIL if failed else Move.LEAVE, now) is Doing.REPLAYED and failed:
            entry.boundary = None
        entry.step = ""

    def close(self, now: float) -> None:
        """The gate is no longer open: deadlines of whoever stands at a boundary stop."""
        self._closed = True
        for entry in self._entries.values():
            self._keep_time(entry, now)

    def open(self, now: float) -> None:
        """The gate opened: deadlines go on. Parked episodes stay counted as parked until each of them wakes."""
        self._closed = False
        for entry in self._entries.values():
            if entry.will_restart:
                self._restart(entry)
            if entry.doing is Doing.REPLAYED:
                self._become(entry, Doing.RUNNING, now)
            self._keep_time(entry, now)

    def mark_restart(self, key: str, why: str) -> None:
        """It cannot be captured: it neither blocks nor parks, and is never exported. During a checkpoint that holds only after the gate has opened."""
        entry = self._entries[key]
        entry.will_restart = why
        if not self._closed:
            self._restart(entry)

    def mark_finishing(self, key: str) -> None:
        """Its final cleanup began: whoever retires it waits and does not cancel, and its deadline no longer counts."""
        entry = self._entries[key]
        entry.finishing, entry.ends_at, entry.left = True, None, None

    def retire(self, key: str, now: float) -> bool:
        """It blocks until it has ended. True: cancel its work, which is asked for once and never during the final cleanup."""
        entry = self._entries[key]
        if entry.retired:
            return False
        if entry.doing is Doing.REPLAYED:
            self._become(entry, Doing.RUNNING, now)
        before = entry.blocks
        entry.retired, entry.since = True, now
        self.blocking += entry.blocks - before
        return not entry.finishing

    def blockers(self, now: float) -> Iterator[Blocker]:
        """Everything that blocks a checkpoint, in no order; scans."""
        for key, entry in self._entries.items():
            if entry.blocks:
                kind = "retiring" if entry.retired else "within" if entry.within else self._blocker_type
                subject = f"{key}: {entry.step or entry.doing.value}"[:256]
                yield Blocker(kind, entry.episode, subject, now - entry.since)

    def restarts(self) -> dict[Episode, str]:
        """Why each episode that cannot be captured cannot; retired ones are no longer named."""
        live = (entry for entry in self._entries.values() if not entry.retired)
        return {entry.episode: entry.restart for entry in live if entry.restart}

    def _move(self, entry: Entry[B], move: Move, now: float) -> Doing:
        # Whoever will not be exported is not stopped either.
        closed = self._closed and not entry.restart and not entry.retired and not entry.within
        after = (_CLOSED if closed else _OPEN).get((entry.doing, move))
        if after is None:
            raise RuntimeError(f"{entry.episode} cannot {move.value} while it is {entry.doing.value} {entry.step!r}")
        self._become(entry, after, now)
        return after

    def _restart(self, entry: Entry[B]) -> None:
        before = entry.blocks
        entry.restart, entry.will_restart = entry.will_restart, ""
        self.blocking += entry.blocks - before

    def _become(self, entry: Entry[B], doing: Doing, now: float) -> None:
        before = entry.blocks
        entry.doing = doing
        if not entry.retired:
            entry.since = now
        self.blocking += entry.blocks - before
        self._keep_time(entry, now)

    def _keep_time(self, entry: Entry[B], now: float) -> None:
        suspended = self._closed and entry.doing not in _BUSY
        if suspended and entry.ends_at is not None:
            entry.left, entry.ends_at = max(0.0, entry.ends_at - now), None
        elif not suspended and entry.left is not None:
            entry.ends_at, entry.left = now + entry.left, None
