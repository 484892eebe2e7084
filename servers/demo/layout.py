"""Which servers a demo fleet has, and how they find each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from servers.demo.fleet import Fleet, Program

COORDINATOR = "coordinator"
MODEL = "policy_model"
WORKPLACE = "workplace_assistant"
COUNTER = "counter"
AGENT = "simple_agent"
ENVIRONMENT = "single_agent_turn"

MODULES = {
    COORDINATOR: "gymckpt.cli",
    MODEL: "servers.model",
    WORKPLACE: "servers.resources.workplace_assistant",
    COUNTER: "servers.resources.counter",
    AGENT: "servers.agent",
    ENVIRONMENT: "servers.environment",
}
MEMBERS = {
    MODEL: f"model/{MODEL}",
    WORKPLACE: f"resources/{WORKPLACE}",
    COUNTER: f"resources/{COUNTER}",
    AGENT: f"agent/{AGENT}",
    ENVIRONMENT: f"environment/{ENVIRONMENT}",
}
"""Servers that take part in checkpoints, as participants are written."""


@dataclass(frozen=True)
class Lane:
    """The servers that a rollout stays on beside the policy model, by their names; those of the first lane have the names above, others a number behind it."""

    number: int

    @property
    def environment(self) -> str:
        return self._named(ENVIRONMENT)

    @property
    def agent(self) -> str:
        return self._named(AGENT)

    @property
    def workplace(self) -> str:
        return self._named(WORKPLACE)

    def _named(self, base: str) -> str:
        return base if self.number == 0 else f"{base}_{self.number + 1}"


def base_name(name: str) -> str:
    """The name in the first lane of a server in any lane."""
    base, _, number = name.rpartition("_")
    return base if number.isdecimal() else name


@dataclass(frozen=True)
class Layout:
    """`store` None: without a coordinator, checkpointing is off. `latency` is in seconds. `instead` names another program for a server, as a module and its
    first arguments, in every lane. Rollouts take the `lanes` in turn."""

    tasks: Path
    log: Path
    ledger: Path
    store: Path | None = None
    tables: Path | None = None
    latency: tuple[float, float] = (0.1, 0.5)
    seed: int = 0
    instead: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    lanes: int = 1

    def each_lane(self) -> tuple[Lane, ...]:
        """In the order in which rollouts take them."""
        return tuple(Lane(number) for number in range(self.lanes))

    @property
    def members(self) -> dict[str, str]:
        """Servers that take part in checkpoints, as participants are written, by name."""
        names = [name for lane in self.each_lane() for name in (lane.workplace, lane.agent, lane.environment)]
        return {name: MEMBERS[base_name(name)].replace(base_name(name), name) for name in (MODEL, COUNTER, *names)}

    def tiers(self) -> list[tuple[str, ...]]:
        """Names of all servers: callees before callers, those of one tier at once."""
        lanes = self.each_lane()
        first = () if self.store is None else ((COORDINATOR,),)
        callees = (MODEL, COUNTER, *(lane.workplace for lane in lanes))
        return [*first, callees, tuple(lane.agent for lane in lanes), tuple(lane.environment for lane in lanes)]

    async def start(self, fleet: Fleet, ports: Mapping[str, int] | None = None) -> None:
        """Starts all, on the given ports or on free ones. Raises ServerFailed."""
        given = ports or {}
        for tier in self.tiers():
            await fleet.start(*(self.program(name, fleet.address, given.get(name, 0)) for name in tier))

    def program(self, name: str, address: Callable[[str], str], port: int) -> Program:
        """The server `name` on `port` (0: a free one); `address` tells where those are that it needs."""
        base = base_name(name)
        module, *first = self.instead.get(base, (MODULES[base],))
        if base == COORDINATOR:
            return Program(name, module, (*first, *self._coordinator(port)))
        environment = {"GYMCKPT_COORDINATOR": address(COORDINATOR)} if self.store is not None else {}
        options = ("--name", name, "--port", str(port), "--log", str(self.log))
        return Program(name, module, (*first, *options, *self._needs(name, address)), environment)

    def _needs(self, name: str, address: Callable[[str], str]) -> tuple[str, ...]:
        base = base_name(name)
        if base == MODEL:
            return self._policy()
        if base == WORKPLACE:
            return () if self.tables is None else ("--tables", str(self.tables))
        if base == COUNTER:
            return ()
        lane = next(lane for lane in self.each_lane() if name in (lane.agent, lane.environment))
        tools = ("--resources", f"{lane.workplace}={address(lane.workplace)}")
        callee = ("--model", MODEL) if base == AGENT else ("--agent", lane.agent)
        return (callee[0], f"{callee[1]}={address(callee[1])}", *tools)

    def _policy(self) -> tuple[str, ...]:
        latency = "{:g}:{:g}".format(*self.latency)
        answers = ("--tasks", str(self.tasks), "--with-reads", "--latency", latency, "--seed", str(self.seed))
        return (*answers, "--ledger", str(self.ledger))

    def _coordinator(self, port: int) -> tuple[str, ...]:
        expected = [argument for member in self.members.values() for argument in ("--expect", member)]
        return ("--json", "serve", "--store", str(self.store), "--listen", f"127.0.0.1:{port}", *expected)
