"""A model whose calls are answered by the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import count
from typing import Any

import pytest

from gymckpt.core.ids import Episode
from gymckpt.participant.call import Call, set_current_call
from gymckpt.participant.ledger import SqliteLedger
from gymckpt.participant.model import ModelParticipant
from tests.unit.participant.rounds import PATIENCE, Rounds


class Fleet:
    """Model processes of one test, each with its ledger; call ids are `<process>.<number>`."""

    def __init__(self, rounds: Rounds) -> None:
        self._rounds = rounds
        self._processes = count()
        self._ledgers: list[SqliteLedger] = []

    def model(self, path: str = ":memory:", **options: Any) -> ModelParticipant:
        process, calls = next(self._processes), count()
        ledger = SqliteLedger(path, **options)
        self._ledgers.append(ledger)
        participant = ModelParticipant("policy_model", ledger, new_id=lambda: f"{process}.{next(calls)}")
        self._rounds.serve(participant)
        return participant

    async def close(self) -> None:
        for ledger in self._ledgers:
            await ledger.close()


@pytest.fixture
def rounds() -> Rounds:
    return Rounds()


@pytest.fixture
async def fleet(rounds: Rounds) -> AsyncIterator[Fleet]:
    fleet = Fleet(rounds)
    yield fleet
    await fleet.close()


@pytest.fixture
def model(fleet: Fleet) -> ModelParticipant:
    return fleet.model()


class Asked:
    """One call in a task of its own: admitted, then generated when told, then held or sent."""

    def __init__(
        self, model: ModelParticipant, text: str | None, *, within: str | None = None, streams: bool = False
    ) -> None:
        self.admitted = asyncio.Event()
        self.generated = asyncio.Event()
        self.sent = asyncio.Event()
        self.first_byte = asyncio.Event()
        self.parent: str | None = None
        self.task = asyncio.create_task(self._run(model, text, within, streams))

    async def _run(self, model: ModelParticipant, text: str | None, within: str | None, streams: bool) -> str:
        if within is not None:
            set_current_call(Call("POST", "/v1/responses", within=Episode.parse(within)))
        async with model.call(Episode.parse(text) if text is not None else None) as call:
            self.parent = call.parent
            self.admitted.set()
            if streams:
                await call.streaming()
                self.first_byte.set()
            await self.generated.wait()
            await call.finished({"request_digest": "d", "response": {"text": f"answer {call.call_id}"}})
            self.sent.set()
        return call.call_id

    async def result(self) -> str:
        self.generated.set()
        async with asyncio.timeout(PATIENCE):
            return await self.task


async def ask(model: ModelParticipant, text: str, calls: int = 1) -> list[str]:
    """Ids of delivered calls, one after the other."""
    return [await Asked(model, text).result() for _ in range(calls)]
