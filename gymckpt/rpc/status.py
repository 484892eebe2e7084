"""One table between the errors of gymckpt and gRPC: code, Reason and details there, the same class at the caller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import grpc
from google.protobuf.message import DecodeError, Message
from google.rpc import error_details_pb2, status_pb2
from grpc import StatusCode
from grpc_status import rpc_status

from gymckpt import errors
from gymckpt.errors import GymckptError

DOMAIN = "gymckpt.v1"
DETAILS_KEY = "grpc-status-details-bin"
# Trailers above 8 KiB may be dropped on the way, and the details travel in base64 beside the percent-encoded message.
MAX_STATUS_BYTES = 4000
MAX_MESSAGE_BYTES = 1000
MAX_METADATA_BYTES = 1500

TABLE: dict[type[GymckptError], StatusCode] = {
    errors.InvalidField: StatusCode.INVALID_ARGUMENT,
    errors.StaleEpoch: StatusCode.FAILED_PRECONDITION,
    errors.StaleCheckpoint: StatusCode.FAILED_PRECONDITION,
    errors.StaleAttempt: StatusCode.FAILED_PRECONDITION,
    errors.StaleBoot: StatusCode.FAILED_PRECONDITION,
    errors.Conflict: StatusCode.ABORTED,
    errors.ArgumentConflict: StatusCode.ALREADY_EXISTS,
    errors.InvalidPhase: StatusCode.FAILED_PRECONDITION,
    errors.AdmissionClosed: StatusCode.UNAVAILABLE,
    errors.NotReady: StatusCode.FAILED_PRECONDITION,
    errors.RestartInScope: StatusCode.FAILED_PRECONDITION,
    errors.MemberMissing: StatusCode.FAILED_PRECONDITION,
    errors.CoordinatorStarting: StatusCode.UNAVAILABLE,
    errors.EpisodeRequired: StatusCode.FAILED_PRECONDITION,
    errors.RevisionMismatch: StatusCode.FAILED_PRECONDITION,
    errors.NotRestored: StatusCode.FAILED_PRECONDITION,
    errors.AlreadyRestored: StatusCode.FAILED_PRECONDITION,
    errors.TaskMismatch: StatusCode.FAILED_PRECONDITION,
    errors.ReceiptMismatch: StatusCode.FAILED_PRECONDITION,
    errors.DuplicateEpisode: StatusCode.ALREADY_EXISTS,
    errors.ActivationOutOfOrder: StatusCode.FAILED_PRECONDITION,
    errors.UnloadableState: StatusCode.FAILED_PRECONDITION,
    errors.CutVoid: StatusCode.ABORTED,
    errors.CheckpointAborted: StatusCode.ABORTED,
    errors.RestoreAborted: StatusCode.ABORTED,
    errors.ParticipantLost: StatusCode.UNAVAILABLE,
    errors.BlobNotFound: StatusCode.NOT_FOUND,
    errors.NameNotFound: StatusCode.NOT_FOUND,
    errors.CheckpointNotFound: StatusCode.NOT_FOUND,
    errors.EpisodeNotFound: StatusCode.NOT_FOUND,
    errors.MissingBlobs: StatusCode.FAILED_PRECONDITION,
    errors.DamagedFrame: StatusCode.DATA_LOSS,
    errors.DamagedBlob: StatusCode.DATA_LOSS,
    errors.WrongOffset: StatusCode.OUT_OF_RANGE,
    errors.StoreFull: StatusCode.RESOURCE_EXHAUSTED,
    errors.StoreUnavailable: StatusCode.UNAVAILABLE,
    errors.DeadlineExceeded: StatusCode.DEADLINE_EXCEEDED,
    errors.NotImplementedHere: StatusCode.UNIMPLEMENTED,
}
# The comma-separated entry of `details` that holds what stands in the way, one violation each.
VIOLATIONS: dict[type[GymckptError], str] = {
    errors.NotReady: "blockers",
    errors.MemberMissing: "members",
    errors.RestartInScope: "episodes",
}

_CLASSES = {kind.reason: kind for kind in TABLE}


def to_proto_status(error: GymckptError) -> status_pb2.Status:
    """The google.rpc.Status of an error, below 4 KB.

    TransportFailed becomes UNAVAILABLE without our detail: it is no decision of the protocol.
    """
    code = TABLE.get(type(error), StatusCode.UNAVAILABLE)
    status = status_pb2.Status(code=code.value[0], message=_shortened(error.message, MAX_MESSAGE_BYTES))
    if type(error) not in TABLE:
        return status
    info = error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN, metadata=_fitting(error.details))
    _attach(status, info)
    if error.retry_after is not None:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromNanoseconds(round(error.retry_after * 1e9))
        _attach(status, retry)
    if isinstance(error, errors.InvalidField):
        bad = error_details_pb2.BadRequest()
        bad.field_violations.add(field=_shortened(error.field, 200), description=_shortened(error.message, 400))
        _attach(status, bad)
    if type(error) in VIOLATIONS:
        _attach_violations(status, error)
    return status


def to_status(error: GymckptError) -> grpc.Status:
    """The status with which a servicer ends a call."""
    return rpc_status.to_status(to_proto_status(error))


def from_proto_status(status: status_pb2.Status) -> GymckptError:
    """The inverse of to_proto_status.

    A status without our detail is TransportFailed; a reason of a newer release is RevisionMismatch.
    """
    info, retry_after = None, None
    for detail in status.details:
        if _is(detail, error_details_pb2.ErrorInfo):
            info = error_details_pb2.ErrorInfo.FromString(detail.value)
        elif _is(detail, error_details_pb2.RetryInfo):
            retry_after = error_details_pb2.RetryInfo.FromString(detail.value).retry_delay.ToNanoseconds() / 1e9
    if info is None or info.domain != DOMAIN:
        return errors.TransportFailed(f"{_code_name(status.code)}: {status.message}")
    kind = _CLASSES.get(info.reason)
    if kind is None:
        return errors.RevisionMismatch(
            f"refused with {info.reason!r}, which this release does not know, upgrade it: {status.message}",
            details={"reason": info.reason, **info.metadata},
        )
    try:
        return kind(status.message, details=dict(info.metadata), retry_after=retry_after)
    except (KeyError, ValueError) as malformed:
        return errors.TransportFailed(f"a refusal {info.reason} lacks its details ({malformed}): {status.message}")


def from_rpc_error(error: grpc.RpcError) -> GymckptError:
    """What a failed call means: the error that the servicer raised, or TransportFailed when there was no such decision."""
    if not isinstance(error, grpc.aio.AioRpcError | grpc.Call):
        return errors.TransportFailed(f"the call failed without a status: {error}")
    for key, value in error.trailing_metadata() or ():
        if key == DETAILS_KEY and isinstance(value, bytes):
            try:
                return from_proto_status(status_pb2.Status.FromString(value))
            except DecodeError as malformed:
                return errors.TransportFailed(f"the status of a failure is unreadable ({malformed}): {error.details()}")
    return errors.TransportFailed(f"{error.code().name}: {error.details()}")


def _is(detail: Any, kind: type[Message]) -> bool:
    return bool(detail.Is(kind.DESCRIPTOR))


def _attach(status: status_pb2.Status, detail: Message) -> None:
    status.details.add().Pack(detail)


def _attach_violations(status: status_pb2.Status, error: GymckptError) -> None:
    """Adds as many violations as fit beside what is there."""
    subjects = [text for text in error.details.get(VIOLATIONS[type(error)], "").split(",") if text]
    if not subjects:
        return
    failure = error_details_pb2.PreconditionFailure()
    room = MAX_STATUS_BYTES - status.ByteSize() - 100
    for subject in subjects:
        violation = failure.violations.add(type=error.reason, subject=_shortened(subject, 300))
        room -= violation.ByteSize() + 4
        if room < 0:
            del failure.violations[-1]
            break
    _attach(status, failure)


def _fitting(details: dict[str, str]) -> dict[str, str]:
    """The details, long values cut to an equal share of the room when together they are too long, between list items."""
    total = sum(len(key.encode()) + len(value.encode()) + 8 for key, value in details.items())
    if total <= MAX_METADATA_BYTES:
        return dict(details)
    shortest_first: Sequence[tuple[str, str]] = sorted(details.items(), key=lambda item: len(item[1]))
    room, fitted = MAX_METADATA_BYTES, {}
    for left, (key, value) in zip(range(len(shortest_first), 0, -1), shortest_first, strict=True):
        cut = _shortened(value, max(room // left - len(key.encode()) - 8, 0), at=",")
        room -= len(key.encode()) + len(cut.encode()) + 8
        if room < 0:
            break
        fitted[key] = cut
    return fitted


def _shortened(text: str, most: int, at: str = "") -> str:
    """At most `most` bytes of UTF-8, cut before the last `at` where there is one."""
    data = text.encode()
    if len(data) <= most:
        return text
    cut = data[:most].decode(errors="ignore")
    return cut.rpartition(at)[0] if at and at in cut else cut


def _code_name(number: int) -> str:
    return next((code.name for code in StatusCode if code.value[0] == number), str(number))
