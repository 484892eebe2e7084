"""What closed sessions leave behind for a while: a caller that lost the answer asks again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gymckpt.core.ids import Episode
from gymckpt.participant.agent_state import AgentSession, JsonObject

KEPT = 300.0  # seconds


@dataclass(frozen=True, slots=True)
class Closed:
    """One session as it was when it ended."""

    episode: Episode
    at: float
    reply: JsonObject | None
    facts: JsonObject


class ClosedSessions:
    """By key, the newest last. They belong to this process: a restored session was not closed."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._closed: dict[str, Closed] = {}

    def remember(self, held: AgentSession) -> None:
        now = self._clock()
        self._closed.pop(held.key, None)
        self._closed[held.key] = Closed(held.episode, now, held.reply, held.facts)
        while now - self._closed[oldest := next(iter(self._closed))].at > KEPT:
            del self._closed[oldest]

    def facts(self, episode: Episode, key: str) -> JsonObject | None:
        """Facts of the session that this attempt closed."""
        closed = self._closed.get(key)
        return closed.facts if closed is not None and closed.episode == episode else None

    def reply(self, episode: Episode, key: str) -> JsonObject | None:
        """Reply of its last activation, if it had one."""
        closed = self._closed.get(key)
        return closed.reply if closed is not None and closed.episode == episode else None
