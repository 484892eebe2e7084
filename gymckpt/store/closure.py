"""What a checkpoint needs: from its manifest to those of its participants, their sessions and their parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

from gymckpt.core.ids import Digest
from gymckpt.errors import BlobNotFound, DamagedBlob
from gymckpt.rpc import codec
from gymckpt.store.interface import ArtifactStore

T = TypeVar("T")
READ_AT_ONCE = 100  # sessions decoded before other work of the process gets its turn


@dataclass(slots=True)
class Closure:
    """All blobs below a checkpoint manifest.

    `needs` maps each to the rollouts that need it, `lacking` those that are missing or damaged to the reason. What lies
    below a blob that is lacking is not known.
    """

    checkpoint_id: str = ""
    needs: dict[Digest, set[str]] = field(default_factory=dict)
    lacking: dict[Digest, str] = field(default_factory=dict)

    def need(self, digest: Digest, rollouts: Iterable[str]) -> None:
        self.needs.setdefault(digest, set()).update(rollouts)


async def closure_of(store: ArtifactStore, manifest: Digest) -> Closure:
    """Walks everything below a checkpoint manifest; what cannot be read is listed, never raised. Raises StoreUnavailable."""
    closure = Closure()
    closure.need(manifest, ())
    root = await _read(store, [manifest], closure)
    if manifest not in root:
        return closure
    checkpoint = _decoded(closure, manifest, root[manifest], codec.decode_checkpoint_manifest)
    if checkpoint is None:
        return closure
    closure.checkpoint_id = checkpoint.checkpoint_id
    everyone = {episode.rollout_id for episode in checkpoint.episodes}
    closure.need(manifest, everyone)
    participants = [entry.manifest for entry in checkpoint.participants]
    for digest in participants:
        closure.need(digest, everyone)
    sessions = await _sessions(store, participants, closure)
    await _parts(store, sessions, closure)
    return closure


async def _sessions(store: ArtifactStore, participants: Sequence[Digest], closure: Closure) -> list[Digest]:
    """The session blobs of all participants, each once."""
    sessions: dict[Digest, None] = {}
    for digest in participants:
        for found, data in (await _read(store, [digest], closure)).items():
            manifest = _decoded(closure, found, data, codec.decode_participant_manifest)
            for record in manifest.records if manifest else ():
                if record.state is not None:
                    closure.need(record.state, (record.episode.rollout_id,))
                    sessions[record.state] = None
    return list(sessions)


async def _parts(store: ArtifactStore, sessions: Sequence[Digest], closure: Closure) -> None:
    parts: dict[Digest, None] = {}
    for some in _slices(sessions):
        for digest, data in (await _read(store, some, closure)).items():
            session = _decoded(closure, digest, data, codec.decode_session)
            for part in session.parts if session else ():
                for needed in (part.digest, part.chunk_list):
                    if needed is not None:
                        closure.need(needed, closure.needs[digest])
                        parts[needed] = None
    for digest in await store.find_missing(list(parts)) if parts else ():
        closure.lacking.setdefault(digest, "missing")


async def _read(store: ArtifactStore, digests: Sequence[Digest], closure: Closure) -> dict[Digest, bytes]:
    """Those that can be read; the others are noted as lacking."""
    for digest in await store.find_missing(digests):
        closure.lacking[digest] = "missing"
    wanted = [digest for digest in digests if digest not in closure.lacking]
    while wanted:
        try:
            return dict(zip(wanted, await store.read(wanted), strict=True))
        except (BlobNotFound, DamagedBlob) as error:
            lacking = Digest.parse(error.details["digest"])
            closure.lacking[lacking] = "missing" if isinstance(error, BlobNotFound) else f"damaged: {error.message}"
            wanted.remove(lacking)
    return {}


def _decoded(closure: Closure, digest: Digest, data: bytes, decode: Callable[[bytes], T]) -> T | None:
    """The decoded blob; one whose content is no such message is noted as lacking."""
    try:
        return decode(data)
    except DamagedBlob as malformed:
        closure.lacking[digest] = f"damaged: {malformed.message}"
        return None


def _slices(digests: Sequence[Digest]) -> Iterator[list[Digest]]:
    rest = iter(digests)
    while some := list(islice(rest, READ_AT_ONCE)):
        yield some
