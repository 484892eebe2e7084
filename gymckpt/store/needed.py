"""Whether all that a restore of some episodes will read is there and whole: asked before anything that lives is given up for it."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from gymckpt.core.chunks import is_large
from gymckpt.core.ids import Digest, Episode, ParticipantId
from gymckpt.core.manifest import used_copies
from gymckpt.errors import BlobNotFound, DamagedBlob, GymckptError
from gymckpt.rpc import codec
from gymckpt.store.interface import ArtifactStore

READ_AT_ONCE = 100  # blobs
BYTES_AT_ONCE = 16 * 2**20  # a larger blob is read alone, frame by frame
NAMED = 20  # rollouts that an error names

Needs = dict[Digest, set[str]]
"""Blobs, and the rollouts that need each."""
Schemas = dict[str, set[str]]
"""Schemas of state, and the rollouts whose sessions are kept in each."""


async def check_needed(
    store: ArtifactStore, manifest: Digest, episodes: Collection[Episode]
) -> dict[ParticipantId, Schemas]:
    """Reads and verifies every blob that the participants of the checkpoint with this manifest need to install these episodes; keeps none of them. Returns the
    schemas in which each participant would find its state.

    Raises BlobNotFound or DamagedBlob for the first that cannot be read, naming the rollouts that need it; StoreUnavailable.
    """
    wanted = frozenset(episodes)
    read: set[Digest] = set()
    schemas: dict[ParticipantId, Schemas] = {}
    for participant, exported in (await _manifests(store, manifest, wanted)).items():
        sessions = await _sessions(store, exported, wanted)
        schemas[participant] = defaultdict(set)
        for some in _slices(sessions):
            parts = await _parts(store, some, sessions, schemas[participant])
            for few in _slices(parts.keys() - read):
                await _check(store, few, parts)
            read.update(parts)
    return schemas


def needed_by(error: BlobNotFound | DamagedBlob, rollouts: Iterable[str]) -> GymckptError:
    """The same error, naming the first of the rollouts that need the blob."""
    needing = sorted(set(rollouts))
    named = ",".join(needing[:NAMED])
    more = f" and {len(needing) - NAMED} more" if len(needing) > NAMED else ""
    return type(error)(f"{error.message}; it is needed by {named}{more}", details={**error.details, "rollouts": named})


async def _manifests(
    store: ArtifactStore, manifest: Digest, wanted: Iterable[Episode]
) -> dict[ParticipantId, list[Digest]]:
    """What each participant exported, one manifest for each process that it had at the cut."""
    try:
        [data] = await store.read([manifest])
        checkpoint = codec.decode_checkpoint_manifest(data, _malformed(manifest))
    except (BlobNotFound, DamagedBlob) as error:
        raise needed_by(error, (episode.rollout_id for episode in wanted)) from error
    exported: dict[ParticipantId, list[Digest]] = defaultdict(list)
    for entry in checkpoint.participants:
        exported[entry.participant.id].append(entry.manifest)
    return exported


async def _sessions(store: ArtifactStore, manifests: Sequence[Digest], wanted: Collection[Episode]) -> Needs:
    """The session blobs that one participant would load."""
    try:
        blobs = dict(zip(manifests, await store.read(manifests), strict=True))
        return await asyncio.to_thread(_states, blobs, wanted)
    except (BlobNotFound, DamagedBlob) as error:
        raise needed_by(error, (episode.rollout_id for episode in wanted)) from error


def _states(manifests: Mapping[Digest, bytes], wanted: Collection[Episode]) -> Needs:
    found: Needs = defaultdict(set)
    exported = (codec.decode_participant_manifest(data, _malformed(digest)) for digest, data in manifests.items())
    records = (record for manifest in exported for record in manifest.records if record.episode in wanted)
    for record in used_copies(records):
        if record.state is not None:
            found[record.state].add(record.episode.rollout_id)
    return found


async def _parts(
    store: ArtifactStore, sessions: Sequence[Digest], needs: Mapping[Digest, set[str]], schemas: Schemas
) -> Needs:
    """The parts that these sessions list; adds their schemas."""
    found: Needs = defaultdict(set)
    try:
        for digest, data in zip(sessions, await store.read(sessions), strict=True):
            session = codec.decode_session(data, _malformed(digest))
            schemas[session.schema] |= needs[digest]
            for part in session.parts:
                found[part.digest] |= needs[digest]
    except (BlobNotFound, DamagedBlob) as error:
        raise _named(error, needs) from error
    return found


async def _check(store: ArtifactStore, digests: Sequence[Digest], needs: Mapping[Digest, set[str]]) -> None:
    try:
        if len(digests) == 1 and is_large(digests[0]):
            async for _ in store.read_range(digests[0]):
                pass
        else:
            await store.read(digests)
    except (BlobNotFound, DamagedBlob) as error:
        raise _named(error, needs) from error


def _named(error: BlobNotFound | DamagedBlob, needs: Mapping[Digest, set[str]]) -> GymckptError:
    return needed_by(error, needs[Digest.parse(error.details["digest"])])


def _malformed(digest: Digest) -> Callable[[str], GymckptError]:
    """What a blob is that is whole, but not what it is needed as."""
    return lambda why: DamagedBlob(f"blob {digest} is damaged: {why}", details={"digest": str(digest)})


def _slices(digests: Iterable[Digest]) -> Iterator[list[Digest]]:
    """What is read in one go; a large blob is alone."""
    some: list[Digest] = []
    size = 0
    for digest in digests:
        if some and (len(some) == READ_AT_ONCE or size + digest.size > BYTES_AT_ONCE or is_large(digest)):
            yield some
            some, size = [], 0
        some.append(digest)
        size += digest.size
        if is_large(digest):
            yield some
            some, size = [], 0
    if some:
        yield some
