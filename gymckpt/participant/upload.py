"""Turning a cut into blobs: encode in threads what changed, send what the store lacks, list it all in the participant manifest."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from gymckpt.core.chunks import FRAME, chunk_list, digest_of
from gymckpt.core.ids import Digest, Episode
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
# Encoding takes turns with the event loop. One that comes late after a turn has calls to answer, and the interpreter is left to it for a while. But the longer
# the loop's own steps are, the longer are the turns, so that an upload comes to an end however busy the server is.
TURN_SECONDS, LONGEST_TURN = 0.0005, 0.25  # one session at least
LATE_SECONDS = 0.0005
REST, LONGEST_REST = 3, 0.05  # seconds without encoding for each second that the loop was late; at most
BATCH = 8 * 2**20  # bytes of encoded state after which it is sent: bounds the memory that it takes
REMEMBERED = 16 * 2**10  # bytes of a part whose digest is remembered: most parts of a session are those of another


@dataclass(slots=True)
class Sent:
    """What the store did not have."""

    blobs: int = 0
    bytes: int = 0


@dataclass(slots=True)
class Batch:
    """What is sent together."""

    blobs: dict[Digest, bytes] = field(default_factory=dict)
    size: int = 0

    def add(self, blobs: Mapping[Digest, bytes]) -> None:
        self.size += sum(digest.size for digest in blobs if digest not in self.blobs)
        self.blobs |= blobs


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
    with yielding():
        await _check_reused(p, store, cut)
        records, errors = await _store_sessions(store, cut, p.state, sent)
        failed = cut.failed | {episode: f"{p.id}: {error}"[:256] for episode, error in errors.items()}
        kept = [record for record in records if record.episode not in failed]
        cut.records = sorted(kept, key=lambda record: (record.episode, record.session))
        content = ParticipantManifest(cut.checkpoint_id, p.id, p.boot_id, tuple(cut.records))
        manifest = await asyncio.to_thread(encode_participant_manifest, content)
    digest = digest_of(manifest)
    await send(store, {digest: manifest}, sent)
    lost = tuple(LostEpisode(episode, failed[episode]) for episode in sorted(failed))
    for missing in lost[:FAILED_SHOWN]:
        log.warning("%s is not in checkpoint %s: %s", missing.episode, cut.checkpoint_id, missing.why)
    return Uploaded(digest, sent.blobs, sent.bytes, len(kept), lost)


async def _store_sessions(
    store: ArtifactStore, cut: Cut, state: SessionState[object, object] | None, sent: Sent
) -> tuple[list[EpisodeRecord], dict[Episode, str]]:
    """Sends all that is not in the store; the records, and why an episode's session could not be encoded."""
    records: list[EpisodeRecord] = []
    errors: dict[Episode, str] = {}
    batch = Batch()
    async for encoded in _encoded(cut.sessions, state):
        for entry in encoded:
            if entry.error:
                errors[entry.record.episode] = entry.error
            else:
                records.append(entry.record)
                batch.add(entry.blobs)
        if batch.size > BATCH:
            await send(store, batch.blobs, sent)
            batch = Batch()
    await send(store, batch.blobs, sent)
    return records, errors


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
        found = await store.read(ours) if ours else []
        manifests = await asyncio.to_thread(lambda: [decode_participant_manifest(data) for data in found])
    except (NotFound, DamagedBlob) as error:
        raise CutVoid(
            f"base {base!r} cannot be read any more: {error.message}; take a new checkpoint in full",
            details={**error.details, "base": base},
        ) from error
    return {record.state for manifest in manifests for record in manifest.records if record.state is not None}


async def _encoded(
    sessions: Iterable[FrozenSession], state: SessionState[object, object] | None
) -> AsyncIterator[list[Encoded]]:
    """All of them, a turn at a time."""
    left, turn = iter(sessions), TURN_SECONDS
    while True:
        encoded, ended = await asyncio.to_thread(_encode_turn, left, state, turn)
        late = time.perf_counter() - ended
        if not encoded:
            return
        if late > LATE_SECONDS:
            await asyncio.sleep(min(REST * late, LONGEST_REST))
        turn = min(max(late / 4, TURN_SECONDS), LONGEST_TURN)
        yield encoded


def _encode_turn(
    left: Iterator[FrozenSession], state: SessionState[object, object] | None, seconds: float
) -> tuple[list[Encoded], float]:
    """What was encoded, and when that ended."""
    ends = time.perf_counter() + seconds
    encoded: list[Encoded] = []
    for frozen in left:
        encoded.append(_encode(frozen, state))
        if time.perf_counter() > ends:
            break
    return encoded, time.perf_counter()


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
    digest = _remembered(bytes(data)) if len(data) <= REMEMBERED else digest_of(data)
    blobs[digest] = data
    if len(data) <= FRAME:
        return Part(name, digest)
    chunks = chunk_list(data)
    listed = digest_of(chunks)
    blobs[listed] = chunks
    return Part(name, digest, listed)


_remembered = lru_cache(maxsize=1024)(
    digest_of
)  # looking one up leaves the interpreter to no other thread, as hashing does


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
