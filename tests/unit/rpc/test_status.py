"""Refusals cross the wire and come back as the same class with the same words."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from gymckpt import errors
from gymckpt.errors import GymckptError
from gymckpt.rpc import codec, status


def every_error_class() -> list[type[GymckptError]]:
    found, waiting = [], [GymckptError]
    while waiting:
        kind = waiting.pop()
        waiting.extend(kind.__subclasses__())
        if kind.reason:
            found.append(kind)
    return sorted(found, key=lambda kind: kind.reason)


def made(kind: type[GymckptError], retry_after: float | None = None) -> GymckptError:
    details = {"offset": "1048576", "digests": "aa:1,bb:2", "field": "fence.epoch", "thing": "x"}
    return kind("epoch 3 is below 5; stop", details=details, retry_after=retry_after)


def attached(message: status_pb2.Status, kind: Any) -> list[Any]:
    return [kind.FromString(detail.value) for detail in message.details if detail.Is(kind.DESCRIPTOR)]


def test_every_error_class_has_a_row_except_the_transport_failure() -> None:
    assert set(every_error_class()) - set(status.TABLE) == {errors.TransportFailed}


def test_every_reason_of_the_contract_has_exactly_one_class() -> None:
    assert sorted(kind.reason for kind in status.TABLE) == sorted(codec.reasons())


@pytest.mark.parametrize("kind", status.TABLE, ids=lambda kind: kind.__name__)
def test_a_refusal_comes_back_as_the_same_class_with_the_same_words(kind: type[GymckptError]) -> None:
    sent = made(kind, retry_after=2.5)
    message = status.to_proto_status(sent)
    came = status.from_proto_status(message)
    assert type(came) is kind
    assert (came.message, came.details, came.retry_after) == (sent.message, sent.details, 2.5)
    (info,) = attached(message, error_details_pb2.ErrorInfo)
    assert (info.domain, info.reason) == ("gymckpt.v1", kind.reason)
    assert message.code == status.TABLE[kind].value[0]


def test_an_error_with_a_field_of_its_own_gets_it_back() -> None:
    offset = status.from_proto_status(status.to_proto_status(errors.WrongOffset("go on at 7", offset=7)))
    assert isinstance(offset, errors.WrongOffset)
    assert offset.offset == 7
    missing = status.from_proto_status(status.to_proto_status(errors.MissingBlobs("two", digests=["aa:1", "bb:2"])))
    assert isinstance(missing, errors.MissingBlobs)
    assert missing.digests == ["aa:1", "bb:2"]


def test_an_invalid_field_is_also_a_bad_request_naming_the_field() -> None:
    message = status.to_proto_status(errors.InvalidField("fence.epoch must be from 1, got 0", field="fence.epoch"))
    (bad,) = attached(message, error_details_pb2.BadRequest)
    assert [violation.field for violation in bad.field_violations] == ["fence.epoch"]


@pytest.mark.parametrize(
    ("kind", "key"),
    [(errors.NotReady, "blockers"), (errors.MemberMissing, "members"), (errors.RestartInScope, "episodes")],
)
def test_what_stands_in_the_way_is_one_violation_each(kind: type[GymckptError], key: str) -> None:
    message = status.to_proto_status(kind("two things", details={key: "agent/a,model/b"}))
    (failure,) = attached(message, error_details_pb2.PreconditionFailure)
    assert [violation.subject for violation in failure.violations] == ["agent/a", "model/b"]
    assert {violation.type for violation in failure.violations} == {kind.reason}


@pytest.mark.parametrize("kind", [errors.NotReady, errors.MissingBlobs, errors.Conflict, errors.InvalidField])
def test_details_stay_below_4_kb_whatever_they_hold(kind: type[GymckptError]) -> None:
    details = {
        "blockers": ",".join(f"tool_call/{n}" for n in range(5000)),
        "digests": "ab," * 9000,
        "field": "f" * 9000,
    }
    message = status.to_proto_status(kind("ü" * 9000, details=details, retry_after=1.0))
    assert message.ByteSize() <= 4096
    assert type(status.from_proto_status(message)) is kind


def test_a_list_that_is_too_long_is_cut_between_its_items() -> None:
    digests = [f"{n:064x}:{n}" for n in range(1000)]
    came = status.from_proto_status(status.to_proto_status(errors.MissingBlobs("many", digests=digests)))
    assert isinstance(came, errors.MissingBlobs)
    assert 10 <= len(came.digests) < 1000
    assert came.digests == digests[: len(came.digests)]


def test_a_status_without_our_detail_is_a_transport_failure() -> None:
    foreign = status_pb2.Status(code=grpc.StatusCode.UNAVAILABLE.value[0], message="connection refused")
    foreign.details.add().Pack(error_details_pb2.ErrorInfo(reason="STALE_EPOCH", domain="example.com"))
    came = status.from_proto_status(foreign)
    assert isinstance(came, errors.TransportFailed)
    assert "UNAVAILABLE: connection refused" in came.message


def test_a_transport_failure_passed_on_is_no_refusal_either() -> None:
    message = status.to_proto_status(errors.TransportFailed("the store is gone"))
    assert not message.details
    assert isinstance(status.from_proto_status(message), errors.TransportFailed)


def test_a_reason_of_a_newer_release_is_a_refusal_that_asks_for_an_upgrade() -> None:
    newer = status_pb2.Status(code=9, message="cannot")
    newer.details.add().Pack(error_details_pb2.ErrorInfo(reason="SOMETHING_NEW", domain="gymckpt.v1"))
    came = status.from_proto_status(newer)
    assert isinstance(came, errors.RevisionMismatch)
    assert "SOMETHING_NEW" in came.message


def test_a_refusal_that_lacks_its_details_is_not_believed() -> None:
    broken = status_pb2.Status(code=11, message="elsewhere")
    broken.details.add().Pack(error_details_pb2.ErrorInfo(reason="WRONG_OFFSET", domain="gymckpt.v1"))
    assert isinstance(status.from_proto_status(broken), errors.TransportFailed)


async def test_a_connection_that_fails_is_a_transport_failure() -> None:
    async with grpc.aio.insecure_channel("127.0.0.1:1") as channel:
        call: Any = channel.unary_unary("/gymckpt.v1.ArtifactStoreService/GetInfo")
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await asyncio.wait_for(call(b""), timeout=30)
    assert isinstance(status.from_rpc_error(failed.value), errors.TransportFailed)
