"""A coordinator with a store in memory, and four participants that play along."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from gymckpt.core.kinds import Kind
from gymckpt.store import MemoryStore
from tests.contract.coordinator.fleet import Fleet


@pytest.fixture
async def bare() -> AsyncIterator[Fleet]:
    """A store and nothing else."""
    async with AsyncExitStack() as stack:
        yield Fleet(stack, MemoryStore())


@pytest.fixture
async def fleet(bare: Fleet) -> Fleet:
    """One participant of each kind, registered at a coordinator."""
    for kind in Kind:
        await bare.add(kind)
    await bare.coordinate()
    await bare.register()
    return bare
