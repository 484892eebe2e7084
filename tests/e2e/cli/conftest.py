"""Fixtures of the command line's process-level tests."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.e2e.cli.processes import Processes, Run, start_run, until


@pytest.fixture
def processes() -> Iterator[Processes]:
    """Starts processes; all end with the test."""
    started = Processes()
    try:
        yield started
    finally:
        started.end()


@pytest.fixture
def run(processes: Processes) -> Run:
    """A coordinator with a store in memory, a counter and a model."""
    return start_run(processes)


@pytest.fixture
def held(run: Run) -> Iterator[str]:
    """An episode with a tool call that runs until the end of the test: it blocks every cut."""
    run.count("r1", 5)
    calling = threading.Thread(target=run.call, args=("/hold", "r1"))
    calling.start()
    try:
        until(lambda: _blocked(run), "a blocker")
        yield "r1"
    finally:
        run.release()
        calling.join()


def _blocked(run: Run) -> bool:
    members = run("explain", "--json").json["members"]
    return any(member["report"]["blocker_count"] for member in members)
