"""The demo itself: rollouts are cut in mid-turn, every process is killed, others continue, and the end is compared with a run that nobody disturbed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gymckpt.coordinator import (
    Checkpoint,
    CheckpointArguments,
    Fate,
    RestoreArguments,
    RestoreTarget,
    ResumePolicy,
)
from servers.demo import compare
from servers.demo.cut import Cut
from servers.demo.fleet import Fleet
from servers.demo.judge import After, Before, Reference, judge, restored
from servers.demo.layout import MODEL, Layout
from servers.demo.life import CoordinatedLife, Life, coordinated, lived
from servers.demo.outcome import Outcome
from servers.demo.rollouts import Rollout, Tasks
from servers.demo.zombies import Attack, Zombie, attack, executed

HOLD_SECONDS = 1.0
"""How long nothing may run between the cut and the crash: a gate that does not hold shows itself in it."""


@dataclass(frozen=True)
class Settings:
    """What to play and on what.

    `checkpoints` are taken on the way to the crash, which comes when the share `depth` of all planned tool calls was executed, and `checkpoints_after` while
    what it stopped is played to its end. `directory` must be empty or new; `instead` is that of the layout of both
    lives that are compared with the undisturbed one. `latency`, and `stagger` between two starts, are in seconds.
    """

    tasks: Tasks
    directory: Path
    rollouts: int = 40
    checkpoints: int = 3
    checkpoints_after: int = 0
    latency: tuple[float, float] = (0.1, 0.5)
    stagger: float = 0.1
    seed: int = 0
    same_ports: bool = False
    lanes: int = 1
    depth: float = 0.6
    instead: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class Demo:
    """`tell` gets one line for each thing that happened."""

    def __init__(self, settings: Settings, tell: Callable[[str], None]) -> None:
        self.settings = settings
        self.tell = tell
        self.rollouts = settings.tasks.rollouts(settings.rollouts)
        self.checkpoints: Sequence[Checkpoint] = ()  # of both lives
        settings.directory.mkdir(parents=True, exist_ok=True)
        self._tasks_file = settings.tasks.write(settings.directory / "tasks.jsonl")

    async def run(self) -> Outcome:
        """Plays all and compares. Raises ServerFailed, NeverCame, GymckptError when it cannot get that far."""
        before = await self._first_life()
        after = await self._second_life(before)
        reference = await self.undisturbed()
        pristine = self.settings.tasks.pristine()
        return judge(self.rollouts, pristine, before, after, reference, len(self.checkpoints))

    # The first life.

    async def _first_life(self) -> Before:
        self.tell(f"starting the servers in {self.settings.directory}")
        async with coordinated(self._layout("disturbed"), self._fleet("first")) as life:
            self.tell(f"{len(self.rollouts)} rollouts begin")
            starting = asyncio.create_task(self._start_all(life))
            try:
                shares = [self.settings.depth * share for share in _steps(self.settings.checkpoints)]
                checkpoints = await self._checkpoints_on_the_way(life, "running", shares)
                await starting
                await self._all_begun(life)
                last, cut = await self._cut_in_mid_turn(life)
            finally:
                starting.cancel()
            await asyncio.sleep(HOLD_SECONDS)
            ports = {name: life.fleet.port(name) for name in life.fleet.servers}
            await life.end()
        self.tell(f"every process was killed; {len(life.players.results)} rollouts had finished")
        self._tell_failures(life)
        self.checkpoints = [*checkpoints, last]
        return Before(life.players.results, self.checkpoints, cut, life.turns_waited_for, ports)

    async def _start_all(self, life: Life) -> None:
        for rollout in self.rollouts:
            life.players.start(rollout)
            await asyncio.sleep(self.settings.stagger)

    async def _all_begun(self, life: Life) -> None:
        """A start that met a closed gate was told to come again: it is in flight only once the environment has let it in."""
        wanted = {rollout.rollout_id for rollout in self.rollouts}
        await life.until(
            lambda: wanted == {line["rollout"] for line in life.log() if line["what"] == "run"},
            "the start of all rollouts",
        )

    async def _checkpoints_on_the_way(
        self, life: CoordinatedLife, name: str, shares: Sequence[float]
    ) -> list[Checkpoint]:
        taken = []
        for number, share in enumerate(shares, 1):
            await self._progress(life, share)
            checkpoint, _ = await life.checkpoint(CheckpointArguments(f"{name}-{number}"))
            self.tell(_shown(checkpoint))
            taken.append(checkpoint)
        return taken

    async def _cut_in_mid_turn(self, life: CoordinatedLife) -> tuple[Checkpoint, Cut]:
        """Gates stay closed after it, so that nothing runs between the cut and the crash."""
        await self._progress(life, self.settings.depth)
        checkpoint, cut = await life.checkpoint(CheckpointArguments("mid-turn", resume=ResumePolicy.BY_CALLER))
        self.tell(_shown(checkpoint))
        return checkpoint, cut

    @property
    def _planned(self) -> int:
        return sum(len(rollout.plan) for rollout in self.rollouts)

    async def _progress(self, life: Life, share: float) -> None:
        """Waits until this share of all planned tool calls was executed."""
        wanted = share * self._planned
        await life.until(lambda: len(compare.tool_calls(life.log())) >= wanted, f"the {wanted:.0f}th tool call")

    # The second life.

    async def _second_life(self, before: Before) -> After:
        self.tell("starting all servers anew")
        ports = before.ports if self.settings.same_ports else None
        async with coordinated(self._layout("disturbed"), self._fleet("second"), ports) as life:
            unfinished = [rollout for rollout in self.rollouts if rollout.rollout_id not in before.results]
            targets = await self.restore(life, before, unfinished)
            checkpoint, cut = await life.checkpoint(CheckpointArguments("before-anything-ran", full=True))
            self.tell(_shown(checkpoint))
            attacked = await self._attack(life, before, targets)
            self._continue(life, unfinished, targets)
            done = len(compare.tool_calls(life.log())) / self._planned
            shares = [done + (1 - done) * share for share in _steps(self.settings.checkpoints_after)]
            later = await self._checkpoints_on_the_way(life, "continued", shares)
            self.checkpoints = [*self.checkpoints, checkpoint, *later]
            await life.finish()
            await life.acknowledge()
            self.tell(f"{len(life.players.results)} of {len(unfinished)} unfinished rollouts have finished")
            current = {target.source.rollout_id: target.attempt for target in targets}
            stale = attacked.accepted | executed(life.log(), current, life.fleet.pids.values())
            left = await self._sessions_left(life, targets)
        self._tell_failures(life)
        return After(life.players.results, life.log(), targets, cut, Attack(attacked.tried, stale), left)

    async def restore(
        self, life: CoordinatedLife, before: Before, unfinished: Sequence[Rollout]
    ) -> Sequence[RestoreTarget]:
        """Brings back every unfinished rollout that the last checkpoint holds; returns what became of each."""
        wanted = {rollout.rollout_id for rollout in unfinished}
        episodes = tuple(episode for episode in before.cut.standings if episode.rollout_id in wanted)
        if not episodes:  # which would mean all of them
            return []
        asked = RestoreArguments("after-the-crash", before.checkpoints[-1].checkpoint_id, episodes)
        targets = await life.coordinator.restore(asked)
        self.tell(f"{len(restored(targets))} of {len(unfinished)} unfinished rollouts were restored")
        return targets

    async def _attack(self, life: CoordinatedLife, before: Before, targets: Iterable[RestoreTarget]) -> Attack:
        """The older attempts make their next calls."""
        by_id = {rollout.rollout_id: rollout for rollout in self.rollouts}
        tools = [life.fleet.address(lane.workplace) for lane in life.layout.each_lane()]
        zombies = []
        for source in restored(targets):
            rollout = by_id[source.rollout_id]
            address = tools[rollout.number % len(tools)]
            zombies.append(Zombie(source, rollout, before.cut.standings[source], address))
        made = await attack(life.http, zombies, life.fleet.address(MODEL))
        self.tell(f"{made.tried} calls of older attempts were made, {len(made.accepted)} were accepted")
        return made

    def _continue(self, life: Life, unfinished: Iterable[Rollout], targets: Iterable[RestoreTarget]) -> None:
        """Starts the next attempt of every unfinished rollout; one that the checkpoint does not name starts over too."""
        found = {target.source.rollout_id: target for target in targets}
        for rollout in unfinished:
            target = found.get(rollout.rollout_id)
            attempt = target.attempt if target is not None else 1
            life.players.start(rollout, attempt, continues=target is not None and target.fate is Fate.RESTORED)

    async def _sessions_left(self, life: CoordinatedLife, targets: Iterable[RestoreTarget]) -> int:
        """Sessions that outlived their rollout. The model server keeps the calls of a finished rollout until it is retired."""
        kept = await life.sessions()
        left = sum(count for participant, count in kept.items() if not participant.startswith("model/"))
        finished = [target.target for target in targets if target.source.rollout_id in life.players.results]
        if finished:
            await life.retire(finished)
        return left + sum((await life.sessions()).values())

    # The reference, and the end.

    async def undisturbed(self) -> Reference:
        """The same rollouts on servers that know no checkpoints and that nobody kills."""
        self.tell("playing the same rollouts without a crash")
        async with lived(self._layout("undisturbed", coordinated=False), self._fleet("undisturbed")) as life:
            await self._start_all(life)
            await life.finish()
        self._tell_failures(life)
        return Reference(life.players.results, life.log())

    def _tell_failures(self, life: Life) -> None:
        for rollout, why in life.players.failed.items():
            self.tell(f"rollout {rollout} failed: {why}")

    def _layout(self, name: str, *, coordinated: bool = True) -> Layout:
        settings, directory = self.settings, self.settings.directory
        return Layout(
            tasks=self._tasks_file,
            log=directory / f"{name}.jsonl",
            store=directory / "store" if coordinated else None,
            ledger=directory / f"{name}-ledger.sqlite",
            tables=settings.tasks.tables_directory,
            latency=settings.latency,
            seed=settings.seed,
            instead=settings.instead if coordinated else {},
            lanes=settings.lanes,
        )

    def _fleet(self, name: str) -> Fleet:
        return Fleet(self.settings.directory / name)


def _steps(count: int) -> list[float]:
    """So many shares, evenly between none and all."""
    return [number / (count + 1) for number in range(1, count + 1)]


def _shown(checkpoint: Checkpoint) -> str:
    times = f"prepared in {checkpoint.prepare_seconds * 1e3:.0f} ms"
    if checkpoint.waited_for:
        times += f" (waited for {checkpoint.waited_for})"
    if checkpoint.pause_seconds:
        times += f", paused for {checkpoint.pause_seconds * 1e3:.0f} ms"
    sent = f"{checkpoint.blobs_sent} blobs, {checkpoint.bytes_sent / 1e3:.0f} kB sent"
    return f"checkpoint {checkpoint.checkpoint_id}: {checkpoint.episodes} episodes, {times}, {sent}"
