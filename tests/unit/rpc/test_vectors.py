"""The vectors beside the protos, for implementations in any language: ours agrees with them."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf import text_format

from gymckpt.core.chunks import chunk_list, digest_of, hash_of
from gymckpt.core.ids import Digest, Episode, ParticipantId
from gymckpt.core.kinds import Capture, Kind
from gymckpt.core.report import LostEpisode, Restart
from gymckpt.rpc import codec
from gymckpt.v1 import manifest_pb2

VECTORS = Path(__file__).resolve().parents[3] / "protos" / "vectors"


def lines(name: str) -> list[list[str]]:
    text = (VECTORS / name).read_text()
    return [line.split() for line in text.splitlines() if line and not line.startswith("#")]


def content(size: int) -> bytes:
    return (bytes(range(251)) * (size // 251 + 1))[:size]


def stored_manifest() -> tuple[Digest, bytes]:
    (_, blake3, size), *rows = lines("checkpoint_manifest.txt")
    return Digest(bytes.fromhex(blake3), int(size)), bytes.fromhex("".join(row[0] for row in rows))


@pytest.mark.parametrize(("size", "blake3"), lines("digests.txt"))
def test_digests_agree(size: str, blake3: str) -> None:
    assert digest_of(content(int(size))) == Digest(bytes.fromhex(blake3), int(size))


@pytest.mark.parametrize(("size", "digests"), [(row[0], row[1:]) for row in lines("chunk_lists.txt")])
def test_chunk_lists_agree(size: str, digests: list[str]) -> None:
    assert chunk_list(content(int(size))) == bytes.fromhex("".join(digests))


def test_the_stored_manifest_has_its_name() -> None:
    digest, data = stored_manifest()
    assert (hash_of(data), len(data)) == (digest.blake3, digest.size)


def test_the_readable_manifest_is_the_stored_one() -> None:
    text = (VECTORS / "checkpoint_manifest.txtpb").read_text()
    message = text_format.Parse(text, manifest_pb2.CheckpointManifest())
    assert message.SerializeToString(deterministic=True) == stored_manifest()[1]


def test_the_stored_manifest_is_read_as_what_it_says_and_written_as_it_was() -> None:
    _, data = stored_manifest()
    manifest = codec.decode_checkpoint_manifest(data)
    assert codec.encode_checkpoint_manifest(manifest) == data
    assert (manifest.checkpoint_id, manifest.epoch, manifest.sequence) == ("step-7", 3, 9)
    assert (manifest.unix_millis, manifest.base_checkpoint_id) == (1_700_000_000_000, "step-6")
    assert (dict(manifest.labels), manifest.controller_state) == ({"step": "7"}, b"\x00\xff")
    assert manifest.episodes == (Episode("r1"), Episode("r2"), Episode("r3"))
    assert manifest.restarts == (Restart(Episode("r4", 2), "tools declares nothing"),)
    assert manifest.lost == (LostEpisode(Episode("r5"), "tools did not export it"),)
    (entry,) = manifest.participants
    assert entry.participant.id == ParticipantId(Kind.RESOURCES, "counter")
    assert (entry.participant.capture, entry.participant.boot_id) == (Capture.EXPORTED, "ab" * 16)
    assert entry.manifest.size == 234
