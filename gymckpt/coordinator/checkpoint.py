"""The shell around one checkpoint round: it sends what is due, tells the machine what came of it, and writes what it decides."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from gymckpt.coordinator.context import Context, accident, send, troubles
from gymckpt.coordinator.members.link import Lost, Outcome, Refusal
from gymckpt.coordinator.members.registry import Member
from gymckpt.coordinator.progress import Progress
from gymckpt.coordinator.values import Checkpoint, CheckpointProgress, MemberReport
from gymckpt.core.arguments import CheckpointArguments
from gymckpt.core.decisions import Cut, assemble
from gymckpt.core.ids import Episode, Fence
from gymckpt.core.manifest import CheckpointManifest, Decision, Intent, ParticipantEntry
from gymckpt.core.orders import Order
from gymckpt.core.report import LostEpisode, Report
from gymckpt.core.round import CheckpointRound, Decide
from gymckpt.core.standing import Gate, Stage
from gymckpt.errors import (
    CheckpointAborted,
    GymckptError,
    ParticipantLost,
    StaleEpoch,
    StoreFull,
    StoreUnavailable,
    TransportFailed,
)

STORE_RETRY_SECONDS = 0.5
PUBLISHING_SHARE = 0.8  # of the time that is left before the coordinator stops; the rest is for aborting
QUIET_SECONDS = 0.5  # a member that takes longer to become ready is asked why

log = logging.getLogger(__name__)

T = TypeVar("T")


class CheckpointTask:
    """Runs in tasks of its own: whoever asks for it or follows it may go away."""

    def __init__(
        self,
        context: Context,
        arguments: CheckpointArguments,
        intent: Intent,
        members: Sequence[Member],
        gone: Mapping[Episode, LostEpisode],
    ) -> None:
        self.arguments = arguments
        self.intent = intent
        self.machine = CheckpointRound(
            arguments,
            [member.info for member in members],
            intent.base_checkpoint_id,
            context.settings.patience,
            context.now(),
        )
        self.manifest: CheckpointManifest | None = None
        self._context = context
        self._gone = gone
        self._fence = Fence(context.records.epoch, intent.sequence, arguments.checkpoint_id)
        self._members = {member.info.boot_id: member for member in members}
        self._unix_millis = 0
        self._wake = asyncio.Event()
        self._children: set[asyncio.Task[Any]] = set()
        self._deciding: dict[Decide, asyncio.Task[None]] = {}
        self._seen: Stage | None = None
        self.progress = Progress(self.current())
        self._task = asyncio.create_task(self._run(), name=f"checkpoint {arguments.checkpoint_id}")
        self._task.add_done_callback(accident)

    @property
    def round_id(self) -> str:
        return self.arguments.checkpoint_id

    @property
    def open(self) -> bool:
        """Whether the round still holds its place: nothing else may begin."""
        return not self._task.done()

    @property
    def gates_open(self) -> bool:
        return self.machine.gates_open

    async def until(self, reached: Callable[[], bool]) -> Checkpoint:
        """Waits for the machine. Raises StaleEpoch when a newer coordinator decides, TransportFailed when this one stops."""
        await self._follow_until(lambda: reached() or self.machine.ended)
        if self.machine.ended:
            await asyncio.wait({self._task})  # whoever is answered may begin the next round at once
        self.check_running()
        return self.current().checkpoint

    def check_running(self) -> None:
        """Raises unless this coordinator can still say how the round ended."""
        if self.machine.superseded and self.machine.failure is not None:
            raise self.machine.failure
        if self._task.done() and not self.machine.ended:
            raise TransportFailed("the coordinator stops; its successor decides this checkpoint")

    def go_on(self) -> None:
        """A caller came again: a held round waits on."""
        self.machine.go_on(self._context.now())
        self._announce()
        self._wake.set()

    def resume(self) -> None:
        """Raises InvalidPhase before the cut is complete."""
        self.machine.resume()
        self._wake.set()

    def abort(self, why: str) -> None:
        """Ends the round at once, unless it is decided."""
        checkpoint_id = self.arguments.checkpoint_id
        self.machine.fail(
            CheckpointAborted(
                f"checkpoint {checkpoint_id!r} was aborted: {why or 'a caller asked for it'}; take a new one",
                details={"checkpoint_id": checkpoint_id, "why": why},
            )
        )
        if self.machine.times.cut is not None:
            self.machine.resume()
        self._wake.set()

    async def renew(self, gate_lease: float, export_lease: float) -> None:
        """Restarts the leases here and at the members. Raises ParticipantLost naming whoever did not restart its own, and as `until`."""
        orders = self.machine.renew(gate_lease, export_lease, self._context.now())
        renewing = {order.boot_id: self._start(self._ask(order)) for order in orders}
        self._wake.set()
        if renewing:
            await asyncio.wait(renewing.values())
        self.check_running()
        over = Lost("the round has ended", gone=False)
        outcomes = {boot: over if child.cancelled() else child.result() for boot, child in renewing.items()}
        failed = troubles([self._members[boot].link for boot in renewing], outcomes)
        if failed:
            said = "; ".join(f"{name}: {why}" for name, why in failed.items())
            raise ParticipantLost(f"leases were not restarted at {said}", details={"participants": ",".join(failed)})

    async def finish(self, seconds: float, why: str) -> None:
        """Before the coordinator stops: what is past its cut is published if it can be in time, everything else is aborted, and every gate opens."""
        if self.machine.times.cut is None:
            self.abort(why)
        try:
            async with asyncio.timeout(seconds * PUBLISHING_SHARE):
                await self._follow_until(lambda: self.machine.settled)
        except TimeoutError:
            self.abort(why)
        if self.machine.stage is Stage.PUBLISHED:
            self.resume()
        await self._follow_until(lambda: self.machine.ended)

    async def _follow_until(self, reached: Callable[[], bool]) -> None:
        async for _ in self.progress.follow():
            if reached():
                break

    def lose(self, boot_id: str, why: str) -> None:
        """A member's process is known to be dead."""
        if boot_id in self._members and self.open:
            self.machine.lost(boot_id, None, why, self._context.now(), gone=True)
            self._wake.set()

    async def close(self) -> None:
        """Stops without deciding anything: for the end of the process."""
        self._task.cancel()
        await asyncio.gather(self._task, *self._children, *self._deciding.values(), return_exceptions=True)

    async def _run(self) -> None:
        for boot_id, member in self._members.items():
            member.link.on_report = self._report_of(boot_id)
        self._start(self._ask_the_quiet())
        try:
            await self._context.faults.reach("checkpoint.intended")
            while True:
                self._wake.clear()
                self.machine.tick(self._context.now())
                await self._reach_stage()
                for order in self.machine.due(self._context.now()):
                    self._start(self._ask(order))
                self._decide()
                self._announce()
                if self.machine.ended:
                    return
                await self._sleep()
        finally:
            for child in (*self._children, *self._deciding.values()):
                child.cancel()
            self.progress.set(self.current(), ended=True)

    async def _ask_the_quiet(self) -> None:
        """Callers are told what keeps the gates from closing, also by members that report nothing by themselves. One that died before its turn came is
        not waited for: a caller's work may wait for it as long as the prepare lasts."""
        while self.machine.stage in (Stage.PREPARING, Stage.HELD):
            await asyncio.sleep(QUIET_SECONDS)
            for boot_id, standing in self.machine.standings.items():
                unreported = standing.gate is Gate.CLOSING and standing.report is None
                if not unreported and standing.gate is not Gate.UNTOUCHED:
                    continue
                status = await self._members[boot_id].link.status(timeout=self._context.settings.patience)
                if isinstance(status, Lost) and status.gone:
                    self.lose(boot_id, status.why)
                elif unreported and not isinstance(status, Lost | Refusal):
                    self.machine.reported(boot_id, status.report)
                    self._announce()

    async def _reach_stage(self) -> None:
        stage = self.machine.stage
        if stage is not self._seen:
            self._seen = stage
            if stage is Stage.UPLOADING:
                self._unix_millis = int(time.time() * 1000)
            log.info("checkpoint=%s stage=%s epoch=%d", self.arguments.checkpoint_id, stage.name, self._fence.epoch)
            self._announce()
            await self._context.faults.reach(f"checkpoint.{stage.name.lower()}")

    async def _sleep(self) -> None:
        """Until there is news, or the machine has something to do by itself."""
        try:
            async with asyncio.timeout_at(self.machine.wake_at()):
                await self._wake.wait()
        except TimeoutError:
            return

    def _start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        child = asyncio.create_task(work)
        self._children.add(child)
        child.add_done_callback(self._children.discard)
        child.add_done_callback(self._take_accident)
        return child

    async def _ask(self, order: Order) -> Outcome:
        outcome = await send(self._members[order.boot_id].link, self._fence, order.transition, order.deadline)
        now = self._context.now()
        match outcome:
            case Lost():
                self.machine.lost(order.boot_id, order.transition, outcome.why, now, gone=outcome.gone)
            case Refusal():
                self.machine.refused(order.boot_id, order.transition, outcome.error, now)
            case _:
                self._members[order.boot_id].heard = now
                self.machine.answered(order.boot_id, order.transition, outcome, now)
        self._wake.set()
        return outcome

    def _report_of(self, boot_id: str) -> Callable[[Report], None]:
        def take(report: Report) -> None:
            if self.open:
                self.machine.reported(boot_id, report)
                self._announce()

        return take

    # --- decisions ---

    def _decide(self) -> None:
        """Starts what the machine wants decided. An abort does not wait for a publish that has not begun to write."""
        wanted = self.machine.wants
        if wanted is None or wanted in self._deciding:
            return
        publish = self._deciding.get(Decide.PUBLISH)
        if wanted is Decide.ABORT and publish is not None and not self.machine.writing:
            publish.cancel()
        work = self._publish() if wanted is Decide.PUBLISH else self._abort()
        self._deciding[wanted] = asyncio.create_task(work)
        self._deciding[wanted].add_done_callback(self._take_accident)

    async def _publish(self) -> None:
        while True:
            try:
                self._decided(await self._written())
                return
            except StaleEpoch as error:
                self._superseded(error)
                return
            except (StoreUnavailable, StoreFull) as error:
                cut = self.machine.times.cut
                if cut is None or self._context.now() - cut > self.machine.export_lease:
                    self._failed(error)
                    return
                log.warning("checkpoint=%s cannot be published yet: %s", self.arguments.checkpoint_id, error.message)
                await asyncio.sleep(STORE_RETRY_SECONDS)
            except GymckptError as error:
                self._failed(error)
                return

    async def _written(self) -> Decision:
        """Joins the participant manifests, stores the checkpoint manifest, and tries to decide."""
        records, standings = self._context.records, list(self.machine.standings.values())
        uploaded = [(standing.info, standing.uploaded) for standing in standings if standing.uploaded is not None]
        manifests = await records.participant_manifests([answer.manifest for _, answer in uploaded])
        failed: dict[Episode, str] = {e.episode: e.why for m in self._members.values() for e in m.lost}
        failed.update({entry.episode: entry.why for _, answer in uploaded for entry in answer.failed})
        entries = tuple(ParticipantEntry(info, answer.manifest) for info, answer in uploaded)
        cut = Cut(self.arguments, self.intent, self._unix_millis, entries, self.machine.restarts, failed, self._gone)
        manifest = await asyncio.to_thread(assemble, cut, manifests)
        digest = await records.write_manifest(manifest)
        await self._context.faults.reach("checkpoint.publish")
        self.machine.publishing()
        decision = await records.decide(self.arguments.checkpoint_id, Decision(digest))
        if decision.manifest == digest:
            self.manifest = manifest
        await self._context.faults.reach("checkpoint.decided")
        return decision

    async def _abort(self) -> None:
        why = self.machine.failure.message[:1024] if self.machine.failure else ""
        while True:
            try:
                self._decided(await self._context.records.decide(self.arguments.checkpoint_id, Decision(None, why)))
                return
            except StaleEpoch as error:
                self._superseded(error)
                return
            except (StoreUnavailable, StoreFull) as error:
                log.warning(
                    "checkpoint=%s: its abort is not written yet: %s", self.arguments.checkpoint_id, error.message
                )
                await asyncio.sleep(STORE_RETRY_SECONDS)

    def _decided(self, decision: Decision) -> None:
        if self.machine.decision is None:
            self.machine.decided(decision, self._context.now())
        self._wake.set()

    def _failed(self, error: GymckptError) -> None:
        self.machine.fail(error)
        self._wake.set()

    def _take_accident(self, task: asyncio.Task[Any]) -> None:
        failed = accident(task)
        if failed is not None:
            self._failed(CheckpointAborted(f"the coordinator failed unexpectedly: {failed!r}; take a new checkpoint"))

    def _superseded(self, error: StaleEpoch) -> None:
        self.machine.succeeded(error)
        self._wake.set()

    # --- what callers see ---

    def _announce(self) -> None:
        self.progress.set(self.current(), ended=self.machine.ended)

    def current(self) -> CheckpointProgress:
        """What callers may know now."""
        standings = list(self.machine.standings.values())
        waiting = [s for s in standings if s.gate in (Gate.CLOSING, Gate.NOT_READY)]
        shown = [MemberReport(s.info, s.report) for s in waiting if s.report is not None and not s.report.ready]
        uploaded = sum(standing.uploaded is not None for standing in standings)
        return CheckpointProgress(self._checkpoint(), tuple(shown), uploaded, len(standings))

    def _checkpoint(self) -> Checkpoint:
        machine, times, manifest = self.machine, self.machine.times, self.manifest
        answers = [standing.uploaded for standing in machine.standings.values() if standing.uploaded is not None]
        aborted = machine.stage is Stage.ABORTED and machine.decision is not None
        unreached = "; ".join(f"{name}: {why}" for name, why in machine.unreached.items())
        why = (
            machine.decision.why + (f" (not reached: {unreached})" if unreached else "")
            if aborted and machine.decision
            else ""
        )
        return Checkpoint(
            checkpoint_id=self.arguments.checkpoint_id,
            stage=machine.stage,
            epoch=self.intent.epoch,
            sequence=self.intent.sequence,
            unix_millis=self._unix_millis,
            base_checkpoint_id=self.intent.base_checkpoint_id,
            labels=self.arguments.labels,
            participants=tuple(sorted({standing.info.id for standing in machine.standings.values()})),
            episodes=len(manifest.episodes) if manifest else 0,
            restarts=len(machine.restarts),
            lost=len(manifest.lost) if manifest else 0,
            manifest=machine.decision.manifest if machine.decision else None,
            why_aborted=why,
            prepare_seconds=_between(times.first_closing, times.last_closed),
            pause_seconds=_between(times.first_closing, times.reopened),
            upload_seconds=_between(times.cut, times.decided),
            blobs_sent=sum(answer.blobs_sent for answer in answers),
            bytes_sent=sum(answer.bytes_sent for answer in answers),
            waited_for=sum(standing.waited_for for standing in machine.standings.values()),
        )


def _between(start: float | None, end: float | None) -> float:
    return end - start if start is not None and end is not None else 0.0
