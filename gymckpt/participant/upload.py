"""Turning a cut into blobs: encode in threads what changed, send what the store lacks, list it all in the participant manifest."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gymckpt.core.chunks import FRAME, chunk_list, digest_of
from gymckpt.core.ids import Digest
from gymckpt.core.manifest import EpisodeRecord, Part, ParticipantManifest, StoredSession
from gymckpt.core.report import LostEpisode
from gymckpt.core.transitions import Uploaded
from gymckpt.errors import CutVoid, DamagedBlob, NotFound
from gymckpt.participant.yielding import yielding
from gymckpt.rpc.codec import (
    decode_checkpoint_manifest,
    decode_decision,
    decode_participant_manifest,
    encode_participant_manifest,
    encode_session,
)

log = logging.getLogger("gymckpt.participant")

if TYPE_CHECKING:
    from gymckpt.participant.base import Participant
    from gymckpt.participant.cut import Cut, FrozenSession
    from gymckpt.participant.state import SessionState
    from gymckpt.store.interface import ArtifactStore

FAILED_SHOWN = 20  # episodes that could not be captured, in the log of one checkpoint
GROUP = 32  # sessions encoded in one thread hop
BATCH = 8 * 2**20  # bytes of encoded state after which it is sent: bounds the memory that it takes


@dataclass(slots=True)
class Sent:
    """What the store did not have."""

    blobs: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Encoded:
    """One session as blobs; `error` instead when it could not be encoded."""

    record: EpisodeRecord
    blobs: Mapping[Digest, bytes]
    error: str = ""


async def store_cut(p: Participant, cut: Cut) -> Uploaded:
    """Makes the cut durable and returns the digest of its manifest.

    Raises CutVoid when the base no longer holds what was to be reused, StoreUnavailable or StoreFull when the store fails: the cut is kept, and the next call
    sends the same.
    """
    store, sent = p.require_store(), Sent()
    await _check_reused(p, store, cut)
    records: list[EpisodeRecord] = []
    failed = dict(cut.failed)
    batch: dict[Digest, bytes] = {}
    for group in _groups(cut.sessions):
        for entry in await asyncio.to_thread(_encode_group, group, p.state):
            if entry.error:
                failed[entry.record.episode] = f"{p.id}: {entry.error}"[:256]
            else:
                records.append(entry.record)
                batch |= entry.blobs
        if sum(map(len, batch.values())) > BATCH:
            await send(store, batch, sent)
            batch = {}
    await send(store, batch, sent)
    kept = [record for record in records if record.episode not in failed]
    cut.records = sorted(kept, key=lambda record: (record.episode, record.session))
    manifest = encode_participant_manifest(ParticipantManifest(cut.checkpoint_id, p.id, p.boot_id, tuple(cut.records)))
    digest = digest_of(manifest)
    await send(store, {digest: manifest}, sent)
    lost = tuple(LostEpisode(episode, failed[episode]) for episode in sorted(failed))
    for missing in lost[:FAILED_SHOWN]:
        log.warning("%s is not in checkpoint %s: %s", missing.episode, cut.checkpoint_id, missing.why)
    return Uploaded(digest, sent.blobs, sent.bytes, len(kept), lost)


async def send(store: ArtifactStore, blobs: Mapping[Digest, bytes], sent: Sent) -> None:
    """Asks first, sends what is missing. Raises StoreUnavailable, StoreFull."""
    if not blobs:
        return
    missing = [blobs[digest] for digest in await store.find_missing(list(blobs))]
    if missing:
        await store.write(missing)
    sent.blobs += len(missing)
    sent.bytes += sum(map(len, missing))


async def _check_reused(p: Participant, store: ArtifactStore, cut: Cut) -> None:
    """Only what the base's manifest holds for this very process may be reused. Raises CutVoid."""
    reused = {entry.reused: entry.episode for entry in cut.sessions if entry.reused is not None}
    if not reused:
        return
    held = await _base_states(p, store, cut.base_checkpoint_id)
    gone = [(digest, episode) for digest, episode in reused.items() if digest not in held]
    if gone:
        raise CutVoid(
            f"base {cut.base_checkpoint_id!r} no longer holds {len(gone)} sessions of {p.id} that were to be reused, first {gone[0][0]} of {gone[0][1]}"
        )


async def _base_states(p: Participant, store: ArtifactStore, base: str) -> set[Digest]:
    try:
        decision = decode_decision(await store.get_name(f"decisions/{base}"))
        if decision.manifest is None:
            return set()
        [checkpoint] = await store.read([decision.manifest])
        ours = [
            entry.manifest
            for entry in decode_checkpoint_manifest(checkpoint).participants
            if entry.participant.boot_id == p.boot_id
        ]
        manifests = [decode_participant_manifest(data) for data in await store.read(ours)] if ours else []
    except (NotFound, DamagedBlob) as error:
        raise CutVoid(
            f"base {base!r} cannot be read any more: {error.message}; take a new checkpoint in full",
            details={**error.details, "base": base},
        ) from error
    return {record.state for manifest in manifests for record in manifest.records if record.state is not None}


def _groups(sessions: Iterable[FrozenSession]) -> Iterator[list[FrozenSession]]:
    iterator = iter(sessions)
    while group := list(itertools.islice(iterator, GROUP)):
        yield group


def _encode_group(group: list[FrozenSession], state: SessionState[object, object] | None) -> list[Encoded]:
    with yielding():
        return [_encode(frozen, state) for frozen in group]


def _encode(frozen: FrozenSession, state: SessionState[object, object] | None) -> Encoded:
    if frozen.reused is not None or not frozen.stateful or state is None:
        return Encoded(_record(frozen, frozen.reused), {})
    blobs: dict[Digest, bytes] = {}
    try:
        parts = tuple(_part(name, data, blobs) for name, data in sorted(state.encode(frozen.frozen).items()))
    except Exception as error:  # noqa: BLE001 - an author's encode may raise anything; its episode alone is named as lost
        return Encoded(_record(frozen, None), {}, f"session {frozen.key!r} could not be encoded: {error!r}")
    session = encode_session(StoredSession(state.schema, parts, frozen.receipts))
    digest = digest_of(session)
    blobs[digest] = session
    return Encoded(_record(frozen, digest), blobs)


def _part(name: str, data: bytes, blobs: dict[Digest, bytes]) -> Part:
    """Names a part and adds its blobs."""
    digest = digest_of(data)
    blobs[digest] = data
    if len(data) <= FRAME:
        return Part(name, digest)
    chunks = chunk_list(data)
    listed = digest_of(chunks)
    blobs[listed] = chunks
    return Part(name, digest, listed)


def _record(frozen: FrozenSession, state: Digest | None) -> EpisodeRecord:
    return EpisodeRecord(
        frozen.episode,
        frozen.key,
        state,
        frozen.revision,
        frozen.unreceipted_revision,
        frozen.boundary,
        frozen.touches,
    )
