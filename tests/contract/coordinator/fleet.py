"""A coordinator with a store in memory, and participants that play along."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

from gymckpt.coordinator import (
    Checkpoint,
    CheckpointArguments,
    CheckpointProgress,
    CoordinatorClient,
    CoordinatorServer,
    Faults,
    Settings,
    Stage,
    serve,
)
from gymckpt.core.ids import ParticipantId
from gymckpt.core.kinds import GateState, Kind
from gymckpt.core.transitions import Transition
from gymckpt.errors import GymckptError
from gymckpt.store import Backend
from tests.contract.coordinator.fake import FakeParticipant, Told

SETTINGS = Settings(interval=1.0, patience=1.0, retry_after=0.1, restore_lease=30.0, retire_timeout=1.0)


class KillAt(Faults):
    """Stops the coordinator for ever at one point; `reached` tells the test."""

    def __init__(self, point: str) -> None:
        self.point = point
        self.reached = asyncio.Event()

    async def reach(self, point: str) -> None:
        if point == self.point:
            self.reached.set()
            await asyncio.Event().wait()


class Fleet:
    """The store and the participants, and whichever coordinator runs."""

    def __init__(self, stack: AsyncExitStack, store: Backend) -> None:
        self.stack = stack
        self.store = store
        self.told = Told()
        self.participants: dict[Kind, FakeParticipant] = {}
        self.client: CoordinatorClient
        self.server: CoordinatorServer

    def __getitem__(self, kind: Kind) -> FakeParticipant:
        return self.participants[kind]

    @property
    def log(self) -> list[tuple[str, Transition]]:
        """Every transition that came, with who got it."""
        return self.told.told

    @property
    def all(self) -> list[FakeParticipant]:
        return list(self.participants.values())

    async def add(self, kind: Kind, name: str = "x", listen: str = "127.0.0.1:0") -> FakeParticipant:
        """A new process, also in place of a dead one."""
        participant = await FakeParticipant(kind, name, self.store, self.told).start(listen)
        self.stack.push_async_callback(participant.die)
        self.participants[kind] = participant
        return participant

    async def coordinate(
        self,
        *,
        faults: Faults | None = None,
        settings: Settings = SETTINGS,
        expected: tuple[ParticipantId, ...] = (),
        gone: tuple[str, ...] = (),
    ) -> CoordinatorClient:
        """Starts a coordinator, in place of an older one."""
        self.server = await serve(self.store, faults=faults, settings=settings, expected=expected, gone=gone)
        self.stack.push_async_callback(self.server.stop)
        self.client = await self.stack.enter_async_context(CoordinatorClient(self.server.address))
        return self.client

    async def register(self, *participants: FakeParticipant) -> None:
        for participant in participants or self.all:
            await self.client.register(participant.info, participant.holds, participant.lost)

    async def checkpoint(self, arguments: CheckpointArguments | str) -> Checkpoint:
        if isinstance(arguments, str):
            arguments = CheckpointArguments(arguments)
        return await self.client.checkpoint(arguments)

    def kinds_told(self, transition: type) -> list[str]:
        """Kinds in the order in which they were told."""
        return [name.partition("/")[0] for name, step in self.log if isinstance(step, transition)]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Waits for what the participants are told and hold."""
        await self.told.until(condition)

    def gates(self) -> set[GateState]:
        return {participant.gate for participant in self.all}

    async def names(self, prefix: str) -> list[str]:
        return [entry.name for entry in await self.store.list_names(prefix)]


class Following:
    """A streaming call that runs while the test does something else."""

    def __init__(self, stream: AsyncIterator[CheckpointProgress]) -> None:
        self.seen: list[CheckpointProgress] = []
        self._news = asyncio.Condition()
        self.error: GymckptError | None = None
        self.task = asyncio.create_task(self._run(stream))

    async def _run(self, stream: AsyncIterator[CheckpointProgress]) -> None:
        try:
            async for progress in stream:
                async with self._news:
                    self.seen.append(progress)
                    self._news.notify_all()
        except GymckptError as error:
            self.error = error
        async with self._news:
            self._news.notify_all()

    async def until(self, wanted: Callable[[CheckpointProgress], bool]) -> CheckpointProgress:
        async with asyncio.timeout(10), self._news:
            await self._news.wait_for(lambda: any(map(wanted, self.seen)) or self.task.done())
        return next(filter(wanted, self.seen))

    async def until_stage(self, stage: Stage) -> CheckpointProgress:
        return await self.until(lambda progress: progress.checkpoint.stage is stage)

    async def end(self) -> GymckptError | None:
        async with asyncio.timeout(20):
            await self.task
        return self.error
