"""Every unset, unknown, oversized or malformed field is refused by name, and nothing changes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from gymckpt.core.ids import Episode
from gymckpt.errors import InvalidField, StaleBoot, StaleEpoch
from gymckpt.rpc.status import from_rpc_error
from gymckpt.v1 import participant_pb2 as pb
from gymckpt.v1 import types_pb2
from tests.contract.participant.conftest import Member, Stub
from tests.unit.participant.base.bed import Counters

SECOND = Duration(seconds=1)
EPISODE = types_pb2.Episode(rollout_id="r")
ACK = types_pb2.Acknowledgement(episode=EPISODE, receipt=b"\0" * 32)
MANIFEST = types_pb2.Digest(blake3=b"\0" * 32, size=1)
Change = Callable[[pb.TransitionRequest], object]


def fence(message: pb.TransitionRequest, **fields: Any) -> None:
    for name, value in fields.items():
        setattr(message.fence, name, value)


def becomes(**transition: Any) -> Change:
    return lambda message: message.MergeFrom(pb.TransitionRequest(**transition))


def install(**fields: Any) -> Change:
    target = pb.InstallTarget(source=EPISODE, attempt=1)
    given: dict[str, Any] = {"manifest": MANIFEST, "targets": [target], "lease": SECOND} | fields
    return becomes(install=pb.Install(**given))


def acknowledge(**fields: Any) -> Change:
    acknowledgements = [ACK, types_pb2.Acknowledgement(**fields)]
    return becomes(acknowledge=pb.Acknowledge(acknowledgements=acknowledgements, timeout=SECOND))


FIELDS: list[tuple[str, Change]] = [
    ("fence", lambda message: message.ClearField("fence")),
    ("fence.epoch", lambda message: fence(message, epoch=0)),
    ("fence.epoch", lambda message: fence(message, epoch=2**63)),
    ("fence.sequence", lambda message: fence(message, sequence=0)),
    ("fence.checkpoint_id", lambda message: fence(message, checkpoint_id="")),
    ("fence.checkpoint_id", lambda message: fence(message, checkpoint_id="../up")),
    ("fence.checkpoint_id", lambda message: fence(message, checkpoint_id="c" * 137)),
    ("number", lambda message: setattr(message, "number", 0)),
    ("boot_id", lambda message: setattr(message, "boot_id", "")),
    ("boot_id", lambda message: setattr(message, "boot_id", "G" * 32)),
    ("transition", lambda message: message.ClearField("prepare")),
    ("prepare.timeout", lambda message: message.prepare.ClearField("timeout")),
    ("prepare.timeout", lambda message: message.prepare.timeout.CopyFrom(Duration(seconds=-1))),
    ("prepare.timeout", lambda message: message.prepare.timeout.CopyFrom(Duration(seconds=1, nanos=-1))),
    ("prepare.gate_lease", lambda message: message.prepare.ClearField("gate_lease")),
    ("prepare.gate_lease", lambda message: message.prepare.gate_lease.CopyFrom(Duration(seconds=3601))),
    ("snapshot.closing", becomes(snapshot=pb.Snapshot(export_lease=SECOND))),
    ("snapshot.export_lease", becomes(snapshot=pb.Snapshot(closing=1))),
    ("snapshot.export_lease", becomes(snapshot=pb.Snapshot(closing=1, export_lease=Duration(seconds=86401)))),
    (
        "snapshot.base_checkpoint_id",
        becomes(snapshot=pb.Snapshot(closing=1, export_lease=SECOND, base_checkpoint_id="a/b")),
    ),
    (
        "snapshot.scope.episodes[1].rollout_id",
        becomes(
            snapshot=pb.Snapshot(
                closing=1, export_lease=SECOND, scope=pb.EpisodeScope(episodes=[EPISODE, types_pb2.Episode()])
            )
        ),
    ),
    ("abort.why", becomes(abort=pb.Abort(why="w" * 1025))),
    ("renew.gate_lease", becomes(renew=pb.Renew(gate_lease=Duration(seconds=3601)))),
    ("renew.export_lease", becomes(renew=pb.Renew(export_lease=Duration(seconds=-1)))),
    ("install.manifest", becomes(install=pb.Install(lease=SECOND))),
    ("install.manifest.blake3", install(manifest=types_pb2.Digest(blake3=b"short", size=1))),
    ("install.lease", install(lease=None)),
    ("install.targets[0].source", install(targets=[pb.InstallTarget(attempt=1)])),
    ("install.targets[0].attempt", install(targets=[pb.InstallTarget(source=EPISODE)])),
    ("retire.episodes", becomes(retire=pb.Retire(timeout=SECOND))),
    ("retire.timeout", becomes(retire=pb.Retire(episodes=[EPISODE]))),
    (
        "retire.episodes[0].rollout_id",
        becomes(retire=pb.Retire(episodes=[types_pb2.Episode(rollout_id="r-a1")], timeout=SECOND)),
    ),
    (
        "discard.episodes[0].attempt",
        becomes(discard=pb.Discard(episodes=[types_pb2.Episode(rollout_id="r", attempt=2_000_000)])),
    ),
    ("forget.rollout_ids", becomes(forget=pb.Forget())),
    ("forget.rollout_ids[0]", becomes(forget=pb.Forget(rollout_ids=["a b"]))),
    ("acknowledge.acknowledgements", becomes(acknowledge=pb.Acknowledge(timeout=SECOND))),
    (
        "acknowledge.acknowledgements",
        becomes(acknowledge=pb.Acknowledge(acknowledgements=[ACK] * 1001, timeout=SECOND)),
    ),
    ("acknowledge.timeout", becomes(acknowledge=pb.Acknowledge(acknowledgements=[ACK]))),
    (
        "acknowledge.timeout",
        becomes(acknowledge=pb.Acknowledge(acknowledgements=[ACK], timeout=Duration(seconds=3601))),
    ),
    ("acknowledge.acknowledgements[1].episode", acknowledge(receipt=b"\0" * 32)),
    (
        "acknowledge.acknowledgements[1].episode.rollout_id",
        acknowledge(episode=types_pb2.Episode(), receipt=b"\0" * 32),
    ),
    ("acknowledge.acknowledgements[1].receipt", acknowledge(episode=EPISODE)),
    ("acknowledge.acknowledgements[1].receipt", acknowledge(episode=EPISODE, receipt=b"\0" * 31)),
    ("acknowledge.acknowledgements[1].receipt", acknowledge(episode=EPISODE, receipt=b"\0" * 33)),
    ("900", lambda message: message.MergeFromString(b"\xa0\x38\x01")),
    ("fence.900", lambda message: message.MergeFromString(b"\x0a\x03\xa0\x38\x01")),
]


def valid(counters: Counters) -> pb.TransitionRequest:
    return pb.TransitionRequest(
        fence=types_pb2.Fence(epoch=3, sequence=1, checkpoint_id="c"),
        number=1,
        boot_id=counters.participant.boot_id,
        prepare=pb.Prepare(timeout=SECOND, gate_lease=SECOND),
    )


@pytest.mark.parametrize(("field", "change"), FIELDS, ids=[f"{at}-{row[0]}" for at, row in enumerate(FIELDS)])
async def test_a_bad_field_is_named_and_nothing_changes(member: Member, field: str, change: Change) -> None:
    """X20"""
    message = valid(member.counters)
    change(message)
    before = member.counters.participant.holdings()
    with pytest.raises(InvalidField) as refused:
        await member.door.send(message)
    assert refused.value.field.removeprefix("transition.") == field
    assert member.counters.participant.holdings() == before
    message = valid(member.counters)
    assert (await member.door.send(message)).number == 1


@pytest.mark.parametrize(
    ("field", "request_"),
    [
        ("boot_id", pb.GetStatusRequest(epoch=4)),
        ("boot_id", pb.GetStatusRequest(boot_id="x")),
        ("restarts_page_size", pb.GetStatusRequest(restarts_page_size=10_001)),
        ("restarts_page_token", pb.GetStatusRequest(restarts_page_token="x")),
        ("restarts_page_token", pb.GetStatusRequest(restarts_page_token="1" * 10)),
        ("900", pb.GetStatusRequest.FromString(b"\xa0\x38\x01")),
    ],
)
async def test_a_bad_question_is_refused_and_its_epoch_not_taken(
    counters: Counters, stub: Stub, field: str, request_: pb.GetStatusRequest
) -> None:
    """X20"""
    request_.epoch = 7
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stub.GetStatus(request_)
    error = from_rpc_error(refused.value)
    assert isinstance(error, InvalidField)
    assert error.field == field
    assert counters.participant.authority.epoch == 0


async def test_describe_says_who_this_is_and_ignores_what_it_does_not_know(counters: Counters, stub: Stub) -> None:
    """X19"""
    answer = await stub.Describe(pb.DescribeRequest.FromString(b"\xa0\x38\x01"))
    assert answer.participant.boot_id == counters.participant.boot_id
    assert list(answer.participant.state_schemas) == ["counter/1"]


async def test_status_changes_nothing_pages_restarts_and_takes_an_epoch_that_is_given(
    rounds: Any, stub: Stub, counters: Counters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C37, X06"""
    restarts = {Episode(f"r{number:02d}"): "why" for number in range(25)}
    monkeypatch.setattr(counters.participant, "restarts", lambda: restarts)
    counters.participant.lost[Episode("gone")] = "replaced"
    before = dataclasses.astuple(counters.participant.holdings())
    seen, token = [], ""
    answer = pb.GetStatusResponse()
    for _ in range(3):
        answer = await stub.GetStatus(pb.GetStatusRequest(restarts_page_size=10, restarts_page_token=token))
        seen += [restart.episode.rollout_id for restart in answer.report.restarts]
        token = answer.report.next_restarts_page_token
    assert (seen, token) == ([episode.rollout_id for episode in restarts], "")
    assert (answer.report.restart_count, answer.lost[0].episode.rollout_id) == (25, "gone")
    assert dataclasses.astuple(counters.participant.holdings()) == before
    boot_id = counters.participant.boot_id
    await stub.GetStatus(pb.GetStatusRequest(epoch=4, boot_id=boot_id))
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stub.GetStatus(pb.GetStatusRequest(epoch=3, boot_id=boot_id))
    assert isinstance(from_rpc_error(refused.value), StaleEpoch)


@pytest.mark.parametrize("epoch", [0, 9])
async def test_a_question_that_is_meant_for_another_process_binds_nobody(
    stub: Stub, counters: Counters, epoch: int
) -> None:
    """X26: the coordinator of one run asks at a port that a process of another run has taken."""
    before = dataclasses.astuple(counters.participant.holdings())
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stub.GetStatus(pb.GetStatusRequest(epoch=epoch, boot_id="0" * 32))
    assert isinstance(from_rpc_error(refused.value), StaleBoot)
    assert dataclasses.astuple(counters.participant.holdings()) == before


@pytest.mark.parametrize(
    ("field", "request_"),
    [
        ("page_size", pb.ListEpisodesRequest(page_size=10_001)),
        ("page_token", pb.ListEpisodesRequest(page_token="x")),
        ("900", pb.ListEpisodesRequest.FromString(b"\xa0\x38\x01")),
    ],
)
async def test_a_bad_question_for_episodes_is_refused(stub: Stub, field: str, request_: pb.ListEpisodesRequest) -> None:
    """X20"""
    with pytest.raises(grpc.aio.AioRpcError, match=field):
        await stub.ListEpisodes(request_)


async def test_episodes_are_listed_once_each_a_page_at_a_time(counters: Counters, stub: Stub) -> None:
    """However many sessions an episode has here."""
    for key, text in enumerate(("s", "r-a2", "s", "r")):
        counters.participant.sessions.open(Episode.parse(text), str(key))
    listed, token = [], ""
    while True:
        page = await stub.ListEpisodes(pb.ListEpisodesRequest(page_size=2, page_token=token))
        listed.append([(episode.rollout_id, episode.attempt) for episode in page.episodes])
        token = page.next_page_token
        if not token:
            break
    assert listed == [[("r", 0), ("r", 2)], [("s", 0)]]


@pytest.mark.parametrize(
    ("field", "request_"),
    [
        ("page_size", pb.ParticipantServiceListResultsRequest(page_size=1_001)),
        ("page_token", pb.ParticipantServiceListResultsRequest(page_token="a b")),
        ("page_token", pb.ParticipantServiceListResultsRequest(page_token="r" * 129)),
        ("episodes", pb.ParticipantServiceListResultsRequest(episodes=[EPISODE] * 1_001)),
        ("episodes.1..rollout_id", pb.ParticipantServiceListResultsRequest(episodes=[EPISODE, types_pb2.Episode()])),
        ("900", pb.ParticipantServiceListResultsRequest.FromString(b"\xa0\x38\x01")),
    ],
)
async def test_a_bad_question_for_results_is_refused(
    stub: Stub, field: str, request_: pb.ParticipantServiceListResultsRequest
) -> None:
    """X20"""
    with pytest.raises(grpc.aio.AioRpcError, match=field):
        await stub.ListResults(request_)
