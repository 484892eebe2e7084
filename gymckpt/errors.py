"""Every error of gymckpt, free of any transport.

    GymckptError
    ├── InvalidField
    ├── Refused                      the protocol says no; doing something else first may help
    │   ├── StaleEpoch, StaleCheckpoint, StaleAttempt, StaleBoot
    │   ├── Conflict, ArgumentConflict, InvalidPhase, AdmissionClosed
    │   ├── NotReady, RestartInScope, MemberMissing, EpisodeRequired, RevisionMismatch
    │   ├── NotRestored, AlreadyRestored, TaskMismatch, ReceiptMismatch
    │   └── DuplicateEpisode, ActivationOutOfOrder, UnloadableState, CoordinatorStarting
    ├── RoundFailed                  a round ended without its result; every gate is open again
    │   └── CutVoid, CheckpointAborted, RestoreAborted, ParticipantLost
    ├── NotFound
    │   └── BlobNotFound, NameNotFound, CheckpointNotFound, EpisodeNotFound
    ├── StoreError
    │   └── MissingBlobs, DamagedFrame, DamagedBlob, WrongOffset, StoreFull, StoreUnavailable
    ├── DeadlineExceeded
    ├── NotImplementedHere
    └── TransportFailed              not a decision of the protocol: the connection or the process failed

Each class has one `reason`, the name of a value of the `Reason` enum of errors.proto; `gymckpt.rpc.status` maps reasons to gRPC codes, and back to the
same class at the caller. `details` holds the names and values that the message is about, as text, for programs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar


class GymckptError(Exception):
    """Base of all. `message` is for people, `details` for programs, `retry_after` is in seconds (None: retrying alone does not help)."""

    reason: ClassVar[str] = ""

    def __init__(
        self, message: str, *, details: dict[str, str] | None = None, retry_after: float | None = None
    ) -> None:
        if type(self).reason == "":
            raise TypeError(f"{type(self).__name__} groups errors; raise one of its subclasses")
        super().__init__(message)
        self.message = message
        self.details = dict(details or {})
        self.retry_after = retry_after


class InvalidField(GymckptError):
    """A field is missing, malformed, too large or unknown. `field` is its path, e.g. `fence.epoch`."""

    reason = "INVALID_FIELD"

    def __init__(
        self, message: str, *, field: str = "", details: dict[str, str] | None = None, retry_after: float | None = None
    ) -> None:
        details = dict(details or {})
        self.field = field or details.get("field", "")
        details["field"] = self.field
        super().__init__(message, details=details, retry_after=retry_after)


class Refused(GymckptError):
    """The protocol says no to this request now."""


class StaleEpoch(Refused):
    reason = "STALE_EPOCH"


class StaleCheckpoint(Refused):
    reason = "STALE_CHECKPOINT"


class StaleAttempt(Refused):
    reason = "STALE_ATTEMPT"


class StaleBoot(Refused):
    reason = "STALE_BOOT"


class Conflict(Refused):
    reason = "CONFLICT"


class ArgumentConflict(Refused):
    reason = "ARGUMENT_CONFLICT"


class InvalidPhase(Refused):
    reason = "INVALID_PHASE"


class AdmissionClosed(Refused):
    reason = "ADMISSION_CLOSED"


class NotReady(Refused):
    reason = "NOT_READY"


class RestartInScope(Refused):
    reason = "RESTART_IN_SCOPE"


class MemberMissing(Refused):
    reason = "MEMBER_MISSING"


class CoordinatorStarting(Refused):
    """It takes over from the one before, and serves nobody until all that one's members are heard. `details["participants"]` names whom it waits for."""

    reason = "COORDINATOR_STARTING"


class EpisodeRequired(Refused):
    reason = "EPISODE_REQUIRED"


class RevisionMismatch(Refused):
    reason = "REVISION_MISMATCH"


class NotRestored(Refused):
    reason = "NOT_RESTORED"


class AlreadyRestored(Refused):
    reason = "ALREADY_RESTORED"


class TaskMismatch(Refused):
    reason = "TASK_MISMATCH"


class ReceiptMismatch(Refused):
    reason = "RECEIPT_MISMATCH"


class DuplicateEpisode(Refused):
    reason = "DUPLICATE_EPISODE"


class ActivationOutOfOrder(Refused):
    reason = "ACTIVATION_OUT_OF_ORDER"


class UnloadableState(Refused):
    reason = "UNLOADABLE_STATE"


class RoundFailed(GymckptError):
    """A round ended without its result. Every gate is open again; a new id is needed."""


class CutVoid(RoundFailed):
    reason = "CUT_VOID"


class CheckpointAborted(RoundFailed):
    reason = "CHECKPOINT_ABORTED"


class RestoreAborted(RoundFailed):
    reason = "RESTORE_ABORTED"


class ParticipantLost(RoundFailed):
    reason = "PARTICIPANT_LOST"


class NotFound(GymckptError):
    """What was asked for is not here."""


class BlobNotFound(NotFound):
    reason = "BLOB_NOT_FOUND"


class NameNotFound(NotFound):
    reason = "NAME_NOT_FOUND"


class CheckpointNotFound(NotFound):
    reason = "CHECKPOINT_NOT_FOUND"


class EpisodeNotFound(NotFound):
    reason = "EPISODE_NOT_FOUND"


class StoreError(GymckptError):
    """The artifact store cannot keep or give back what it was asked to."""


class MissingBlobs(StoreError):
    """A manifest names blobs that are not durable. `digests` lists them as text, at most 1,000."""

    reason = "MISSING_BLOBS"

    def __init__(
        self,
        message: str,
        *,
        digests: Sequence[str] = (),
        details: dict[str, str] | None = None,
        retry_after: float | None = None,
    ) -> None:
        details = dict(details or {})
        self.digests = list(digests) or [text for text in details.get("digests", "").split(",") if text]
        details["digests"] = ",".join(self.digests[:1000])
        super().__init__(message, details=details, retry_after=retry_after)


class DamagedFrame(StoreError):
    reason = "DAMAGED_FRAME"


class DamagedBlob(StoreError):
    reason = "DAMAGED_BLOB"


class WrongOffset(StoreError):
    """A frame starts elsewhere than where the durable content ends. `offset` is where to go on."""

    reason = "WRONG_OFFSET"

    def __init__(
        self,
        message: str,
        *,
        offset: int | None = None,
        details: dict[str, str] | None = None,
        retry_after: float | None = None,
    ) -> None:
        details = dict(details or {})
        self.offset = int(details["offset"]) if offset is None else offset
        details["offset"] = str(self.offset)
        super().__init__(message, details=details, retry_after=retry_after)


class StoreFull(StoreError):
    reason = "STORE_FULL"


class StoreUnavailable(StoreError):
    reason = "STORE_UNAVAILABLE"


class DeadlineExceeded(GymckptError):
    reason = "DEADLINE_EXCEEDED"


class NotImplementedHere(GymckptError):
    reason = "NOT_IMPLEMENTED"


class TransportFailed(GymckptError):
    """The connection or the process at its other end failed; nothing is known about whether the request was carried out."""

    reason = "TRANSPORT"
