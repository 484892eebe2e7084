"""What is known of checkpoints that have ended, read from the records."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

from gymckpt.coordinator.records import Records
from gymckpt.coordinator.values import Checkpoint, CheckpointPage
from gymckpt.core.arguments import LATEST
from gymckpt.core.manifest import CheckpointManifest, Decision, Intent, RestoreTarget
from gymckpt.core.standing import Stage
from gymckpt.errors import BlobNotFound, CheckpointNotFound, DamagedBlob, GymckptError, InvalidField, UnloadableState

DETAILS = 10_000


def resolve(records: Records, checkpoint_id: str) -> str:
    """The id itself, or that of the newest published one. Raises CheckpointNotFound."""
    return records.latest() if checkpoint_id == LATEST else checkpoint_id


@contextlib.contextmanager
def naming(checkpoint_id: str) -> Iterator[None]:
    """Around reading its manifest: raises the same error, naming the checkpoint."""
    try:
        yield
    except (BlobNotFound, DamagedBlob) as error:
        raise type(error)(
            f"the manifest of checkpoint {checkpoint_id!r} cannot be read: {error.message}; restore another",
            details={**error.details, "checkpoint_id": checkpoint_id},
        ) from error


def not_restored(checkpoint_id: str, error: GymckptError) -> GymckptError:
    """The same error, naming the checkpoint because of which a restore of it failed."""
    return type(error)(
        f"checkpoint {checkpoint_id!r} cannot be restored: {error.message}",
        details={**error.details, "checkpoint_id": checkpoint_id},
    )


def not_loadable(targets: Sequence[RestoreTarget]) -> UnloadableState:
    """Why a restore fails whose caller lets no episode start over: each target says what is wrong with it."""
    said = "; ".join(f"{target.source}: {target.why}" for target in targets[:20])
    return UnloadableState(
        f"{len(targets)} episodes cannot be loaded: {said}; restore with RESTART, or with the right server",
        details={"episodes": ",".join(str(target.source) for target in targets)},
    )


def page_start(token: str) -> int:
    """Where the page begins. Raises InvalidField for a token that was never given out."""
    if token == "":
        return 0
    if not token.isascii() or not token.isdigit() or len(token) > 12:
        raise InvalidField(f"page_token is not one of ours: {token[:40]!r}", field="page_token")
    return int(token)


def next_token(start: int, size: int, total: int) -> str:
    return str(start + size) if start + size < total else ""


async def ended_checkpoint(records: Records, checkpoint_id: str) -> Checkpoint:
    """Raises CheckpointNotFound for an id that was never used, or is still undecided; BlobNotFound or DamagedBlob when its manifest cannot be read."""
    with naming(checkpoint_id):
        return await _ended(records, checkpoint_id)


async def listed_checkpoint(records: Records, checkpoint_id: str) -> Checkpoint:
    """One whose manifest cannot be read says so, and what is known without it: it must not hide the others. Raises CheckpointNotFound."""
    try:
        return await _ended(records, checkpoint_id)
    except (BlobNotFound, DamagedBlob) as error:
        decision = records.decisions[checkpoint_id]
        known = _without_manifest(checkpoint_id, records.intents.get(checkpoint_id), decision)
        return replace(
            known,
            stage=Stage.PUBLISHED,
            unix_millis=decision.unix_millis,
            manifest=decision.manifest,
            why_aborted="",
            why_unreadable=error.message,
        )


async def _ended(records: Records, checkpoint_id: str) -> Checkpoint:
    decision = await records.decision(checkpoint_id)
    if decision is None:
        raise CheckpointNotFound(
            f"there is no checkpoint {checkpoint_id!r}; list those that exist", details={"checkpoint_id": checkpoint_id}
        )
    if decision.manifest is None or checkpoint_id in records.deleted:
        return _without_manifest(checkpoint_id, records.intents.get(checkpoint_id), decision)
    return _with_manifest(await records.checkpoint_manifest(decision.manifest), decision)


async def read_page(records: Records, checkpoint: Checkpoint, size: int, token: str) -> CheckpointPage:
    """The checkpoint with a page of its episodes; only published ones have any."""
    start = page_start(token)
    if checkpoint.manifest is None:
        return CheckpointPage(checkpoint)
    with naming(checkpoint.checkpoint_id):
        manifest = await records.checkpoint_manifest(checkpoint.manifest)
    first = start == 0
    return CheckpointPage(
        checkpoint,
        manifest.episodes[start : start + size],
        manifest.restarts[:DETAILS] if first else (),
        manifest.lost[:DETAILS] if first else (),
        manifest.controller_state if first else b"",
        next_token(start, size, len(manifest.episodes)),
    )


def newest_first(records: Records) -> list[str]:
    """Ids of all checkpoints that were ever begun and are not deleted."""
    intents = records.intents
    there = intents.keys() - records.deleted
    return sorted(there, key=lambda name: (intents[name].epoch, intents[name].sequence), reverse=True)


def _without_manifest(checkpoint_id: str, intent: Intent | None, decision: Decision) -> Checkpoint:
    return Checkpoint(
        checkpoint_id,
        Stage.ABORTED,
        epoch=intent.epoch if intent else 0,
        sequence=intent.sequence if intent else 0,
        base_checkpoint_id=intent.base_checkpoint_id if intent else "",
        participants=tuple(sorted({info.id for info in intent.members})) if intent else (),
        why_aborted=decision.why or "it was deleted",
    )


def _with_manifest(manifest: CheckpointManifest, decision: Decision) -> Checkpoint:
    return Checkpoint(
        manifest.checkpoint_id,
        Stage.PUBLISHED,
        epoch=manifest.epoch,
        sequence=manifest.sequence,
        unix_millis=manifest.unix_millis,
        base_checkpoint_id=manifest.base_checkpoint_id,
        labels=manifest.labels,
        participants=tuple(sorted({entry.participant.id for entry in manifest.participants})),
        episodes=len(manifest.episodes),
        restarts=len(manifest.restarts),
        lost=len(manifest.lost),
        manifest=decision.manifest,
    )
