"""What must hold before a round begins: who takes part, and what it is about. Nothing here closes a gate."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gymckpt.coordinator.catalog import naming, not_loadable, not_restored, resolve
from gymckpt.coordinator.context import Context
from gymckpt.coordinator.members.link import Lost, Refusal
from gymckpt.coordinator.members.registry import Member
from gymckpt.coordinator.recovery import gone_since_latest
from gymckpt.coordinator.takeover import tell_decided
from gymckpt.core.arguments import MAX_EPISODES, CheckpointArguments, OnUnloadable, RestoreArguments
from gymckpt.core.decisions import gone_with, resident_entries, restore_targets, unloadable_targets
from gymckpt.core.ids import Episode, ParticipantId
from gymckpt.core.kinds import Fate, GateState
from gymckpt.core.manifest import CheckpointManifest, Intent, ParticipantManifest, RestoreIntent
from gymckpt.core.report import LostEpisode
from gymckpt.errors import (
    ArgumentConflict,
    BlobNotFound,
    CheckpointAborted,
    CheckpointNotFound,
    DamagedBlob,
    InvalidField,
    MemberMissing,
    StaleEpoch,
    StoreUnavailable,
)
from gymckpt.store.needed import Schemas, check_needed

STARTING_POLL_SECONDS = 0.1
SILENT_INTERVALS = 3


async def ready_members(context: Context) -> list[Member]:
    """Every member, asked now. Raises MemberMissing naming whoever is absent, dead, silent or still starting."""
    members = [member for member in context.registry.members if member.admitted]
    said = await asyncio.gather(*(_absence(context, member) for member in members))
    absent = [why for why in said if why]
    present = [member for member, why in zip(members, said, strict=True) if why == ""]
    context.registry.check_complete(present, absent)
    # Somebody may have tried a round by hand: the next one must not look ended to whoever saw it.
    context.records.sequence = max((context.records.sequence, *(member.holds.sequence for member in present)))
    return present


async def _absence(context: Context, member: Member) -> str | None:
    """Why the member cannot take part; "" when it can, None when it left long ago and nobody expects it."""
    name = f"{member.info.id} ({member.info.worker})"
    deadline = context.now() + context.settings.patience
    told = False
    while True:
        left = max(STARTING_POLL_SECONDS, deadline - context.now())
        status = await member.link.status(context.records.epoch, timeout=left)
        if isinstance(status, Lost):
            if status.gone:
                return _dead(context, member, name, status)
            why = f"{name}: {status.why}"
        elif isinstance(status, Refusal):
            if not isinstance(status.error, StoreUnavailable):
                return _refused(name, status)
            why = f"{name}: {status.error.message}"
        else:
            member.holds, member.lost, member.heard = status.holds, status.lost, context.now()
            if not told and (status.holds.gate_fence or status.holds.export_fence):
                await tell_decided(context, member)
                told = True
                continue
            if status.holds.gate is not GateState.CLOSED or status.holds.gate_fence is not None:
                return ""
            why = f"{name}: still starting, its gate was never open"
        if context.now() >= deadline:
            return why
        await asyncio.sleep(STARTING_POLL_SECONDS)


def _dead(context: Context, member: Member, name: str, status: Lost) -> str | None:
    """A dead process is dropped once it has been silent for long, when nobody expects it or another one serves the participant."""
    registry, expected = context.registry, context.registry.expected
    long_ago = context.now() - member.heard > SILENT_INTERVALS * context.settings.interval
    others = [other for other in registry.members if other.info.id == member.info.id and other is not member]
    if long_ago and (others or member.info.id not in expected):
        registry.drop(member)
        return None
    return f"{name}: {status.why}"


def _refused(name: str, status: Refusal) -> str:
    if isinstance(status.error, StaleEpoch):
        raise status.error
    return f"{name}: {status.error.message}"


async def open_checkpoint(
    context: Context, arguments: CheckpointArguments
) -> tuple[Intent, list[Member], Mapping[Episode, LostEpisode]]:
    """Creates the intent; returns it with the members, and what nobody can continue because a process that is gone held it. Raises MemberMissing,
    ArgumentConflict, CheckpointAborted (the id was aborted before it was opened)."""
    records = context.records
    members = await ready_members(context)
    gone = await gone_since_latest(context, members)
    try:
        base = "" if arguments.full else records.latest()
    except CheckpointNotFound:
        base = ""
    infos = tuple(member.info for member in members)
    intent = Intent(records.epoch, records.next_sequence(), infos, base, arguments.digest)
    stored = await records.open_checkpoint(arguments.checkpoint_id, intent)
    context.registry.expect(infos)
    if stored != intent and not _answer_was_lost(stored, intent):
        raise ArgumentConflict(
            f"{arguments.checkpoint_id!r} was opened by epoch {stored.epoch} already; use a new id",
            details={"id": arguments.checkpoint_id, "epoch": str(stored.epoch)},
        )
    decision = await records.decision(arguments.checkpoint_id)
    if decision is not None:
        raise CheckpointAborted(
            f"checkpoint {arguments.checkpoint_id!r} was aborted: {decision.why}; take a new one",
            details={"checkpoint_id": arguments.checkpoint_id, "why": decision.why},
        )
    return stored, members, gone


async def open_restore(context: Context, arguments: RestoreArguments) -> tuple[RestoreIntent, list[Member]]:
    """Pins the checkpoint, sees that it can be read, gives every asked episode its attempt, and creates the intent. Raises what RestoreCheckpoint says; then
    nothing of it is left."""
    records, round_id = context.records, arguments.round_id
    members = await ready_members(context)
    checkpoint_id = resolve(records, arguments.checkpoint_id)
    digest = records.published(checkpoint_id)
    await records.pin(checkpoint_id, round_id)
    await context.faults.reach("restore.pinned")
    try:
        manifest = await _read(context, checkpoint_id)
        _check_here(manifest, members)
        infos = tuple(member.info for member in members)
        residents = await _read_residents(context, manifest)
        targets = restore_targets(arguments.episodes, manifest, records.attempts, gone_with(residents, infos))
        if len(targets) > MAX_EPISODES:  # more than fit in what each member is told
            raise InvalidField(
                f"checkpoint {checkpoint_id!r} has {len(targets)} episodes, at most {MAX_EPISODES} are restored at once; name them, a part at a time",
                field="episodes",
            )
        intent = RestoreIntent(
            records.epoch, records.next_sequence(), checkpoint_id, digest, targets, infos, arguments.digest
        )
        await _check_readable(context, intent, members, restart=arguments.on_unloadable is OnUnloadable.RESTART)
        stored = await records.open_restore(round_id, intent)
    except Exception:
        if round_id not in records.restores:
            await records.unpin(checkpoint_id, round_id)
        raise
    if stored != intent and not _answer_was_lost(stored, intent):
        raise ArgumentConflict(
            f"restore {arguments.restore_id!r} was opened by epoch {stored.epoch} already; use a new id",
            details={"id": arguments.restore_id, "epoch": str(stored.epoch)},
        )
    return stored, members


def _answer_was_lost(stored: Intent | RestoreIntent, intent: Intent | RestoreIntent) -> bool:
    """Whether this coordinator wrote `stored` when it tried before, and the store's answer did not arrive: nobody else writes intents of its epoch."""
    return replace(stored, sequence=intent.sequence) == intent


async def _read(context: Context, checkpoint_id: str) -> CheckpointManifest:
    """The manifest, read after the pin: what is there now stays."""
    with naming(checkpoint_id):
        return await context.records.checkpoint_manifest(context.records.published(checkpoint_id))


async def _read_residents(context: Context, manifest: CheckpointManifest) -> list[ParticipantManifest]:
    """What each process that keeps its episodes to itself held at the cut."""
    with naming(manifest.checkpoint_id):
        entries = resident_entries(manifest.participants)
        return await context.records.participant_manifests([entry.manifest for entry in entries]) if entries else []


async def _check_readable(context: Context, intent: RestoreIntent, members: Sequence[Member], *, restart: bool) -> None:
    """Participants read their part when whatever it replaces has been stopped already. Where that could cost something that lives, all is read here before,
    and unless what cannot be loaded is to `restart`, nothing may be kept in a schema that its participant does not know."""
    if not any(member.holds.episodes for member in members):
        return
    episodes = [target.source for target in intent.targets if target.fate is Fate.RESTORED]
    try:
        schemas = await check_needed(context.records.store, intent.manifest, episodes)
    except (BlobNotFound, DamagedBlob) as error:
        raise not_restored(intent.checkpoint_id, error) from error
    unloadable = () if restart else unloadable_targets(intent, _of_other_schemas(intent, schemas))
    if unloadable:
        raise not_loadable(unloadable)
    await _check_still_here(context, members)


async def _check_still_here(context: Context, members: Sequence[Member]) -> None:
    """All was read, which may have taken long: a restore that must fail because somebody died meanwhile would stop what lives for nothing. Raises
    MemberMissing."""
    here = {member.info.boot_id for member in await ready_members(context)}
    left = [member.link.name for member in members if member.info.boot_id not in here]
    if left:
        raise MemberMissing(
            f"{', '.join(left)} left while the checkpoint was read; retry", details={"members": ",".join(left)}
        )


def _of_other_schemas(intent: RestoreIntent, schemas: Mapping[ParticipantId, Schemas]) -> dict[Episode, str]:
    """Episodes that a member says that it cannot load, and why. What else is wrong with a state only its server can tell."""
    rollouts: dict[str, str] = {}
    for info in intent.members:
        for schema, keeping in schemas.get(info.id, {}).items():
            if info.state_schemas and schema not in info.state_schemas:
                loads = " or ".join(map(repr, info.state_schemas))
                rollouts.update(dict.fromkeys(keeping, f"{info.id} loads {loads}, the checkpoint holds {schema!r}"))
    return {
        target.source: rollouts[target.source.rollout_id]
        for target in intent.targets
        if target.source.rollout_id in rollouts
    }


def _check_here(manifest: CheckpointManifest, members: Sequence[Member]) -> None:
    here = {member.info.id for member in members}
    missing = sorted({str(entry.participant.id) for entry in manifest.participants if entry.participant.id not in here})
    if missing:
        raise MemberMissing(
            f"checkpoint {manifest.checkpoint_id!r} needs {', '.join(missing)}, which are not here; start them, then retry",
            details={"members": ",".join(missing)},
        )
