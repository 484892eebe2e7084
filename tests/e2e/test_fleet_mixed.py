"""A fleet whose rollouts use two resources servers: one that a checkpoint can capture, and one that it cannot."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx

from gymckpt.coordinator import CheckpointArguments, CoordinatorClient, Fate, RestoreArguments, ResumePolicy
from gymckpt.core.kinds import GateState
from gymckpt.participant import Episode
from gymckpt.testing import TcpProxy
from servers.demo.fleet import Fleet, Program
from servers.execution_log import read_log
from servers.http.peers import call_headers
from tests.e2e.fleets import AGENT, ENVIRONMENT, MODEL, PATIENCE_SECONDS, coordinated, until
from tests.e2e.rollouts import Row, counter_row, run, typed, write_tasks

STEPS = 10
UNCAPTURED, ITS_AGENT, ITS_ENVIRONMENT = "uncaptured", "other_agent", "other_turn"
PLAYED_BY = {0: ENVIRONMENT, 1: AGENT, 2: ITS_ENVIRONMENT, 3: ITS_AGENT}
"""Task -> the server that the controller calls for it: the last two use the server that cannot be captured."""
WHY = f"resources/{UNCAPTURED} cannot be captured"


def task_of(rollout_id: str) -> int:
    return int(rollout_id[-1])


class Mixed:
    """Rollouts of all four ways, each `<name>-<task>`."""

    cable: TcpProxy

    def __init__(self, directory: Path, fleet: Fleet, coordinator: CoordinatorClient) -> None:
        self.directory = directory
        self.fleet = fleet
        self.coordinator = coordinator

    async def start_others(self, stack: AsyncExitStack) -> None:
        """The server that cannot be captured, whose tools are called over `cable`, and who uses it; returns when they take part."""
        log = ("--log", str(self.directory / "executions.jsonl"))
        address = self.fleet.address
        await self.fleet.start(Program(UNCAPTURED, "tests.e2e.uncaptured_counter", ("--name", UNCAPTURED, *log)))
        self.cable = await stack.enter_async_context(TcpProxy(address(UNCAPTURED).removeprefix("http://")))
        agent = ("--model", f"{MODEL}={address(MODEL)}", "--resources", f"{UNCAPTURED}=http://{self.cable.address}")
        await self.fleet.start(Program(ITS_AGENT, "servers.agent", ("--name", ITS_AGENT, *log, *agent)))
        servers = ("--agent", f"{ITS_AGENT}={address(ITS_AGENT)}", "--resources", f"{UNCAPTURED}={address(UNCAPTURED)}")
        environment = ("--name", ITS_ENVIRONMENT, *log, *servers)
        await self.fleet.start(Program(ITS_ENVIRONMENT, "servers.environment", environment))
        others, last = {UNCAPTURED, ITS_AGENT, ITS_ENVIRONMENT}, time.monotonic() + PATIENCE_SECONDS
        while others:
            assert time.monotonic() < last, f"{others} did not register"
            members = (await self.coordinator.participants()).members
            others -= {member.participant.id.name for member in members if member.holds.gate is GateState.OPEN}
            await asyncio.sleep(0.02)

    def play(self, rollout_id: str, attempt: int = 0, *, continues: bool = False) -> asyncio.Task[httpx.Response]:
        """A rollout under way."""
        headers = call_headers(Episode(rollout_id, attempt), continues=continues)
        address = self.fleet.address(PLAYED_BY[task_of(rollout_id)])
        return asyncio.create_task(run(address, typed(row_of(rollout_id), rollout_id, attempt), headers))

    async def playing(self, *rollout_ids: str) -> dict[str, asyncio.Task[httpx.Response]]:
        """Rollouts that have made two tool calls each."""
        rollouts = {rollout_id: self.play(rollout_id) for rollout_id in rollout_ids}
        await until(
            lambda: all(self.increments(rollout_id) >= 2 for rollout_id in rollouts), "the second tool call of all"
        )
        return rollouts

    def increments(self, rollout_id: str, attempt: int = 0) -> int:
        return self._executed(rollout_id, attempt, "increment_counter")

    async def stuck_in_a_tool_call(self, rollout_id: str, beside: str) -> None:
        """Cuts the cable, and returns when the rollout waits for an answer: the model has told it what to call, and the one beside it has gone on since."""
        self.cable.blackhole()
        told = (rollout_id, 0, "/v1/responses")
        await until(lambda: self._executed(*told) > self.increments(rollout_id), f"a tool call of {rollout_id}")
        made = self.increments(beside)
        await until(lambda: self.increments(beside) > made, f"a tool call of {beside}")

    def _executed(self, *wanted: str | int) -> int:
        log = read_log(self.directory / "executions.jsonl")
        return sum((line["rollout"], line["attempt"], line["what"]) == wanted for line in log)


def row_of(rollout_id: str) -> Row:
    return counter_row(task_of(rollout_id), STEPS)


@asynccontextmanager
async def mixed(directory: Path, latency: str) -> AsyncIterator[Mixed]:
    tasks = write_tasks(directory / "tasks.jsonl", [counter_row(task, STEPS) for task in PLAYED_BY])
    async with (
        AsyncExitStack() as stack,
        coordinated(directory, "counter", [tasks], model=("--latency", latency)) as (fleet, coordinator),
    ):
        fleet_ = Mixed(directory, fleet, coordinator)
        await fleet_.start_others(stack)
        yield fleet_


async def test_rollouts_that_cannot_be_captured_are_waited_for_by_nobody_and_run_on(tmp_path: Path) -> None:
    """P10, C53: one is in a tool call that does not end before the cut; its tools work behind closed gates, and neither kind repeats anything."""
    async with mixed(tmp_path, "0.1:0.2") as fleet:
        rollouts = await fleet.playing("on-0", "on-1", "on-3")
        await fleet.stuck_in_a_tool_call("on-3", beside="on-0")
        made = fleet.increments("on-3")
        taken = await fleet.coordinator.checkpoint(CheckpointArguments("ck", resume=ResumePolicy.BY_CALLER))
        assert (taken.episodes, taken.restarts, taken.lost) == (2, 1, 0)
        page = await fleet.coordinator.get_checkpoint("ck")
        assert page.episodes == (Episode("on-0"), Episode("on-1"))
        (restart,) = page.restarts
        assert (str(restart.episode), restart.why.endswith(WHY)) == ("on-3", True)
        fleet.cable.heal()
        await until(lambda: fleet.increments("on-3") > made, "a tool call meanwhile")
        assert not any(rollout.done() for rollout in rollouts.values())
        await fleet.coordinator.resume_checkpoint("ck")
        rewards = {rollout_id: (await rollout).json()["reward"] for rollout_id, rollout in rollouts.items()}
        assert rewards == dict.fromkeys(rollouts, 1.0)
        assert {rollout_id: fleet.increments(rollout_id) for rollout_id in rollouts} == dict.fromkeys(rollouts, STEPS)


async def test_after_a_crash_only_rollouts_that_could_not_be_captured_start_over(tmp_path: Path) -> None:
    """P10, X13: from their input, as the next attempt; the others go on from the cut."""
    async with mixed(tmp_path, "0.1:0.2") as fleet:
        first = await fleet.playing(*(f"off-{task}" for task in PLAYED_BY))
        taken = await fleet.coordinator.checkpoint(CheckpointArguments("ck"))
        assert (taken.episodes, taken.restarts, taken.lost) == (2, 2, 0)
        await fleet.fleet.kill()
        ended = await asyncio.gather(*first.values(), return_exceptions=True)
        assert all(isinstance(outcome, httpx.TransportError) for outcome in ended)
    async with mixed(tmp_path, "0:0") as fleet:
        outcome = await fleet.coordinator.restore(RestoreArguments("again", "ck"))
        restored, restarted = (Fate.RESTORED, 1), (Fate.RESTARTED, 1)
        assert {str(target.source): (target.fate, target.attempt) for target in outcome} == {
            "off-0": restored,
            "off-1": restored,
            "off-2": restarted,
            "off-3": restarted,
        }
        assert all(target.why.endswith(WHY) for target in outcome if target.fate is Fate.RESTARTED)
        for rollout_id in first:
            stale = await fleet.play(rollout_id)
            assert (stale.status_code, stale.headers["x-gymckpt-reason"]) == (409, "STALE_ATTEMPT")
        second = {
            target.source.rollout_id: fleet.play(
                target.source.rollout_id, target.attempt, continues=target.fate is Fate.RESTORED
            )
            for target in outcome
        }
        rewards = {rollout_id: (await rollout).json()["reward"] for rollout_id, rollout in second.items()}
        assert rewards == dict.fromkeys(first, 1.0)
        again = {rollout_id: fleet.increments(rollout_id, 1) for rollout_id in first}
        assert [again["off-2"], again["off-3"]] == [STEPS, STEPS]
        assert max(again["off-0"], again["off-1"]) <= STEPS - 2
