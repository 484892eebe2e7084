"""What is stored: messages of manifest.proto to bytes and back.

Equal values give equal bytes. Bytes that cannot be read raise what `error` makes of the reason, DamagedBlob unless the
caller says otherwise; fields of a newer release are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from gymckpt.core.ids import Digest, ParticipantId, check_id
from gymckpt.core.kinds import Fate
from gymckpt.core.manifest import (
    CheckpointManifest,
    Decision,
    EpisodeRecord,
    Floor,
    Intent,
    MemberAddress,
    Part,
    ParticipantEntry,
    ParticipantManifest,
    Receipt,
    RestoreIntent,
    RestoreTarget,
    StoredSession,
    Touch,
)
from gymckpt.errors import DamagedBlob, GymckptError, InvalidField
from gymckpt.rpc.codec import shared
from gymckpt.rpc.codec.fields import SHORT_TEXT, each, enum_of, path, required
from gymckpt.v1 import manifest_pb2, types_pb2

MAX_WHY = 1024

ErrorOf = Callable[[str], GymckptError]
M = TypeVar("M", bound=Message)
T = TypeVar("T")


def encode_member(member: MemberAddress) -> bytes:
    return _encoded(manifest_pb2.Member(address=member.address, relayed=member.relayed))


def decode_member(data: bytes, error: ErrorOf = DamagedBlob) -> MemberAddress:
    return _decoded(manifest_pb2.Member, data, lambda message: MemberAddress(message.address, message.relayed), error)


def encode_intent(intent: Intent) -> bytes:
    return _encoded(
        manifest_pb2.Intent(
            epoch=intent.epoch,
            sequence=intent.sequence,
            members=[shared.participant_to_proto(member) for member in intent.members],
            base_checkpoint_id=intent.base_checkpoint_id,
            arguments=intent.arguments,
        )
    )


def decode_intent(data: bytes, error: ErrorOf = DamagedBlob) -> Intent:
    def value(message: manifest_pb2.Intent) -> Intent:
        return Intent(
            message.epoch,
            message.sequence,
            each(shared.participant_from_proto, message.members, "members"),
            message.base_checkpoint_id,
            message.arguments,
        )

    return _decoded(manifest_pb2.Intent, data, value, error)


def encode_decision(decision: Decision) -> bytes:
    message = manifest_pb2.Decision(unix_millis=decision.unix_millis)
    if decision.manifest is None:
        message.aborted.CopyFrom(manifest_pb2.Aborted(why=decision.why[:MAX_WHY]))
    else:
        message.published.manifest.CopyFrom(shared.digest_to_proto(decision.manifest))
        message.published.restarted.extend(_target_to_proto(target) for target in decision.restarted)
    return _encoded(message)


def decode_decision(data: bytes, error: ErrorOf = DamagedBlob) -> Decision:
    def value(message: manifest_pb2.Decision) -> Decision:
        if required(message, "outcome") == "aborted":
            return Decision(None, message.aborted.why, (), message.unix_millis)
        manifest = shared.digest_from_proto(message.published.manifest, "published.manifest")
        restarted = each(_target_from_proto, message.published.restarted, "published.restarted")
        return Decision(manifest, "", restarted, message.unix_millis)

    return _decoded(manifest_pb2.Decision, data, value, error)


def encode_checkpoint_manifest(manifest: CheckpointManifest) -> bytes:
    message = manifest_pb2.CheckpointManifest(
        checkpoint_id=manifest.checkpoint_id,
        epoch=manifest.epoch,
        sequence=manifest.sequence,
        unix_millis=manifest.unix_millis,
        base_checkpoint_id=manifest.base_checkpoint_id,
        labels=dict(manifest.labels),
        controller_state=manifest.controller_state,
        episodes=shared.episodes_to_proto(manifest.episodes),
        restarts=[shared.restart_to_proto(restart) for restart in manifest.restarts],
        lost=[shared.lost_to_proto(lost) for lost in manifest.lost],
    )
    for entry in manifest.participants:
        stored = message.participants.add(manifest=shared.digest_to_proto(entry.manifest))
        stored.participant.CopyFrom(shared.participant_to_proto(entry.participant))
        stored.participant.address, stored.participant.relayed = "", False
    return _encoded(message)


def decode_checkpoint_manifest(data: bytes, error: ErrorOf = DamagedBlob) -> CheckpointManifest:
    return _decoded(manifest_pb2.CheckpointManifest, data, _checkpoint_from_proto, error)


def _checkpoint_from_proto(message: manifest_pb2.CheckpointManifest) -> CheckpointManifest:
    def entry(stored: manifest_pb2.ParticipantEntry, field: str) -> ParticipantEntry:
        return ParticipantEntry(
            shared.participant_from_proto(stored.participant, path(field, "participant"), stored=True),
            shared.digest_from_proto(stored.manifest, path(field, "manifest")),
        )

    return CheckpointManifest(
        check_id(message.checkpoint_id, "checkpoint_id"),
        message.epoch,
        message.sequence,
        message.unix_millis,
        message.base_checkpoint_id,
        dict(message.labels),
        message.controller_state,
        each(entry, message.participants, "participants"),
        each(shared.episode_from_proto, message.episodes, "episodes"),
        each(shared.restart_from_proto, message.restarts, "restarts"),
        each(shared.lost_from_proto, message.lost, "lost"),
    )


def encode_participant_manifest(manifest: ParticipantManifest) -> bytes:
    message = manifest_pb2.ParticipantManifest(
        checkpoint_id=manifest.checkpoint_id,
        participant=shared.participant_id_to_proto(manifest.participant),
        boot_id=manifest.boot_id,
        records=[_record_to_proto(record) for record in manifest.records],
    )
    return _encoded(message)


def decode_participant_manifest(data: bytes, error: ErrorOf = DamagedBlob) -> ParticipantManifest:
    def value(message: manifest_pb2.ParticipantManifest) -> ParticipantManifest:
        return ParticipantManifest(
            check_id(message.checkpoint_id, "checkpoint_id"),
            shared.participant_id_from_proto(message.participant, "participant"),
            message.boot_id,
            each(_record_from_proto, message.records, "records"),
        )

    return _decoded(manifest_pb2.ParticipantManifest, data, value, error)


def _record_to_proto(record: EpisodeRecord) -> manifest_pb2.EpisodeRecord:
    return manifest_pb2.EpisodeRecord(
        episode=shared.episode_to_proto(record.episode),
        session=record.session,
        state=_optional_digest(record.state),
        revision=record.revision,
        unreceipted_revision=record.unreceipted_revision,
        boundary=record.boundary,
        touches=[
            manifest_pb2.Touch(
                participant=shared.participant_id_to_proto(touch.participant),
                session=touch.session,
                revision=touch.revision,
            )
            for touch in record.touches
        ],
    )


def _record_from_proto(message: manifest_pb2.EpisodeRecord, field: str) -> EpisodeRecord:
    def touch(stored: manifest_pb2.Touch, where: str) -> Touch:
        participant: ParticipantId = shared.participant_id_from_proto(stored.participant, path(where, "participant"))
        return Touch(participant, stored.session, stored.revision)

    return EpisodeRecord(
        shared.episode_from_proto(message.episode, path(field, "episode")),
        message.session,
        _digest_if_set(message, "state", field),
        message.revision,
        message.unreceipted_revision,
        message.boundary,
        each(touch, message.touches, path(field, "touches")),
    )


def encode_session(session: StoredSession) -> bytes:
    message = manifest_pb2.SessionState(schema=session.schema)
    for part in session.parts:
        message.parts.add(
            name=part.name, digest=shared.digest_to_proto(part.digest), chunk_list=_optional_digest(part.chunk_list)
        )
    for receipt in session.receipts:
        message.receipts.add(
            request_id=receipt.request_id,
            request=receipt.request,
            revision=receipt.revision,
            status=receipt.status,
            headers=[text for header in receipt.headers for text in header],
            body=receipt.body,
        )
    return _encoded(message)


def decode_session(data: bytes, error: ErrorOf = DamagedBlob) -> StoredSession:
    def value(message: manifest_pb2.SessionState) -> StoredSession:
        return StoredSession(
            message.schema,
            each(_part_from_proto, message.parts, "parts"),
            each(_receipt_from_proto, message.receipts, "receipts"),
        )

    return _decoded(manifest_pb2.SessionState, data, value, error)


def _part_from_proto(message: manifest_pb2.Part, field: str) -> Part:
    digest = shared.digest_from_proto(message.digest, path(field, "digest"))
    return Part(message.name, digest, _digest_if_set(message, "chunk_list", field))


def _receipt_from_proto(message: manifest_pb2.Receipt, field: str) -> Receipt:
    if len(message.headers) % 2:
        where = path(field, "headers")
        raise InvalidField(f"{where} must alternate names and values, got {len(message.headers)} entries", field=where)
    headers = tuple(zip(message.headers[::2], message.headers[1::2], strict=True))
    return Receipt(message.request_id, message.request, message.revision, message.status, headers, message.body)


def encode_restore_intent(intent: RestoreIntent) -> bytes:
    message = manifest_pb2.RestoreIntent(
        epoch=intent.epoch,
        sequence=intent.sequence,
        checkpoint_id=intent.checkpoint_id,
        manifest=shared.digest_to_proto(intent.manifest),
        targets=[_target_to_proto(target) for target in intent.targets],
        members=[shared.participant_to_proto(member) for member in intent.members],
        arguments=intent.arguments,
    )
    return _encoded(message)


def decode_restore_intent(data: bytes, error: ErrorOf = DamagedBlob) -> RestoreIntent:
    def value(message: manifest_pb2.RestoreIntent) -> RestoreIntent:
        return RestoreIntent(
            message.epoch,
            message.sequence,
            check_id(message.checkpoint_id, "checkpoint_id"),
            shared.digest_from_proto(message.manifest, "manifest"),
            each(_target_from_proto, message.targets, "targets"),
            each(shared.participant_from_proto, message.members, "members"),
            message.arguments,
        )

    return _decoded(manifest_pb2.RestoreIntent, data, value, error)


def _target_to_proto(target: RestoreTarget) -> manifest_pb2.RestoreTarget:
    return manifest_pb2.RestoreTarget(
        source=shared.episode_to_proto(target.source),
        attempt=target.attempt,
        fate=manifest_pb2.RestoreFate.ValueType(target.fate),
        why=target.why[:SHORT_TEXT],
    )


def _target_from_proto(message: manifest_pb2.RestoreTarget, field: str) -> RestoreTarget:
    source = shared.episode_from_proto(message.source, path(field, "source"))
    return RestoreTarget(source, message.attempt, enum_of(Fate, message.fate, path(field, "fate")), message.why)


def encode_floors(floors: Sequence[Floor]) -> bytes:
    return _encoded(
        manifest_pb2.Floors(
            floors=[
                manifest_pb2.Floor(
                    rollout_id=floor.rollout_id,
                    refused=max(floor.refused, 0),
                    unset=floor.refused < 0,
                    target=floor.target,
                )
                for floor in floors
            ]
        )
    )


def decode_floors(data: bytes, error: ErrorOf = DamagedBlob) -> tuple[Floor, ...]:
    def floor(message: manifest_pb2.Floor, field: str) -> Floor:
        rollout = check_id(message.rollout_id, path(field, "rollout_id"))
        return Floor(rollout, -1 if message.unset else message.refused, message.target)

    return _decoded(manifest_pb2.Floors, data, lambda message: each(floor, message.floors, "floors"), error)


def _encoded(message: Message) -> bytes:
    return message.SerializeToString(deterministic=True)


def _decoded(kind: type[M], data: bytes, value: Callable[[M], T], error: ErrorOf) -> T:
    try:
        return value(kind.FromString(data))
    except (DecodeError, InvalidField) as malformed:
        raise error(f"a stored {kind.DESCRIPTOR.name} cannot be read: {malformed}") from malformed


def _optional_digest(digest: Digest | None) -> types_pb2.Digest | None:
    return shared.digest_to_proto(digest) if digest else None


def _digest_if_set(message: Message, name: str, field: str) -> Digest | None:
    return shared.digest_from_proto(getattr(message, name), path(field, name)) if message.HasField(name) else None
