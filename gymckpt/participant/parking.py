"""What environments and agents have in common: their episodes park by themselves, inside the handlers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from gymckpt.core.ids import Episode
from gymckpt.core.report import Blocker
from gymckpt.core.sessions import Session
from gymckpt.participant.base import Participant
from gymckpt.participant.state import SessionState
from gymckpt.participant.stepping import Stepping

B = TypeVar("B")

RETRY_AFTER = 1.0  # seconds until what is refused while something else runs may come again


class ParkingParticipant(Participant, Generic[B]):
    """A participant over the steps of its episodes; `B` is what it keeps as a boundary."""

    def __init__(
        self,
        name: str,
        *,
        stepping: Stepping[B],
        state: SessionState[Any, Any],
        worker: str,
        clock: Callable[[], float],
    ) -> None:
        super().__init__(name, state=state, worker=worker, clock=clock)
        self._stepping = stepping

    def blocker_count(self) -> int:
        return self._stepping.steps.blocking + self.in_flight.blocking

    def blockers(self) -> Iterable[Blocker]:
        now = self.clock()
        yield from self._stepping.steps.blockers(now)
        yield from self.in_flight.blockers(now)

    def restarts(self) -> Mapping[Episode, str]:
        return self._stepping.steps.restarts()

    def exportable(self, session: Session) -> bool:
        steps = self._stepping.steps
        return not session.pending and (session.key not in steps or steps[session.key].at_boundary)

    def gate_closing(self) -> None:
        self._stepping.gate_closing()

    def gate_opened(self) -> None:
        self._stepping.gate_opened()
