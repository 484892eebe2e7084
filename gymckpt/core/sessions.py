"""The sessions that a participant knows: live ones, and restored ones before and after they are claimed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from gymckpt.core.ids import Digest, Episode
from gymckpt.core.manifest import Receipt
from gymckpt.errors import Conflict, StaleAttempt


@dataclass(frozen=True, slots=True)
class Exported:
    """What this very process remembers of its own last published export of a session."""

    checkpoint_id: str
    revision: int
    state: Digest


@dataclass(slots=True)
class Session:
    """One session of an episode.

    `pending`: installed, not yet activated, nothing may run on it. `restored`: activated, its replacement has not started.
    `revision` rises whenever an admitted call leaves; `unreceipted_revision` is the last one reached by a call without receipt.
    `result`: it has finished, and is kept for the sake of its result, whose body has this digest.
    """

    episode: Episode
    key: str
    revision: int = 0
    unreceipted_revision: int = 0
    receipts: dict[str, Receipt] = field(default_factory=dict)
    pending: bool = False
    restored: bool = False
    exported: Exported | None = None
    result: Digest | None = None

    @property
    def durable(self) -> bool:
        """Whether a published checkpoint holds it as it is now: it came from one, or this very process remembers to have exported it."""
        return self.restored or (self.exported is not None and self.exported.revision == self.revision)

    def touched(self, *, receipted: bool = False) -> int:
        """The state may have changed. Returns the new revision."""
        self.revision += 1
        if not receipted:
            self.unreceipted_revision = self.revision
        return self.revision


class SessionTable:
    """Sessions by key, and by rollout: looking one up, or all of a rollout, never scans."""

    def __init__(self) -> None:
        self.results = 0  # how many are kept for their result alone
        self._by_key: dict[str, Session] = {}
        self._by_rollout: dict[str, dict[str, Session]] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    @property
    def live(self) -> int:
        """How many are not kept for their result alone."""
        return len(self) - self.results

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._by_key.values()))

    def get(self, key: str) -> Session | None:
        return self._by_key.get(key)

    def of(self, episode: Episode) -> list[Session]:
        """Sessions of exactly this attempt."""
        return [
            session for session in self._by_rollout.get(episode.rollout_id, {}).values() if session.episode == episode
        ]

    def of_rollout(self, rollout_id: str) -> list[Session]:
        return list(self._by_rollout.get(rollout_id, {}).values())

    def open(self, episode: Episode, key: str) -> Session:
        """The session of this key, new or the same attempt's. Raises StaleAttempt when another attempt owns it, Conflict when another rollout does."""
        session = self._by_key.get(key)
        if session is None:
            session = Session(episode, key)
            self.add(session)
        check_owner(session, episode)
        return session

    def add(self, session: Session) -> None:
        """Raises Conflict when the key is taken."""
        if session.key in self._by_key:
            taken = self._by_key[session.key]
            raise Conflict(
                f"session {session.key!r} of {session.episode} is taken by {taken.episode}; retire that one first"
            )
        self._by_key[session.key] = session
        self._by_rollout.setdefault(session.episode.rollout_id, {})[session.key] = session

    def finish(self, session: Session, body: Digest) -> None:
        """The session, which is here, has ended and is kept for its result."""
        self.results += session.result is None
        session.result = body

    def remove(self, key: str) -> Session | None:
        """Forgets a session; one that is not here is fine."""
        session = self._by_key.pop(key, None)
        if session is not None:
            self.results -= session.result is not None
            siblings = self._by_rollout[session.episode.rollout_id]
            del siblings[key]
            if not siblings:
                del self._by_rollout[session.episode.rollout_id]
        return session


def check_owner(session: Session, episode: Episode) -> None:
    """Raises StaleAttempt or Conflict unless the session belongs to this very attempt."""
    if session.episode.rollout_id != episode.rollout_id:
        raise Conflict(f"session {session.key!r} belongs to {session.episode}, not to {episode}")
    if session.episode.attempt != episode.attempt:
        raise StaleAttempt(
            f"session {session.key!r} belongs to attempt {session.episode.attempt} of {episode.rollout_id!r}, not to attempt {episode.attempt}",
            details={
                "rollout_id": episode.rollout_id,
                "attempt": str(episode.attempt),
                "live_attempt": str(session.episode.attempt),
            },
        )
