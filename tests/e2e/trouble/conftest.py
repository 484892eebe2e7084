"""Runs that are shared by the tests of a module: each test leaves one as it found it, which is half of what it shows."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.e2e.trouble.cables import PATIENCE, CabledRun
from tests.e2e.trouble.run import Run, started, started_as


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def run(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Run]:
    """One server of each kind, and a coordinator with its store in one process."""
    async with started(tmp_path_factory.mktemp("run")) as run_:
        yield run_


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cabled(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[CabledRun]:
    """Coordinator, store and servers, each a process, with a cable between any two."""
    async with started_as(CabledRun, tmp_path_factory.mktemp("run"), apart=True, patience=PATIENCE) as run_:
        yield run_
