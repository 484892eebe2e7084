"""Reading a checkpoint back out of a store: what each process exported, and the parts of one session."""

from __future__ import annotations

from dataclasses import dataclass

from gymckpt.core.ids import Digest
from gymckpt.core.manifest import CheckpointManifest, ParticipantManifest
from gymckpt.rpc import codec
from gymckpt.store.interface import ArtifactStore


@dataclass(frozen=True, slots=True)
class Contents:
    """A checkpoint without its bytes of state; `participants` are in the order of the manifest."""

    manifest: CheckpointManifest
    participants: tuple[ParticipantManifest, ...]


async def contents_of(store: ArtifactStore, manifest: Digest) -> Contents:
    """Reads the checkpoint with this manifest. Raises BlobNotFound, DamagedBlob, StoreUnavailable."""
    [data] = await store.read([manifest])
    checkpoint = codec.decode_checkpoint_manifest(data)
    exported = await store.read([entry.manifest for entry in checkpoint.participants])
    return Contents(checkpoint, tuple(map(codec.decode_participant_manifest, exported)))


async def parts_of(store: ArtifactStore, state: Digest) -> dict[str, bytes]:
    """The named parts of a session, as its server encoded them; `state` is that of its record. Raises like `contents_of`."""
    [data] = await store.read([state])
    parts = codec.decode_session(data).parts
    contents = await store.read([part.digest for part in parts])
    return {part.name: content for part, content in zip(parts, contents, strict=True)}
