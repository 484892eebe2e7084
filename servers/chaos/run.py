"""One chaos run, and the same rollouts without it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gymckpt.coordinator import CoordinatorClient
from gymckpt.errors import GymckptError
from gymckpt.participant import Episode
from gymckpt.store import StoreClient
from servers.chaos.controller import Controller
from servers.chaos.killer import Killer
from servers.chaos.outcome import Continuation, Outcome, differing, repeated, run_twice
from servers.chaos.supervised import Supervised, Told
from servers.demo.cut import read_cut
from servers.demo.fleet import Fleet
from servers.demo.layout import COORDINATOR, Layout
from servers.demo.life import lived
from servers.demo.rollouts import Result, Rollout, Tasks, outputs
from servers.execution_log import read_log
from servers.http.client import Outgoing, http_client

RETRY_SECONDS = 0.2


@dataclass(frozen=True)
class Settings:
    """What to play and how to disturb it; times are in seconds."""

    tasks: Tasks
    directory: Path
    rollouts: int = 200
    concurrency: int = 64
    checkpoint_every: float = 2.0
    kill_after: float = 10.0
    latency: tuple[float, float] = (0.3, 1.5)
    seed: int = 0
    lanes: int = 2


class Chaos:
    """`tell` gets one line for each thing that happened."""

    def __init__(self, settings: Settings, tell: Callable[[str], None]) -> None:
        self.settings = settings
        self.tell = tell
        settings.directory.mkdir(parents=True, exist_ok=True)
        self.rollouts = settings.tasks.rollouts(settings.rollouts)
        self._tasks_file = settings.tasks.write(settings.directory / "tasks.jsonl")
        self._checkpoints = 0
        self._continuations: list[Continuation] = []
        self._reading: set[asyncio.Task[None]] = set()

    async def run(self) -> Outcome:
        """Raises what a server or the supervisor fails with."""
        layout = self.layout("disturbed", self.settings.directory / "store")
        controller, killer, left = await self._disturbed(layout)
        self.tell("playing the same rollouts without a crash")
        reference = await self._undisturbed()
        failed = "\n".join(controller.ledger.failures)
        (self.settings.directory / "failed_attempts.txt").write_text(f"{failed}\n")
        lost, different = differing(self.rollouts, controller.ledger.results, reference)
        log = read_log(layout.log)
        again = repeated(log, self._continuations)
        return Outcome(
            rollouts=len(self.rollouts),
            checkpoints=self._checkpoints,
            kills=killer.kills.total(),
            kills_by_kind=dict(sorted(killer.kills.items())),
            continued=controller.ledger.continued,
            restarted=controller.ledger.restarted,
            lost=lost,
            tool_calls_repeated=again,
            rewards_different=different,
            turns_run_twice=run_twice(log) - again,
            sessions_left=left,
        )

    async def _disturbed(self, layout: Layout) -> tuple[Controller, Killer, int]:
        events: asyncio.Queue[Told] = asyncio.Queue()
        supervised = Supervised(layout, self.settings.directory, self.settings.checkpoint_every, events.put_nowait)
        async with http_client() as http, CoordinatorClient(supervised.address(COORDINATOR)) as coordinator:
            urls = [supervised.address(lane.environment) for lane in layout.each_lane()]
            controller = Controller(Outgoing(http, patience=0.0), coordinator, urls, self.settings.concurrency)
            killer = Killer(supervised.pids, self.settings.kill_after, self.settings.seed)
            store = StoreClient(supervised.address(COORDINATOR))
            background = [
                asyncio.create_task(supervised.run()),
                asyncio.create_task(self._hear(events, controller, killer, coordinator, store)),
                asyncio.create_task(killer.run()),
            ]
            try:
                playing = asyncio.create_task(controller.play(self.rollouts))
                await asyncio.wait({playing, *background}, return_when=asyncio.FIRST_COMPLETED)
                for task in (*background, playing):
                    if task.done():
                        task.result()
                background[2].cancel()
                await controller.clear()
                await asyncio.gather(*self._reading)
                return controller, killer, await self._left(coordinator)
            finally:
                for task in (playing, *background):
                    task.cancel()
                await asyncio.gather(playing, *background, return_exceptions=True)
                await store.close()

    async def _hear(
        self,
        events: asyncio.Queue[Told],
        controller: Controller,
        killer: Killer,
        coordinator: CoordinatorClient,
        store: StoreClient,
    ) -> None:
        while True:
            told = await events.get()
            self._say(told, len(controller.ledger.results))
            killer.hear(told)
            await controller.hear(told)
            if told["event"] == "restored":
                reading = asyncio.create_task(self._read_continuations(told, coordinator, store))
                self._reading.add(reading)

    def _say(self, told: Told, results: int) -> None:
        event = told["event"]
        if event == "checkpoint":
            self._checkpoints += 1
        elif event == "died":
            self.tell(f"{told['server']} died; {results} of {len(self.rollouts)} rollouts have their result")
        elif event == "restored":
            self.tell(f"{len(told['restore']['restored'])} restored, {len(told['restore']['restarted'])} start over")
        elif event == "retired":
            self.tell(f"{len(told['episodes'])} retired, they start over")
        elif event == "trouble":
            self.tell(f"trouble: {told['error']['message']}")

    async def _read_continuations(self, told: Told, coordinator: CoordinatorClient, store: StoreClient) -> None:
        """Which answers the checkpoint held; asked until it is told, since the coordinator may be killed meanwhile."""
        restore = told["restore"]
        while True:
            try:
                page = await coordinator.get_checkpoint(restore["checkpoint_id"], page_size=1)
                standings = (await read_cut(store, page.checkpoint.manifest)).standings
            except GymckptError:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            break
        for target in restore["restored"]:
            source, continued = Episode.parse(target["source"]), Episode.parse(target["target"])
            answered = frozenset(item["call_id"] for item in outputs(standings[source].items))
            self._continuations.append(Continuation(continued.rollout_id, continued.attempt, answered))

    async def _left(self, coordinator: CoordinatorClient) -> int:
        """Sessions that outlived their rollouts, those of policy models aside, and results: asked until every member has answered."""
        while True:
            try:
                members = await coordinator.explain_blockers()
            except GymckptError:
                members = ()
            if members and all(member.report is not None for member in members):
                return sum(
                    member.report.counts["sessions"] + member.report.counts.get("results", 0)
                    for member in members
                    if member.report is not None and not str(member.participant.id).startswith("model/")
                )
            await asyncio.sleep(RETRY_SECONDS)

    async def _undisturbed(self) -> Mapping[str, Result]:
        async with lived(self.layout("undisturbed", None), Fleet(self.settings.directory / "undisturbed")) as life:
            free = asyncio.Semaphore(self.settings.concurrency)

            async def one(rollout: Rollout) -> None:
                async with free:
                    await life.players.play(rollout)

            await asyncio.gather(*(one(rollout) for rollout in self.rollouts))
            return life.players.results

    def layout(self, name: str, store: Path | None) -> Layout:
        """The fleet; without a store checkpointing is off."""
        settings, directory = self.settings, self.settings.directory
        return Layout(
            tasks=self._tasks_file,
            log=directory / f"{name}.jsonl",
            ledger=directory / f"{name}-ledger.sqlite",
            store=store,
            tables=settings.tasks.tables_directory,
            latency=settings.latency,
            seed=settings.seed,
            lanes=settings.lanes,
        )
