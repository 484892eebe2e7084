"""What a participant says of its readiness."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gymckpt.core.ids import Episode

MAX_BLOCKERS = 100


@dataclass(frozen=True, slots=True)
class Blocker:
    """Work that stops a consistent cut right now. `type` is one word of the list in types.proto; `age` is in seconds."""

    type: str
    episode: Episode | None
    subject: str
    age: float

    @property
    def key(self) -> tuple[str, str, str]:
        return (str(self.episode or ""), self.type, self.subject)


@dataclass(frozen=True, slots=True)
class Restart:
    """An episode that cannot be captured, and why."""

    episode: Episode
    why: str


@dataclass(frozen=True, slots=True)
class LostEpisode:
    """An episode whose state is not where it should be, and why. `checkpoint_id` is an older checkpoint that holds it, if one does and nobody has restored or
    retired it since."""

    episode: Episode
    why: str
    checkpoint_id: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """Readiness of one participant: the first MAX_BLOCKERS blockers by key, the full count, and all restarts in order."""

    blockers: tuple[Blocker, ...] = ()
    blocker_count: int = 0
    restarts: tuple[Restart, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def ready(self) -> bool:
        return self.blocker_count == 0

    @classmethod
    def of(
        cls, blockers: Iterable[Blocker], count: int, restarts: Mapping[Episode, str], counts: Mapping[str, int]
    ) -> Report:
        first = tuple(heapq.nsmallest(MAX_BLOCKERS, blockers, key=lambda blocker: blocker.key)) if count else ()
        return cls(
            first, count, tuple(Restart(episode, restarts[episode]) for episode in sorted(restarts)), dict(counts)
        )
