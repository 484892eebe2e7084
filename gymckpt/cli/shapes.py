"""What commands print with --json: the values of the protocol under the names of the protos.

Episodes, participants and digests stand in their text form, enum values under their names without prefix, durations in seconds. Keys never disappear.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gymckpt.coordinator.values import (
    Checkpoint,
    CheckpointPage,
    CheckpointProgress,
    MemberReport,
    Membership,
    MemberStatus,
    RestoreProgress,
)
from gymckpt.core.ids import Episode, Fence
from gymckpt.core.kinds import Fate
from gymckpt.core.manifest import ParticipantInfo, RestoreTarget
from gymckpt.core.recovery import Recovery, Trouble
from gymckpt.core.report import Blocker, LostEpisode, Report, Restart
from gymckpt.core.results import FinishedResult
from gymckpt.errors import GymckptError
from gymckpt.store.interface import Damage, ScrubProgress

Shape = dict[str, Any]


def checkpoint_shape(checkpoint: Checkpoint) -> Shape:
    return {
        "checkpoint_id": checkpoint.checkpoint_id,
        "stage": checkpoint.stage.name,
        "epoch": checkpoint.epoch,
        "sequence": checkpoint.sequence,
        "unix_millis": checkpoint.unix_millis,
        "base_checkpoint_id": checkpoint.base_checkpoint_id,
        "labels": dict(sorted(checkpoint.labels.items())),
        "participants": [str(participant) for participant in checkpoint.participants],
        "episodes": checkpoint.episodes,
        "restarts": checkpoint.restarts,
        "lost": checkpoint.lost,
        "manifest": None if checkpoint.manifest is None else str(checkpoint.manifest),
        "why_aborted": checkpoint.why_aborted,
        "prepare_seconds": checkpoint.prepare_seconds,
        "pause_seconds": checkpoint.pause_seconds,
        "upload_seconds": checkpoint.upload_seconds,
        "blobs_sent": checkpoint.blobs_sent,
        "bytes_sent": checkpoint.bytes_sent,
        "waited_for": checkpoint.waited_for,
        "why_unreadable": checkpoint.why_unreadable,
    }


def progress_shape(
    progress: CheckpointProgress, lost: Iterable[LostEpisode] = (), deleted: Iterable[str] = ()
) -> Shape:
    return {
        "checkpoint": checkpoint_shape(progress.checkpoint),
        "waiting_for": [member_report_shape(report) for report in progress.waiting_for],
        "lost": [_why_shape(entry) for entry in lost],
        "deleted": list(deleted),
    }


def page_shape(pages: Iterable[CheckpointPage]) -> Shape:
    """All pages of one checkpoint; the first carries everything but the further episodes."""
    first, *further = pages
    episodes = [*first.episodes, *(episode for page in further for episode in page.episodes)]
    return {
        "checkpoint": checkpoint_shape(first.checkpoint),
        "episodes": [str(episode) for episode in episodes],
        "restarts": [_why_shape(entry) for entry in first.restarts],
        "lost": [_why_shape(entry) for entry in first.lost],
        "controller_state_bytes": len(first.controller_state),
    }


def restore_shape(progress: RestoreProgress, restore_id: str) -> Shape:
    outcome = {fate: [target_shape(t) for t in progress.outcome if t.fate is fate] for fate in Fate}
    return {
        "restore_id": restore_id,
        "checkpoint_id": progress.checkpoint_id,
        "stage": progress.stage.name,
        "restored": outcome[Fate.RESTORED],
        "restarted": outcome[Fate.RESTARTED],
        "lost": outcome[Fate.LOST],
    }


def target_shape(target: RestoreTarget) -> Shape:
    return {"source": str(target.source), "target": str(target.target), "why": target.why}


def membership_shape(membership: Membership) -> Shape:
    return {
        "epoch": membership.epoch,
        "members": [member_shape(member) for member in membership.members],
        "missing": [str(participant) for participant in membership.missing],
    }


def member_shape(member: MemberStatus) -> Shape:
    return {
        **info_shape(member.participant),
        "gate": member.holds.gate.name,
        "gate_fence": _fence_shape(member.holds.gate_fence),
        "export": member.holds.export.name,
        "export_fence": _fence_shape(member.holds.export_fence),
        "restore_fence": _fence_shape(member.holds.restore_fence),
        "episodes": member.holds.episodes,
        "silent_seconds": member.silent,
        "lost": [_why_shape(entry) for entry in member.lost],
    }


def info_shape(info: ParticipantInfo) -> Shape:
    return {
        "participant": str(info.id),
        "worker": info.worker,
        "boot_id": info.boot_id,
        "address": info.address,
        "capture": info.capture.name,
        "contract_revision": info.contract_revision,
        "state_schemas": list(info.state_schemas),
        "cookie_only": info.cookie_only,
    }


def member_report_shape(answer: MemberReport) -> Shape:
    report = None if answer.report is None else report_shape(answer.report)
    holds = answer.holds
    return {
        **info_shape(answer.participant),
        "report": report,
        "error": answer.error,
        "gate": None if holds is None else holds.gate.name,
        "gate_fence": None if holds is None else _fence_shape(holds.gate_fence),
        "lost": [_why_shape(entry) for entry in answer.lost],
    }


def recovery_shape(recovery: Recovery) -> Shape:
    return {
        "checkpoint_id": recovery.checkpoint_id,
        "rollouts": recovery.rollouts,
        "recoverable": recovery.recoverable,
        "troubles": [_trouble_shape(trouble) for trouble in recovery.troubles],
        "silent": [str(participant) for participant in recovery.silent],
    }


def _trouble_shape(trouble: Trouble) -> Shape:
    return {
        "episode": str(trouble.episode),
        "participant": None if trouble.participant is None else str(trouble.participant),
        "why": trouble.why,
        "restore": None if trouble.restore is None else str(trouble.restore),
    }


def report_shape(report: Report) -> Shape:
    return {
        "ready": report.ready,
        "blockers": [blocker_shape(blocker) for blocker in report.blockers],
        "blocker_count": report.blocker_count,
        "restarts": [_why_shape(restart) for restart in report.restarts],
        "counts": dict(sorted(report.counts.items())),
    }


def blocker_shape(blocker: Blocker) -> Shape:
    return {
        "type": blocker.type,
        "episode": None if blocker.episode is None else str(blocker.episode),
        "subject": blocker.subject,
        "age_seconds": blocker.age,
    }


def results_shape(results: Iterable[FinishedResult]) -> Shape:
    return {
        "results": [
            {
                "episode": str(result.episode),
                "receipt": result.receipt.hex(),
                "body": str(result.body),
                "durable": result.durable,
            }
            for result in results
        ]
    }


def acknowledged_shape(acknowledged: Iterable[Episode], unknown: Iterable[Episode]) -> Shape:
    return {
        "acknowledged": [str(episode) for episode in acknowledged],
        "unknown": [str(episode) for episode in unknown],
    }


def scrub_shape(end: ScrubProgress, damage: Iterable[Damage]) -> Shape:
    return {
        "blobs_checked": end.blobs_checked,
        "bytes_checked": end.bytes_checked,
        "damage": [damage_shape(found) for found in damage],
    }


def damage_shape(found: Damage) -> Shape:
    return {
        "digest": str(found.digest),
        "why": found.why,
        "checkpoint_ids": list(found.checkpoint_ids),
        "rollout_ids": list(found.rollout_ids),
    }


def error_shape(error: GymckptError, next_step: str) -> Shape:
    return {
        "error": {
            "reason": error.reason,
            "message": error.message,
            "details": error.details,
            "retry_after_seconds": error.retry_after,
            "next": next_step,
        }
    }


def _why_shape(entry: LostEpisode | Restart) -> Shape:
    shape = {"episode": str(entry.episode), "why": entry.why}
    return {**shape, "checkpoint_id": entry.checkpoint_id} if isinstance(entry, LostEpisode) else shape


def _fence_shape(fence: Fence | None) -> Shape | None:
    return None if fence is None else {"epoch": fence.epoch, "sequence": fence.sequence, "id": fence.checkpoint_id}
