"""One restore: install everywhere as pending, decide, activate everywhere. Or nothing anywhere."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from gymckpt.coordinator.catalog import not_loadable, not_restored
from gymckpt.coordinator.context import Context, accident, send, send_all, troubles
from gymckpt.coordinator.members.link import Link, Lost, Outcome, Refusal
from gymckpt.coordinator.progress import Progress
from gymckpt.coordinator.retire import retire_for_certain
from gymckpt.coordinator.values import RestoreProgress, RestoreStage
from gymckpt.core.arguments import OnUnloadable, RestoreArguments
from gymckpt.core.decisions import floor_pages, outcome, restore_floors, retired_floors, unloadable_targets
from gymckpt.core.ids import Episode, Fence
from gymckpt.core.kinds import Capture, Fate
from gymckpt.core.manifest import Decision, RestoreIntent, RestoreTarget
from gymckpt.core.transitions import Activate, Confirm, Discard, Install, Installed, InstallTarget, Transition
from gymckpt.errors import (
    BlobNotFound,
    DamagedBlob,
    GymckptError,
    ParticipantLost,
    RestoreAborted,
    StaleEpoch,
    StoreFull,
    StoreUnavailable,
    TransportFailed,
    UnloadableState,
)

STORE_RETRY_SECONDS = 0.5
# Failures that tell the caller what to do instead; every other one is told as RestoreAborted.
TOLD_AS_THEY_ARE = (UnloadableState, DamagedBlob, BlobNotFound)

log = logging.getLogger(__name__)


class RestoreTask:
    """Runs in a task of its own, from its intent on. `links` are all members."""

    def __init__(
        self, context: Context, arguments: RestoreArguments, intent: RestoreIntent, links: Sequence[Link]
    ) -> None:
        self.arguments = arguments
        self.intent = intent
        self.failure: GymckptError | None = None
        self.progress = Progress(RestoreProgress(RestoreStage.INSTALLING, intent.checkpoint_id, 0, len(links)))
        self._context = context
        self._links = list(links)
        self._fence = Fence(context.records.epoch, intent.sequence, arguments.round_id)
        self._task = asyncio.create_task(self._run(), name=arguments.round_id)
        self._task.add_done_callback(accident)

    @property
    def round_id(self) -> str:
        return self.arguments.round_id

    @property
    def open(self) -> bool:
        """Whether the round still holds its place: nothing else may begin."""
        return not self._task.done()

    def check_running(self) -> None:
        """Raises unless this coordinator can still say how the restore ended."""
        if self._task.done() and self.failure is None and self.progress.value.stage is not RestoreStage.RESTORED:
            raise TransportFailed("the coordinator stops; its successor decides this restore")

    async def finish(self) -> None:
        """Waits for its end, before the coordinator stops. One that does not end in time is left to the successor, which alone can tell what became of it."""
        await asyncio.wait({self._task})

    async def close(self) -> None:
        """Stops without deciding anything: for the end of the process."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            await self._restore()
        except StaleEpoch as error:
            self.failure = error
        except GymckptError as error:
            await self._give_up(error)
        finally:
            self.progress.set(self.progress.value, ended=True)

    async def _restore(self) -> None:
        records, faults, round_id = self._context.records, self._context.faults, self.arguments.round_id
        await faults.reach("restore.intended")
        await records.raise_floors(round_id, restore_floors(self.intent.targets))
        await faults.reach("restore.floored")
        await self._free()
        await faults.reach("restore.retired")
        restarted = await self._install()
        await faults.reach("restore.installed")
        await self._everyone(Confirm())
        await faults.reach("restore.confirmed")
        decision = await self._decide(Decision(self.intent.manifest, restarted=restarted))
        if not decision.published:
            raise RestoreAborted(f"restore {self.arguments.restore_id!r} was aborted: {decision.why}")
        await faults.reach("restore.decided")
        await activate(self._context, self._links, self._fence, self._count)
        await faults.reach("restore.activated")
        await self._unpin()
        self._tell(RestoreStage.RESTORED, len(self._links), outcome(self.intent, decision))

    async def _free(self) -> None:
        """Whatever the survivors hold of older attempts is stopped and dropped, but for what residents go on with. They are told first: a server that was told
        before its caller would refuse calls of it."""
        residents = [link for link in self._links if link.info.capture is Capture.RESIDENT]
        others = [link for link in self._links if link.info.capture is not Capture.RESIDENT]
        on = {target.source.rollout_id for target in self.intent.targets if target.fate is Fate.RESTORED}
        over = [target for target in self.intent.targets if target.source.rollout_id not in on]
        await retire_for_certain(self._context, residents, self._fence, _before(over))
        await retire_for_certain(self._context, others, self._fence, _before(self.intent.targets))
        self._check_none_gone()

    async def _install(self) -> tuple[RestoreTarget, ...]:
        """Everyone holds all of it as pending; returns the targets that start over because they cannot be loaded."""
        targets = tuple(
            InstallTarget(target.source, target.attempt)
            for target in self.intent.targets
            if target.fate is Fate.RESTORED
        )
        install = Install(self.intent.manifest, targets, self._context.settings.restore_lease)
        holding: list[Link] = []
        keeping = asyncio.create_task(self._keep(holding))
        installs = [asyncio.create_task(self._install_at(link, install, holding)) for link in self._links]
        try:
            answers = await asyncio.gather(*installs)
        finally:
            # Whoever still loads is waited for by the retire that follows a failure.
            for task in (keeping, *installs):
                task.cancel()
        unloadable: dict[Episode, str] = {}
        ended: dict[Episode, str] = {}
        for link, answer in zip(self._links, answers, strict=True):
            named = ended if link.info.capture is Capture.RESIDENT else unloadable
            named.update({entry.episode: f"{link.info.id}: {entry.why}" for entry in answer.unloadable})
        return await self._without(unloadable, ended)

    async def _install_at(self, link: Link, install: Install, holding: list[Link]) -> Installed:
        deadline = self._context.now() + self._context.settings.install_timeout
        result = await send(link, self._fence, install, deadline)
        while _store_was_away(result) and self._context.now() + STORE_RETRY_SECONDS < deadline:
            await asyncio.sleep(STORE_RETRY_SECONDS)
            result = await send(link, self._fence, install, deadline)
        self._raise_first([link], {link.info.boot_id: result}, "install")
        if isinstance(result, Lost | Refusal) or not isinstance(result.result, Installed):
            raise RestoreAborted(f"{link.name} did not say what it installed", details={"participants": link.name})
        holding.append(link)
        self._count(len(holding))
        return result.result

    async def _keep(self, holding: Sequence[Link]) -> None:
        """Those that have installed hear of the restore while the others load."""
        while True:
            await asyncio.sleep(self._context.settings.restore_lease / 3)
            await send_all(list(holding), self._fence, Confirm(), self._context.now() + self._context.settings.patience)

    async def _without(
        self, unloadable: Mapping[Episode, str], ended: Mapping[Episode, str]
    ) -> tuple[RestoreTarget, ...]:
        """What has `ended` at a resident since the cut is no fault of the checkpoint: it starts over, whatever the caller wants done with the unloadable."""
        refused = unloadable_targets(self.intent, unloadable)
        if refused and self.arguments.on_unloadable is OnUnloadable.FAIL:
            raise not_loadable(refused)
        restarted = unloadable_targets(self.intent, {**ended, **unloadable})
        if restarted:
            await self._everyone(Discard(tuple(target.target for target in restarted)))
        return restarted

    async def _everyone(self, transition: Transition) -> None:
        deadline = self._context.now() + self._context.settings.patience
        outcomes = await send_all(self._links, self._fence, transition, deadline)
        self._raise_first(self._links, outcomes, type(transition).__name__.lower())

    def _raise_first(self, links: Sequence[Link], outcomes: dict[str, Outcome], what: str) -> None:
        """Raises what a member refused with, or RestoreAborted naming every member that failed."""
        failed = troubles(links, outcomes)
        if not failed:
            return
        for result in outcomes.values():
            if isinstance(result, Refusal) and isinstance(result.error, StaleEpoch):
                raise result.error
        for result in outcomes.values():
            if isinstance(result, Refusal) and isinstance(result.error, TOLD_AS_THEY_ARE):
                raise not_restored(self.intent.checkpoint_id, result.error)
        said = "; ".join(f"{name}: {why}" for name, why in failed.items())
        raise RestoreAborted(f"{what} failed at {said}", details={"participants": ",".join(failed)})

    def _check_none_gone(self) -> None:
        dead = {link.name: link.gone for link in self._links if link.gone}
        if dead:
            said = "; ".join(f"{name}: {why}" for name, why in dead.items())
            raise ParticipantLost(f"lost during the restore: {said}", details={"participants": ",".join(dead)})

    async def _give_up(self, error: GymckptError) -> None:
        """Aborts, and tells so only when nothing can run the targets any more."""
        log.warning("restore=%s fails: %s", self.arguments.restore_id, error.message)
        try:
            await self._decide(Decision(None, error.message[:1024]))
            await give_up(self._context, self.arguments.round_id, self.intent, self._links, self._fence)
            await self._unpin()
        except StaleEpoch as newer:
            self.failure = newer
            return
        self.failure = (
            error
            if isinstance(error, TOLD_AS_THEY_ARE)
            else restore_aborted(self.arguments.round_id, self.intent, error.message)
        )

    async def _decide(self, decision: Decision) -> Decision:
        """Writes the decision, or reads the one that was first; waits for the store, however long."""
        while True:
            try:
                return await self._context.records.decide(self.arguments.round_id, decision)
            except StaleEpoch:
                raise
            except GymckptError as error:
                log.warning("restore=%s is not decided yet: %s", self.arguments.restore_id, error.message)
                await asyncio.sleep(STORE_RETRY_SECONDS)

    async def _unpin(self) -> None:
        """The restore has ended everywhere: a successor has nothing to finish."""
        while True:
            try:
                await self._context.records.unpin(self.intent.checkpoint_id, self.arguments.round_id)
                return
            except (StoreUnavailable, StoreFull) as error:
                log.warning("restore=%s is not unpinned yet: %s", self.arguments.restore_id, error.message)
                await asyncio.sleep(STORE_RETRY_SECONDS)

    def _count(self, finished: int) -> None:
        stage = self.progress.value.stage
        if self.arguments.round_id in self._context.records.decisions:
            stage = RestoreStage.ACTIVATING
        self._tell(stage, finished)

    def _tell(self, stage: RestoreStage, finished: int, targets: tuple[RestoreTarget, ...] = ()) -> None:
        self.progress.set(
            RestoreProgress(stage, self.intent.checkpoint_id, finished, len(self._links), targets),
            ended=stage is RestoreStage.RESTORED,
        )


def _store_was_away(result: Outcome) -> bool:
    """The member could not read the checkpoint, and nothing is known to be wrong with it."""
    return isinstance(result, Refusal) and isinstance(result.error, StoreUnavailable)


def _before(targets: Iterable[RestoreTarget]) -> tuple[Episode, ...]:
    """The attempts that the targets replace."""
    return tuple(sorted({Episode(target.source.rollout_id, target.attempt - 1) for target in targets}))


async def activate(context: Context, links: Sequence[Link], fence: Fence, count: Callable[[int], None]) -> None:
    """Makes the state of a decided restore live everywhere. Raises RestoreAborted unless every member says that it held it, in the same process."""
    finished = 0

    async def one(link: Link) -> Outcome:
        nonlocal finished
        result = await send(link, fence, Activate(), context.now() + context.settings.patience)
        finished += not isinstance(result, Lost | Refusal)
        count(finished)
        return result

    count(0)
    outcomes = await asyncio.gather(*(one(link) for link in links))
    failed = troubles(links, {link.info.boot_id: result for link, result in zip(links, outcomes, strict=True)})
    newer = next((r.error for r in outcomes if isinstance(r, Refusal) and isinstance(r.error, StaleEpoch)), None)
    if newer is not None:
        raise newer
    if failed:
        said = "; ".join(f"{name}: {why}" for name, why in failed.items())
        raise RestoreAborted(f"activate failed at {said}", details={"participants": ",".join(failed)})


async def give_up(context: Context, round_id: str, intent: RestoreIntent, links: Sequence[Link], fence: Fence) -> None:
    """Retires the attempts that the restore gave out, now and for every process born later. Raises StaleEpoch."""
    targets = tuple(sorted({target.target for target in intent.targets}))
    while True:
        try:
            first_page = len(list(floor_pages(restore_floors(intent.targets))))
            await context.records.raise_floors(round_id, retired_floors(targets), first_page=first_page)
            break
        except StaleEpoch:
            raise
        except GymckptError as error:
            log.warning("%s: its floors are not written yet: %s", round_id, error.message)
            await asyncio.sleep(STORE_RETRY_SECONDS)
    await retire_for_certain(context, links, fence, targets)
    await context.faults.reach("restore.aborted")


def restore_aborted(round_id: str, intent: RestoreIntent, why: str) -> RestoreAborted:
    """What callers are told once nothing can run the targets."""
    targets = sorted({target.target for target in intent.targets})
    shown = ", ".join(str(target) for target in targets[:5])
    return RestoreAborted(
        f"{round_id} was aborted: {why}; {len(targets)} attempts are retired everywhere, e.g. {shown}; "
        "restore again under a new id, or start those rollouts from input as the next attempt",
        details={"restore": round_id, "retired": ",".join(str(target) for target in targets)},
    )
