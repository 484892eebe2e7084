"""A run whose processes can be killed one by one and started again where they were."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx

from gymckpt.coordinator import CheckpointArguments, CoordinatorClient, RestoreArguments, ResumePolicy, Stage
from gymckpt.coordinator.members.client import ParticipantClient, ParticipantStatus
from gymckpt.core.kinds import ExportState, GateState
from gymckpt.core.manifest import Decision, ParticipantInfo
from gymckpt.errors import ParticipantLost
from gymckpt.participant import Episode
from gymckpt.rpc import codec
from gymckpt.store import StoreClient
from servers.demo.fleet import Fleet, Program
from servers.demo.players import acknowledge
from servers.execution_log import read_log
from servers.http.peers import call_headers
from tests.e2e.fleets import AGENT, COORDINATOR, ENVIRONMENT, MODEL, PATIENCE_SECONDS, until
from tests.e2e.rollouts import counter_row, run, typed, write_tasks
from tests.e2e.trouble import served
from tests.e2e.trouble.watch import Watch, watching

CALLER, COUNTER, STORE = "caller", "counter", "store"
MEMBERS = {
    COUNTER: f"resources/{COUNTER}",
    MODEL: f"model/{MODEL}",
    AGENT: f"agent/{AGENT}",
    ENVIRONMENT: f"environment/{ENVIRONMENT}",
}
"""Participants by the name of their server, callees first."""
STEPS = 5
LATENCY = "0.05:0.15"


class Run:
    """One server of each kind, a coordinator with its store, and rollouts under way. `log` is what the servers executed."""

    def __init__(self, directory: Path, watch: Watch, stack: AsyncExitStack, patience: float, *, apart: bool) -> None:
        self.directory = directory
        self.watch = watch
        self.fleet = Fleet(directory)
        self.members: dict[str, ParticipantInfo] = {}
        self.client: CoordinatorClient
        self.store: StoreClient
        self._programs: dict[str, tuple[str, ...]] = {}
        self._ports: dict[str, int] = {}
        self._rollouts: list[asyncio.Task[httpx.Response]] = []
        self.stack = stack
        self._store = STORE if apart else COORDINATOR
        self._patience = ("--patience", str(patience))

    # --- who reaches whom, and where ---

    async def reach(self, caller: str, callee: str) -> str:
        """Where one process reaches another."""
        return self.fleet.address(callee)

    async def environment_of(self, name: str) -> Mapping[str, str]:
        """What makes a server take part."""
        store = await self.reach(name, self._store)
        return {"GYMCKPT_COORDINATOR": await self.reach(name, COORDINATOR), "GYMCKPT_STORE": store}

    def door(self, name: str) -> str:
        """Where the participant of a server answers a test."""
        return self.members[name].address

    # --- processes ---

    async def coordinate(self) -> None:
        """Starts the coordinator, where the last one was: with its store, or beside the store that runs already."""
        await self.start_coordinator(COORDINATOR)
        await self.connect(await self.reach(CALLER, COORDINATOR), self.fleet.address(self._store))

    async def start_coordinator(self, name: str) -> str:
        """Starts a coordinator that may be one of several; returns its address."""
        apart = self._store == STORE
        store = ("--store-at", await self.reach(name, STORE)) if apart else ("--store", str(self.directory / "store"))
        expected = [word for member in MEMBERS.values() for word in ("--expect", member)]
        role = "coordinator" if apart else "both"
        await self._serve(name, role, *store, "--watch", str(self.watch.socket), *self._patience, *expected)
        return self.fleet.address(name)

    async def start_store(self) -> None:
        """Starts a store in a process of its own, where the last one was."""
        await self._serve(STORE, "store", "--store", str(self.directory / "store"))

    async def _serve(self, name: str, *words: str) -> None:
        listen = ("--listen", f"127.0.0.1:{self._ports.get(name, 0)}")
        await self.fleet.start(Program(name, "tests.e2e.trouble.served", (*words, *listen)))
        self._ports[name] = self.fleet.port(name)

    async def connect(self, coordinator: str, store: str) -> None:
        """Speaks to these from now on."""
        self.client = await self.stack.enter_async_context(CoordinatorClient(coordinator))
        self.store = StoreClient(store)
        self.stack.push_async_callback(self.store.close)

    async def start_servers(self) -> None:
        """Starts the four servers, and returns when all are members."""
        rows = [counter_row(0, STEPS)]
        tasks = ("--tasks", str(write_tasks(self.directory / "tasks.jsonl", rows)))
        ledger = ("--ledger", str(self.directory / "ledger.sqlite"))
        self._programs[COUNTER] = ("servers.resources.counter",)
        self._programs[MODEL] = ("servers.model", *tasks, *ledger, "--latency", LATENCY)
        await self.start(COUNTER, MODEL)
        policy = ("--model", f"{MODEL}={await self.reach(AGENT, MODEL)}")
        tools = ("--resources", f"{COUNTER}={await self.reach(AGENT, COUNTER)}")
        self._programs[AGENT] = ("servers.agent", *policy, *tools)
        await self.start(AGENT)
        agent = ("--agent", f"{AGENT}={await self.reach(ENVIRONMENT, AGENT)}")
        tools = ("--resources", f"{COUNTER}={await self.reach(ENVIRONMENT, COUNTER)}")
        self._programs[ENVIRONMENT] = ("servers.environment", *agent, *tools)
        await self.start(ENVIRONMENT)
        await self.complete()

    async def start(self, *names: str) -> None:
        """Starts servers, where they were before."""
        log = ("--log", str(self.directory / "executions.jsonl"))
        programs = []
        for name in names:
            module, *arguments = self._programs[name]
            port = ("--port", str(self._ports.get(name, 0)))
            programs.append(Program(name, module, (*arguments, *log, *port), await self.environment_of(name)))
        await self.fleet.start(*programs)
        self._ports.update({name: self.fleet.port(name) for name in names})

    async def complete(self, *, without: Iterable[str] = ()) -> None:
        """Returns when a process of each server that is none of the boots `without` takes part."""
        missing, last = set(MEMBERS.values()), time.monotonic() + PATIENCE_SECONDS
        while missing:
            assert time.monotonic() < last, f"{sorted(missing)} did not register"
            here = {
                str(member.participant.id): member.participant
                for member in (await self.client.participants()).members
                if member.holds.gate is GateState.OPEN and member.participant.boot_id not in without
            }
            missing = set(MEMBERS.values()) - here.keys()
            self.members = {name: here[member] for name, member in MEMBERS.items() if member in here}
            await asyncio.sleep(0.02)

    async def replace(self, name: str) -> None:
        """Starts a server again that was killed; returns when it takes part."""
        dead = self.members[name].boot_id
        await self.start(name)
        await self.complete(without=[dead])

    async def statuses(self, *, without: str = "") -> dict[str, ParticipantStatus]:
        """What each participant says of itself, by the name of its server."""
        found = {}
        for name in self.members:
            if name != without:
                participant = ParticipantClient(self.door(name))
                found[name] = await participant.status(self.members[name].boot_id, timeout=PATIENCE_SECONDS)
                await participant.close()
        return found

    async def assert_accepting(self, *, without: str = "") -> None:
        """Every participant that lives lets new work in, and holds nothing of any round."""
        for name, status in (await self.statuses(without=without)).items():
            held = status.holds
            assert (held.gate, held.gate_fence) == (GateState.OPEN, None), name
            assert (held.export, held.restore_fence) == (ExportState.NONE, None), name

    # --- rounds ---

    async def checkpoint(self, checkpoint_id: str) -> None:
        """Takes one that must be published; it need not hold results that have arrived."""
        await self._acknowledge({rollout.get_name() for rollout in self._rollouts if rollout.done()})
        taken = await self.client.checkpoint(CheckpointArguments(checkpoint_id))
        assert taken.stage is Stage.PUBLISHED

    async def _acknowledge(self, arrived: set[str]) -> None:
        """Members that were cut off a moment ago may not be connected again: the answer says to retry."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                try:
                    await acknowledge(self.client, arrived)
                except ParticipantLost as error:
                    await asyncio.sleep(error.retry_after or 0.1)
                else:
                    return

    def taking(self, checkpoint_id: str, resume: ResumePolicy = ResumePolicy.AFTER_SNAPSHOT) -> asyncio.Task[Any]:
        """A checkpoint under way."""
        return asyncio.create_task(self.client.checkpoint(CheckpointArguments(checkpoint_id, resume=resume)))

    def restoring(self, restore_id: str, checkpoint_id: str, episode: str) -> asyncio.Task[Any]:
        """A restore of one episode under way."""
        arguments = RestoreArguments(restore_id, checkpoint_id, (Episode.parse(episode),))
        return asyncio.create_task(self.client.restore(arguments))

    def said(self, server: str) -> str:
        """What the processes of this name have logged."""
        return (self.directory / f"{server}.err").read_text()

    async def decision(self, round_id: str) -> Decision | None:
        """What the store holds for this round. Fails unless it is one decision at most."""
        names = [entry for entry in await self.store.list_names("decisions") if entry.name == f"decisions/{round_id}"]
        assert len(names) <= 1
        return codec.decode_decision(names[0].value) if names else None

    async def assert_published_is_whole(self) -> None:
        """Every blob below every decision is in the store, and is what its name says."""
        async for progress in self.store.scrub():
            assert progress.damage == ()

    # --- rollouts ---

    def play(self, rollout_id: str, attempt: int = 0, *, continues: bool = False) -> asyncio.Task[httpx.Response]:
        """A rollout under way."""
        headers = call_headers(Episode(rollout_id, attempt), continues=continues)
        row = typed(counter_row(0, STEPS), rollout_id, attempt)
        rollout = asyncio.create_task(run(self.fleet.address(ENVIRONMENT), row, headers), name=rollout_id)
        self._rollouts.append(rollout)
        return rollout

    async def end(self) -> None:
        """Kills every process and gives up what is still being played."""
        for rollout in self._rollouts:
            rollout.cancel()
        await asyncio.gather(*self._rollouts, return_exceptions=True)
        await self.fleet.kill()

    def increments(self, rollout_id: str) -> int:
        """Tool calls that were carried out for the rollout, in all its attempts."""
        log = read_log(self.directory / "executions.jsonl")
        return sum(line["rollout"] == rollout_id and line["what"] == "increment_counter" for line in log)

    async def playing(self, rollout_id: str) -> asyncio.Task[httpx.Response]:
        """A new rollout that has made its first tool call."""
        rollout = self.play(rollout_id)
        await until(lambda: self.increments(rollout_id) > 0, f"the first increment of {rollout_id}")
        return rollout

    async def calling_a_tool(self, rollout: asyncio.Task[httpx.Response]) -> None:
        """Returns when the agent waits for the answer of a tool."""
        while not (await self.statuses(without=COUNTER))[AGENT].report.blockers:
            assert not rollout.done()
            await asyncio.sleep(0.02)

    async def assert_goes_on(self, rollout_id: str, attempt: int) -> None:
        """The restored attempt ends with the full reward: the counter is graded by its state, so that a lost or repeated call would cost it."""
        answer = await self.play(rollout_id, attempt, continues=True)
        assert answer.status_code == 200, answer.text
        assert answer.json()["reward"] == 1.0


R = TypeVar("R", bound=Run)


async def assert_rewarded(rollout: asyncio.Task[httpx.Response]) -> None:
    """The rollout ended as if nothing had happened."""
    answer = await rollout
    assert answer.status_code == 200, answer.text
    assert answer.json()["reward"] == 1.0


@asynccontextmanager
async def started_as(
    kind: type[R], directory: Path, *, apart: bool = False, patience: float = served.PATIENCE_SECONDS
) -> AsyncIterator[R]:
    """A complete run, its coordinator and its store in one process or in two. At the end all that was published must be whole; then every process is killed."""
    async with AsyncExitStack() as stack:
        watch = await stack.enter_async_context(watching(directory / "watch"))
        run_ = kind(directory, watch, stack, patience, apart=apart)
        stack.push_async_callback(run_.end)
        if apart:
            await run_.start_store()
        await run_.coordinate()
        await run_.start_servers()
        yield run_
        await run_.assert_published_is_whole()


def started(
    directory: Path, *, apart: bool = False, patience: float = served.PATIENCE_SECONDS
) -> AbstractAsyncContextManager[Run]:
    """`started_as`, with nothing between the processes."""
    return started_as(Run, directory, apart=apart, patience=patience)
