"""Reading a participant's part of a checkpoint: everything is read, verified and loaded before anything is installed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gymckpt.core.ids import Digest, Episode
from gymckpt.core.kinds import Capture
from gymckpt.core.manifest import EpisodeRecord, Receipt, StoredSession, used_copies
from gymckpt.core.report import LostEpisode
from gymckpt.core.transitions import Install
from gymckpt.errors import BlobNotFound, DamagedBlob, GymckptError, UnloadableState
from gymckpt.rpc.codec import decode_checkpoint_manifest, decode_participant_manifest, decode_session
from gymckpt.store.needed import needed_by

if TYPE_CHECKING:
    from gymckpt.participant.base import Participant
    from gymckpt.participant.state import SessionState
    from gymckpt.store.interface import ArtifactStore

GROUP = 64  # sessions whose parts are read in one go


@dataclass(frozen=True, slots=True)
class Loaded:
    """One session, ready to be installed; `value` counts only where it is `stateful`."""

    target: Episode
    record: EpisodeRecord
    stateful: bool
    value: Any
    receipts: tuple[Receipt, ...]


async def load_targets(
    p: Participant, store: ArtifactStore, install: Install
) -> tuple[list[Loaded], tuple[LostEpisode, ...]]:
    """Loads this participant's records of the targets; returns them, and the targets that it cannot load, with the reason.

    Raises BlobNotFound and DamagedBlob, naming the rollout: nothing of a damaged checkpoint is installed.
    """
    targets = {target.source: target.target for target in install.targets}
    records = [record for record in await _records(p, store, install) if record.episode in targets]
    loaded: list[Loaded] = []
    unloadable = {targets[record.episode]: why for record, why in _repeated(p, records)}
    for start in range(0, len(records), GROUP):
        group = records[start : start + GROUP]
        sessions = await _read_sessions(store, group)
        parts = await _read_parts(store, group, sessions)
        for record in group:
            target = targets[record.episode]
            try:
                loaded.append(await _load(p, record, target, sessions, parts))
            except UnloadableState as error:
                unloadable.setdefault(target, error.message[:256])
    kept = [entry for entry in loaded if entry.target not in unloadable]
    return kept, tuple(LostEpisode(episode, unloadable[episode]) for episode in sorted(unloadable))


async def own_records(p: Participant, store: ArtifactStore, install: Install) -> list[EpisodeRecord]:
    """What this very process held of the targets at the cut. Raises like `load_targets`."""
    targets = {target.source for target in install.targets}
    records = await _records(p, store, install, boot_id=p.boot_id)
    return [record for record in records if record.episode in targets]


async def _records(p: Participant, store: ArtifactStore, install: Install, *, boot_id: str = "") -> list[EpisodeRecord]:
    """Records of every process that this participant had at the cut, or only of the one with this boot id."""
    try:
        [data] = await store.read([install.manifest])
        entries = [e for e in decode_checkpoint_manifest(data).participants if e.participant.id == p.id]
        ours = [entry.manifest for entry in entries if boot_id in ("", entry.participant.boot_id)]
        manifests = [decode_participant_manifest(data) for data in await store.read(ours)] if ours else []
    except (BlobNotFound, DamagedBlob) as error:
        raise needed_by(error, (target.source.rollout_id for target in install.targets)) from error
    return used_copies(record for manifest in manifests for record in manifest.records)


def _repeated(p: Participant, records: list[EpisodeRecord]) -> Iterator[tuple[EpisodeRecord, str]]:
    """Records whose session another record claims as well: which of them is live cannot be told."""
    count = Counter(record.session for record in records)
    for record in records:
        if count[record.session] > 1:
            yield record, f"the checkpoint holds session {record.session!r} of {p.id} {count[record.session]} times"


async def _read_sessions(store: ArtifactStore, records: list[EpisodeRecord]) -> dict[Digest, StoredSession]:
    wanted = list(dict.fromkeys(record.state for record in records if record.state is not None))
    try:
        return (
            {digest: decode_session(data) for digest, data in zip(wanted, await store.read(wanted), strict=True)}
            if wanted
            else {}
        )
    except (BlobNotFound, DamagedBlob) as error:
        raise _named(error, records, {}) from error


async def _read_parts(
    store: ArtifactStore, records: list[EpisodeRecord], sessions: Mapping[Digest, StoredSession]
) -> dict[Digest, bytes]:
    wanted = list(dict.fromkeys(part.digest for session in sessions.values() for part in session.parts))
    try:
        return dict(zip(wanted, await store.read(wanted), strict=True)) if wanted else {}
    except (BlobNotFound, DamagedBlob) as error:
        raise _named(error, records, sessions) from error


def _named(
    error: BlobNotFound | DamagedBlob, records: list[EpisodeRecord], sessions: Mapping[Digest, StoredSession]
) -> GymckptError:
    """The same error, naming the rollouts whose state needs the blob."""
    blob = error.details.get("digest")  # a blob that is whole but no session does not say which it was
    holding = {state for state, session in sessions.items() if any(str(part.digest) == blob for part in session.parts)}
    needing = [record for record in records if str(record.state) == blob or record.state in holding]
    return needed_by(error, (record.episode.rollout_id for record in needing or records))


async def _load(
    p: Participant,
    record: EpisodeRecord,
    target: Episode,
    sessions: Mapping[Digest, StoredSession],
    parts: Mapping[Digest, bytes],
) -> Loaded:
    if record.state is None:
        if p.capture is Capture.EXPORTED:
            raise UnloadableState(f"{p.id} needs state, the checkpoint holds none for session {record.session!r}")
        return Loaded(target, record, False, None, ())
    stored = sessions[record.state]
    if p.state is None or p.capture is not Capture.EXPORTED:
        raise UnloadableState(
            f"{p.id} keeps no state, the checkpoint holds {stored.schema!r} for session {record.session!r}"
        )
    if stored.schema != p.state.schema:
        raise UnloadableState(
            f"{p.id} loads {p.state.schema!r}, the checkpoint holds {stored.schema!r} for session {record.session!r}"
        )
    named = {part.name: parts[part.digest] for part in stored.parts}
    value = await asyncio.to_thread(_load_value, p.state, record.session, named)
    return Loaded(target, record, True, value, stored.receipts)


def _load_value(state: SessionState[Any, Any], session: str, parts: Mapping[str, bytes]) -> Any:
    try:
        return state.load(parts)
    except UnloadableState as error:
        raise UnloadableState(f"session {session!r}: {error.message}") from error
    except Exception as error:  # an author's load may raise anything; its episode alone cannot be loaded
        raise UnloadableState(f"session {session!r} is not {state.schema!r}: {error!r}") from error
