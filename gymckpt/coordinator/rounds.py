"""One round at a time: who holds the place, and how a round begins."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from gymckpt.coordinator.checkpoint import CheckpointTask
from gymckpt.coordinator.context import Context
from gymckpt.coordinator.opening import open_checkpoint, open_restore
from gymckpt.coordinator.restore import RestoreTask
from gymckpt.coordinator.results import acknowledge
from gymckpt.coordinator.retire import retire
from gymckpt.coordinator.values import Settings
from gymckpt.core.arguments import CheckpointArguments, RestoreArguments
from gymckpt.core.ids import Episode
from gymckpt.core.results import Acknowledgement
from gymckpt.errors import Conflict, TransportFailed

ENDED_KEPT = 64
RETIRE = "retire"

log = logging.getLogger(__name__)

T = TypeVar("T")


class Rounds:
    """`checkpoints` and `restores` hold what runs and what ended lately, by round id."""

    def __init__(self, settings: Settings) -> None:
        self.checkpoints: dict[str, CheckpointTask] = {}
        self.restores: dict[str, RestoreTask] = {}
        self._settings = settings
        self._begun: CheckpointTask | RestoreTask | None = None
        self._beginning = ""
        self._working: set[asyncio.Task[Any]] = set()
        self._opening: dict[str, asyncio.Task[RestoreTask]] = {}
        self._stopping = False

    def busy(self) -> str:
        """Id of what runs now; empty when nothing does."""
        if self._beginning:
            return self._beginning
        return self._begun.round_id if self._begun is not None and self._begun.open else ""

    def lose(self, boot_id: str, why: str) -> None:
        """A process is known to be dead, perhaps while nothing is asked of it."""
        if isinstance(self._begun, CheckpointTask):
            self._begun.lose(boot_id, why)

    async def begin_checkpoint(self, context: Context, arguments: CheckpointArguments) -> CheckpointTask:
        """Raises Conflict while another round runs, and what open_checkpoint raises."""
        return await self._in_background(self._begin_checkpoint(context, arguments))

    async def begin_restore(self, context: Context, arguments: RestoreArguments) -> RestoreTask:
        """Joins the restore of this id while it is opened, which may take as long as reading all that it needs. Raises Conflict while another round runs, and
        what open_restore raises."""
        opening = self._opening.get(arguments.round_id)
        if opening is None:
            opening = self._opening[arguments.round_id] = self._work(self._begin_restore(context, arguments))
            opening.add_done_callback(lambda _: self._opening.pop(arguments.round_id))
        return await unless_stopped(opening)

    async def retire(self, context: Context, episodes: tuple[Episode, ...], timeout: float) -> None:
        """Raises Conflict while another round holds gates, and what retire raises."""
        await self._in_background(self._retire(context, episodes, timeout))

    async def acknowledge(
        self, context: Context, acknowledgements: Sequence[Acknowledgement], timeout: float
    ) -> tuple[Episode, ...]:
        """Beside any round: members wait for their gates themselves. Raises Conflict when the coordinator stops, and what acknowledge raises."""
        self._check_going_on()
        return await self._in_background(acknowledge(context, acknowledgements, timeout))

    async def finish(self, grace: float) -> None:
        """Begins nothing more, and ends what runs, for at most `grace` seconds: see the rounds' own `finish`. What then still runs is left to the successor."""
        self._stopping = True
        try:
            async with asyncio.timeout(grace):
                end = asyncio.get_running_loop().time() + grace
                if self._working:
                    await asyncio.wait(set(self._working))
                if isinstance(self._begun, RestoreTask):
                    await self._begun.finish()
                elif self._begun is not None and self._begun.open:
                    await self._begun.finish(
                        end - asyncio.get_running_loop().time(), "the coordinator was asked to stop"
                    )
        except TimeoutError:
            log.warning("%s has not ended within %g s: its successor decides", self.busy(), grace)

    async def close(self) -> None:
        """Stops everything without deciding anything."""
        tasks: list[CheckpointTask | RestoreTask] = [*self.checkpoints.values(), *self.restores.values()]
        for work in self._working:
            work.cancel()
        await asyncio.gather(*(task.close() for task in tasks), *self._working, return_exceptions=True)

    def _check_going_on(self) -> None:
        if self._stopping:
            raise Conflict(
                "the coordinator was asked to stop and begins nothing more; ask the next one",
                details={"stopping": "1"},
                retry_after=self._settings.interval,
            )

    def _take_place(self, round_id: str) -> None:
        self._check_going_on()
        busy = self.busy()
        if busy:
            raise Conflict(
                f"{busy!r} is under way; {round_id!r} must wait until it ends",
                details={"holder": busy, "id": round_id},
                retry_after=self._settings.retry_after,
            )
        self._beginning = round_id

    async def _begin_checkpoint(self, context: Context, arguments: CheckpointArguments) -> CheckpointTask:
        self._take_place(arguments.checkpoint_id)
        try:
            await context.registry.close_unused()
            intent, members, gone = await open_checkpoint(context, arguments)
            task = CheckpointTask(context, arguments, intent, members, gone)
            self._begun = self.checkpoints[arguments.checkpoint_id] = task
            self._forget_ended()
            return task
        finally:
            self._beginning = ""

    async def _begin_restore(self, context: Context, arguments: RestoreArguments) -> RestoreTask:
        self._take_place(arguments.round_id)
        try:
            await context.registry.close_unused()
            intent, members = await open_restore(context, arguments)
            task = RestoreTask(context, arguments, intent, [member.link for member in members])
            self._begun = self.restores[arguments.round_id] = task
            self._forget_ended()
            return task
        finally:
            self._beginning = ""

    async def _retire(self, context: Context, episodes: tuple[Episode, ...], timeout: float) -> None:
        """Needs open gates. May run beside an upload: its cut stays as it was taken."""
        self._check_going_on()
        beside = isinstance(self._begun, CheckpointTask) and self._begun.gates_open and not self._beginning
        if not beside:
            self._take_place(RETIRE)
        try:
            await retire(context, [member.link for member in context.registry.members], episodes, timeout)
        finally:
            if not beside:
                self._beginning = ""

    def _forget_ended(self) -> None:
        """The records know those that ended long ago."""
        for tasks in (self.checkpoints, self.restores):
            for round_id in list(tasks)[:-ENDED_KEPT]:
                if not tasks[round_id].open:
                    del tasks[round_id]

    async def _in_background(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs to its end although the caller stops waiting."""
        return await unless_stopped(self._work(work))

    def _work(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._working.add(task)
        task.add_done_callback(self._working.discard)
        return task


async def unless_stopped(work: asyncio.Future[T]) -> T:
    """Its result; whoever waits may go away. Raises TransportFailed when the coordinator stops first."""
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        if work.cancelled():
            raise TransportFailed("the coordinator stops; ask its successor") from None
        raise
