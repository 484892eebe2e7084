"""The ledger of a policy model's calls: what a rollout's tokens are made of, in order, and nothing that nobody received."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from gymckpt.core.ids import Episode
from gymckpt.errors import InvalidField, StoreFull, StoreUnavailable, UnloadableState
from gymckpt.participant.ledger_file import LedgerFile
from gymckpt.participant.state import SessionState

MAX_CALLS = 4096  # calls of one rollout
_OURS = ("call_id", "parent", "made")
_UNBOUND = -1  # attempt of rows that were installed and not bound yet


@dataclass(frozen=True, slots=True)
class CallRow:
    """One call as its JSON text: `call_id`, `parent` (the call before it), `made` (the episode's text where it was made), and what the server recorded."""

    call_id: str
    content: bytes

    @classmethod
    def of(cls, call_id: str, parent: str | None, made: Episode, recorded: Mapping[str, Any]) -> CallRow:
        """Raises InvalidField for what is not plain data, or takes one of our names."""
        taken = [name for name in _OURS if name in recorded]
        if taken:
            raise InvalidField(f"a recorded call must not have a key {taken[0]!r}: the ledger writes it", field="row")
        row = {"call_id": call_id, "parent": parent, "made": str(made), **recorded}
        try:
            return cls(call_id, json.dumps(row, separators=(",", ":")).encode())
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidField(f"a recorded call must be plain data: {error}", field="row") from error

    @property
    def row(self) -> dict[str, Any]:
        parsed: dict[str, Any] = json.loads(self.content)
        return parsed


Rows = tuple[CallRow, ...]


class Ledger(SessionState[Rows, Rows], Protocol):
    """Calls by rollout id. The five methods see only calls that were delivered; those of one rollout belong to one attempt at a time."""

    async def open(self, episode: Episode) -> None:
        """Brings back what is held of this very attempt since before the process started; everything of older attempts is dropped."""

    def bind(self, episode: Episode) -> None:
        """Rows that were installed belong to this attempt from now on."""

    def last(self, rollout_id: str) -> str | None:
        """Id of the last call that was delivered."""

    def rows(self, rollout_id: str) -> list[dict[str, Any]]:
        """Calls that were delivered, in that order, as they are exported."""

    def check_room(self, rollout_id: str) -> None:
        """Raises StoreFull when the rollout may have no more calls."""

    async def append(self, episode: Episode, row: CallRow) -> None:
        """A finished call; durable when this returns, and not delivered yet. Raises StoreFull, StoreUnavailable."""

    async def deliver(self, episode: Episode, call_id: str) -> None:
        """Its response goes out: from now on it is exported. Durable when this returns; one that is not here is fine. Raises StoreUnavailable."""

    def drop(self, rollout_id: str, call_id: str) -> None:
        """A call whose response nobody received."""

    async def retire(self, episode: Episode) -> None:
        """Drops everything of this attempt and the ones before it; durable when this returns. Raises StoreUnavailable."""


@dataclass(slots=True)
class _Lineage:
    """One rollout in memory; the file holds the same."""

    attempt: int
    delivered: list[CallRow] = field(default_factory=list)
    undelivered: dict[str, CallRow] = field(default_factory=dict)


class SqliteLedger:
    """A ledger in one SQLite file (`:memory:` for none), at most `max_calls` per rollout. Live rollouts are kept in memory too: freezing reads no file."""

    schema = "gymckpt.ledger/1"

    def __init__(self, path: str, *, max_calls: int = MAX_CALLS) -> None:
        self._file = LedgerFile(path)
        self._max_calls = max_calls
        self._live: dict[str, _Lineage] = {}

    async def close(self) -> None:
        """Writes what is left and closes the file."""
        await asyncio.to_thread(self._file.close)

    def freeze(self, session: str) -> Rows:
        return tuple(self._delivered(session))

    def encode(self, frozen: Rows) -> Mapping[str, bytes]:
        """One part per call: a longer lineage costs only its new calls."""
        return {f"calls/{place:08d}": row.content for place, row in enumerate(frozen)}

    def load(self, parts: Mapping[str, bytes]) -> Rows:
        expected = [f"calls/{place:08d}" for place in range(len(parts))]
        if sorted(parts) != expected:
            raise UnloadableState(f"the parts of a ledger are calls/00000000 and so on, got {sorted(parts)[:4]}")
        return tuple(_row(name, parts[name]) for name in expected)

    def install(self, session: str, loaded: Rows) -> None:
        self._live[session] = _Lineage(_UNBOUND, list(loaded))
        rows = [(session, _UNBOUND, row.call_id, place, row.content) for place, row in enumerate(loaded)]
        self._file.write_behind([("DELETE FROM calls WHERE rollout = ?", [(session,)]), (_INSERT, rows)])

    def discard(self, session: str) -> None:
        if self._live.pop(session, None) is not None:
            self._file.write_behind([("DELETE FROM calls WHERE rollout = ?", [(session,)])])

    async def open(self, episode: Episode) -> None:
        rollout, attempt = episode.rollout_id, episode.attempt
        if rollout in self._live:
            return
        await self._file.write(
            [
                ("DELETE FROM calls WHERE rollout = ? AND attempt < ?", [(rollout, attempt)]),
                ("DELETE FROM calls WHERE rollout = ? AND place IS NULL", [(rollout,)]),
            ]
        )
        found = await self._file.read(
            "SELECT call, row FROM calls WHERE rollout = ? AND attempt = ? ORDER BY place", (rollout, attempt)
        )
        if rollout not in self._live:
            self._live[rollout] = _Lineage(attempt, [CallRow(call, content) for call, content in found])

    def bind(self, episode: Episode) -> None:
        lineage = self._live[episode.rollout_id]
        lineage.attempt = episode.attempt
        self._file.write_behind(
            [("UPDATE calls SET attempt = ? WHERE rollout = ?", [(episode.attempt, episode.rollout_id)])]
        )

    def last(self, rollout_id: str) -> str | None:
        delivered = self._delivered(rollout_id)
        return delivered[-1].call_id if delivered else None

    def rows(self, rollout_id: str) -> list[dict[str, Any]]:
        return [row.row for row in self._delivered(rollout_id)]

    def check_room(self, rollout_id: str) -> None:
        lineage = self._live.get(rollout_id)
        held = len(lineage.delivered) + len(lineage.undelivered) if lineage is not None else 0
        if held >= self._max_calls:
            raise StoreFull(
                f"the ledger holds {held} calls of rollout {rollout_id!r}, at most {self._max_calls} are allowed (max_calls); end the rollout",
                details={"rollout_id": rollout_id, "calls": str(held), "max_calls": str(self._max_calls)},
            )

    async def append(self, episode: Episode, row: CallRow) -> None:
        self.check_room(episode.rollout_id)
        lineage = self._live[episode.rollout_id]
        lineage.undelivered[row.call_id] = row
        values = (episode.rollout_id, lineage.attempt, row.call_id, None, row.content)
        try:
            await self._file.write([(_INSERT, [values])])
        except BaseException:
            lineage.undelivered.pop(row.call_id, None)
            raise

    async def deliver(self, episode: Episode, call_id: str) -> None:
        lineage = self._live.get(episode.rollout_id)
        row = lineage.undelivered.pop(call_id, None) if lineage is not None else None
        if lineage is None or row is None:
            return
        lineage.delivered.append(row)
        place = len(lineage.delivered) - 1
        update = "UPDATE calls SET place = ? WHERE rollout = ? AND call = ?"
        try:
            await self._file.write([(update, [(place, episode.rollout_id, call_id)])])
        except StoreUnavailable:
            lineage.delivered.remove(row)
            raise

    def drop(self, rollout_id: str, call_id: str) -> None:
        lineage = self._live.get(rollout_id)
        if lineage is not None and lineage.undelivered.pop(call_id, None) is not None:
            delete = "DELETE FROM calls WHERE rollout = ? AND call = ?"
            self._file.write_behind([(delete, [(rollout_id, call_id)])])

    async def retire(self, episode: Episode) -> None:
        lineage = self._live.get(episode.rollout_id)
        if lineage is not None and lineage.attempt <= episode.attempt:
            del self._live[episode.rollout_id]
        delete = "DELETE FROM calls WHERE rollout = ? AND attempt <= ?"
        await self._file.write([(delete, [(episode.rollout_id, episode.attempt)])])

    def _delivered(self, rollout_id: str) -> list[CallRow]:
        lineage = self._live.get(rollout_id)
        return lineage.delivered if lineage is not None else []


_INSERT = "INSERT INTO calls (rollout, attempt, call, place, row) VALUES (?, ?, ?, ?, ?)"


def _row(name: str, content: bytes) -> CallRow:
    row = json.loads(content)
    if not isinstance(row, dict) or not isinstance(row.get("call_id"), str):
        raise UnloadableState(f"part {name} is not a call with a call_id")
    return CallRow(row["call_id"], content)
