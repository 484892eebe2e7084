"""The whole fleet as real processes, with checkpointing off: it plays rollouts, and checkpointing costs it nothing."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from servers.demo.fleet import Fleet, Program
from servers.execution_log import read_log
from tests.e2e.fleets import AGENT, ENVIRONMENT, MODEL, running
from tests.e2e.rollouts import counter_row, run, typed, workplace_rows, write_tasks

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROLLOUTS = 6


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fleet")


@pytest.fixture(scope="module")
def tasks(directory: Path) -> Path:
    return write_tasks(directory / "counter.jsonl", [counter_row(number) for number in range(ROLLOUTS)])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(directory: Path, tasks: Path) -> AsyncIterator[Fleet]:
    async with running(directory, "counter", [tasks]) as fleet:
        yield fleet


async def test_typed_rollouts_side_by_side_all_earn_their_reward(fleet: Fleet, directory: Path) -> None:
    bodies = [typed(counter_row(number), f"typed-{number}") for number in range(ROLLOUTS)]
    answers = await asyncio.gather(*(run(fleet.address(ENVIRONMENT), body) for body in bodies))
    assert [answer.json()["reward"] for answer in answers] == [1.0] * ROLLOUTS
    assert answers[0].json()["agent_ref"] == {"name": AGENT}
    lines = read_log(directory / "executions.jsonl")
    made = Counter(line["what"] for line in lines if (line["rollout"] or "").startswith("typed-"))
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
    result = (await run(fleet.address(ENVIRONMENT), row)).json()
    assert (result["reward"], result["agent_ref"]) == (1.0, {"name": "mine"})


async def test_the_agent_plays_a_whole_row_by_itself(fleet: Fleet, directory: Path) -> None:
    row = {**counter_row(1), "_ng_task_index": 1, "_ng_rollout_index": 7}
    result = (await run(fleet.address(AGENT), row)).json()
    assert result["reward"] == 1.0
    lines = read_log(directory / "executions.jsonl")
    assert {line["server"] for line in lines if line["rollout"] == "1-7"} == {AGENT, MODEL, "counter"}


async def test_a_run_without_identity_is_told_what_to_send(fleet: Fleet) -> None:
    """X20"""
    answer = await run(fleet.address(ENVIRONMENT), counter_row(0))
    assert (answer.status_code, answer.headers["x-gymckpt-reason"]) == (409, "EPISODE_REQUIRED")
    assert "send x-gymckpt-episode" in answer.json()["error"]["message"]


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs /proc to see the ports of a process")
async def test_off_means_no_port_but_the_data_plane(fleet: Fleet) -> None:
    """X23"""
    for name, pid in fleet.pids.items():
        assert listening_ports(pid) == {fleet.port(name)}


async def test_workplace_rollouts_earn_their_reward_and_the_servers_end_in_peace(tmp_path: Path) -> None:
    rows = [{**row, "_ng_task_index": row["id"], "_ng_rollout_index": 0} for row in workplace_rows(ROLLOUTS)]
    tasks = write_tasks(tmp_path / "workplace.jsonl", rows)
    async with running(tmp_path, "workplace_assistant", [tasks], model=["--with-reads"]) as fleet:
        flat = await asyncio.gather(*(run(fleet.address(ENVIRONMENT), row) for row in rows))
        assert [answer.json()["reward"] for answer in flat] == [1.0] * ROLLOUTS
        answer = await run(fleet.address(ENVIRONMENT), typed(rows[0], "typed"))
        assert answer.json()["reward"] == 1.0
        servers = list(fleet.servers.values())
        await fleet.stop()
        assert {server.name: server.returncode for server in servers} == {server.name: 0 for server in servers}


async def test_the_model_server_also_speaks_for_an_openai_compatible_server(tmp_path: Path, tasks: Path) -> None:
    upstream = Fleet(tmp_path)
    try:
        await upstream.start(Program("upstream", "servers.model", ("--tasks", str(tasks))))
        base = f"{upstream.address('upstream')}/v1"
        openai = ("--backend", "openai", "--base-url", base, "--model", "some-model")
        async with running(tmp_path, "counter", model=openai) as fleet:
            result = (await run(fleet.address(ENVIRONMENT), typed(counter_row(2), "upstream"))).json()
            assert (result["reward"], result["response"]["model"]) == (1.0, "some-model")
    finally:
        await upstream.kill()


async def test_recorded_tasks_are_solved_over_recorded_tables_by_a_foreign_upstream(
    tmp_path: Path, shared: Path
) -> None:
    tasks = shared / "data/nemo_gym/workplace_assistant/example.jsonl"
    rows = [{**json.loads(line), "_ng_rollout_index": 0} for line in tasks.read_text().splitlines()]
    async with (
        scripted_upstream(shared / "tools/fake_openai.py", tasks) as base_url,
        running(
            tmp_path,
            "workplace_assistant",
            model=["--backend", "openai", "--base-url", base_url],
            tools=["--tables", str(shared / "data/nemo_gym/workplace_assistant/csv")],
        ) as fleet,
    ):
        flat = [{**row, "_ng_task_index": number} for number, row in enumerate(rows)]
        answers = await asyncio.gather(*(run(fleet.address(ENVIRONMENT), row) for row in flat))
        assert [answer.json()["reward"] for answer in answers] == [1.0] * len(rows)


@asynccontextmanager
async def scripted_upstream(script: Path, tasks: Path) -> AsyncIterator[str]:
    """An OpenAI-compatible server that plays the ground truth of `tasks`; the base URL."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(script), "--port", str(port), "--tasks", str(tasks), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert b"scripts on http://" in await process.stdout.readline()
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.kill()
        await process.wait()


async def test_a_killed_model_server_is_found_again_by_the_agent(tmp_path: Path, tasks: Path) -> None:
    """The model keeps no state between its calls: the agent waits for it and goes on."""
    async with running(tmp_path, "counter", [tasks], model=["--latency", "0.05:0.1"]) as fleet:
        bodies = [typed(counter_row(number), f"killed-{number}") for number in range(4)]
        runs = [asyncio.create_task(run(fleet.address(ENVIRONMENT), body)) for body in bodies]
        port = fleet.port(MODEL)
        await fleet.kill([MODEL])
        await fleet.start(Program(MODEL, "servers.model", ("--port", str(port), "--tasks", str(tasks))))
        answers = await asyncio.gather(*runs)
        assert [answer.json()["reward"] for answer in answers] == [1.0] * 4


def listening_ports(pid: int) -> set[int]:
    """Ports on which a process accepts TCP connections."""
    targets = [os.readlink(descriptor) for descriptor in Path(f"/proc/{pid}/fd").iterdir()]
    sockets = {target.removeprefix("socket:[").rstrip("]") for target in targets if target.startswith("socket:[")}
    tables = [table for table in ("/proc/net/tcp", "/proc/net/tcp6") if Path(table).exists()]
    entries = [line.split() for table in tables for line in Path(table).read_text().splitlines()[1:]]
    return {int(entry[1].rpartition(":")[2], 16) for entry in entries if entry[3] == "0A" and entry[9] in sockets}
