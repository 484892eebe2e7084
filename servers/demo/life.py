"""One life of the servers: from their start to their end, with what a controller does to them in between."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

import httpx

from gymckpt.coordinator import Checkpoint, CheckpointArguments, CoordinatorClient
from gymckpt.participant import Episode
from gymckpt.store import StoreClient
from servers.demo.compare import Line
from servers.demo.cut import Cut, read_cut
from servers.demo.fleet import Fleet
from servers.demo.layout import AGENT, COORDINATOR, Layout, base_name
from servers.demo.players import Players, acknowledge
from servers.execution_log import LogReader
from servers.http.client import http_client

LOOK_SECONDS = 0.05
PATIENCE_SECONDS = 120.0
FINISH_SECONDS = 300.0


class NeverCame(Exception):
    """What the demo waited for did not happen."""


class Life:
    """Running servers and the rollouts that are played on them."""

    def __init__(self, layout: Layout, fleet: Fleet, http: httpx.AsyncClient) -> None:
        self.layout = layout
        self.fleet = fleet
        self.http = http
        self._log = LogReader(layout.log)
        self.players = Players(http, [fleet.address(lane.environment) for lane in layout.each_lane()])

    def log(self) -> list[Line]:
        """What all servers of this log have executed so far."""
        return self._log.lines()

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Returns once the condition holds. Raises NeverCame, saying `what`, when a rollout fails first, or after PATIENCE_SECONDS."""
        last = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            if self.players.failed:
                raise NeverCame(f"{what} did not happen: {dict(list(self.players.failed.items())[:3])}")
            if time.monotonic() > last:
                raise NeverCame(f"{what} did not happen within {PATIENCE_SECONDS:g} s")
            await asyncio.sleep(LOOK_SECONDS)

    async def finish(self) -> None:
        """Returns when every attempt has ended. Raises NeverCame after FINISH_SECONDS."""
        try:
            async with asyncio.timeout(FINISH_SECONDS):
                await self.players.ended()
        except TimeoutError:
            raise NeverCame(
                f"{self.players.playing} rollouts are still being played after {FINISH_SECONDS:g} s"
            ) from None

    async def end(self) -> None:
        """SIGKILL to every process; then whoever played on them finds out."""
        await self.fleet.kill()
        await self.players.ended()


class CoordinatedLife(Life):
    """A life in which checkpoints are taken. `turns_waited_for` counts agents' turns that a checkpoint did not find unfinished any more."""

    def __init__(
        self,
        layout: Layout,
        fleet: Fleet,
        http: httpx.AsyncClient,
        coordinator: CoordinatorClient,
        store: StoreClient,
    ) -> None:
        super().__init__(layout, fleet, http)
        self.coordinator = coordinator
        self.turns_waited_for = 0
        self._store = store

    async def complete(self) -> None:
        """Returns when every server is a member. Raises NeverCame."""
        wanted = set(self.layout.members.values())
        present: set[str] = set()
        last = time.monotonic() + PATIENCE_SECONDS
        while not present >= wanted:
            if time.monotonic() > last:
                raise NeverCame(f"{sorted(wanted - present)} did not register")
            await asyncio.sleep(LOOK_SECONDS)
            present = {str(member.participant.id) for member in (await self.coordinator.participants()).members}

    async def checkpoint(self, arguments: CheckpointArguments) -> tuple[Checkpoint, Cut]:
        """Takes a checkpoint and reads it back; it need not hold results that have arrived. Raises what the coordinator raises."""
        await self.acknowledge()
        playing = turns_under_way(self.log())
        taken = await self.coordinator.checkpoint(arguments)
        cut = await read_cut(self._store, taken.manifest)
        unfinished = {episode.rollout_id for episode, standing in cut.standings.items() if standing.playing}
        self.turns_waited_for += len(playing - unfinished)
        return taken, cut

    async def sessions(self) -> Mapping[str, int]:
        """Live sessions and kept results by participant. Raises NeverCame when one does not say."""
        kept: dict[str, int] = {}
        for member in await self.coordinator.explain_blockers():
            if member.report is None:
                raise NeverCame(f"{member.participant.id} does not say how many sessions it has: {member.error}")
            counts = member.report.counts
            kept[str(member.participant.id)] = counts["sessions"] + counts.get("results", 0)
        return kept

    async def acknowledge(self) -> None:
        """Frees the results that have arrived. Raises what the coordinator raises."""
        await acknowledge(self.coordinator, self.players.results)

    async def retire(self, episodes: Iterable[Episode]) -> None:
        """Drops everything that is still held of finished attempts, and refuses them from now on."""
        await self.coordinator.retire_episodes(episodes)


@asynccontextmanager
async def lived(layout: Layout, fleet: Fleet) -> AsyncIterator[Life]:
    """A life without a coordinator; its servers die at the end."""
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(http_client())
        stack.push_async_callback(fleet.kill)
        await layout.start(fleet)
        life = Life(layout, fleet, http)
        stack.push_async_callback(life.players.cancel)
        yield life


@asynccontextmanager
async def coordinated(
    layout: Layout, fleet: Fleet, ports: Mapping[str, int] | None = None
) -> AsyncIterator[CoordinatedLife]:
    """A life with a coordinator, from the moment when all are members; its servers die at the end."""
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(http_client())
        stack.push_async_callback(fleet.kill)
        await layout.start(fleet, ports)
        coordinator = await stack.enter_async_context(CoordinatorClient(fleet.address(COORDINATOR)))
        store = StoreClient(fleet.address(COORDINATOR))
        stack.push_async_callback(store.close)
        life = CoordinatedLife(layout, fleet, http, coordinator, store)
        stack.push_async_callback(life.players.cancel)
        await life.complete()
        yield life


def turns_under_way(log: Iterable[Line]) -> set[str]:
    """Rollouts whose agent was called and whose agent session was not closed since."""
    playing: set[str] = set()
    for line in log:
        if base_name(line["server"]) != AGENT:
            continue
        if line["what"] == "/v1/responses":
            playing.add(line["rollout"])
        elif line["what"] == "close_session":
            playing.discard(line["rollout"])
    return playing
