"""What a live tool call takes while the state of many sessions is encoded and uploaded, against the same call on an idle server. Real processes."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gymckpt.coordinator import CheckpointArguments, CoordinatorClient, Stage
from gymckpt.participant import EPISODE_HEADER
from servers.demo.fleet import Fleet, Program
from servers.http.client import Outgoing, http_client

SESSIONS = 1_000
CALLERS = 2
IDLE_SECONDS = 5.0
WORKPLACE = "workplace_assistant"
LIVE = {"email_id": "00000003", "field": "subject"}


@dataclass(frozen=True)
class Client:
    """Whoever makes the calls of one session."""

    outgoing: Outgoing
    server: str
    headers: Mapping[str, str]
    cookies: Mapping[str, str]

    async def call(self, tool: str, arguments: Mapping[str, str]) -> None:
        """Raises UnexpectedAnswer."""
        await self.outgoing.fetch(f"{self.server}/{tool}", arguments, headers=self.headers, cookies=self.cookies)


async def live_calls(directory: Path) -> dict[str, list[float]]:
    """Seconds of each call, `idle` and `uploading`."""
    fleet = Fleet(directory)
    serve = ("--json", "serve", "--store", str(directory / "store"), "--listen", "127.0.0.1:0")
    try:
        await fleet.start(Program("coordinator", "gymckpt.cli", serve))
        address = fleet.address("coordinator")
        known = {"GYMCKPT_COORDINATOR": address}
        await fleet.start(
            Program("policy_model", "servers.model", environment=known),
            Program(WORKPLACE, f"servers.resources.{WORKPLACE}", environment=known),
        )
        async with http_client() as http, CoordinatorClient(address) as coordinator:
            while len((await coordinator.participants()).members) < 2:  # noqa: ASYNC110 - other processes
                await asyncio.sleep(0.05)
            server = fleet.address(WORKPLACE)
            clients = (await _seed(Outgoing(http), server))[:CALLERS]
            ends = time.perf_counter() + IDLE_SECONDS
            idle = await _called(clients, lambda: time.perf_counter() < ends)
            uploading = asyncio.Event()
            taking = asyncio.create_task(_checkpoint(coordinator, uploading))
            await uploading.wait()
            during = await _called(clients, lambda: not taking.done())
            await taking
            return {"idle": idle, "uploading": during}
    finally:
        await fleet.kill()


def p99(seconds: list[float]) -> float:
    return statistics.quantiles(seconds, n=100)[98]


async def _seed(outgoing: Outgoing, server: str) -> list[Client]:
    """Every session has an e-mail of its own, so that none is like another."""
    free = asyncio.Semaphore(16)

    async def one(number: int) -> Client:
        async with free:
            headers = {EPISODE_HEADER: f"r{number}"}
            client = Client(
                outgoing, server, headers, (await outgoing.fetch(f"{server}/seed_session", {}, headers=headers)).cookies
            )
            await client.call("email_send_email", {"recipient": "a@b.c", "subject": f"mail {number}", "body": "x"})
            return client

    return await asyncio.gather(*(one(number) for number in range(SESSIONS)))


async def _checkpoint(coordinator: CoordinatorClient, uploading: asyncio.Event) -> None:
    """Raises ValueError when the checkpoint does not hold every session."""
    async for progress in coordinator.create_checkpoint(CheckpointArguments("bench", full=True)):
        if progress.checkpoint.stage is Stage.UPLOADING:
            uploading.set()
    taken = progress.checkpoint
    if (taken.episodes, taken.lost) != (SESSIONS, 0):
        raise ValueError(f"the checkpoint holds {taken.episodes} of {SESSIONS} sessions, {taken.lost} were lost")


async def _called(clients: Sequence[Client], on: Callable[[], bool]) -> list[float]:
    took: list[float] = []

    async def caller(client: Client) -> None:
        while on():
            began = time.perf_counter()
            await client.call("email_get_email_information_by_id", LIVE)
            took.append(time.perf_counter() - began)

    await asyncio.gather(*map(caller, clients))
    return took
