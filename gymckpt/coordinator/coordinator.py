"""The coordinator: one round at a time, joined by whoever asks for the same, and never stopped by a caller who goes away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Sequence

from gymckpt.coordinator import catalog, keeping
from gymckpt.coordinator.checkpoint import CheckpointTask
from gymckpt.coordinator.context import Context
from gymckpt.coordinator.faults import Faults
from gymckpt.coordinator.members.link import Lost, Refusal
from gymckpt.coordinator.members.registry import Member, Registry
from gymckpt.coordinator.recovery import explain_recovery
from gymckpt.coordinator.restore import restore_aborted
from gymckpt.coordinator.results import list_results
from gymckpt.coordinator.rounds import Rounds, unless_stopped
from gymckpt.coordinator.takeover import Awaited, take_over
from gymckpt.coordinator.values import (
    Checkpoint,
    CheckpointPage,
    CheckpointProgress,
    MemberReport,
    Membership,
    MemberStatus,
    Registration,
    RestoreProgress,
    RestoreStage,
    Settings,
)
from gymckpt.core.arguments import (
    CheckpointArguments,
    RestoreArguments,
    check_checkpoint_id,
    check_episodes,
    check_same,
)
from gymckpt.core.decisions import outcome
from gymckpt.core.ids import Episode, ParticipantId
from gymckpt.core.manifest import Decision, ParticipantInfo, RestoreIntent
from gymckpt.core.recovery import Recovery
from gymckpt.core.report import LostEpisode
from gymckpt.core.results import Acknowledgement, FinishedResult
from gymckpt.core.standing import Stage
from gymckpt.core.transitions import Holdings
from gymckpt.errors import (
    CheckpointAborted,
    Conflict,
    InvalidPhase,
    ParticipantLost,
)
from gymckpt.store.interface import ArtifactStore

START_SECONDS = 1.0  # a take-over takes longer only when it waits for somebody, which a caller must be told


class Coordinator:
    """Owns one epoch from `start` to `stop`. Every method waits a while for the take-over to be done, then raises CoordinatorStarting; once a newer coordinator
    exists, StaleEpoch."""

    def __init__(
        self,
        store: ArtifactStore,
        *,
        expected: Iterable[ParticipantId] = (),
        gone: Collection[str] = (),
        settings: Settings | None = None,
        faults: Faults | None = None,
    ) -> None:
        self._store = store
        self._registry = Registry(expected)
        self._gone = gone
        self._settings = settings or Settings()
        self._faults = faults or Faults()
        self._awaited = Awaited()
        self._started: asyncio.Future[Context] = asyncio.get_running_loop().create_future()
        self._rounds = Rounds(self._settings)
        self._deleting = asyncio.Lock()

    async def start(self) -> None:
        """Takes over from whoever coordinated before."""
        self._started.set_result(
            await take_over(self._store, self._registry, self._settings, self._faults, self._gone, self._awaited)
        )

    async def finish(self, grace: float) -> None:
        """Before `stop`: begins nothing more. Within `grace` seconds a checkpoint past its cut is published, any other aborted, a restore ends; gates open."""
        if self._started.done() and not self._started.cancelled():
            await self._rounds.finish(grace)

    async def stop(self) -> None:
        """Stops without deciding anything; a successor does."""
        self._started.cancel()
        await self._rounds.close()
        await self._registry.close()

    async def _context(self) -> Context:
        await asyncio.wait({self._started}, timeout=START_SECONDS)
        if not self._started.done():
            raise self._awaited.starting(self._settings.retry_after)
        context = await unless_stopped(self._started)
        if context.records.superseded is not None:
            raise context.records.superseded
        return context

    # --- members ---

    async def register(self, info: ParticipantInfo, holds: Holdings, lost: Sequence[LostEpisode] = ()) -> Registration:
        """A process announces itself. It is admitted unless a round runs that it is not part of. Raises StaleBoot."""
        context = await self._context()
        before = {
            member.info.id: member.info.boot_id
            for member in self._registry.members
            if member.info.worker == info.worker
        }
        member = self._registry.register(info, holds, lost, context.now(), admit=self._rounds.busy() == "")
        replaced = before.get(info.id, info.boot_id)
        if replaced != info.boot_id:
            self._rounds.lose(replaced, f"boot {replaced} was replaced by boot {info.boot_id}")
        return Registration(context.records.epoch, member.admitted, self._settings.interval)

    async def membership(self) -> Membership:
        """Who is here and who is missing."""
        context = await self._context()
        members = tuple(
            MemberStatus(member.info, member.holds, max(0.0, context.now() - member.heard), member.lost)
            for member in self._registry.members
        )
        return Membership(context.records.epoch, members, self._registry.missing)

    async def explain(self) -> tuple[MemberReport, ...]:
        """What would block a cut now, holds a gate, or is lost, from every member; changes nothing."""
        await self._context()
        return tuple(await asyncio.gather(*(self._report(member) for member in self._registry.members)))

    async def _report(self, member: Member) -> MemberReport:
        status = await member.link.status(timeout=self._settings.patience)
        if isinstance(status, Lost):
            return MemberReport(member.info, None, status.why)
        if isinstance(status, Refusal):
            return MemberReport(member.info, None, status.error.message)
        return MemberReport(status.info, status.report, holds=status.holds, lost=status.lost)

    async def explain_recovery(self) -> Recovery:
        """What would go on if every process died now, and what some deaths have cost; changes nothing. Raises BlobNotFound, DamagedBlob."""
        return await explain_recovery(await self._context())

    # --- checkpoints ---

    async def create(self, arguments: CheckpointArguments) -> AsyncIterator[CheckpointProgress]:
        """Takes a checkpoint, or joins it; ends with PUBLISHED or HELD. Raises what CreateCheckpoint says."""
        context = await self._context()
        checkpoint_id = arguments.checkpoint_id
        task = self._rounds.checkpoints.get(checkpoint_id)
        intent = context.records.intents.get(checkpoint_id)
        if task is None and await context.records.decision(checkpoint_id) is not None:
            context.records.check_not_deleted(checkpoint_id)
            if intent is not None:
                check_same(checkpoint_id, intent.arguments, arguments.digest)
            yield CheckpointProgress(_published(await catalog.ended_checkpoint(context.records, checkpoint_id)))
            return
        if task is None:
            task = await self._rounds.begin_checkpoint(context, arguments)
        check_same(checkpoint_id, task.intent.arguments, arguments.digest)
        task.go_on()
        async for progress in self._follow(task):
            yield progress
            if progress.checkpoint.stage is Stage.HELD and task.machine.failure is None:
                return
        if task.machine.failure is not None:
            raise task.machine.failure

    async def watch(self, checkpoint_id: str) -> AsyncIterator[CheckpointProgress]:
        """Progress of a checkpoint to its end. Raises CheckpointNotFound."""
        context = await self._context()
        task = self._rounds.checkpoints.get(check_checkpoint_id(checkpoint_id))
        if task is None:
            yield CheckpointProgress(await catalog.ended_checkpoint(context.records, checkpoint_id))
            return
        async for progress in self._follow(task):
            yield progress

    async def get(self, checkpoint_id: str, size: int = 1000, token: str = "") -> CheckpointPage:
        """A checkpoint with a page of its episodes. Raises CheckpointNotFound; BlobNotFound or DamagedBlob when its manifest cannot be read."""
        context = await self._context()
        checkpoint = await self._checkpoint(context, catalog.resolve(context.records, checkpoint_id))
        return await catalog.read_page(context.records, checkpoint, size, token)

    async def list(self, size: int = 100, token: str = "") -> tuple[tuple[Checkpoint, ...], str]:
        """A page of all checkpoints, newest first, and the token of the next."""
        context = await self._context()
        ids, start = catalog.newest_first(context.records), catalog.page_start(token)
        page = [await self._checkpoint(context, name) for name in ids[start : start + size]]
        return tuple(page), catalog.next_token(start, size, len(ids))

    async def resume(self, checkpoint_id: str) -> Checkpoint:
        """Opens the gates. Raises CheckpointNotFound, InvalidPhase, ParticipantLost naming every member that did not answer."""
        context = await self._context()
        task = self._rounds.checkpoints.get(check_checkpoint_id(checkpoint_id))
        if task is None or not task.open:
            return await self._checkpoint(context, checkpoint_id)
        task.resume()
        checkpoint = await task.until(lambda: task.machine.gates_open)
        silent = {s.name: s.trouble for s in task.machine.standings.values() if s.trouble}
        if silent:
            said = "; ".join(f"{name}: {why}" for name, why in silent.items())
            raise ParticipantLost(
                f"all others are open, but {said}; a gate that was not reached opens when its lease ends",
                details={"participants": ",".join(silent)},
            )
        return checkpoint

    async def abort(self, checkpoint_id: str, why: str = "") -> Checkpoint:
        """Ends a checkpoint at once, whatever it is doing; answers what was decided."""
        context = await self._context()
        check_checkpoint_id(checkpoint_id)
        if checkpoint_id not in self._rounds.checkpoints:
            await context.records.decide(checkpoint_id, Decision(None, why or "a caller asked for it"))
        task = self._rounds.checkpoints.get(checkpoint_id)
        if task is None or not task.open:
            return await self._checkpoint(context, checkpoint_id)
        task.abort(why)
        return await task.until(lambda: task.machine.ended)

    async def renew(self, checkpoint_id: str, gate_lease: float = 0.0, export_lease: float = 0.0) -> None:
        """Restarts the leases of an open checkpoint; zero keeps a length. Raises CheckpointNotFound, InvalidPhase, ParticipantLost."""
        context = await self._context()
        task = self._rounds.checkpoints.get(check_checkpoint_id(checkpoint_id))
        if task is None or not task.open:
            stage = (await self._checkpoint(context, checkpoint_id)).stage
            raise InvalidPhase(f"checkpoint {checkpoint_id!r} has ended ({stage.name}); there is nothing to renew")
        await task.renew(gate_lease, export_lease)

    async def pin(self, checkpoint_id: str, holder: str, *, release: bool = False) -> str:
        """Keeps a published checkpoint for `holder`, or no longer; returns its id. Raises CheckpointNotFound."""
        return await keeping.pin((await self._context()).records, checkpoint_id, holder, release=release)

    async def delete(self, checkpoint_id: str) -> None:
        """Takes a published checkpoint away for good. Raises CheckpointNotFound; Conflict while it is pinned, or its own round has not ended."""
        context = await self._context()
        task = self._rounds.checkpoints.get(check_checkpoint_id(checkpoint_id))
        if task is not None and task.open:
            raise Conflict(
                f"the round of checkpoint {checkpoint_id!r} has not ended; delete it afterwards",
                details={"holder": checkpoint_id, "checkpoint_id": checkpoint_id},
                retry_after=self._settings.retry_after,
            )
        async with self._deleting:
            await keeping.delete(context.records, checkpoint_id)
        self._rounds.checkpoints.pop(checkpoint_id, None)

    # --- restores and retires ---

    async def restore(self, arguments: RestoreArguments) -> AsyncIterator[RestoreProgress]:
        """Restores episodes, or joins the restore; ends with RESTORED and the outcome. Raises what RestoreCheckpoint says."""
        context = await self._context()
        records, round_id = context.records, arguments.round_id
        task = self._rounds.restores.get(round_id)
        intent = records.restores.get(round_id)
        if task is None and intent is not None:
            check_same(round_id, intent.arguments, arguments.digest)
            yield _ended_restore(round_id, intent, await records.decision(round_id))
            return
        if task is None:
            task = await self._rounds.begin_restore(context, arguments)
        check_same(round_id, task.intent.arguments, arguments.digest)
        async for progress in task.progress.follow():
            if task.failure is None:
                yield progress
        if task.failure is not None:
            raise task.failure
        task.check_running()

    async def retire(self, episodes: tuple[Episode, ...], timeout: float = 0.0) -> None:
        """Stops attempts everywhere and refuses them from then on. Raises Conflict, DeadlineExceeded, ParticipantLost."""
        context = await self._context()
        episodes = check_episodes(episodes, required=True)
        await self._rounds.retire(context, episodes, timeout or self._settings.retire_timeout)

    # --- results ---

    async def results(
        self, size: int, after: Episode | None = None
    ) -> tuple[tuple[FinishedResult, ...], Episode | None]:
        """The results of at most `size` episodes behind `after`, and the episode to go on behind. Raises ParticipantLost, StoreUnavailable, StoreFull."""
        return await list_results(await self._context(), size, after)

    async def acknowledge(
        self, acknowledgements: Sequence[Acknowledgement], timeout: float = 0.0
    ) -> tuple[Episode, ...]:
        """Frees results by exact receipt; returns the episodes of which nothing is kept.

        Raises ReceiptMismatch, Conflict, DeadlineExceeded, ParticipantLost.
        """
        context = await self._context()
        return await self._rounds.acknowledge(context, acknowledgements, timeout or self._settings.retire_timeout)

    # --- how ---

    async def _follow(self, task: CheckpointTask) -> AsyncIterator[CheckpointProgress]:
        """Each new progress once, to the end; while a caller holds the gates, to the decision."""
        told: CheckpointProgress | None = None
        async for _ in task.progress.follow():
            progress, settled = task.current(), task.machine.settled
            if progress != told:
                told = progress
                yield progress
            if settled:
                break
        task.check_running()

    async def _checkpoint(self, context: Context, checkpoint_id: str) -> Checkpoint:
        task = self._rounds.checkpoints.get(checkpoint_id)
        return (
            task.progress.value.checkpoint if task else await catalog.listed_checkpoint(context.records, checkpoint_id)
        )


def _published(checkpoint: Checkpoint) -> Checkpoint:
    if checkpoint.stage is not Stage.PUBLISHED:
        raise CheckpointAborted(
            f"checkpoint {checkpoint.checkpoint_id!r} was aborted: {checkpoint.why_aborted}; take a new one",
            details={"checkpoint_id": checkpoint.checkpoint_id, "why": checkpoint.why_aborted},
        )
    return checkpoint


def _ended_restore(round_id: str, intent: RestoreIntent, decision: Decision | None) -> RestoreProgress:
    """The outcome of a restore that another coordinator began. Raises RestoreAborted."""
    if decision is None or not decision.published:
        raise restore_aborted(round_id, intent, decision.why if decision else "its coordinator was succeeded")
    everyone = len(intent.members)
    return RestoreProgress(RestoreStage.RESTORED, intent.checkpoint_id, everyone, everyone, outcome(intent, decision))
