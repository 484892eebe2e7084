"""Hundreds of rollouts at once: every one of them has its connections, is in the cut, and goes on after a crash. GYMCKPT_SCALE sets how many."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from gymckpt.coordinator import CheckpointArguments, CoordinatorClient, RestoreArguments, ResumePolicy
from gymckpt.participant import Episode
from servers.demo.fleet import Fleet
from servers.execution_log import LogReader
from servers.http.client import http_client
from servers.http.peers import call_headers
from tests.e2e.fleets import AGENT, ENVIRONMENT, coordinated, until
from tests.e2e.rollouts import counter_row, typed, write_tasks

ROLLOUTS = int(os.environ.get("GYMCKPT_SCALE", "250"))
"""More than any HTTP client keeps connections to one server when nobody tells it otherwise."""
TASKS, STEPS = 8, 2

pytestmark = pytest.mark.slow


class Crowd:
    """All rollouts at once, over as many connections as they need."""

    def __init__(self, directory: Path, fleet: Fleet, coordinator: CoordinatorClient, http: httpx.AsyncClient) -> None:
        self.fleet = fleet
        self.coordinator = coordinator
        self._http = http
        self._log = LogReader(directory / "executions.jsonl")

    def play(self, attempt: int = 0) -> list[asyncio.Task[Any]]:
        return [asyncio.create_task(self._play(number, attempt)) for number in range(ROLLOUTS)]

    async def _play(self, number: int, attempt: int) -> Any:
        name = f"r{number}"
        row = typed(counter_row(number % TASKS, STEPS), name, attempt)
        headers = call_headers(Episode(name, attempt), continues=attempt > 0)
        answer = await self._http.post(f"{self.fleet.address(ENVIRONMENT)}/run", json=row, headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.json()["reward"]

    def increments(self) -> Mapping[str, int]:
        """Tool calls that were carried out, by rollout."""
        return Counter(line["rollout"] for line in self._log.lines() if line["what"] == "increment_counter")

    async def counts(self, participant: str) -> Mapping[str, int]:
        """What the participant counts of itself."""
        for member in await self.coordinator.explain_blockers():
            if str(member.participant.id) == participant and member.report is not None:
                return member.report.counts
        raise AssertionError(f"{participant} does not answer")


@asynccontextmanager
async def crowd(directory: Path, latency: str) -> AsyncIterator[Crowd]:
    tasks = write_tasks(directory / "tasks.jsonl", [counter_row(task, STEPS) for task in range(TASKS)])
    async with (
        coordinated(directory, "counter", [tasks], model=("--latency", latency)) as (fleet, coordinator),
        http_client() as http,
    ):
        yield Crowd(directory, fleet, coordinator, http)


async def test_a_crowd_is_paused_at_once_and_killed_and_goes_on(tmp_path: Path) -> None:
    """P12, P14: while the gates are closed, each rollout holds a connection to the environment and one from there to the agent."""
    async with crowd(tmp_path, "2:4") as first:
        playing = first.play()
        await until(lambda: len(first.increments()) == ROLLOUTS, "the first tool call of all")
        arguments = CheckpointArguments("ck", resume=ResumePolicy.BY_CALLER, gate_lease=600.0)
        taken = await first.coordinator.checkpoint(arguments)
        assert (taken.episodes, taken.restarts, taken.lost) == (ROLLOUTS, 0, 0)
        assert not any(rollout.done() for rollout in playing)
        assert (await first.counts(f"environment/{ENVIRONMENT}"))["episodes"] == ROLLOUTS
        assert (await first.counts(f"agent/{AGENT}"))["activations"] == ROLLOUTS
        await first.fleet.kill()
        ended = await asyncio.gather(*playing, return_exceptions=True)
        assert all(isinstance(outcome, httpx.TransportError) for outcome in ended)
    async with crowd(tmp_path, "0:0") as second:
        outcome = await second.coordinator.restore(RestoreArguments("again", "ck"))
        assert len(outcome) == ROLLOUTS
        rewards = await asyncio.gather(*second.play(attempt=1))
        assert rewards == [1.0] * ROLLOUTS
        repeated = {name: made for name, made in second.increments().items() if made != STEPS}
        assert repeated == {}
        for participant in (f"environment/{ENVIRONMENT}", f"agent/{AGENT}", "resources/counter"):
            assert (await second.counts(participant))["sessions"] == 0
