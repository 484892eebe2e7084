"""Fleets of one server of each kind, with a coordinator or without."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from gymckpt.coordinator import CoordinatorClient
from servers.demo.fleet import Fleet, Program

AGENT, COORDINATOR, ENVIRONMENT, MODEL = "simple_agent", "coordinator", "single_agent_turn", "policy_model"
PATIENCE_SECONDS = 60.0


@asynccontextmanager
async def running(
    directory: Path,
    resources: str,
    tasks: Sequence[Path] = (),
    *,
    model: Sequence[str] = (),
    tools: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[Fleet]:
    """The servers, callees first; `resources` is the folder of a resources server and its name, `model` and `tools` are
    more options of the model server and of that one. All that run at the end are killed. Their execution log is `executions.jsonl` in `directory`."""
    fleet = Fleet(directory, environment)
    log = ("--log", str(directory / "executions.jsonl"))
    plans = [option for file in tasks for option in ("--tasks", str(file))]
    ledger = ("--ledger", str(directory / "ledger.sqlite"))
    try:
        await fleet.start(
            Program(resources, f"servers.resources.{resources}", (*log, *tools)),
            Program(MODEL, "servers.model", (*log, *plans, *ledger, *model)),
        )
        reach = ("--resources", f"{resources}={fleet.address(resources)}")
        policy = ("--model", f"{MODEL}={fleet.address(MODEL)}")
        await fleet.start(Program(AGENT, "servers.agent", (*log, *policy, *reach)))
        agent = ("--agent", f"{AGENT}={fleet.address(AGENT)}")
        await fleet.start(Program(ENVIRONMENT, "servers.environment", (*log, *agent, *reach)))
        yield fleet
    finally:
        await fleet.kill()


@asynccontextmanager
async def coordinated(
    directory: Path, resources: str, tasks: Sequence[Path], *, model: Sequence[str] = ()
) -> AsyncIterator[tuple[Fleet, CoordinatorClient]]:
    """As `running`, with a coordinator whose store is `store` in `directory`, from the moment when all are members."""
    members = [f"environment/{ENVIRONMENT}", f"model/{MODEL}", f"agent/{AGENT}", f"resources/{resources}"]
    coordinator = Fleet(directory)
    serve = ("--json", "serve", "--store", str(directory / "store"), "--expect", ",".join(members))
    try:
        await coordinator.start(Program(COORDINATOR, "gymckpt.cli", serve))
        address = coordinator.address(COORDINATOR)
        environment = {"GYMCKPT_COORDINATOR": address}
        async with (
            running(directory, resources, tasks, model=model, environment=environment) as fleet,
            CoordinatorClient(address) as client,
        ):
            present: set[str] = set()
            last = time.monotonic() + PATIENCE_SECONDS
            while not present >= set(members):
                assert time.monotonic() < last, f"only {sorted(present)} registered"
                await asyncio.sleep(0.05)
                present = {str(member.participant.id) for member in (await client.participants()).members}
            yield fleet, client
    finally:
        await coordinator.kill()


async def until(condition: Callable[[], bool], what: str) -> None:
    """Returns once the condition holds; fails, saying `what`, after PATIENCE_SECONDS."""
    last = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < last, f"{what} did not happen within {PATIENCE_SECONDS:g} s"
        await asyncio.sleep(0.02)
