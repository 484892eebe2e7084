"""Two checkpoints between which nothing ran hold the same."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gymckpt.core.ids import Digest
from gymckpt.core.manifest import (
    CheckpointManifest,
    EpisodeRecord,
    Part,
    ParticipantEntry,
    ParticipantInfo,
    ParticipantManifest,
    StoredSession,
)
from gymckpt.participant import Capture, Episode, Kind, ParticipantId, encode_json
from gymckpt.rpc import codec
from gymckpt.store import MemoryStore
from servers.demo.cut import Record, different_records, read_cut
from servers.demo.life import turns_under_way

AGENT = ParticipantId(Kind.AGENT, "a")
RESOURCES = ParticipantId(Kind.RESOURCES, "r")
BOOT = "0" * 32
SOURCE, TARGET = Episode("x"), Episode("x", 1)
FIRST = Record(AGENT, SOURCE, "s", "tool", state="blob", seen=(3, 0, ()))
SECOND = replace(FIRST, episode=TARGET)


def test_a_record_is_the_same_under_the_attempt_that_continues_it() -> None:
    """P13, X15."""
    assert different_records([FIRST], [SECOND], {SOURCE: TARGET}) == 0


@pytest.mark.parametrize(
    "second",
    [
        [],
        [replace(SECOND, state="other")],
        [replace(SECOND, seen=(4, 0, ()))],
        [replace(SECOND, boundary="model")],
        [SECOND, replace(SECOND, participant=RESOURCES)],
    ],
)
def test_a_record_that_is_missing_changed_or_new_is_one_difference(second: list[Record]) -> None:
    """P13, X15."""
    assert different_records([FIRST], second, {SOURCE: TARGET}) == 1


def test_episodes_that_were_not_continued_are_not_compared() -> None:
    assert different_records([FIRST], [], {}) == 0


async def test_a_standing_is_read_from_the_parts_of_its_sessions() -> None:
    store = MemoryStore()
    item = {"type": "function_call", "call_id": "c", "name": "add", "arguments": "{}", "namespace": None}

    async def record(session: str, boundary: str, parts: dict[str, bytes]) -> EpisodeRecord:
        digests = await store.write(list(parts.values()))
        listed = tuple(Part(name, digest) for name, digest in zip(sorted(parts), digests, strict=True))
        [state] = await store.write([codec.encode_session(StoredSession("x/1", listed))])
        return EpisodeRecord(SOURCE, session, state, boundary=boundary)

    async def exported(participant: ParticipantId, record: EpisodeRecord) -> tuple[ParticipantId, Digest]:
        manifest = ParticipantManifest("c1", participant, BOOT, (record,))
        return participant, (await store.write([codec.encode_participant_manifest(manifest)]))[0]

    environment = ParticipantId(Kind.ENVIRONMENT, "e")
    parts = dict(sorted(encode_json({"reply": None, "loop.items": [item]}).items()))
    entries = [
        await exported(environment, await record("x", "invoke_agent", {"task": b"t"})),
        await exported(AGENT, await record("agent-1", "tool", parts)),
        await exported(RESOURCES, await record("cookie-1", "", {"value": b"1"})),
    ]
    infos = [ParticipantInfo(one, "0", BOOT, "h:1", Capture.EXPORTED) for one, _ in entries]
    participants = tuple(ParticipantEntry(info, digest) for info, (_, digest) in zip(infos, entries, strict=True))
    manifest = CheckpointManifest("c1", 1, 1, 0, participants=participants, episodes=(SOURCE,))
    [digest] = await store.write([codec.encode_checkpoint_manifest(manifest)])
    cut = await read_cut(store, digest)
    standing = cut.standings[SOURCE]
    assert standing.items == [item]
    assert (standing.resources_session, standing.playing) == ("cookie-1", True)
    assert {(one.participant, one.session) for one in cut.records} == {
        (environment, "x"),
        (AGENT, "agent-1"),
        (RESOURCES, "cookie-1"),
    }


async def test_the_conversation_of_a_finished_episode_is_that_of_its_result() -> None:
    store = MemoryStore()
    item = {"type": "function_call", "call_id": "c", "name": "add", "arguments": "{}", "namespace": None}
    blobs = {"result": json.dumps({"reward": 1.0, "response": {"output": [item]}}).encode(), "task": b"t"}
    digests = await store.write(list(blobs.values()))
    parts = tuple(Part(name, digest) for name, digest in zip(blobs, digests, strict=True))
    [state] = await store.write([codec.encode_session(StoredSession("x/1", parts))])
    environment = ParticipantInfo(ParticipantId(Kind.ENVIRONMENT, "e"), "0", BOOT, "h:1", Capture.EXPORTED)
    record = EpisodeRecord(SOURCE, "x", state, boundary="finished")
    manifest = ParticipantManifest("c1", environment.id, BOOT, (record,))
    [exported] = await store.write([codec.encode_participant_manifest(manifest)])
    entries = (ParticipantEntry(environment, exported),)
    checkpoint = CheckpointManifest("c1", 1, 1, 0, participants=entries, episodes=(SOURCE,))
    [digest] = await store.write([codec.encode_checkpoint_manifest(checkpoint)])
    standing = (await read_cut(store, digest)).standings[SOURCE]
    assert (standing.items, standing.playing) == ([item], False)


def test_a_turn_is_under_way_from_the_call_of_the_agent_to_the_end_of_its_session() -> None:
    begun = {"server": "simple_agent", "what": "/v1/responses", "rollout": "x"}
    asked = {"server": "policy_model", "what": "/v1/responses", "rollout": "y"}
    closed = {"server": "simple_agent", "what": "close_session", "rollout": "x"}
    assert turns_under_way([begun, asked]) == {"x"}
    assert turns_under_way([begun, asked, closed]) == set()
