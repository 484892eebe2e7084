"""What a kind of participant says of itself, and what it is told. The defaults suit a kind that only answers calls."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Mapping

from gymckpt.core.admission import InFlight
from gymckpt.core.ids import Episode
from gymckpt.core.manifest import Touch
from gymckpt.core.report import Blocker
from gymckpt.core.sessions import Session, SessionTable


class Hooks(abc.ABC):
    """All are synchronous but `stop`; none but `stop` may fail."""

    sessions: SessionTable
    in_flight: InFlight
    clock: Callable[[], float]

    def blocker_count(self) -> int:
        """How much work stops a cut right now; O(1)."""
        return self.in_flight.blocking

    def blockers(self) -> Iterable[Blocker]:
        """That work; asked only when there is some."""
        return self.in_flight.blockers(self.clock())

    def restarts(self) -> Mapping[Episode, str]:
        """Episodes that cannot be captured, and why."""
        return {}

    def counts(self) -> Mapping[str, int]:
        """Live things by kind of thing, for people."""
        return {"sessions": self.sessions.live}

    def exportable(self, session: Session) -> bool:
        """Whether the session belongs in a cut taken now."""
        return not session.pending

    def reusable(self, session: Session) -> bool:
        """Whether the state of a session whose revision has not changed is the one that was published."""
        return True

    def describe(self, session: Session) -> tuple[str, tuple[Touch, ...]]:
        """Boundary ("" where none was declared) and touches of the session, at the cut."""
        return "", ()

    def body(self, session: Session) -> bytes:
        """Body of the result that the session is kept for. Raises KeyError for any other session."""
        raise KeyError(session.key)

    def gate_closing(self) -> None:
        """The gate has just left OPEN."""

    def gate_opened(self) -> None:
        """The gate has just become OPEN."""

    def restored(self, session: Session, boundary: str, touches: tuple[Touch, ...]) -> None:
        """State was installed as pending, with what the checkpoint says of its boundary; nothing may run on it yet."""

    def activated(self, session: Session) -> None:
        """Restored state has just become live."""

    @abc.abstractmethod
    async def stop(self, episode: Episode) -> None:
        """Stops all work of this attempt and the ones before it; returns when it has stopped. Called again, waits for the same."""
