"""Participants for NeMo Gym's kinds of server: resources servers with their sessions, model servers without any."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from gymckpt.core.admission import Entry
from gymckpt.core.ids import Episode
from gymckpt.core.kinds import Capture, Kind
from gymckpt.core.manifest import Receipt
from gymckpt.core.sessions import Session
from gymckpt.errors import InvalidField
from gymckpt.nemo_gym.adapters import Adapter
from gymckpt.nemo_gym.identity import GymCall
from gymckpt.participant.base import Participant, log
from gymckpt.participant.call import Call
from gymckpt.participant.resources import ResourcesParticipant, Ticket

SEED_ROUTES = frozenset({"/seed_session", "/reset"})
ENDED_KEPT = 65_536  # sessions that have ended, and that were replaced, which are remembered


class GymResources(ResourcesParticipant):
    """A resources server whose clients bring nothing but a cookie.

    Beside what every resources server does:

    - a session whose state the server itself dropped has ended, and calls of ended sessions get the server's own answer;
    - a client that has seen more of its session than was restored is held, and its episode named as lost: going on would be silently wrong;
    - the seed of a later attempt takes the place of the rollout's earlier sessions: whoever began those is dead. Calls of a session that was replaced or
      retired are held, because nothing that they were told could be kept from the model.
    """

    def __init__(self, name: str, adapter: Adapter[Any, Any]) -> None:
        super().__init__(
            name,
            state=adapter if adapter.capture is Capture.EXPORTED else None,
            capture=adapter.capture,
            verify=adapter.verify,
            seed_routes=SEED_ROUTES,
            read_only_routes=adapter.read_only_routes,
            cookie_only=True,
        )
        self._adapter = adapter
        self._ended: dict[str, None] = {}
        self._replaced: dict[str, None] = {}

    def counts(self) -> Mapping[str, int]:
        return {**super().counts(), "replaced": len(self._replaced)}

    def exportable(self, session: Session) -> bool:
        """A session whose client is ahead of it belongs in no checkpoint."""
        return super().exportable(session) and session.episode not in self.lost

    def reusable(self, session: Session) -> bool:
        return not self._adapter.carries_server

    def seeded(self, key: str, body: bytes) -> None:
        """A seed with this body has succeeded in the session."""
        self._adapter.seeded(key, body)

    def classify(self, call: Call) -> Entry:
        if call.session in self._ended and not self.is_seed(call):
            return Entry.EXEMPT
        return super().classify(call)

    def enter_now(self, call: Call, request: bytes = b"") -> Ticket | None:
        if self._is_over(call):
            return None
        goes_on = not self.is_seed(call) and self.classify(call) is not Entry.EXEMPT
        if goes_on and isinstance(call, GymCall) and call.marked is not None:
            self._find_lost(call.session or "", call.marked, call.seen)
            if self._has_missed(call):
                return None
        return super().enter_now(call, request)

    def _is_over(self, call: Call) -> bool:
        """Whether the call is one of a client that should be dead, and may not be told so."""
        if self.is_seed(call) or call.route in self._closes or self.classify(call) is Entry.EXEMPT:
            return False
        session = self.sessions.get(call.session or "")
        retired = session is not None and call.episode is None and self.floors.refuses(session.episode)
        return retired or call.session in self._replaced

    def _has_missed(self, call: GymCall) -> bool:
        session = self.sessions.get(call.session or "")
        return session is not None and not self.is_seed(call) and call.seen > session.revision

    def _find_lost(self, key: str, marked: Episode, seen: int) -> None:
        """Names the episode of a client that cannot go on here."""
        session = self.sessions.get(key)
        if session is None and self.capture is not Capture.STATELESS:
            self._lose(marked, f"{self.id} does not hold session {key!r}")
        elif session is not None and seen > session.revision:
            told = (
                f"its client has seen revision {seen} of session {key!r}, {self.id} holds revision {session.revision}"
            )
            self._lose(session.episode, f"{told}: answers given after the checkpoint are gone")

    def _lose(self, episode: Episode, why: str) -> None:
        if episode not in self.lost and not self.floors.refuses(episode):
            self.lost[episode] = why[:256]
            log.warning("calls of %s are held: %s", episode, why)

    def leave(
        self,
        ticket: Ticket,
        *,
        succeeded: bool,
        key: str | None = None,
        receipt: Callable[[int], Receipt | None] | None = None,
    ) -> int:
        revision = super().leave(ticket, succeeded=succeeded, key=key, receipt=receipt)
        if self.is_seed(ticket.call) and key is not None:
            self._ended.pop(key, None)
            self._replaced.pop(key, None)
            self._replace_others(key)
        session = ticket.session
        if session is not None:
            if self.sessions.get(session.key) is session and not self._adapter.holds(session.key):
                self.free(session)
            if self.sessions.get(session.key) is None and session.key not in self._replaced:
                remember(self._ended, session.key)
        return revision

    def _replace_others(self, key: str) -> None:
        """Sessions of earlier attempts of the rollout end here, but for those of a restore under way. One of the same attempt may be another run's that numbers
        its tasks alike: both go on, because each is known by its cookie."""
        begun = self.sessions.get(key)
        if begun is None:
            return
        for older in self.sessions.of_rollout(begun.episode.rollout_id):
            if older is begun or older.pending or older.episode.attempt >= begun.episode.attempt:
                continue
            log.warning("session %r of %s at %s is replaced by %r", older.key, older.episode, self.id, key)
            self.free(older)
            if self.capture is not Capture.STATELESS:
                remember(self._replaced, older.key)


def remember(keys: dict[str, None], key: str) -> None:
    """Adds a key; the oldest is forgotten when there are too many."""
    keys[key] = None
    if len(keys) > ENDED_KEPT:
        del keys[next(iter(keys))]


class GymModel(Participant):
    """A model server that keeps nothing of a rollout: a member that is always ready, whose calls are never held.

    Its clients are agents that are not exported: they keep an answer that arrives during a checkpoint and are held at their next tool call.
    """

    kind: ClassVar[Kind] = Kind.MODEL

    def __init__(self, name: str, worker: str = "0") -> None:
        super().__init__(name, state=None, worker=worker, capture=Capture.STATELESS)


def refuse_workers(name: str, workers: int | None) -> None:
    """Raises InvalidField when the sessions of a server would be spread over several processes that do not share them."""
    if workers is not None and workers > 1:
        raise InvalidField(
            f"{name} has num_workers {workers}, but a session lives in one process: set it to 1 to checkpoint it",
            field="num_workers",
        )
