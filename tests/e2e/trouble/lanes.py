"""A fleet of two lanes under way: servers of one are killed, those who survive are watched."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from gymckpt.coordinator import CheckpointArguments, CoordinatorClient, Recovery, Stage
from gymckpt.core.kinds import ExportState, GateState
from gymckpt.participant import Episode
from gymckpt.store import StoreClient
from servers.demo.compare import Line, tool_calls
from servers.demo.cut import read_cut
from servers.demo.fleet import ROOT, Fleet, Program
from servers.demo.layout import COORDINATOR, Lane, Layout
from servers.demo.rollouts import Rollout, Tasks, outputs
from servers.execution_log import LogReader
from servers.http.client import Outgoing, http_client
from tests.e2e.fleets import PATIENCE_SECONDS
from tests.e2e.trouble.watch import Watch, watching

LATENCY = (0.05, 0.12)
HURT, SPARED = Lane(0), Lane(1)
"""The lane whose servers are killed, and the one that hears nothing of it unless a test says so."""


class Lanes:
    """The servers of a layout, each on a port that stays; `log` is what they executed."""

    def __init__(self, directory: Path, watch: Watch, http: httpx.AsyncClient) -> None:
        long, short = self.rows = _rows()
        tasks = Tasks((long, short)).write(directory / "tasks.jsonl")
        log, ledger = directory / "executions.jsonl", directory / "ledger.sqlite"
        self.layout = Layout(tasks, log, ledger, store=directory / "store", latency=LATENCY, lanes=2)
        self.watch = watch
        self.fleet = Fleet(directory)
        self.outgoing = Outgoing(http, patience=0.0)
        self.coordinator: CoordinatorClient
        self.store: StoreClient
        self._log = LogReader(log)
        self._ports: dict[str, int] = {}
        self._boots: dict[str, str] = {}

    # --- processes ---

    async def start(self, names: Collection[str]) -> None:
        """Starts servers where they were before, callees first."""
        for tier in self.layout.tiers():
            await self.fleet.start(*(self._program(name) for name in tier if name in names))
            self._ports.update({name: self.fleet.port(name) for name in tier if name in names})

    def _program(self, name: str) -> Program:
        port = self._ports.get(name, 0)
        if name != COORDINATOR:
            return self.layout.program(name, self.fleet.address, port)
        expected = [word for member in self.layout.members.values() for word in ("--expect", member)]
        words = ("both", "--store", str(self.layout.store), "--listen", f"127.0.0.1:{port}", *expected)
        return Program(name, "tests.e2e.trouble.served", (*words, "--watch", str(self.watch.socket)))

    async def complete(self, *, without: Collection[str] = ()) -> None:
        """Returns when a process of each server that is none of the boots `without` takes part."""
        missing, last = set(self.layout.members.values()), time.monotonic() + PATIENCE_SECONDS
        while missing:
            assert time.monotonic() < last, f"{sorted(missing)} did not register"
            self._boots = {
                str(member.participant.id): member.participant.boot_id
                for member in (await self.coordinator.participants()).members
                if member.holds.gate is GateState.OPEN and member.participant.boot_id not in without
            }
            missing = set(self.layout.members.values()) - self._boots.keys()
            await asyncio.sleep(0.02)

    async def replace(self, names: Collection[str]) -> None:
        """Starts servers again that were killed; returns when they take part."""
        dead = [self._boots[self.layout.members[name]] for name in names if name != COORDINATOR]
        await self.start(names)
        await self.complete(without=dead)

    async def revive(self) -> None:
        """Starts again whatever a test that failed has left dead."""
        self.watch.go_on()
        dead = [name for tier in self.layout.tiers() for name in tier if name not in self.fleet.servers]
        if dead:
            await self.replace(dead)

    # --- what the servers have done, and hold ---

    def log(self) -> list[Line]:
        """All that was executed so far."""
        return self._log.lines()

    def calls_of(self, lane: Lane) -> int:
        """Tool calls that the lane's server has carried out."""
        return sum(line["server"] == lane.workplace for line in tool_calls(self.log()))

    def calls(self, episode: Episode) -> int:
        """Tool calls that were carried out for the attempt."""
        return sum(
            (line["rollout"], line["attempt"]) == (episode.rollout_id, episode.attempt)
            for line in tool_calls(self.log())
        )

    async def assert_accepting(self) -> None:
        """Everyone lets new work in and holds nothing of any round."""
        for member in (await self.coordinator.participants()).members:
            held = member.holds
            assert (held.gate, held.export) == (GateState.OPEN, ExportState.NONE), member.participant.id

    async def sessions(self) -> Mapping[str, int]:
        """Those that are left, by participant; models keep what has finished."""
        members = await self.coordinator.explain_blockers()
        counted = {str(m.participant.id): m.report.counts["sessions"] for m in members if m.report is not None}
        assert counted.keys() == set(self.layout.members.values())
        return {name: count for name, count in counted.items() if count and not name.startswith("model/")}

    # --- rounds ---

    async def checkpoint(self, checkpoint_id: str) -> None:
        """Takes one that must be published."""
        taken = await self.coordinator.checkpoint(CheckpointArguments(checkpoint_id))
        assert taken.stage is Stage.PUBLISHED

    async def recovery(self) -> Recovery:
        """What `gymckpt explain` says."""
        return await self.coordinator.explain_recovery()

    async def command(self, *words: str) -> tuple[int, Any]:
        """Runs `gymckpt` as a person would; its status, and its document: that of the error when it failed."""
        address = self.fleet.address(COORDINATOR)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "gymckpt.cli", "--coordinator", address, "--json", *words,
            cwd=ROOT, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        said, failed = await process.communicate()
        assert process.returncode is not None
        return process.returncode, json.loads(failed if process.returncode else said)

    async def answered(self, checkpoint_id: str) -> Mapping[Episode, frozenset[str]]:
        """The calls of tools whose answers a checkpoint holds."""
        page = await self.coordinator.get_checkpoint(checkpoint_id, page_size=1)
        cut = await read_cut(self.store, page.checkpoint.manifest)
        return {
            episode: frozenset(item["call_id"] for item in outputs(standing.items))
            for episode, standing in cut.standings.items()
        }

    def rollout(self, lane: Lane, rollout_id: str, *, short: bool = False) -> Rollout:
        """One that is played on the lane's servers."""
        return Rollout(lane.number, rollout_id, self.rows[short], ())


def _rows() -> Sequence[dict[str, Any]]:
    """A task that is still under way when a server is back, and a short one."""
    tasks = Tasks.builtin().rows
    long = [call for task in tasks[:2] for call in task["ground_truth"]]
    return {**tasks[0], "ground_truth": long}, tasks[8]


@asynccontextmanager
async def two_lanes(directory: Path) -> AsyncIterator[Lanes]:
    """From the moment when all are members; every process is killed at the end, and what was published must be whole."""
    async with AsyncExitStack() as stack:
        watch = await stack.enter_async_context(watching(directory / "watch"))
        lanes = Lanes(directory, watch, await stack.enter_async_context(http_client()))
        stack.push_async_callback(lanes.fleet.kill)
        await lanes.start([name for tier in lanes.layout.tiers() for name in tier])
        address = lanes.fleet.address(COORDINATOR)
        lanes.coordinator = await stack.enter_async_context(CoordinatorClient(address))
        lanes.store = StoreClient(address)
        stack.push_async_callback(lanes.store.close)
        await lanes.complete()
        yield lanes
        async for progress in lanes.store.scrub():
            assert progress.damage == ()
