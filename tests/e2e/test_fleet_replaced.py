"""A resources server that was replaced under a running rollout does not know its sessions, and nobody is told a lie."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from gymckpt.coordinator import CoordinatorClient
from gymckpt.participant import Episode
from servers.demo.fleet import Program
from servers.execution_log import read_log
from tests.e2e.fleets import ENVIRONMENT, PATIENCE_SECONDS, coordinated, until
from tests.e2e.rollouts import counter_row, run, typed, write_tasks

STEPS = 20


async def lost_rollouts(coordinator: CoordinatorClient) -> set[str]:
    return {lost.episode.rollout_id for member in (await coordinator.participants()).members for lost in member.lost}


async def test_calls_for_a_lost_session_are_held_until_their_attempt_is_retired(tmp_path: Path) -> None:
    """X38: the agent waits instead of showing the model an error; the loss is reported, and a retire ends it."""
    tasks = write_tasks(tmp_path / "tasks.jsonl", [counter_row(0, STEPS)])
    slow = ("--latency", "0.1:0.2")
    async with coordinated(tmp_path, "counter", [tasks], model=slow) as (fleet, coordinator):
        playing = asyncio.create_task(run(fleet.address(ENVIRONMENT), typed(counter_row(0, STEPS), "r")))

        def increments() -> int:
            return sum(line["what"] == "increment_counter" for line in read_log(tmp_path / "executions.jsonl"))

        await until(lambda: increments() >= 2, "the second increment")
        port = fleet.port("counter")
        await fleet.kill(["counter"])
        made = increments()
        options = ("--port", str(port), "--log", str(tmp_path / "executions.jsonl"))
        await fleet.start(Program("counter", "servers.resources.counter", options))
        last = time.monotonic() + PATIENCE_SECONDS
        while await lost_rollouts(coordinator) != {"r"}:
            assert time.monotonic() < last, "the lost session was not reported"
            await asyncio.sleep(0.05)
        assert not playing.done()
        await coordinator.retire_episodes([Episode("r")])
        answer = await playing
        assert (answer.status_code, answer.headers["x-gymckpt-reason"]) == (409, "STALE_ATTEMPT")
        assert increments() == made
        again = await run(fleet.address(ENVIRONMENT), typed(counter_row(0, STEPS), "r", 1))
        assert again.json()["reward"] == 1.0
        servers = list(fleet.servers.values())
        await fleet.stop()
        assert {server.name: server.returncode for server in servers} == {server.name: 0 for server in servers}
