"""The whole fleet as real processes, with checkpointing off: it plays rollouts, and checkpointing costs it nothing."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from servers.execution_log import read_log
from servers.launch import Fleet, FleetPlan, ServerProcess
from tests.e2e.rollouts import counter_row, run, typed, workplace_rows, write_tasks

ROLLOUTS = 6


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fleet")


@pytest.fixture(scope="module")
def counter(directory: Path) -> FleetPlan:
    tasks = write_tasks(directory / "counter.jsonl", [counter_row(number) for number in range(ROLLOUTS)])
    return FleetPlan("counter", [tasks], directory, environment={"GYMCKPT_COORDINATOR": ""})


@pytest.fixture(scope="module")
def fleet(counter: FleetPlan) -> Iterator[Fleet]:
    fleet = counter.start()
    yield fleet
    assert fleet.stop() == {"environment": 0, "agent": 0, "model": 0, "resources": 0}


async def test_typed_rollouts_side_by_side_all_earn_their_reward(fleet: Fleet, counter: FleetPlan) -> None:
    bodies = [typed(counter_row(number), f"typed-{number}") for number in range(ROLLOUTS)]
    answers = await asyncio.gather(*(run(fleet.environment.address, body) for body in bodies))
    assert [answer.json()["reward"] for answer in answers] == [1.0] * ROLLOUTS
    assert answers[0].json()["agent_ref"] == {"name": fleet.agent.name}
    made = Counter(line["what"] for line in read_log(counter.log) if (line["rollout"] or "").startswith("typed-"))
    assert made == {
        "run": ROLLOUTS,
        "seed_session": ROLLOUTS,
        "open_session": ROLLOUTS,
        "/v1/responses": ROLLOUTS * (1 + 5),
        "increment_counter": ROLLOUTS * 3,
        "get_counter_value": ROLLOUTS,
        "close_session": ROLLOUTS * 2,
        "verify": ROLLOUTS,
    }


async def test_a_flat_row_is_a_rollout_too(fleet: Fleet) -> None:
    row = {**counter_row(0), "_ng_task_index": 0, "_ng_rollout_index": 1, "agent_ref": {"name": "mine"}}
    result = (await run(fleet.environment.address, row)).json()
    assert (result["reward"], result["agent_ref"]) == (1.0, {"name": "mine"})


async def test_the_agent_plays_a_whole_row_by_itself(fleet: Fleet, counter: FleetPlan) -> None:
    row = {**counter_row(1), "_ng_task_index": 1, "_ng_rollout_index": 7}
    result = (await run(fleet.agent.address, row)).json()
    assert result["reward"] == 1.0
    servers = {line["server"] for line in read_log(counter.log) if line["rollout"] == "1-7"}
    assert servers == {fleet.agent.name, fleet.model.name, fleet.resources.name}


async def test_a_run_without_identity_is_told_what_to_send(fleet: Fleet) -> None:
    """X20"""
    answer = await run(fleet.environment.address, counter_row(0))
    assert (answer.status_code, answer.headers["x-gymckpt-reason"]) == (409, "EPISODE_REQUIRED")
    assert "send x-gymckpt-episode" in answer.json()["error"]["message"]


async def test_workplace_rollouts_earn_their_reward(directory: Path) -> None:
    rows = [{**row, "_ng_task_index": row["id"], "_ng_rollout_index": 0} for row in workplace_rows(ROLLOUTS)]
    tasks = write_tasks(directory / "workplace.jsonl", rows)
    plan = FleetPlan("workplace_assistant", [tasks], directory, options={"model": ("--with-reads",)})
    fleet = plan.start()
    try:
        flat = await asyncio.gather(*(run(fleet.environment.address, row) for row in rows))
        assert [answer.json()["reward"] for answer in flat] == [1.0] * ROLLOUTS
        answer = await run(fleet.environment.address, typed(rows[0], "typed"))
        assert answer.json()["reward"] == 1.0
    finally:
        statuses = fleet.stop()
    assert set(statuses.values()) == {0}


async def test_the_model_server_also_speaks_for_an_openai_compatible_server(
    directory: Path, counter: FleetPlan
) -> None:
    upstream = ServerProcess.start("servers.model", "--tasks", str(counter.tasks[0]))
    openai = ("--backend", "openai", "--base-url", f"{upstream.address}/v1", "--model", "some-model")
    fleet = FleetPlan("counter", (), directory, options={"model": openai}).start()
    try:
        result = (await run(fleet.environment.address, typed(counter_row(2), "upstream"))).json()
        assert (result["reward"], result["response"]["model"]) == (1.0, "some-model")
    finally:
        fleet.stop()
        assert upstream.stop() == 0


async def test_a_server_that_is_killed_and_started_again_is_found_by_its_callers(directory: Path) -> None:
    """A stateless server is no loss: the agent waits for it and goes on."""
    tasks = write_tasks(directory / "slow.jsonl", [counter_row(number) for number in range(4)])
    plan = FleetPlan("counter", [tasks], directory, options={"model": ("--latency", "0.05:0.1")})
    fleet = plan.start()
    try:
        runs = [
            asyncio.create_task(run(fleet.environment.address, typed(counter_row(n), f"killed-{n}"))) for n in range(4)
        ]
        model = fleet.model
        fleet.model.kill()
        again = await asyncio.to_thread(
            ServerProcess.start, "servers.model", "--port", str(model.port), "--tasks", str(tasks)
        )
        fleet.servers["model"] = again
        answers = await asyncio.gather(*runs)
        assert [answer.json()["reward"] for answer in answers] == [1.0] * 4
    finally:
        fleet.stop()


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs /proc to see the ports of a process")
def test_off_means_no_port_but_the_data_plane(fleet: Fleet) -> None:
    """X23"""
    for server in fleet.servers.values():
        assert listening_ports(server.pid) == {server.port}


def listening_ports(pid: int) -> set[int]:
    """Ports on which a process accepts TCP connections."""
    targets = [os.readlink(descriptor) for descriptor in Path(f"/proc/{pid}/fd").iterdir()]
    sockets = {target.removeprefix("socket:[").rstrip("]") for target in targets if target.startswith("socket:[")}
    tables = [table for table in ("/proc/net/tcp", "/proc/net/tcp6") if Path(table).exists()]
    entries = [line.split() for table in tables for line in Path(table).read_text().splitlines()[1:]]
    return {int(entry[1].rpartition(":")[2], 16) for entry in entries if entry[3] == "0A" and entry[9] in sockets}
