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
class Layout:
    """`store` None: without a coordinator, checkpointing is off. `latency` is in seconds. `instead` names another program for a server, as a module and its
    first arguments."""

    tasks: Path
    log: Path
    ledger: Path
    store: Path | None = None
    tables: Path | None = None
    latency: tuple[float, float] = (0.1, 0.5)
    seed: int = 0
    instead: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

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
        await fleet.start(program(MODEL, *self._policy()), program(WORKPLACE, *tables), program(COUNTER))
        model, workplace = (f"{name}={fleet.address(name)}" for name in (MODEL, WORKPLACE))
        await fleet.start(program(AGENT, "--model", model, "--resources", workplace))
        agent = f"{AGENT}={fleet.address(AGENT)}"
        await fleet.start(program(ENVIRONMENT, "--agent", agent, "--resources", workplace))

    def _program(self, name: str, arguments: tuple[str, ...], environment: Mapping[str, str]) -> Program:
        module, *first = self.instead.get(name, (MODULES[name],))
        return Program(name, module, (*first, *arguments), environment)

    def _policy(self) -> tuple[str, ...]:
        latency = "{:g}:{:g}".format(*self.latency)
        answers = ("--tasks", str(self.tasks), "--with-reads", "--latency", latency, "--seed", str(self.seed))
        return (*answers, "--ledger", str(self.ledger))

    def _coordinator(self, store: Path, port: int) -> Program:
        expected = [argument for member in MEMBERS.values() for argument in ("--expect", member)]
        arguments = ("--json", "serve", "--store", str(store), "--listen", f"127.0.0.1:{port}", *expected)
        return self._program(COORDINATOR, arguments, {})
