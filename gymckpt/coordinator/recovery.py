"""Asking every member what it has, and telling from the latest checkpoint what a crash would cost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from gymckpt.coordinator.catalog import naming
from gymckpt.coordinator.context import Context
from gymckpt.coordinator.members.link import Lost, Refusal
from gymckpt.coordinator.members.registry import Member
from gymckpt.coordinator.records import Records
from gymckpt.core.decisions import outcome
from gymckpt.core.ids import Episode
from gymckpt.core.manifest import CheckpointManifest, ParticipantInfo, RestoreTarget
from gymckpt.core.recovery import Holding, Present, Recovery, explain, gone_since, holdings, still_missed
from gymckpt.core.report import LostEpisode
from gymckpt.errors import BlobNotFound, CheckpointNotFound, DamagedBlob, GymckptError

log = logging.getLogger(__name__)


async def explain_recovery(context: Context) -> Recovery:
    """Raises BlobNotFound or DamagedBlob when the latest checkpoint cannot be read."""
    records = context.records
    present = await asyncio.gather(*(_present(context, member) for member in context.registry.members))
    latest = await _latest(records)
    checkpoint_id = latest.checkpoint_id if latest is not None else ""
    held = await _held(records, latest) if latest is not None else {}
    missed = _missed(records, latest) if latest is not None else []
    refused, over = dict(records.attempts.refused), _over(records, checkpoint_id)
    return await asyncio.to_thread(explain, checkpoint_id, held, present, refused, over, missed)


async def gone_since_latest(context: Context, members: Sequence[Member]) -> dict[Episode, LostEpisode]:
    """What processes that are gone held of the latest checkpoint or of one before it. The next checkpoint must name it: what the others still hold of it is
    not enough to continue it, and nobody would look for it in an older one."""
    records, here = context.records, {member.info.boot_id for member in members}
    try:
        latest = await _latest(records)
        if latest is None:
            return {}
        missed = _missed(records, latest)
        if not missed and all(entry.participant.boot_id in here for entry in latest.participants):
            return {}
        held = await _held(records, latest)
    except (BlobNotFound, DamagedBlob) as error:
        # What cannot be read cannot be restored either: a checkpoint of what lives now is all the more needed.
        log.warning("what processes that are gone held is not known: %s", error.message)
        return {}
    present = await asyncio.gather(*(_present(context, member) for member in members))
    refused = dict(records.attempts.refused)
    return {**still_missed(missed, present, refused), **gone_since(latest.checkpoint_id, held, present, refused)}


async def _latest(records: Records) -> CheckpointManifest | None:
    try:
        checkpoint_id = records.latest()
    except CheckpointNotFound:
        return None
    with naming(checkpoint_id):
        return await records.checkpoint_manifest(records.published(checkpoint_id))


def _missed(records: Records, checkpoint: CheckpointManifest) -> list[LostEpisode]:
    """What it names as lost although an older one, which is still there, holds it."""
    return [entry for entry in checkpoint.lost if entry.checkpoint_id and entry.checkpoint_id not in records.deleted]


async def _present(context: Context, member: Member) -> Present:
    patience = context.settings.patience
    status = await member.link.status(timeout=patience)
    if isinstance(status, Lost | Refusal):
        return Present(member.info, None, {}, {})
    try:
        episodes = await member.link.episodes(timeout=patience)
    except GymckptError:
        return Present(member.info, None, {}, {})
    restarts = {restart.episode: restart.why for restart in status.report.restarts}
    return Present(member.info, episodes, restarts, {lost.episode: lost.why for lost in status.lost})


async def _held(records: Records, checkpoint: CheckpointManifest) -> dict[Episode, Holding]:
    checkpoint_id, entries = checkpoint.checkpoint_id, checkpoint.participants
    with naming(checkpoint_id):
        manifests = await records.participant_manifests([entry.manifest for entry in entries])
    infos = [entry.participant for entry in entries]
    return await asyncio.to_thread(
        holdings, checkpoint.episodes, list(zip(infos, manifests, strict=True)), _restores_of(records, checkpoint_id)
    )


def _restores_of(
    records: Records, checkpoint_id: str
) -> list[tuple[Sequence[ParticipantInfo], Sequence[RestoreTarget]]]:
    """The installed ones, oldest first."""
    found = []
    for round_id, intent in records.restores.items():
        decision = records.decisions.get(round_id)
        if intent.checkpoint_id == checkpoint_id and decision is not None and decision.published:
            found.append((intent.epoch, intent.sequence, intent.members, outcome(intent, decision)))
    return [(members, targets) for _, _, members, targets in sorted(found, key=lambda each: each[:2])]


def _over(records: Records, checkpoint_id: str) -> dict[str, int]:
    """Highest attempt of each rollout that nobody should restore from this checkpoint: it was retired, is being restored, or was restored from another one."""
    over = dict(records.attempts.retired)
    for round_id, intent in records.restores.items():
        if intent.checkpoint_id != checkpoint_id or round_id in records.unfinished:
            for target in intent.targets:
                rollout_id = target.source.rollout_id
                over[rollout_id] = max(target.attempt - 1, over.get(rollout_id, -1))
    return over
