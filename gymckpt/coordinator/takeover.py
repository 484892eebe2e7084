"""Starting as the successor of whoever coordinated before: own an epoch, hear every member, decide what was left open, tell it."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from gymckpt.coordinator.context import Context, send
from gymckpt.coordinator.faults import Faults
from gymckpt.coordinator.members.client import ParticipantClient, ParticipantStatus
from gymckpt.coordinator.members.link import refuses
from gymckpt.coordinator.members.registry import Member, Registry
from gymckpt.coordinator.records import MemberName, Records
from gymckpt.coordinator.restore import activate, give_up
from gymckpt.coordinator.values import Settings
from gymckpt.core.decisions import undecided
from gymckpt.core.ids import Fence
from gymckpt.core.manifest import Decision
from gymckpt.core.names import EPOCHS, epoch_name, epoch_of
from gymckpt.core.transitions import Abort, Decided, Resume, Transition
from gymckpt.errors import CoordinatorStarting, GymckptError, RestoreAborted, StaleBoot, StaleEpoch, TransportFailed
from gymckpt.store.interface import ArtifactStore

ASK_AGAIN_SECONDS = 0.5
WHAT_TO_DO = "kill it, or tell with --gone that it is"

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Awaited:
    """What a take-over waits for, for whoever asks meanwhile: `members` of the one before that have not answered."""

    members: set[MemberName] = field(default_factory=set)

    def starting(self, retry_after: float) -> CoordinatorStarting:
        """What a caller is told."""
        waits = "ends what the one before left open; its log says more"
        if self.members:
            silent = ", ".join(sorted(f"{member.participant} at {member.reached.address}" for member in self.members))
            waits = f"waits for {silent}, which says neither that it obeys nor that it is dead: {WHAT_TO_DO}"
        names = sorted({member.participant for member in self.members})
        return CoordinatorStarting(
            f"the coordinator is starting: it {waits}",
            details={"participants": ",".join(names)},
            retry_after=retry_after,
        )


async def own_epoch(store: ArtifactStore) -> int:
    """Creates the next epoch; the value tells its owner from whoever tried at the same time."""
    token = secrets.token_bytes(16)
    while True:
        epoch = max((epoch_of(entry.name) for entry in await store.list_names(EPOCHS)), default=0) + 1
        if await store.put_name(epoch_name(epoch), token) == token:
            return epoch


async def take_over(
    store: ArtifactStore,
    registry: Registry,
    settings: Settings,
    faults: Faults,
    gone: Collection[str],
    awaited: Awaited,
) -> Context:
    """Returns what the new coordinator works with; afterwards nothing older is undecided and no member waits for it.

    `gone` names participants (`kind/name`) that a person knows to be dead: they are not waited for. Raises StaleEpoch when yet another one succeeds.
    """
    epoch = await own_epoch(store)
    await faults.reach("epoch.created")
    records = Records(store, epoch)
    context = Context(records, registry, settings, faults)
    heard = await _hear_everyone(context, gone, awaited)
    for status in heard:
        link_member(context, status)
    await faults.reach("takeover.answered")
    await records.load()
    _raise_sequence(records, heard)
    _expect_last_members(records, registry)
    open_rounds = undecided([*records.intents, *records.restores], records.decisions)
    for round_id in open_rounds:
        await records.decide(round_id, Decision(None, f"its coordinator was succeeded by epoch {epoch}"))
    await faults.reach("takeover.decided")
    await _finish_restores(context)
    await asyncio.gather(*(tell_decided(context, member) for member in registry.members))
    log.info("epoch=%d members=%d aborted=%s", epoch, len(registry.members), ",".join(open_rounds) or "-")
    return context


def link_member(context: Context, status: ParticipantStatus) -> Member:
    """A member that answered; it serves already unless its gate was never open."""
    return context.registry.register(status.info, status.holds, status.lost, context.now(), admit=True)


async def tell_decided(context: Context, member: Member) -> None:
    """Ends what a member still holds of rounds that are decided: no gate stays closed for a coordinator that is no more."""
    holds, records = member.holds, context.records
    for fence in {held.checkpoint_id: held for held in (holds.gate_fence, holds.export_fence) if held}.values():
        decision = await records.decision(fence.checkpoint_id)
        if decision is None:
            decision = await records.decide(fence.checkpoint_id, Decision(None, "its coordinator was succeeded"))
        ours = Fence(records.epoch, fence.sequence, fence.checkpoint_id)
        steps: list[Transition] = [Abort(decision.why)] if not decision.published else [Decided(True), Resume()]
        for transition in steps:
            await send(member.link, ours, transition, context.now() + context.settings.patience)


async def _hear_everyone(context: Context, gone: Collection[str], awaited: Awaited) -> list[ParticipantStatus]:
    """Every process that ever began to start either obeys the new epoch or is known to be dead."""
    names = await context.records.members()
    answers = await asyncio.gather(*(_hear(context, name, gone, awaited) for name in names))
    heard = {status.info.boot_id: status for status in answers if status is not None}
    return list(heard.values())


async def _hear(
    context: Context, member: MemberName, gone: Collection[str], awaited: Awaited
) -> ParticipantStatus | None:
    """Asks one process until it answers or is dead; a dead one is forgotten. Raises StaleEpoch."""
    client = ParticipantClient(member.reached.address)
    told = False
    awaited.members.add(member)
    try:
        while True:
            try:
                return await client.status(member.boot_id, context.records.epoch, timeout=context.settings.patience)
            except StaleEpoch:
                raise
            except StaleBoot as error:
                # Whoever serves there now has a name of its own, unless it belongs to another run.
                log.info("%s is gone: %s", member.name, error.message)
                await context.records.forget_member(member.name)
                return None
            except GymckptError as error:
                # One that is still starting says so itself: it will read the new epoch.
                if isinstance(error, TransportFailed) and await _is_dead(member, gone):
                    log.info("%s is gone: %s", member.name, error.message)
                    await context.records.forget_member(member.name)
                    return None
                if not told:
                    log.warning(
                        "waiting for %s at %s, which says neither that it obeys nor that it is dead: %s; %s",
                        member.participant,
                        member.reached.address,
                        error.message,
                        WHAT_TO_DO,
                    )
                told = True
                await asyncio.sleep(ASK_AGAIN_SECONDS)
    finally:
        awaited.members.discard(member)
        await client.close()


async def _is_dead(member: MemberName, gone: Collection[str]) -> bool:
    """Nothing listens where it served, or a person said so."""
    return member.participant in gone or await refuses(member.reached)


def _raise_sequence(records: Records, heard: Sequence[ParticipantStatus]) -> None:
    """New rounds come after everything that anyone has seen."""
    records.sequence = max((records.sequence, *(status.holds.sequence for status in heard)))


def _expect_last_members(records: Records, registry: Registry) -> None:
    """Whoever was in the last checkpoint that was begun."""
    if records.intents:
        last = max(records.intents.values(), key=lambda intent: (intent.epoch, intent.sequence))
        registry.expect(last.members)


async def _finish_restores(context: Context) -> None:
    """Restores that had not ended everywhere do so now, alike: their pins name them."""
    records = context.records
    for round_id, checkpoint_id in sorted(records.unfinished.items()):
        if round_id in records.restores:
            await _finish_restore(context, round_id)
        await records.unpin(checkpoint_id, round_id)


async def _finish_restore(context: Context, round_id: str) -> None:
    """Activates an installed restore when every process that installed it lives; otherwise retires what it gave out."""
    records = context.records
    intent, decision = records.restores[round_id], records.decisions[round_id]
    links = {member.info.boot_id: member.link for member in context.registry.members}
    fence = Fence(records.epoch, intent.sequence, round_id)
    boots = {info.boot_id for info in intent.members}
    if decision.published and boots <= links.keys():
        try:
            await activate(context, [links[boot] for boot in sorted(boots)], fence, lambda _: None)
            return
        except RestoreAborted as error:
            log.warning("%s cannot be completed: %s", round_id, error.message)
    await give_up(context, round_id, intent, list(links.values()), fence)
