"""A resources server's participant: tools, their sessions, and the receipts of repeatable mutations."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, ClassVar, Literal, NamedTuple

from gymckpt.core.admission import Entry, Running, Verdict, decide
from gymckpt.core.ids import Episode
from gymckpt.core.kinds import Capture, GateState, Kind
from gymckpt.core.manifest import Receipt
from gymckpt.core.sessions import Session, check_owner
from gymckpt.errors import AlreadyRestored, EpisodeRequired, InvalidField
from gymckpt.participant.base import Participant, log
from gymckpt.participant.call import Call
from gymckpt.participant.receipts import UNKEPT, matching
from gymckpt.participant.state import SessionState

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class Ticket(NamedTuple):
    """One admitted call: `session` is None for a seed until it has succeeded, and for calls that concern no session.

    `number` is 0 for a call that is not counted: it changes nothing, or its stored answer is `receipt`.
    """

    call: Call
    entry: Entry
    number: int
    session: Session | None
    receipt: Receipt | None = None


class ResourcesParticipant(Participant):
    """Capture modes: `exported` when `state` is given, else `restart_only` (fail closed) unless `capture` says `STATELESS`.

    Routes are paths without NeMo Gym's rollout prefix. A session begins with a successful call of `seed_routes` and ends with one of `verify_routes` or
    `close_routes`. `read_only_routes` never change state: they neither raise the revision nor need receipts; GET, HEAD and OPTIONS are not even counted.
    `verify="replay"` says that a verification may run again after a crash, so that a checkpoint need not wait for it. `cookie_only` accepts calls that name
    their session but not their episode: a living older attempt cannot be told from its successor then.
    """

    kind: ClassVar[Kind] = Kind.RESOURCES

    def __init__(
        self,
        name: str,
        *,
        state: SessionState[Any, Any] | None = None,
        worker: str = "0",
        capture: Capture | None = None,
        verify: Literal["wait", "replay"] = "wait",
        seed_routes: Collection[str] = ("/seed_session", "/reset"),
        verify_routes: Collection[str] = ("/verify",),
        close_routes: Collection[str] = ("/close_session", "/close"),
        read_only_routes: Collection[str] = (),
        exempt_routes: Collection[str] = ("/aggregate_metrics",),
        cookie_only: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        capture = capture or (Capture.EXPORTED if state is not None else Capture.RESTART_ONLY)
        if (capture is Capture.EXPORTED) != (state is not None):
            raise InvalidField(
                f"capture {capture.name} and state {state!r} disagree: only EXPORTED has state", field="capture"
            )
        super().__init__(name, state=state, worker=worker, capture=capture, cookie_only=cookie_only, clock=clock)
        self.verify = verify
        self._seeds, self._verifies, self._closes = (
            frozenset(seed_routes),
            frozenset(verify_routes),
            frozenset(close_routes),
        )
        self._ends = self._verifies | self._closes
        self._read_only, self._exempt = frozenset(read_only_routes), frozenset(exempt_routes)
        self._ending: list[Session] = []  # ended by a replayed verification while the gate was not open
        self._answering: set[tuple[str, str]] = set()  # repeatable calls under way, by session and request id
        self._repeated = False  # whether a repeat waits for one of them
        self._held = 0  # calls that wait
        self._waiting: Counter[Episode] = Counter()  # the same, by episode
        self._unnamed: set[str | None] = (
            set()
        )  # sessions that are not here, and of which no episode is known, each told once

    # What the base asks.

    def restarts(self) -> Mapping[Episode, str]:
        if self.capture is not Capture.RESTART_ONLY:
            return {}
        return {session.episode: f"{self.id} cannot capture its sessions" for session in self.sessions}

    def counts(self) -> Mapping[str, int]:
        return {"sessions": len(self.sessions), "calls": len(self.in_flight), "held": self._held}

    def exportable(self, session: Session) -> bool:
        return not session.pending and self.capture is not Capture.RESTART_ONLY

    def gate_opened(self) -> None:
        ending, self._ending = self._ending, []
        for session in ending:
            self.free(session)

    # One call.

    def is_seed(self, call: Call) -> bool:
        return call.route in self._seeds

    def classify(self, call: Call) -> Entry:
        """How the call takes part in a checkpoint."""
        nobody = call.episode is None and (call.session is None or call.session_is_new)
        if call.route in self._exempt or (nobody and not self.is_seed(call)):
            return Entry.EXEMPT
        if call.route in self._verifies and self.verify == "replay":
            return Entry.REPLAY
        if self.capture is Capture.RESTART_ONLY and not self.is_seed(call):
            return Entry.REPLAY
        return Entry.WITHIN if call.within is not None else Entry.INSIDE

    def enter_now(self, call: Call, request: bytes = b"") -> Ticket | None:
        """Lets the call in, or None when it must wait for `has_moved`. `request` is the digest of the call, for receipts.

        Raises StaleAttempt, AlreadyRestored, ArgumentConflict, EpisodeRequired, Conflict, InvalidField.
        """
        entry = self.classify(call)
        if entry is Entry.EXEMPT:
            return Ticket(call, entry, 0, None)
        if self.is_seed(call):
            return self._enter_seed(call, entry)
        session = self._session(call)
        if session is None:
            return self._enter_unknown(call, entry)
        self._check_caller(call, session)
        if session.pending:
            return None
        if call.method in SAFE_METHODS:
            return Ticket(call, Entry.EXEMPT, 0, session)
        if decide(entry, self.gate.state) is Verdict.HOLD:
            return None
        if call.request_id is not None:
            if (session.key, call.request_id) in self._answering:
                self._repeated = True
                return None
            receipt = matching(session, call.request_id, request)
            if receipt is not None:
                return Ticket(call, Entry.EXEMPT, 0, session, receipt)
            self._answering.add((session.key, call.request_id))
        session.restored = False
        return self._enter(call, entry, session.episode, session)

    def _session(self, call: Call) -> Session | None:
        if call.session is not None and not call.session_is_new:
            return self.sessions.get(call.session)
        sessions = self.sessions.of(call.episode) if call.episode is not None else []
        if len(sessions) > 1:
            keys = sorted(session.key for session in sessions)
            raise InvalidField(
                f"{call.episode} has {len(sessions)} sessions here ({keys[:4]}); name one with x-gymckpt-session",
                field="session",
            )
        return sessions[0] if sessions else None

    def _check_caller(self, call: Call, session: Session) -> None:
        """Raises StaleAttempt, Conflict or EpisodeRequired unless the session's live attempt calls; its own close is welcome to the end."""
        if call.episode is None and not self.cookie_only:
            raise EpisodeRequired(
                f"{call.route} names session {session.key!r} at {self.id} but no episode: send x-gymckpt-episode, or declare the server cookie_only"
            )
        check_owner(session, call.episode or session.episode)
        if call.route not in self._closes:
            self.floors.check(session.episode)

    def _enter_seed(self, call: Call, entry: Entry) -> Ticket | None:
        episode = call.episode
        if episode is None:
            raise EpisodeRequired(
                f"{call.route} begins a session at {self.id} and must name its episode: send x-gymckpt-episode"
            )
        self.floors.check(episode)
        known = self.sessions.of(episode)
        if not known:
            self.floors.check_start(episode)
        if any(session.pending for session in known) or decide(entry, self.gate.state) is Verdict.HOLD:
            return None
        if any(session.restored for session in known) and not call.continues:
            raise AlreadyRestored(
                f"{episode} holds restored state at {self.id}; continue it, or retire it before starting from input"
            )
        taken = self.sessions.get(call.session) if call.session is not None else None
        if taken is not None:
            check_owner(taken, episode)
        return self._enter(call, entry, episode, None)

    def _enter_unknown(self, call: Call, entry: Entry) -> Ticket | None:
        """A call for a session that is not here: an error could be taken for the tool's answer, so it is held and its episode reported as lost.

        A close has nothing to close, a server without state nothing to miss, and a reader without an episode is nobody's tool call.
        """
        episode = call.episode
        if call.route in self._closes or (episode is None and call.method in SAFE_METHODS):
            return Ticket(call, Entry.EXEMPT, 0, None)
        if episode is not None:
            self.floors.check(episode)
        if self.capture is Capture.STATELESS:
            return None if decide(entry, self.gate.state) is Verdict.HOLD else self._enter(call, entry, episode, None)
        if episode is None and call.session not in self._unnamed:
            self._unnamed.add(call.session)
            log.warning(
                "a call of %s is held: %s does not hold session %r, and it names no episode",
                call.route,
                self.id,
                call.session,
            )
        elif episode is not None and episode not in self.lost:
            why = f"{self.id} does not hold session {call.session or 'of the episode'!r} ({call.route})"
            self.lost[episode] = why[:256]
            log.warning("a call of %s is held: %s", episode, why)
        return None

    def _enter(self, call: Call, entry: Entry, episode: Episode | None, session: Session | None) -> Ticket:
        kind = "seed" if self.is_seed(call) else "verify" if call.route in self._verifies else "tool_call"
        if entry is Entry.WITHIN:
            kind = "within"
            if self.gate.state is GateState.CLOSED:
                self.gate.let_in += 1
        subject = f"{call.route} {session.key}" if session is not None else call.route
        running = Running(kind, episode, subject, self.clock(), entry is not Entry.REPLAY)
        return Ticket(call, entry, self.in_flight.enter(running), session)

    def leave(
        self,
        ticket: Ticket,
        *,
        succeeded: bool,
        key: str | None = None,
        receipt: Callable[[int], Receipt | None] | None = None,
    ) -> int:
        """The call is through, whatever its outcome; returns the session's revision, 0 without one.

        `key` is the session key after a seed; `receipt` makes the receipt from the new revision, in the same step that raises it. Raises Conflict or
        StaleAttempt when a seed chose a key that is taken.
        """
        session, call = ticket.session, ticket.call
        if ticket.number == 0:
            return session.revision if session is not None else 0
        self.in_flight.leave(ticket.number)
        try:
            if session is not None and call.request_id is not None:
                self._answering.discard((session.key, call.request_id))
            if self.is_seed(call) and succeeded and call.episode is not None and key is not None:
                session = self._begin(call.episode, key)
            if session is None:
                return 0
            revision = self._revise(session, ticket, receipt)
            if succeeded and call.route in self._ends:
                self._end_when_open(session, ticket.entry)
            return revision
        finally:
            self._wake(call)

    def _wake(self, call: Call) -> None:
        """Calls that came before their session's seed had answered, and repeats, look again; others wait for the gate only."""
        if self._repeated or self.is_seed(call):
            self._repeated = False
            self.moved()
        else:
            self.notify()

    def _begin(self, episode: Episode, key: str) -> Session:
        """A seed succeeded: what a restore had brought back for the episode is replaced by it."""
        taken = self.sessions.get(key)
        if taken is not None:
            check_owner(taken, episode)
            if taken.restored:
                self.sessions.remove(key)
        for session in self.sessions.of(episode):
            if session.restored:
                self.free(session)
        self.lost.pop(episode, None)
        return self.sessions.open(episode, key)

    def _revise(self, session: Session, ticket: Ticket, receipt: Callable[[int], Receipt | None] | None) -> int:
        if ticket.call.route in self._read_only or ticket.entry is Entry.REPLAY:
            return session.revision
        seed = self.is_seed(ticket.call)
        made = receipt(session.revision + 1) if receipt is not None and not seed else None
        session.touched(receipted=seed or (made is not None and made.status != UNKEPT))
        if made is not None:
            session.receipts[made.request_id] = made
        return session.revision

    def _end_when_open(self, session: Session, entry: Entry) -> None:
        """A replayed verification may end its session only once the gate is open: until then the session belongs to the cut."""
        if entry is Entry.REPLAY and self.gate.state is not GateState.OPEN:
            self._ending.append(session)
        else:
            self.free(session)

    async def enter(
        self, call: Call, request: bytes = b"", gone: Callable[[], Awaitable[bool]] | None = None
    ) -> Ticket | None:
        """Waits until the call may run; None when `gone` says that its client went away first. Raises like `enter_now`."""
        self._held += 1
        if call.episode is not None:
            self._waiting[call.episode] += 1
        left = False
        try:
            while not left:
                ticket = self.enter_now(call, request)
                if ticket is not None:
                    return ticket
                if gone is None:
                    await self.has_moved()
                else:
                    left = await gone()
            return None
        finally:
            self._held -= 1
            self._stop_waiting(call, left)

    def _stop_waiting(self, call: Call, left: bool) -> None:
        """An episode is missed as long as somebody waits for it: a mistyped session that its client gave up is no loss."""
        if call.episode is None:
            return
        self._waiting[call.episode] -= 1
        if self._waiting[call.episode] == 0:
            del self._waiting[call.episode]
            if left:
                self.lost.pop(call.episode, None)
