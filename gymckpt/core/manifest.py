"""What a checkpoint is made of, as values; `join` decides which episodes it can continue."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from gymckpt.core.ids import Digest, Episode, ParticipantId
from gymckpt.core.kinds import Capture, Fate, Kind
from gymckpt.core.report import LostEpisode, Restart


@dataclass(frozen=True, slots=True)
class ParticipantInfo:
    """What a process says of itself; see ParticipantInfo in types.proto."""

    id: ParticipantId
    worker: str
    boot_id: str
    address: str
    capture: Capture
    contract_revision: int = 1
    features: tuple[str, ...] = ()
    state_schemas: tuple[str, ...] = ()
    cookie_only: bool = False
    relayed: bool = False


@dataclass(frozen=True, slots=True)
class MemberAddress:
    """Where a process is reached; `relayed` when something else stands there, so that a refused connection does not say that the process is dead."""

    address: str
    relayed: bool = False


@dataclass(frozen=True, slots=True)
class Touch:
    """A session at another participant, as seen from a boundary; an empty session means any of the episode's."""

    participant: ParticipantId
    session: str = ""
    revision: int = 0


@dataclass(frozen=True, slots=True)
class EpisodeRecord:
    """One session of an episode at one participant, as exported; see EpisodeRecord in manifest.proto."""

    episode: Episode
    session: str
    state: Digest | None
    revision: int = 0
    unreceipted_revision: int = 0
    boundary: str = ""
    touches: tuple[Touch, ...] = ()


@dataclass(frozen=True, slots=True)
class ParticipantManifest:
    """What one process exported; records in the order of episode and session."""

    checkpoint_id: str
    participant: ParticipantId
    boot_id: str
    records: tuple[EpisodeRecord, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """A named part of a session; `chunk_list` for parts over one frame."""

    name: str
    digest: Digest
    chunk_list: Digest | None = None


@dataclass(frozen=True, slots=True)
class Receipt:
    """Stored answer of a repeatable mutation; `request` is BLAKE3 of method, path and body."""

    request_id: str
    request: bytes
    revision: int
    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


@dataclass(frozen=True, slots=True)
class StoredSession:
    """One session's state as a blob lists it."""

    schema: str
    parts: tuple[Part, ...]
    receipts: tuple[Receipt, ...] = ()


@dataclass(frozen=True, slots=True)
class ParticipantEntry:
    """One process in a checkpoint."""

    participant: ParticipantInfo
    manifest: Digest


@dataclass(frozen=True, slots=True)
class CheckpointManifest:
    """The whole checkpoint; see CheckpointManifest in manifest.proto."""

    checkpoint_id: str
    epoch: int
    sequence: int
    unix_millis: int
    base_checkpoint_id: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    controller_state: bytes = b""
    participants: tuple[ParticipantEntry, ...] = ()
    episodes: tuple[Episode, ...] = ()
    restarts: tuple[Restart, ...] = ()
    lost: tuple[LostEpisode, ...] = ()


@dataclass(frozen=True, slots=True)
class Intent:
    """A checkpoint that was begun."""

    epoch: int
    sequence: int
    members: tuple[ParticipantInfo, ...]
    base_checkpoint_id: str
    arguments: bytes


@dataclass(frozen=True, slots=True)
class RestoreTarget:
    """One episode of a restore: what becomes of it, and the attempt given to it."""

    source: Episode
    attempt: int
    fate: Fate
    why: str = ""

    @property
    def target(self) -> Episode:
        return Episode(self.source.rollout_id, self.attempt)


@dataclass(frozen=True, slots=True)
class RestoreIntent:
    """A restore that was begun."""

    epoch: int
    sequence: int
    checkpoint_id: str
    manifest: Digest
    targets: tuple[RestoreTarget, ...]
    members: tuple[ParticipantInfo, ...]
    arguments: bytes


@dataclass(frozen=True, slots=True)
class Decision:
    """The one decision about a round: `manifest` when it was published (or installed), `why` when it was aborted."""

    manifest: Digest | None
    why: str = ""
    restarted: tuple[RestoreTarget, ...] = ()
    unix_millis: int = 0

    @property
    def published(self) -> bool:
        return self.manifest is not None


@dataclass(frozen=True, slots=True)
class Floor:
    """Refused attempts of a rollout: all up to `refused` (-1: none), and the start of `target` by a process that did not install it."""

    rollout_id: str
    refused: int = -1
    target: int = 0


def join(
    manifests: Iterable[ParticipantManifest], failed: Mapping[Episode, str], residents: Collection[ParticipantId] = ()
) -> tuple[tuple[Episode, ...], tuple[LostEpisode, ...], tuple[ParticipantId, ...]]:
    """Which episodes the manifests together can continue.

    Returns (continuable, lost, unknown): an episode is continuable when every session that one of its records touches was exported, under the same attempt, at
    least at the revision seen, with a receipt for every call beyond it. `failed` names episodes that a participant could not encode. `unknown` lists touched
    participants that are in no manifest.
    An episode that only policy models know has finished: they keep its calls until it is retired, and nobody can continue it. One that only `residents` (and
    models) know is nothing that a restore could bring back.
    """
    found: dict[Episode, dict[ParticipantId, list[EpisodeRecord]]] = defaultdict(lambda: defaultdict(list))
    live: set[Episode] = set()
    members: set[ParticipantId] = set()
    exported_by: dict[ParticipantId, list[EpisodeRecord]] = defaultdict(list)
    for manifest in manifests:
        members.add(manifest.participant)
        exported_by[manifest.participant].extend(manifest.records)
    lost: dict[Episode, str] = dict(failed)
    for participant, records in exported_by.items():
        for record in used_copies(records):
            if any(other.session == record.session for other in found[record.episode][participant]):
                lost[record.episode] = (
                    f"two processes of {participant} hold session {record.session!r} in different states"
                )
            found[record.episode][participant].append(record)
            if participant.kind is not Kind.MODEL and participant not in residents:
                live.add(record.episode)
    unknown: set[ParticipantId] = set()
    for episode, exported in found.items():
        if episode not in live:
            continue
        seen = _seen(exported)
        unknown.update(participant for participant, _ in seen if participant not in members)
        why = next(
            (
                why
                for (participant, session), revision in seen.items()
                if (why := _gap(participant, session, revision, exported))
            ),
            "",
        )
        if why:
            lost.setdefault(episode, why)
    continuable = tuple(sorted(live - lost.keys()))
    return continuable, tuple(LostEpisode(episode, lost[episode]) for episode in sorted(lost)), tuple(sorted(unknown))


def used_copies(records: Iterable[EpisodeRecord]) -> list[EpisodeRecord]:
    """Records of one participant with each session of an episode once: a restore gives every process of a participant a copy, and only the one that its
    calls reach goes on, so the copy with the highest revision is the session. Copies of one revision in different states are both returned."""
    used: dict[tuple[Episode, str], dict[Digest | None, EpisodeRecord]] = {}
    for record in records:
        copies = used.setdefault((record.episode, record.session), {})
        highest = max((copy.revision for copy in copies.values()), default=-1)
        if record.revision > highest:
            copies.clear()
        if record.revision >= highest:
            copies[record.state] = record
    return [record for copies in used.values() for record in copies.values()]


def _seen(exported: Mapping[ParticipantId, list[EpisodeRecord]]) -> dict[tuple[ParticipantId, str], int]:
    """Highest revision of each session that any boundary of the episode saw: what one caller missed, another may have seen."""
    seen: dict[tuple[ParticipantId, str], int] = {}
    for touch in (touch for records in exported.values() for record in records for touch in record.touches):
        key = (touch.participant, touch.session)
        seen[key] = max(seen.get(key, 0), touch.revision)
    return seen


def _gap(
    participant: ParticipantId, session: str, seen: int, exported: Mapping[ParticipantId, list[EpisodeRecord]]
) -> str:
    """Why the records of the touched participant do not cover what was seen of its session; empty when they do."""
    matching = [record for record in exported.get(participant, []) if session in ("", record.session)]
    if not matching:
        return f"{participant} did not export session {session or 'of the episode'!r}"
    for record in matching:
        if record.revision < seen:
            return f"{participant} exported session {record.session!r} at revision {record.revision}, its caller had seen {seen}"
        if record.unreceipted_revision > seen:
            return (
                f"{participant} session {record.session!r} was changed at revision {record.unreceipted_revision} by a call without receipt; "
                f"its caller had seen {seen}"
            )
    return ""
