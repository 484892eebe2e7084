"""Finished results: kept until whoever asked for them says by exact receipt that it has them."""

from __future__ import annotations

import asyncio
import heapq
import json
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from gymckpt.core.ids import Episode, Fence
from gymckpt.core.kinds import GateState
from gymckpt.core.results import FinishedResult, nothing_kept
from gymckpt.core.sessions import Session
from gymckpt.core.transitions import Acknowledge, Acknowledged
from gymckpt.errors import DeadlineExceeded, InvalidField
from gymckpt.participant.upload import Sent, send

if TYPE_CHECKING:
    from gymckpt.participant.base import Participant

FINISHED = "finished"  # boundary of a session that is kept for its result
ANSWERS = 64  # acknowledgements whose repetition gets the same answer


def result_body(result: Any) -> bytes:
    """The JSON text of a result, as Starlette's JSONResponse writes it; halves of characters, which UTF-8 cannot carry, are escaped. Raises InvalidField for
    what is not JSON."""
    try:
        try:
            return json.dumps(result, ensure_ascii=False, separators=(",", ":")).encode()
        except UnicodeEncodeError:
            return json.dumps(result, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidField(f"result is not a JSON value: {error}", field="result") from error


class Results:
    """What a participant keeps of finished episodes: sessions of its table, which every checkpoint exports and a retire frees like any other."""

    def __init__(self, participant: Participant) -> None:
        self._p = participant
        self._answers: dict[Fence, Acknowledged] = {}

    def moves(self) -> dict[type, Callable[..., Any]]:
        return {Acknowledge: self.acknowledge}

    async def page(
        self, size: int, after: Episode | None, only: Collection[Episode] = ()
    ) -> tuple[list[FinishedResult], bool]:
        """At most `size` results in the order of their episodes, from behind `after`, and whether there are more.

        Their bodies are in the store when it returns. Whoever names the `only` episodes that it wants compares receipts: then nothing is written, so that
        also a full store lets go of what has arrived. Raises StoreUnavailable, StoreFull, InvalidPhase.
        """
        p = self._p
        candidates = {session.key: session for episode in only for session in p.sessions.of(episode)}.values()
        found = heapq.nsmallest(
            size + 1,
            (
                session
                for session in (candidates if only else p.sessions)
                if _is_kept(session) and (after is None or after < session.episode)
            ),
            key=lambda session: session.episode,
        )
        page = [FinishedResult(s.episode, s.result, s.durable) for s in found[:size] if s.result is not None]
        if not only:
            bodies = {entry.body: p.body(session) for entry, session in zip(page, found, strict=False)}
            await send(p.require_store(), bodies, Sent())
        return page, len(found) > size

    async def acknowledge(self, fence: Fence, acknowledge: Acknowledge) -> Acknowledged:
        """All or none: nothing can run between the comparison of the first receipt and the last result that is freed."""
        p = self._p
        try:
            async with asyncio.timeout(acknowledge.timeout):
                while fence not in self._answers and p.gate.state is not GateState.OPEN:
                    await p.has_moved()
        except TimeoutError:
            holder = p.gate.fence.checkpoint_id if p.gate.fence is not None else "none"
            raise DeadlineExceeded(
                f"the gate of {p.id} is {p.gate.state.name} (held by {holder}) after {acknowledge.timeout:g} s: nothing was acknowledged here"
            ) from None
        if fence in self._answers:
            return self._answers[fence]
        asked = {each.episode for each in acknowledge.acknowledgements}
        kept = {
            session.episode: session for episode in asked for session in p.sessions.of(episode) if _is_kept(session)
        }
        receipts = {
            episode: (session.result.blake3,) for episode, session in kept.items() if session.result is not None
        }
        answer = Acknowledged(nothing_kept(receipts, acknowledge.acknowledgements))
        for session in kept.values():
            p.free(session)
        self._answers[fence] = answer
        if len(self._answers) > ANSWERS:
            del self._answers[next(iter(self._answers))]
        return answer


def _is_kept(session: Session) -> bool:
    """Not while it is pending: a restore may still come to nothing."""
    return session.result is not None and not session.pending
