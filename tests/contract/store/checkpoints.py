"""Small whole checkpoints to put into a store."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gymckpt.core.chunks import chunk_list, digest_of
from gymckpt.core.ids import Digest, Episode, ParticipantId
from gymckpt.core.kinds import Capture, Kind
from gymckpt.core.manifest import (
    CheckpointManifest,
    Decision,
    EpisodeRecord,
    Part,
    ParticipantEntry,
    ParticipantInfo,
    ParticipantManifest,
    StoredSession,
)
from gymckpt.rpc import codec

INFO = ParticipantInfo(ParticipantId(Kind.RESOURCES, "counter"), "0", "ab" * 16, "127.0.0.1:1", Capture.EXPORTED)
ROLLOUTS = ("r1", "r2", "r3")


@dataclass(frozen=True)
class Checkpoint:
    """The blobs of a checkpoint by what they are; `of(rollout)` names one session's own part."""

    checkpoint_id: str
    blobs: dict[str, bytes]

    def digest(self, what: str) -> Digest:
        return digest_of(self.blobs[what])

    @property
    def decision(self) -> bytes:
        return codec.encode_decision(Decision(self.digest("manifest")))


def checkpoint(checkpoint_id: str = "c1", large: bytes = b"") -> Checkpoint:
    """Three sessions of one participant: each with a part of its own and one that all share, the first with a large one too."""
    blobs: dict[str, bytes] = {"shared": b"the same for all"}
    records = []
    for rollout in ROLLOUTS:
        blobs[f"part {rollout}"] = f"state of {rollout} in {checkpoint_id}".encode()
        parts = [Part("own", digest_of(blobs[f"part {rollout}"])), Part("shared", digest_of(blobs["shared"]))]
        if large and rollout == "r1":
            blobs["large"], blobs["chunks"] = large, chunk_list(large)
            parts.append(Part("large", digest_of(large), digest_of(blobs["chunks"])))
        blobs[f"session {rollout}"] = codec.encode_session(StoredSession("counter/1", tuple(parts)))
        records.append(EpisodeRecord(Episode(rollout), f"s-{rollout}", digest_of(blobs[f"session {rollout}"])))
    records.append(EpisodeRecord(Episode("stateless"), "s-none", None))
    blobs["participant"] = codec.encode_participant_manifest(
        ParticipantManifest(checkpoint_id, INFO.id, INFO.boot_id, tuple(records))
    )
    manifest = CheckpointManifest(
        checkpoint_id,
        epoch=1,
        sequence=1,
        unix_millis=0,
        participants=(ParticipantEntry(replace(INFO, address=""), digest_of(blobs["participant"])),),
        episodes=tuple(Episode(rollout) for rollout in ROLLOUTS),
    )
    blobs["manifest"] = codec.encode_checkpoint_manifest(manifest)
    return Checkpoint(checkpoint_id, blobs)
