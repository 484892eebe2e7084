"""The whole fleet as real processes with a coordinator: paused, continued in place, killed and restored."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx

from gymckpt.coordinator import CheckpointArguments, RestoreArguments, ResumePolicy
from gymckpt.participant import Episode
from servers.demo.fleet import Fleet
from servers.execution_log import read_log
from servers.http.peers import call_headers
from tests.e2e.fleets import AGENT, ENVIRONMENT, MODEL, coordinated, until
from tests.e2e.rollouts import counter_row, run, typed, write_tasks

STEPS = 6
ROLLOUTS = {"turn-0": ENVIRONMENT, "turn-1": ENVIRONMENT, "turn-2": ENVIRONMENT, "whole-3": AGENT, "whole-4": AGENT}
"""Rollout id -> the server that the controller calls for it; the number is the task."""
SLOW = ("--latency", "0.1:0.2")


def row_of(rollout_id: str) -> dict[str, Any]:
    return counter_row(int(rollout_id[-1]), STEPS)


def start(fleet: Fleet, rollout_id: str, attempt: int = 0, *, continues: bool = False) -> asyncio.Task[httpx.Response]:
    """A rollout under way."""
    headers = call_headers(Episode(rollout_id, attempt), continues=continues)
    address = fleet.address(ROLLOUTS[rollout_id])
    return asyncio.create_task(run(address, typed(row_of(rollout_id), rollout_id, attempt), headers))


def write_rows(directory: Path) -> Path:
    return write_tasks(directory / "tasks.jsonl", [row_of(rollout_id) for rollout_id in ROLLOUTS])


def lines(directory: Path, server: str, what: str, rollout_id: str) -> list[dict[str, Any]]:
    found = read_log(directory / "executions.jsonl")
    return [
        dict(line) for line in found if (line["server"], line["what"], line["rollout"]) == (server, what, rollout_id)
    ]


async def all_incremented(directory: Path, times: int) -> None:
    """Returns when the tools were called `times` times for every rollout."""

    def done() -> bool:
        return all(len(lines(directory, "counter", "increment_counter", key)) >= times for key in ROLLOUTS)

    await until(done, f"increment number {times} of all rollouts")


async def test_a_checkpoint_pauses_rollouts_and_they_go_on_where_they_stood(tmp_path: Path) -> None:
    """P06, E02, M01: nothing is done twice, nothing new starts meanwhile, and a start is told to come again."""
    async with coordinated(tmp_path, "counter", [write_rows(tmp_path)], model=SLOW) as (fleet, coordinator):
        runs = {key: start(fleet, key) for key in ROLLOUTS}
        await all_incremented(tmp_path, 2)
        arguments = CheckpointArguments("ck", resume=ResumePolicy.BY_CALLER)
        taken = await coordinator.checkpoint(arguments)
        assert (taken.episodes, taken.lost, taken.restarts) == (len(ROLLOUTS), 0, 0)
        before = read_log(tmp_path / "executions.jsonl")
        for server in (ENVIRONMENT, AGENT):
            refused = await run(fleet.address(server), typed(row_of("turn-0"), "late"))
            assert (refused.status_code, refused.headers["x-gymckpt-reason"]) == (503, "ADMISSION_CLOSED")
            assert int(refused.headers["retry-after"]) >= 1
        executed = [line["what"] for line in read_log(tmp_path / "executions.jsonl")[len(before) :]]
        assert not any(runs[key].done() for key in ROLLOUTS)
        assert set(executed) <= {"/v1/responses"}
        await coordinator.resume_checkpoint("ck")
        results = {key: (await task).json() for key, task in runs.items()}
        assert {key: result["reward"] for key, result in results.items()} == dict.fromkeys(ROLLOUTS, 1.0)
        for key in ROLLOUTS:
            assert len(lines(tmp_path, "counter", "increment_counter", key)) == STEPS
            assert len(lines(tmp_path, MODEL, "/v1/responses", key)) == STEPS + 2


async def test_after_all_processes_were_killed_each_rollout_goes_on_from_its_boundary(tmp_path: Path) -> None:
    """P01, P02, P14, A16, X30: the counter is graded by its state, so a lost or repeated call would cost the reward."""
    tasks = [write_rows(tmp_path)]
    async with coordinated(tmp_path, "counter", tasks, model=SLOW) as (fleet, coordinator):
        first = [start(fleet, key) for key in ROLLOUTS]
        await all_incremented(tmp_path, 2)
        taken = await coordinator.checkpoint(CheckpointArguments("ck"))
        assert (taken.episodes, taken.lost, taken.restarts) == (len(ROLLOUTS), 0, 0)
        await all_incremented(tmp_path, 4)
        await fleet.kill()
        ended = await asyncio.gather(*first, return_exceptions=True)
        assert all(isinstance(outcome, httpx.TransportError) for outcome in ended)
    async with coordinated(tmp_path, "counter", tasks) as (fleet, coordinator):
        restored = await coordinator.restore(RestoreArguments("again", "ck"))
        assert {(str(target.source), target.attempt) for target in restored} == {(key, 1) for key in ROLLOUTS}
        for key, attempt, continues, reason in [
            ("turn-0", 0, False, "STALE_ATTEMPT"),
            ("turn-0", 1, False, "ALREADY_RESTORED"),
            ("whole-3", 1, False, "ALREADY_RESTORED"),
        ]:
            refused = await start(fleet, key, attempt, continues=continues)
            assert (refused.status_code, refused.headers["x-gymckpt-reason"]) == (409, reason)
        second = {key: start(fleet, key, 1, continues=True) for key in ROLLOUTS}
        results = {key: (await task).json() for key, task in second.items()}
        assert {key: result["reward"] for key, result in results.items()} == dict.fromkeys(ROLLOUTS, 1.0)
        for key, result in results.items():
            outputs = [item for item in result["response"]["output"] if item["type"] == "function_call_output"]
            assert len(outputs) == STEPS + 1
            assert len({item["call_id"] for item in outputs}) == STEPS + 1
            made = lines(tmp_path, "counter", "increment_counter", key)
            again = {line["call_id"] for line in made if line["attempt"] == 1}
            assert 0 < len(again) <= STEPS - 2
            assert not lines(tmp_path, "counter", "seed_session", key)[1:]
