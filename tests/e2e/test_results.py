"""Results that nobody hears: kept by real processes, across kills of all of them, until they are acknowledged."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from gymckpt.coordinator import Acknowledgement, CoordinatorClient, Fate, FinishedResult, RestoreArguments
from gymckpt.coordinator import CheckpointArguments as Arguments
from gymckpt.core.chunks import hash_of
from gymckpt.errors import ReceiptMismatch
from gymckpt.participant import Episode
from gymckpt.store import StoreClient
from servers.chaos.outcome import Continuation, repeated
from servers.demo.cut import read_cut
from servers.demo.fleet import Fleet
from servers.demo.rollouts import outputs
from servers.execution_log import read_log
from servers.http.peers import call_headers
from tests.e2e.fleets import AGENT, ENVIRONMENT, PATIENCE_SECONDS, coordinated, until
from tests.e2e.rollouts import counter_row, run, typed, write_tasks

COUNT = 8
ROLLOUTS = {f"r-{number}": (ENVIRONMENT, AGENT)[number % 2] for number in range(COUNT)}
"""Rollout id -> the server that the controller calls for it; the number is the task, and how many steps it has more than one."""
SLOW = ("--latency", "0.1:0.2")


def row_of(rollout_id: str) -> dict[str, Any]:
    number = int(rollout_id.removeprefix("r-"))
    return counter_row(number, 1 + number)


def write_rows(directory: Path) -> list[Path]:
    return [write_tasks(directory / "tasks.jsonl", [row_of(rollout_id) for rollout_id in ROLLOUTS])]


async def play(fleet: Fleet, rollout_id: str, attempt: int = 0, *, continues: bool = False) -> bytes:
    """The text of a result."""
    headers = call_headers(Episode(rollout_id, attempt), continues=continues)
    address = fleet.address(ROLLOUTS[rollout_id])
    answer = await run(address, typed(row_of(rollout_id), rollout_id, attempt), headers)
    assert answer.status_code == 200, answer.text
    assert answer.json()["reward"] == 1.0
    return answer.content


async def begin(directory: Path, fleet: Fleet, *rollouts: str) -> None:
    """Begins rollouts, and breaks the connections over which their results would come."""
    tasks = [asyncio.create_task(play(fleet, rollout_id)) for rollout_id in rollouts]

    def begun() -> set[str]:
        return {line["rollout"] for line in read_log(directory / "executions.jsonl") if line["what"] == "run"}

    await until(lambda: begun() >= set(rollouts), "the start of all rollouts")
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def listed(coordinator: CoordinatorClient) -> Mapping[str, FinishedResult]:
    return {result.episode.rollout_id: result for result in await coordinator.results()}


async def all_finished(coordinator: CoordinatorClient, *rollouts: str) -> Mapping[str, FinishedResult]:
    """Returns their results once all are kept."""
    last = time.monotonic() + PATIENCE_SECONDS
    while (found := await listed(coordinator)).keys() != set(rollouts):
        assert time.monotonic() < last, f"only {sorted(found)} have finished"
        await asyncio.sleep(0.05)
    return found


async def command(fleet: Fleet, *words: str) -> Any:
    """What `gymckpt` answers."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gymckpt.cli", "--json", *words,
        env=os.environ | fleet.environment, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    said, _ = await process.communicate()
    assert process.returncode == 0
    return json.loads(said)


async def test_a_result_that_nobody_heard_is_read_after_a_crash_of_everything_until_it_is_acknowledged(
    tmp_path: Path,
) -> None:
    """X17, V02: with the same receipt, and nothing is played again; once it is acknowledged no later crash brings it back."""
    tasks, (turn, whole) = write_rows(tmp_path), ("r-0", "r-1")
    async with coordinated(tmp_path, "counter", tasks, model=SLOW) as (fleet, coordinator):
        await begin(tmp_path, fleet, turn, whole)
        before = await all_finished(coordinator, turn, whole)
        bodies = {rollout_id: await play(fleet, rollout_id) for rollout_id in before}
        assert {rollout_id: hash_of(body) for rollout_id, body in bodies.items()} == {
            rollout_id: result.receipt for rollout_id, result in before.items()
        }
        assert not any(result.durable for result in before.values())
        await coordinator.checkpoint(Arguments("first"))
        assert all(result.durable for result in (await listed(coordinator)).values())
    async with coordinated(tmp_path, "counter", tasks) as (fleet, coordinator):
        assert await coordinator.results() == ()
        restored = await coordinator.restore(RestoreArguments("again", "first"))
        assert {(target.source.rollout_id, target.fate) for target in restored} == {
            (turn, Fate.RESTORED),
            (whole, Fate.RESTORED),
        }
        after = await listed(coordinator)
        async with StoreClient(fleet.environment["GYMCKPT_COORDINATOR"]) as store:
            for rollout_id, result in after.items():
                assert (result.episode.attempt, result.body, result.durable) == (1, before[rollout_id].body, True)
                assert await store.read([result.body]) == [bodies[rollout_id]]
                assert await play(fleet, rollout_id, 1, continues=True) == bodies[rollout_id]
        assert {line["attempt"] for line in read_log(tmp_path / "executions.jsonl")} == {0}
        wrong = Acknowledgement(after[whole].episode, before[turn].receipt)
        with pytest.raises(ReceiptMismatch, match=before[whole].receipt.hex()):
            await coordinator.acknowledge_results([after[turn], wrong])
        assert await listed(coordinator) == after
        told = await command(fleet, "results", "list")
        named = [f"{each['episode']}={each['receipt']}" for each in told["results"]]
        assert named == [f"{result.episode}={result.receipt.hex()}" for result in after.values()]
        assert await command(fleet, "results", "acknowledge", "r-7=" + "0" * 64, *named) == {
            "acknowledged": [f"{turn}-a1", f"{whole}-a1"],
            "unknown": ["r-7"],
        }
        await coordinator.checkpoint(Arguments("second"))
    async with coordinated(tmp_path, "counter", tasks) as (_, coordinator):
        await coordinator.restore(RestoreArguments("once-more", "latest"))
        assert await coordinator.results() == ()


async def test_rollouts_that_finish_while_checkpoints_are_taken_are_neither_lost_nor_done_twice(tmp_path: Path) -> None:
    """P08: whoever had finished at the cut has its result, everybody else goes on from there."""
    tasks = write_rows(tmp_path)
    async with coordinated(tmp_path, "counter", tasks, model=SLOW) as (fleet, coordinator):
        await begin(tmp_path, fleet, *ROLLOUTS)
        numbers = count()
        while True:
            checkpoint = await coordinator.checkpoint(Arguments(f"ck-{next(numbers)}"))
            assert (checkpoint.episodes, checkpoint.lost, checkpoint.restarts) == (COUNT, 0, 0)
            durable = sum(result.durable for result in await coordinator.results())
            if durable >= COUNT // 2:
                break
        async with StoreClient(fleet.environment["GYMCKPT_COORDINATOR"]) as store:
            cut = await read_cut(store, checkpoint.manifest)
    finished = {record.episode.rollout_id for record in cut.records if record.boundary == "finished"}
    assert durable <= len(finished) < COUNT
    async with coordinated(tmp_path, "counter", tasks) as (fleet, coordinator):
        restored = await coordinator.restore(RestoreArguments("again", "latest"))
        assert {target.source.rollout_id for target in restored if target.fate is Fate.RESTORED} == ROLLOUTS.keys()
        assert (await listed(coordinator)).keys() == finished
        await asyncio.gather(*(play(fleet, rollout_id, 1, continues=True) for rollout_id in ROLLOUTS))
        assert (await listed(coordinator)).keys() == ROLLOUTS.keys()
    log = read_log(tmp_path / "executions.jsonl")
    again = {line["rollout"] for line in log if line["attempt"] == 1}
    assert again == ROLLOUTS.keys() - finished
    continued = [
        Continuation(source.rollout_id, 1, frozenset(item["call_id"] for item in outputs(standing.items)))
        for source, standing in cut.standings.items()
    ]
    assert repeated(log, continued) == 0
