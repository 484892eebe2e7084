"""The supervisor: whenever a server died, and all are back, what it held is restored from the latest checkpoint while everybody else goes on."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from gymckpt.coordinator import (
    Checkpoint,
    CheckpointArguments,
    CoordinatorClient,
    Membership,
    OnUnloadable,
    RestoreArguments,
    RestoreProgress,
    ResumePolicy,
)
from gymckpt.coordinator.older import delete_older
from gymckpt.core.ids import Episode, ParticipantId
from gymckpt.errors import (
    BlobNotFound,
    Conflict,
    CoordinatorStarting,
    CutVoid,
    DamagedBlob,
    GymckptError,
    MemberMissing,
    MissingBlobs,
)
from gymckpt.supervisor.config import Config, Program
from gymckpt.supervisor.keeper import Keeper

LOOK_SECONDS = 0.2
RETRY_SECONDS = 0.5
TOLD_EVERY = 10.0
LOST_LOOKS = 5  # an episode is retired once it was lost for so many looks
HELD_SECONDS = 60.0  # how long gates stay closed after the last checkpoint while servers end

log = logging.getLogger("gymckpt.supervisor")


@dataclass(frozen=True, slots=True)
class Event:
    """`kind` and what it is about:

    started, died      `program`, `pid` or `status`
    checkpoint         `checkpoint`, published
    restored           `restore` under `restore_id`: attempts that may start now
    retired            `episodes` whose state is gone and in no checkpoint: they start over
    whole              all servers are there, and nothing that can be restored is missing
    trouble            `error`: something is tried again
    """

    kind: str
    program: str = ""
    pid: int = 0
    status: int = 0
    checkpoint: Checkpoint | None = None
    restore: RestoreProgress | None = None
    restore_id: str = ""
    episodes: tuple[Episode, ...] = ()
    error: GymckptError | None = None


class Supervisor:
    """`tell` hears every event, in order."""

    def __init__(self, config: Config, tell: Callable[[Event], None]) -> None:
        self._config = config
        self._tell = tell
        self._keepers = [
            Keeper(program, config.restart_after, self._on_start, self._on_death) for program in config.programs
        ]
        self._boots: dict[ParticipantId, str] = {}  # the process seen last
        self._dead: set[str] = set()  # boots that are known to have ended
        self._broken = asyncio.Event()
        self._broken.set()  # a first start restores what the latest checkpoint holds
        self._round = asyncio.Lock()  # checkpoints and recoveries, one at a time
        self._kept: set[str] = set()  # older checkpoints that could not be deleted
        self._full = False  # whether the next checkpoint reuses nothing
        self._lost: dict[Episode, int] = {}
        self._retired: set[Episode] = set()  # members may name them for a while yet

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop`; then takes a last checkpoint with gates that stay closed, and ends the servers.

        Raises InvalidField when a command cannot be started; the servers are ended first.
        """
        async with (
            CoordinatorClient(self._config.coordinator) as client,
            _together(keeper.keep() for keeper in self._keepers) as keeping,
        ):
            working = [self._recover(client), self._retire_lost(client), self._take_checkpoints(client)]
            async with _together(working) as tasks:
                stopping = asyncio.create_task(stop.wait())
                done, _ = await asyncio.wait({stopping, *keeping, *tasks}, return_when=asyncio.FIRST_COMPLETED)
                stopping.cancel()
            try:
                for task in done - {stopping}:
                    task.result()
                await self._last_checkpoint(client)
            finally:
                within = self._config.stop_within
                await asyncio.gather(*(keeper.stop(within) for keeper in reversed(self._keepers)))

    @property
    def pids(self) -> dict[str, int]:
        """Process id by name, of the servers that run."""
        return {keeper.program.name: keeper.pid for keeper in self._keepers if keeper.pid is not None}

    def _on_start(self, program: Program, pid: int) -> None:
        self._tell(Event("started", program.name, pid=pid))

    def _on_death(self, program: Program, status: int) -> None:
        if program.participant is not None and program.participant in self._boots:
            self._dead.add(self._boots[program.participant])
        self._broken.set()
        self._tell(Event("died", program.name, status=status))

    # --- recovery ---

    async def _recover(self, client: CoordinatorClient) -> None:
        while True:
            await self._broken.wait()
            async with self._round:
                self._broken.clear()
                try:
                    await self._all_here(client)
                    await self._restore_lost_state(client)
                except GymckptError as error:
                    self._trouble("recovering", error)
                    self._broken.set()
                    await asyncio.sleep(error.retry_after or RETRY_SECONDS)
                    continue
            if not self._broken.is_set():
                self._tell(Event("whole"))

    async def _all_here(self, client: CoordinatorClient) -> None:
        """Returns once each participant of the file is a member with a process that is not known to have ended."""
        wanted = {program.participant for program in self._config.programs if program.participant is not None}
        loop = asyncio.get_running_loop()
        tell_at = loop.time() + TOLD_EVERY
        while True:
            here: set[ParticipantId] = set()
            why: GymckptError | None = None
            try:
                here = self._seen(await client.participants())
            except GymckptError as error:  # the coordinator may be one of those that start
                why = error if isinstance(error, CoordinatorStarting) else None
            if wanted <= here:
                return
            if loop.time() >= tell_at:
                tell_at += TOLD_EVERY
                names = ", ".join(sorted(map(str, wanted - here)))
                self._trouble("waiting", why or MemberMissing(f"{names} did not register yet; see what they say"))
            await asyncio.sleep(LOOK_SECONDS)

    def _seen(self, membership: Membership) -> set[ParticipantId]:
        found = set()
        for member in membership.members:
            participant, boot_id = member.participant.id, member.participant.boot_id
            if boot_id not in self._dead:
                self._boots[participant] = boot_id
                found.add(participant)
        return found

    async def _restore_lost_state(self, client: CoordinatorClient) -> None:
        """Raises GymckptError when it did not come to an end: then it is tried anew, with whatever is lost by then."""
        recovery = await client.explain_recovery()
        episodes = tuple(trouble.restore for trouble in recovery.troubles if trouble.restore is not None)
        if not episodes:
            return
        arguments = RestoreArguments(
            _fresh_id("supervisor"), recovery.checkpoint_id, episodes, on_unloadable=OnUnloadable.RESTART
        )
        try:
            progress = [progress async for progress in client.restore_checkpoint(arguments)]
        except (BlobNotFound, DamagedBlob) as error:
            self._trouble("restoring", error)
            named = error.details.get("rollouts", "").split(",")
            hit = tuple(episode for episode in episodes if episode.rollout_id in named)
            await self._start_over(client, hit or episodes)
            self._broken.set()  # all others are restored without them
        else:
            self._tell(Event("restored", restore=progress[-1], restore_id=arguments.restore_id))

    async def _start_over(self, client: CoordinatorClient, unreadable: tuple[Episode, ...]) -> None:
        """No restore of what the store has lost will ever succeed: its rollouts go on from their input, as the attempt after the one that was given last."""
        troubles = (await client.explain_recovery()).troubles
        given = tuple(trouble.episode for trouble in troubles if trouble.restore in unreadable)
        await client.retire_episodes(given)
        self._tell(Event("retired", episodes=given))

    async def _retire_lost(self, client: CoordinatorClient) -> None:
        """Calls for state that is gone and in no checkpoint are held for ever: their episodes are stopped, so that they can start over."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self._round.locked() or self._broken.is_set():
                continue
            try:
                membership = await client.participants()
                self._seen(membership)
                lost = {entry.episode for member in membership.members for entry in member.lost} - self._retired
                self._lost = {episode: self._lost.get(episode, 0) + 1 for episode in lost}
                due = sorted(episode for episode, looks in self._lost.items() if looks >= LOST_LOOKS)
                if due and not self._round.locked() and not self._broken.is_set():
                    await client.retire_episodes(due)
                    self._retired.update(due)
                    self._tell(Event("retired", episodes=tuple(due)))
            except GymckptError as error:
                self._trouble("retiring lost episodes", error)
                await asyncio.sleep(error.retry_after or RETRY_SECONDS)

    # --- checkpoints ---

    async def _take_checkpoints(self, client: CoordinatorClient) -> None:
        if not self._config.checkpoint_every:
            await asyncio.Event().wait()
        while True:
            await asyncio.sleep(self._config.checkpoint_every)
            async with self._round:
                # A checkpoint after a death and before the restore would be the latest without what died.
                if not self._broken.is_set():
                    await self._checkpoint(client)

    async def _checkpoint(self, client: CoordinatorClient) -> None:
        """What the last one was to reuse may be damaged: then everything is sent again, as long as its servers still hold it."""
        arguments = CheckpointArguments(_fresh_id("every"), full=self._full)
        try:
            self._tell(Event("checkpoint", checkpoint=await client.checkpoint(arguments)))
            self._full = False
            await self._let_go(client)
        except GymckptError as error:
            self._full = self._full or isinstance(error, CutVoid | MissingBlobs)
            self._trouble(f"checkpoint {arguments.checkpoint_id}", error)

    async def _last_checkpoint(self, client: CoordinatorClient) -> None:
        """Nothing runs after it that is not in it. A round that is still under way is waited for."""
        if not self._config.checkpoint_every or self._broken.is_set():
            return
        within = max(self._config.stop_within, RETRY_SECONDS)
        stays_closed = CheckpointArguments(
            _fresh_id("last"), resume=ResumePolicy.BY_CALLER, gate_lease=HELD_SECONDS, prepare_timeout=within
        )
        until = asyncio.get_running_loop().time() + within
        while True:
            try:
                self._tell(Event("checkpoint", checkpoint=await client.checkpoint(stays_closed)))
                await self._let_go(client)
            except Conflict as error:
                if asyncio.get_running_loop().time() < until:
                    await asyncio.sleep(error.retry_after or LOOK_SECONDS)
                    continue
                self._trouble("the last checkpoint", error)
            except GymckptError as error:
                self._trouble("the last checkpoint", error)
            return

    async def _let_go(self, client: CoordinatorClient) -> None:
        """Of the checkpoints beyond those to keep; says once why one is not deleted. Raises GymckptError."""
        if self._config.keep:
            _, kept = await delete_older(client, self._config.keep)
            for checkpoint_id, why in kept:
                if checkpoint_id not in self._kept:
                    log.warning("not deleted: %s", why)
            self._kept = {checkpoint_id for checkpoint_id, _ in kept}

    def _trouble(self, doing: str, error: GymckptError) -> None:
        log.warning("%s: %s", doing, error.message)
        self._tell(Event("trouble", error=error))


@contextlib.asynccontextmanager
async def _together(work: Iterable[Any]) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Tasks that are cancelled at the end, unless they have ended."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _fresh_id(word: str) -> str:
    return f"{word}-{datetime.datetime.now(datetime.UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"
