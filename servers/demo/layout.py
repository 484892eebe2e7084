"""Which servers a demo fleet has, and how they find each other."""

from __future__ import annotations

from collections.abc import Mapping
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

    async def start(self, fleet: Fleet, ports: Mapping[str, int] | None = None) -> None:
        """Starts callees before callers, on the given ports or on free ones. Raises ServerFailed."""
        given = ports or {}

        def program(name: str, *arguments: str) -> Program:
            environment = {"GYMCKPT_COORDINATOR": fleet.address(COORDINATOR)} if self.store is not None else {}
            options = ("--name", name, "--port", str(given.get(name, 0)), "--log", str(self.log))
            return self._program(name, (*options, *arguments), environment)

        if self.store is not None:
            await fleet.start(self._coordinator(self.store, given.get(COORDINATOR, 0)))
        tables = () if self.tables is None else ("--tables", str(self.tables))
        lanes = self.each_lane()

        def reach(option: str, name: str) -> tuple[str, str]:
            return option, f"{name}={fleet.address(name)}"

        await fleet.start(
            program(MODEL, *self._policy()), program(COUNTER), *(program(lane.workplace, *tables) for lane in lanes)
        )
        resources = [reach("--resources", lane.workplace) for lane in lanes]
        model = reach("--model", MODEL)
        await fleet.start(*(program(lane.agent, *model, *tools) for lane, tools in zip(lanes, resources, strict=True)))
        agents = [reach("--agent", lane.agent) for lane in lanes]
        callers = zip(lanes, agents, resources, strict=True)
        await fleet.start(*(program(lane.environment, *agent, *tools) for lane, agent, tools in callers))

    def _program(self, name: str, arguments: tuple[str, ...], environment: Mapping[str, str]) -> Program:
        module, *first = self.instead.get(base_name(name), (MODULES[base_name(name)],))
        return Program(name, module, (*first, *arguments), environment)

    def _policy(self) -> tuple[str, ...]:
        latency = "{:g}:{:g}".format(*self.latency)
        answers = ("--tasks", str(self.tasks), "--with-reads", "--latency", latency, "--seed", str(self.seed))
        return (*answers, "--ledger", str(self.ledger))

    def _coordinator(self, store: Path, port: int) -> Program:
        expected = [argument for member in self.members.values() for argument in ("--expect", member)]
        arguments = ("--json", "serve", "--store", str(store), "--listen", f"127.0.0.1:{port}", *expected)
        return self._program(COORDINATOR, arguments, {})
