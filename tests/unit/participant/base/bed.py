"""A resources participant whose sessions are counters, a store that can be stopped, and a clock that is moved by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from gymckpt.core.ids import Digest, Episode
from gymckpt.core.kinds import Capture, ExportState, GateState
from gymckpt.participant import Call, MappingState, ResourcesParticipant
from gymckpt.participant.resources import Ticket
from gymckpt.store.memory import MemoryStore
from tests.unit.participant.rounds import Rounds


class Clock:
    """Monotonic seconds, moved by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class StoppableStore(MemoryStore):
    """Writes wait while it is stopped, and fail with `failure` once for each time that it is set."""

    def __init__(self) -> None:
        super().__init__()
        self.running = asyncio.Event()
        self.running.set()
        self.reached = asyncio.Event()
        self.failure: Exception | None = None
        self.written: list[bytes] = []

    async def write(self, blobs: Sequence[bytes]) -> list[Digest]:
        self.reached.set()
        await self.running.wait()
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        self.written.extend(blobs)
        return await super().write(blobs)

    async def read(self, digests: Sequence[Digest]) -> list[bytes]:
        self.reached.set()
        await self.running.wait()
        return await super().read(digests)

    def stop(self) -> None:
        self.running.clear()
        self.reached.clear()


class CountingState(MappingState[int]):
    """Says what was asked of it, and refuses on request."""

    def __init__(self, mapping: dict[str, int]) -> None:
        super().__init__(mapping, schema="counter/1")
        self.frozen: list[str] = []
        self.encoded: list[bytes] = []
        self.refuse_install = ""
        self.refuse_encode = b""

    def freeze(self, session: str) -> bytes:
        self.frozen.append(session)
        return super().freeze(session)

    def encode(self, frozen: bytes) -> Mapping[str, bytes]:
        parts = super().encode(frozen)
        self.encoded.append(parts["value"])
        if parts["value"] == self.refuse_encode:
            raise RuntimeError("cannot be encoded")
        return parts

    def install(self, session: str, loaded: int) -> None:
        super().install(session, loaded)
        if session == self.refuse_install:
            raise RuntimeError("cannot be installed")


class Counters:
    """One process of the server `tools`. A session's key is its rollout id unless told otherwise."""

    def __init__(self, rounds: Rounds, **options: Any) -> None:
        self.values: dict[str, int] = {}
        self.state = CountingState(self.values)
        if options.get("capture", Capture.EXPORTED) is Capture.EXPORTED:
            options["state"] = self.state
        self.participant = ResourcesParticipant("tools", **options)
        self.participant.enabled = True
        rounds.serve(self.participant)

    def call(self, text: str, route: str = "/add", **fields: Any) -> Call:
        return Call(fields.pop("method", "POST"), route, Episode.parse(text), **fields)

    def enter(self, text: str, route: str = "/add", **fields: Any) -> Ticket:
        """Lets a call in that must be let in."""
        ticket = self.participant.enter_now(self.call(text, route, **fields))
        assert ticket is not None, f"{route} of {text} is held"
        return ticket

    def leave(self, ticket: Ticket, *, succeeded: bool = True, key: str | None = None) -> int:
        return self.participant.leave(ticket, succeeded=succeeded, key=key)

    def seed(self, text: str, key: str = "", *, value: int = 0, continues: bool = False) -> None:
        key = key or Episode.parse(text).rollout_id
        ticket = self.enter(text, "/seed_session", continues=continues)
        self.values[key] = value
        self.leave(ticket, key=key)

    def add(self, text: str, amount: int = 1, **fields: Any) -> int:
        """One whole call; returns the session's revision after it."""
        ticket = self.enter(text, **fields)
        assert ticket.session is not None
        self.values[ticket.session.key] += amount
        return self.leave(ticket)

    def gate(self) -> GateState:
        return self.participant.gate.state

    def export(self) -> ExportState:
        return self.participant.export.state

    @property
    def keys(self) -> list[str]:
        return sorted(session.key for session in self.participant.sessions)
