"""Values go to the wire and come back equal; what is wrong on the wire is refused by its place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from hypothesis import given
from hypothesis import strategies as st

from gymckpt.core.ids import Digest, Episode, Fence, ParticipantId
from gymckpt.core.kinds import Capture, ExportState, Fate, GateState, Kind
from gymckpt.core.manifest import (
    CheckpointManifest,
    Decision,
    EpisodeRecord,
    Floor,
    Intent,
    MemberAddress,
    Part,
    ParticipantEntry,
    ParticipantInfo,
    ParticipantManifest,
    Receipt,
    RestoreIntent,
    RestoreTarget,
    StoredSession,
    Touch,
)
from gymckpt.core.report import Blocker, LostEpisode, Report, Restart
from gymckpt.core.transitions import Holdings
from gymckpt.errors import BlobNotFound, DamagedBlob, InvalidField
from gymckpt.rpc import codec
from gymckpt.v1 import manifest_pb2, participant_pb2, types_pb2

D1, D2 = Digest(b"\x01" * 32, 7), Digest(b"\xff" * 32, 2**36)
TOOLS = ParticipantId(Kind.RESOURCES, "tools")
INFO = ParticipantInfo(
    TOOLS, "0", "ab" * 16, "127.0.0.1:1", Capture.EXPORTED, 1, ("journal",), ("counter/1", "counter/2"), True
)
R1, R2 = Episode("r1"), Episode("r2", 1_000_000)
FENCE = Fence(3, 9, "c1")
TARGETS = (RestoreTarget(R1, 4, Fate.RESTORED), RestoreTarget(R2, 1, Fate.LOST, "tools did not export it"))
RECORDS = (
    EpisodeRecord(R1, "s", D1, 5, 3, "turn", (Touch(TOOLS, "t", 4), Touch(TOOLS))),
    EpisodeRecord(R2, "s2", None),
)
CHECKPOINT = CheckpointManifest(
    "c1",
    3,
    9,
    1_700_000_000_000,
    "c0",
    {"step": "7", "a": ""},
    b"\x00\xff",
    (ParticipantEntry(replace(INFO, address=""), D1),),
    (R1, R2),
    (Restart(R1, "declares nothing"),),
    (LostEpisode(R2, "gone"),),
)
RECEIPT = Receipt("call-1", b"\x02" * 32, 4, 200, ((b"content-type", b"x"), (b"set-cookie", b"\xff")), b"body")
STORED: list[tuple[Any, Any, Any]] = [
    (codec.encode_member, codec.decode_member, MemberAddress("127.0.0.1:8000", relayed=True)),
    (codec.encode_intent, codec.decode_intent, Intent(3, 9, (INFO,), "c0", b"\x01" * 32)),
    (codec.encode_decision, codec.decode_decision, Decision(D1, "", TARGETS, 12)),
    (codec.encode_decision, codec.decode_decision, Decision(None, "lost a participant", (), 12)),
    (codec.encode_checkpoint_manifest, codec.decode_checkpoint_manifest, CHECKPOINT),
    (
        codec.encode_participant_manifest,
        codec.decode_participant_manifest,
        ParticipantManifest("c1", TOOLS, "ab" * 16, RECORDS),
    ),
    (
        codec.encode_session,
        codec.decode_session,
        StoredSession("counter/1", (Part("a", D1), Part("b/0", D2, D1)), (RECEIPT,)),
    ),
    (codec.encode_restore_intent, codec.decode_restore_intent, RestoreIntent(3, 9, "c1", D1, TARGETS, (INFO,), b"x")),
    (codec.encode_floors, codec.decode_floors, (Floor("r1", 3, 4), Floor("r2", 0, 0), Floor("r3", -1, 2))),
]
NAMES = [f"{encode.__name__}-{at}" for at, (encode, _, _) in enumerate(STORED)]


@pytest.mark.parametrize(("encode", "decode", "value"), STORED, ids=NAMES)
def test_what_is_stored_comes_back_equal_and_equal_values_are_equal_bytes(encode: Any, decode: Any, value: Any) -> None:
    assert decode(encode(value)) == value
    assert encode(decode(encode(value))) == encode(value)


@pytest.mark.parametrize(("encode", "decode", "value"), STORED, ids=NAMES)
def test_stored_bytes_that_cannot_be_read_are_the_error_that_the_caller_names(
    encode: Any, decode: Any, value: Any
) -> None:
    """C39."""
    with pytest.raises(DamagedBlob, match="cannot be read"):
        decode(b"\xff\xff\xff")
    with pytest.raises(BlobNotFound, match="cannot be read"):
        decode(b"\xff\xff\xff", BlobNotFound)


@pytest.mark.parametrize(("encode", "decode", "value"), STORED, ids=NAMES)
def test_fields_of_a_newer_release_are_ignored_in_what_is_stored(encode: Any, decode: Any, value: Any) -> None:
    assert decode(encode(value) + b"\x98\x7d\x01") == value


def test_a_manifest_stores_no_address() -> None:
    stored = replace(CHECKPOINT, participants=(ParticipantEntry(INFO, D1),))
    assert b"127.0.0.1" not in codec.encode_checkpoint_manifest(stored)


@pytest.mark.parametrize(
    ("message", "decode"),
    [
        (manifest_pb2.Decision(), codec.decode_decision),
        (manifest_pb2.Decision(published=manifest_pb2.Published()), codec.decode_decision),
        (manifest_pb2.CheckpointManifest(), codec.decode_checkpoint_manifest),
        (manifest_pb2.ParticipantManifest(checkpoint_id="c1"), codec.decode_participant_manifest),
        (manifest_pb2.SessionState(parts=[manifest_pb2.Part(name="x")]), codec.decode_session),
        (manifest_pb2.SessionState(receipts=[manifest_pb2.Receipt(headers=[b"odd"])]), codec.decode_session),
        (manifest_pb2.RestoreIntent(checkpoint_id="../x"), codec.decode_restore_intent),
        (manifest_pb2.Floors(floors=[manifest_pb2.Floor(rollout_id="a/b")]), codec.decode_floors),
    ],
)
def test_stored_messages_that_say_nothing_valid_are_damaged(message: Any, decode: Any) -> None:
    """C39, X21."""
    with pytest.raises(DamagedBlob):
        decode(message.SerializeToString())


def test_words_of_the_services_come_back_equal() -> None:
    report = Report(
        (Blocker("tool_call", R1, "s", 1.5), Blocker("stream", None, "/x", 0.0)), 2, (Restart(R2, "no"),), {"a": 3}
    )
    holdings = Holdings(GateState.CLOSED, ExportState.FROZEN, FENCE, Fence(1, 1, "c0"), None, 3, 17)
    assert codec.report_from_proto(codec.report_to_proto(report)) == report
    assert codec.holdings_from_proto(codec.holdings_to_proto(holdings)) == holdings
    assert codec.participant_from_proto(codec.participant_to_proto(INFO)) == INFO
    assert codec.fence_from_proto(codec.fence_to_proto(FENCE)) == FENCE
    assert codec.digest_from_proto(codec.digest_to_proto(D2)) == D2
    assert codec.digests_from_proto(codec.digests_to_proto([D1, D2, D1])) == [D1, D2, D1]
    assert codec.episodes_from_proto(codec.episodes_to_proto([R1, R2])) == (R1, R2)
    assert codec.lost_from_proto(codec.lost_to_proto(LostEpisode(R1, "x"))) == LostEpisode(R1, "x")


def test_a_page_of_a_report_tells_how_many_restarts_there_are_in_all() -> None:
    report = Report(restarts=tuple(Restart(Episode(f"r{number}"), "no") for number in range(5)))
    page = codec.report_to_proto(report, report.restarts[:2], "r1")
    assert (len(page.restarts), page.restart_count, page.next_restarts_page_token, page.ready) == (2, 5, "r1", True)


def test_words_for_people_are_cut_to_their_bound() -> None:
    assert len(codec.lost_to_proto(LostEpisode(R1, "x" * 999)).why) == 256
    assert len(codec.decode_decision(codec.encode_decision(Decision(None, "x" * 9999))).why) == 1024


def changed(message: Any, **fields: Any) -> Any:
    """The message with fields replaced; None clears one."""
    copy = type(message)()
    copy.CopyFrom(message)
    for name, value in fields.items():
        copy.ClearField(name)
        if value is not None:
            setattr(copy, name, value) if not isinstance(value, list) else getattr(copy, name).extend(value)
    return copy


def with_fence(fence: types_pb2.Fence) -> types_pb2.Holdings:
    held = codec.holdings_to_proto(Holdings(GateState.OPEN, ExportState.NONE))
    held.gate_fence.CopyFrom(fence)
    return held


GOOD_INFO = codec.participant_to_proto(INFO)
GOOD_HOLDINGS = codec.holdings_to_proto(Holdings(GateState.OPEN, ExportState.NONE))
EPISODES = [types_pb2.Episode(rollout_id="r"), types_pb2.Episode(rollout_id="a/b")]


@pytest.mark.parametrize(
    ("decode", "message", "field"),
    [
        (codec.participant_from_proto, changed(GOOD_INFO, id=None), "participant.id.kind"),
        (codec.participant_from_proto, changed(GOOD_INFO, worker=""), "participant.worker"),
        (codec.participant_from_proto, changed(GOOD_INFO, boot_id="x"), "participant.boot_id"),
        (codec.participant_from_proto, changed(GOOD_INFO, address=""), "participant.address"),
        (codec.participant_from_proto, changed(GOOD_INFO, address="a" * 257), "participant.address"),
        (codec.participant_from_proto, changed(GOOD_INFO, contract_revision=0), "participant.contract_revision"),
        (codec.participant_from_proto, changed(GOOD_INFO, capture=0), "participant.capture"),
        (codec.participant_from_proto, changed(GOOD_INFO, features=["x"] * 65), "participant.features"),
        (codec.participant_from_proto, changed(GOOD_INFO, state_schemas=["x", ""]), "participant.state_schemas[1]"),
        (codec.holdings_from_proto, changed(GOOD_HOLDINGS, gate=0), "holds.gate"),
        (codec.holdings_from_proto, changed(GOOD_HOLDINGS, export=9), "holds.export"),
        (
            codec.holdings_from_proto,
            with_fence(types_pb2.Fence(epoch=1)),
            "holds.gate_fence.sequence",
        ),
        (codec.fence_from_proto, types_pb2.Fence(), "fence.epoch"),
        (codec.fence_from_proto, types_pb2.Fence(epoch=1, sequence=1, checkpoint_id="../x"), "fence.checkpoint_id"),
        (codec.digest_from_proto, types_pb2.Digest(blake3=b"x"), "digest.blake3"),
        (codec.episodes_from_proto, EPISODES, "episodes[1].rollout_id"),
        (codec.episodes_from_proto, [types_pb2.Episode(rollout_id="r", attempt=2_000_000)], "episodes[0].attempt"),
        (codec.lost_list_from_proto, [types_pb2.LostEpisode()], "lost[0].episode.rollout_id"),
        (codec.lost_from_proto, types_pb2.LostEpisode(episode=EPISODES[0], why="x" * 257), "lost.why"),
        (codec.blocker_from_proto, types_pb2.Blocker(), "blocker.type"),
        (codec.digests_from_proto, types_pb2.DigestColumns(blake3=b"x", sizes=[1]), "blobs.blake3"),
    ],
)
def test_a_wrong_field_is_refused_by_its_place(decode: Any, message: Any, field: str) -> None:
    """X20."""
    with pytest.raises(InvalidField) as refused:
        decode(message)
    assert refused.value.field == field
    assert field in refused.value.message


@pytest.mark.parametrize(("least", "most"), [(3, 9), (0, 1)])
def test_a_list_has_bounds(least: int, most: int) -> None:
    """X20."""
    with pytest.raises(InvalidField) as refused:
        codec.episodes_from_proto([EPISODES[0]] * 2, "scope.episodes", least=least, most=most)
    assert refused.value.field == "scope.episodes"


@given(st.floats(1e-9, 3600))
def test_a_duration_comes_back_to_the_nanosecond(seconds: float) -> None:
    message = participant_pb2.Prepare(timeout=codec.duration_to_proto(seconds))
    assert codec.duration(message, "timeout", longest=codec.HOUR) == pytest.approx(seconds, abs=1e-9)


@pytest.mark.parametrize(
    "value",
    [
        None,
        Duration(),
        Duration(seconds=-1),
        Duration(seconds=3601),
        Duration(seconds=3600, nanos=1),
        Duration(seconds=1, nanos=2_000_000_000),
        Duration(seconds=1, nanos=-5),
        Duration(seconds=2**62),
    ],
)
def test_a_duration_that_is_missing_or_out_of_bounds_is_refused_by_name(value: Duration | None) -> None:
    """X20."""
    with pytest.raises(InvalidField) as refused:
        codec.duration(participant_pb2.Prepare(timeout=value), "timeout", longest=codec.HOUR, parent="prepare")
    assert refused.value.field == "prepare.timeout"


@pytest.mark.parametrize("value", [None, Duration()])
def test_an_optional_duration_is_its_default_when_unset_or_zero(value: Duration | None) -> None:
    assert codec.duration(participant_pb2.Renew(gate_lease=value), "gate_lease", longest=1.0, default=60.0) == 60.0


@pytest.mark.parametrize("seconds", [float("nan"), float("inf")])
def test_a_duration_that_is_no_number_is_not_sent(seconds: float) -> None:
    with pytest.raises(InvalidField):
        codec.duration_to_proto(seconds)


def test_what_is_required_is_named_with_its_choices() -> None:
    """X20."""
    with pytest.raises(InvalidField, match=r"fence is required") as refused:
        codec.required(participant_pb2.TransitionRequest(), "fence")
    assert refused.value.field == "fence"
    with pytest.raises(InvalidField, match="prepare, snapshot"):
        codec.required(participant_pb2.TransitionRequest(), "transition")
    assert codec.required(participant_pb2.TransitionRequest(abort=participant_pb2.Abort()), "transition") == "abort"
