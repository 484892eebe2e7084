"""CoordinatorService as any client sees it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from gymckpt.errors import GymckptError, InvalidField, NotImplementedHere
from gymckpt.rpc.channel import open_channel
from gymckpt.rpc.status import from_rpc_error
from gymckpt.v1 import coordinator_pb2 as pb
from gymckpt.v1 import types_pb2
from gymckpt.v1.coordinator_pb2_grpc import CoordinatorServiceStub
from tests.contract.coordinator.fleet import Fleet


@pytest.fixture
async def stub(fleet: Fleet) -> AsyncIterator[Any]:
    async with open_channel(fleet.server.address) as channel:
        yield CoordinatorServiceStub(channel)


async def refusal(call: Any) -> GymckptError:
    """What a call ends with; one that is not refused fails the test."""
    answer = anext(aiter(call)) if isinstance(call, grpc.aio.UnaryStreamCall) else call
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await answer
    return from_rpc_error(failed.value)


MISSING: list[tuple[str, Any]] = [
    ("ForgetRollouts", pb.ForgetRolloutsRequest(rollout_ids=["r1"])),
]


@pytest.mark.parametrize(("method", "request_"), MISSING)
async def test_what_is_not_built_yet_says_so(stub: Any, method: str, request_: Any) -> None:
    error = await refusal(getattr(stub, method)(request_))
    assert isinstance(error, NotImplementedHere)
    assert method in error.message


def create(**fields: Any) -> tuple[str, Any]:
    return "CreateCheckpoint", pb.CreateCheckpointRequest(**{"checkpoint_id": "c1", **fields})


def restore(**fields: Any) -> tuple[str, Any]:
    return "RestoreCheckpoint", pb.RestoreCheckpointRequest(**{"restore_id": "one", "checkpoint_id": "c1", **fields})


def acknowledge(**fields: Any) -> tuple[str, Any]:
    return "AcknowledgeResults", pb.AcknowledgeResultsRequest(**{"acknowledgements": [ACK], **fields})


ACK = types_pb2.Acknowledgement(episode=types_pb2.Episode(rollout_id="r"), receipt=bytes(32))
BAD = types_pb2.Episode(rollout_id="r1-a1")
MALFORMED: list[tuple[tuple[str, Any], str]] = [
    (create(checkpoint_id=""), "checkpoint_id"),
    (create(checkpoint_id="latest"), "checkpoint_id"),
    (create(checkpoint_id="../x"), "checkpoint_id"),
    (create(checkpoint_id="acknowledge-1"), "checkpoint_id"),
    (create(episodes=[BAD]), "episodes[0].rollout_id"),
    (create(prepare_timeout=Duration(seconds=-1)), "prepare_timeout"),
    (create(gate_lease=Duration(seconds=3601)), "gate_lease"),
    (create(export_lease=Duration(seconds=86401)), "export_lease"),
    (create(on_not_ready=77), "on_not_ready"),
    (create(resume=77), "resume"),
    (create(labels={"": "x"}), "labels['']"),
    (create(controller_state=bytes(2**20 + 1)), "controller_state"),
    (restore(restore_id=""), "restore_id"),
    (restore(checkpoint_id=""), "checkpoint_id"),
    (restore(episodes=[types_pb2.Episode(rollout_id="r", attempt=1_000_001)]), "episodes[0].attempt"),
    (restore(on_unloadable=9), "on_unloadable"),
    (("RetireEpisodes", pb.RetireEpisodesRequest()), "episodes"),
    (("RetireEpisodes", pb.RetireEpisodesRequest(episodes=[types_pb2.Episode()])), "episodes[0].rollout_id"),
    (("GetCheckpoint", pb.GetCheckpointRequest()), "checkpoint_id"),
    (("GetCheckpoint", pb.GetCheckpointRequest(checkpoint_id="c1", page_size=10_001)), "page_size"),
    (("ListCheckpoints", pb.ListCheckpointsRequest(page_token="x")), "page_token"),
    (("ListCheckpoints", pb.ListCheckpointsRequest(page_size=1001)), "page_size"),
    (("ListParticipants", pb.ListParticipantsRequest(page_token="-1")), "page_token"),
    (("AbortCheckpoint", pb.AbortCheckpointRequest(checkpoint_id="c1", why="x" * 1025)), "why"),
    (("ResumeCheckpoint", pb.ResumeCheckpointRequest()), "checkpoint_id"),
    (("ResumeCheckpoint", pb.ResumeCheckpointRequest(checkpoint_id="latest")), "checkpoint_id"),
    (("AbortCheckpoint", pb.AbortCheckpointRequest(checkpoint_id="latest")), "checkpoint_id"),
    (("DeleteCheckpoint", pb.DeleteCheckpointRequest()), "checkpoint_id"),
    (("DeleteCheckpoint", pb.DeleteCheckpointRequest(checkpoint_id="latest")), "checkpoint_id"),
    (("PinCheckpoint", pb.PinCheckpointRequest(checkpoint_id="c1")), "holder"),
    (("PinCheckpoint", pb.PinCheckpointRequest(checkpoint_id="c1", holder="restore-x")), "holder"),
    (("Register", pb.RegisterRequest()), "participant"),
    (("ListResults", pb.ListResultsRequest(page_size=1001)), "page_size"),
    (("ListResults", pb.ListResultsRequest(page_token="a b")), "page_token"),
    (("AcknowledgeResults", pb.AcknowledgeResultsRequest()), "acknowledgements"),
    (acknowledge(acknowledgements=[ACK] * 1001), "acknowledgements"),
    (acknowledge(timeout=Duration(seconds=3601)), "timeout"),
    (acknowledge(timeout=Duration(seconds=-1)), "timeout"),
    (acknowledge(acknowledgements=[types_pb2.Acknowledgement(receipt=bytes(32))]), "acknowledgements[0].episode"),
    (
        acknowledge(acknowledgements=[ACK, types_pb2.Acknowledgement(episode=ACK.episode)]),
        "acknowledgements[1].receipt",
    ),
    (
        acknowledge(acknowledgements=[types_pb2.Acknowledgement(episode=ACK.episode, receipt=bytes(33))]),
        "acknowledgements[0].receipt",
    ),
]


@pytest.mark.parametrize(("call", "field"), MALFORMED, ids=[f"{call[0]}-{field}" for call, field in MALFORMED])
async def test_a_malformed_field_is_refused_by_name_and_nothing_changes(
    fleet: Fleet, stub: Any, call: tuple[str, Any], field: str
) -> None:
    """X20."""
    before = await fleet.names("")
    error = await refusal(getattr(stub, call[0])(call[1]))
    assert isinstance(error, InvalidField), error
    assert error.field == field
    assert await fleet.names("") == before
    assert fleet.log == []


async def test_an_unknown_field_is_refused_by_its_number(fleet: Fleet, stub: Any) -> None:
    """X20."""
    later = pb.CreateCheckpointRequest(checkpoint_id="c1")
    later.MergeFromString(b"\xf8\x07\x01")  # field 127
    error = await refusal(stub.CreateCheckpoint(later))
    assert isinstance(error, InvalidField)
    assert "127" in error.message


async def test_lists_of_participants_are_paged(fleet: Fleet, stub: Any) -> None:
    token, seen = "", []
    while True:
        page = await stub.ListParticipants(pb.ListParticipantsRequest(page_size=3, page_token=token))
        seen.append(len(page.members))
        token = page.next_page_token
        if not token:
            break
    assert seen == [3, 1]
