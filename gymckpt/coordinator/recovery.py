"""Asking every member what it has, and telling from the latest checkpoint what a crash would cost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from gymckpt.coordinator.catalog import naming
from gymckpt.coordinator.context import Context
from gymckpt.coordinator.members.link import Lost, Refusal
from gymckpt.coordinator.members.registry import Member
from gymckpt.coordinator.records import Records
from gymckpt.core.decisions import outcome
from gymckpt.core.ids import Episode
from gymckpt.core.manifest import ParticipantInfo, RestoreTarget
from gymckpt.core.recovery import Holding, Present, Recovery, explain, holdings
from gymckpt.errors import CheckpointNotFound, GymckptError


async def explain_recovery(context: Context) -> Recovery:
    """Raises BlobNotFound or DamagedBlob when the latest checkpoint cannot be read."""
    records = context.records
    present = await asyncio.gather(*(_present(context, member) for member in context.registry.members))
    try:
        checkpoint_id = records.latest()
    except CheckpointNotFound:
        checkpoint_id = ""
    held = await _held(records, checkpoint_id) if checkpoint_id else {}
    refused, over = dict(records.attempts.refused), _over(records, checkpoint_id)
    return await asyncio.to_thread(explain, checkpoint_id, held, present, refused, over)


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


async def _held(records: Records, checkpoint_id: str) -> dict[Episode, Holding]:
    with naming(checkpoint_id):
        checkpoint = await records.checkpoint_manifest(records.published(checkpoint_id))
        entries = checkpoint.participants
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
