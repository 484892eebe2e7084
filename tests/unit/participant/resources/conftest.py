"""A counter server over a store that can be stopped."""

from __future__ import annotations

import pytest

from tests.unit.participant.base.bed import Clock, Counters, StoppableStore
from tests.unit.participant.resources.web import App
from tests.unit.participant.rounds import Rounds


@pytest.fixture
def store() -> StoppableStore:
    return StoppableStore()


@pytest.fixture
def rounds(store: StoppableStore) -> Rounds:
    rounds = Rounds()
    rounds.store = store
    return rounds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def counters(rounds: Rounds) -> Counters:
    return Counters(rounds)


@pytest.fixture
async def app(counters: Counters) -> App:
    """With one session, `r`."""
    app = App(counters)
    seeded = await app.call("/seed_session")
    assert seeded.status == 200
    return app
