"""Fleets of one server of each kind."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from servers.demo.fleet import Fleet, Program

AGENT, ENVIRONMENT, MODEL = "simple_agent", "single_agent_turn", "policy_model"


@asynccontextmanager
async def running(
    directory: Path,
    resources: str,
    tasks: Sequence[Path] = (),
    *,
    model: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[Fleet]:
    """The servers, callees first; `resources` is the folder of a resources server and its name, `model` more options of
    the model server. All that run at the end are killed. Their execution log is `executions.jsonl` in `directory`."""
    fleet = Fleet(directory, environment)
    log = ("--log", str(directory / "executions.jsonl"))
    plans = [option for file in tasks for option in ("--tasks", str(file))]
    ledger = ("--ledger", str(directory / "ledger.sqlite"))
    try:
        await fleet.start(
            Program(resources, f"servers.resources.{resources}", log),
            Program(MODEL, "servers.model", (*log, *plans, *ledger, *model)),
        )
        tools = ("--resources", f"{resources}={fleet.address(resources)}")
        policy = ("--model", f"{MODEL}={fleet.address(MODEL)}")
        await fleet.start(Program(AGENT, "servers.agent", (*log, *policy, *tools)))
        agent = ("--agent", f"{AGENT}={fleet.address(AGENT)}")
        await fleet.start(Program(ENVIRONMENT, "servers.environment", (*log, *agent, *tools)))
        yield fleet
    finally:
        await fleet.kill()
