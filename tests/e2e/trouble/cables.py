"""A run in which any two processes speak over a cable of their own, which a test cuts and heals."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx

from gymckpt.coordinator import CheckpointArguments, RestoreArguments
from gymckpt.participant import Episode
from gymckpt.testing import TcpProxy, Way
from tests.e2e.fleets import AGENT, COORDINATOR, ENVIRONMENT, MODEL
from tests.e2e.trouble.run import COUNTER, STEPS, Run, assert_rewarded
from tests.e2e.trouble.watch import Watch

CUTS: dict[str, Callable[[TcpProxy], None]] = {
    "drop": TcpProxy.drop,
    "blackhole": TcpProxy.blackhole,
    "reset": lambda cable: cable.reset_after(0),
    "unheard": lambda cable: cable.half_open(Way.TO_TARGET),
    "unanswered": lambda cable: cable.half_open(Way.TO_CALLER),
}
"""Every way in which two processes may not reach each other."""
MIXES: tuple[dict[str, str], ...] = (
    {COUNTER: "drop", MODEL: "blackhole", AGENT: "reset", ENVIRONMENT: "unheard"},
    {COUNTER: "unanswered", MODEL: "unheard", AGENT: "drop", ENVIRONMENT: "blackhole"},
)
"""Every server cut off in another way, all at once; every way is there."""
PATIENCE = 2.0
GATE_LEASE = 3.0
Ends = tuple[str, str]


class CabledRun(Run):
    """`cables` by caller and callee; (COORDINATOR, server) is the one to its participant. A test's own looks at participants and store pass by them."""

    def __init__(self, directory: Path, watch: Watch, stack: AsyncExitStack, patience: float, *, apart: bool) -> None:
        super().__init__(directory, watch, stack, patience, apart=apart)
        self.cables: dict[Ends, TcpProxy] = {}

    async def reach(self, caller: str, callee: str) -> str:
        """A cable is laid when it is first asked for, and stays although its callee dies."""
        address = self.fleet.address(callee)
        scheme = "http://" if address.startswith("http://") else ""
        return scheme + await self._lay((caller, callee), address.removeprefix(scheme))

    async def environment_of(self, name: str) -> Mapping[str, str]:
        listen = self._listens(name)
        advertised = await self._lay((COORDINATOR, name), listen)
        return {**await super().environment_of(name), "GYMCKPT_LISTEN": listen, "GYMCKPT_ADVERTISE": advertised}

    def door(self, name: str) -> str:
        return self._listens(name)

    def _listens(self, name: str) -> str:
        return f"unix:{self.directory / name}.sock"

    async def _lay(self, ends: Ends, target: str) -> str:
        if ends not in self.cables:
            self.cables[ends] = await self.stack.enter_async_context(TcpProxy(target))
        return self.cables[ends].address

    @contextmanager
    def cut(self, how: Mapping[Ends, str]) -> Iterator[None]:
        """Each of these cables is cut, as named in CUTS, while this lasts."""
        try:
            for ends, cut in how.items():
                CUTS[cut](self.cables[ends])
            yield
        finally:
            for ends in how:
                self.cables[ends].heal()


def name_of(mix: Mapping[str, str]) -> str:
    return "-".join(mix.values())


def taking(run: CabledRun, name: str, **arguments: Any) -> asyncio.Task[Any]:
    """A checkpoint under way that keeps gates closed for GATE_LEASE seconds at most."""
    given = CheckpointArguments(name, gate_lease=GATE_LEASE, **arguments)
    return asyncio.create_task(run.client.checkpoint(given))


async def assert_restores(run: CabledRun, name: str, checkpoint: str) -> None:
    """The rollout, which the checkpoint holds, ends as if nothing had happened."""
    (target,) = await run.client.restore(RestoreArguments(f"{name}-whole", checkpoint, (Episode(name),)))
    await run.assert_goes_on(name, target.attempt)
    await run.assert_accepting()


async def assert_nothing_remains(run: CabledRun, name: str, rollout: asyncio.Task[httpx.Response]) -> None:
    """The network is whole: the rollout has ended in place, every call once, and the next checkpoint succeeds at once."""
    await assert_rewarded(rollout)
    assert run.increments(name) == STEPS
    await run.checkpoint(f"{name}-later")
    await run.assert_accepting()
