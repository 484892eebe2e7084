"""Words shared by the services: messages of types.proto to values and back.

`field` is the path of the message in its request; refusals (InvalidField) name what is wrong by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from google.protobuf.descriptor_pool import DescriptorPool

from gymckpt.core.chunks import DIGEST_BYTES, FRAME
from gymckpt.core.ids import MAX_BLOB, Digest, Episode, Fence, ParticipantId, check_boot_id, check_id
from gymckpt.core.kinds import Capture, ExportState, GateState, Kind
from gymckpt.core.manifest import ParticipantInfo
from gymckpt.core.report import Blocker, LostEpisode, Report, Restart
from gymckpt.core.results import MAX_ACKNOWLEDGED, Acknowledgement, FinishedResult
from gymckpt.core.transitions import Holdings
from gymckpt.errors import InvalidField
from gymckpt.rpc.codec.fields import SHORT_TEXT, built, each, enum_of, number, path, required, size, text
from gymckpt.v1 import errors_pb2, types_pb2

MAX_EPISODES = 100_000
MAX_DIGESTS = 100_000
MAX_LOST = 10_000
MAX_FEATURES = 64
MESSAGE_BYTES = 16 * 2**20


def descriptor_pool() -> DescriptorPool:
    """Where every type of the contract is known, the reasons of refusals included: for reflection."""
    return errors_pb2.DESCRIPTOR.pool


def reasons() -> list[str]:
    """The Reason values of errors.proto without their prefix, the unspecified one left out."""
    return [name.removeprefix("REASON_") for name, value in errors_pb2.Reason.items() if value]


def limits_to_proto(episodes: int = MAX_EPISODES) -> types_pb2.Limits:
    """The bounds of this revision."""
    return types_pb2.Limits(frame_bytes=FRAME, message_bytes=MESSAGE_BYTES, episodes=episodes)


def episode_to_proto(episode: Episode) -> types_pb2.Episode:
    return types_pb2.Episode(rollout_id=episode.rollout_id, attempt=episode.attempt)


def episode_from_proto(message: types_pb2.Episode, field: str = "episode") -> Episode:
    return built(Episode, field, message.rollout_id, message.attempt)


def episodes_to_proto(episodes: Iterable[Episode]) -> list[types_pb2.Episode]:
    return [types_pb2.Episode(rollout_id=episode.rollout_id, attempt=episode.attempt) for episode in episodes]


def episodes_from_proto(
    messages: Sequence[types_pb2.Episode], field: str = "episodes", *, least: int = 0, most: int = MAX_EPISODES
) -> tuple[Episode, ...]:
    """`least` to `most` episodes. Raises InvalidField naming e.g. `episodes[3].rollout_id`."""
    size(messages, field, least=least, most=most)
    return each(episode_from_proto, messages, field)


def episode_from_token(token: str, field: str = "page_token") -> Episode | None:
    """The episode behind which a page begins; None for the first page. Raises InvalidField."""
    try:
        return Episode.parse(token) if token else None
    except InvalidField as error:
        raise InvalidField(f"{field} must come from the answer before: {error.message}", field=field) from error


def result_to_proto(result: FinishedResult) -> types_pb2.Result:
    return types_pb2.Result(
        episode=episode_to_proto(result.episode),
        receipt=result.receipt,
        body=digest_to_proto(result.body),
        durable=result.durable,
    )


def result_from_proto(message: types_pb2.Result, field: str = "result") -> FinishedResult:
    body = digest_from_proto(message.body, path(field, "body"))
    return FinishedResult(episode_from_proto(message.episode, path(field, "episode")), body, message.durable)


def acknowledgements_to_proto(
    acknowledgements: Iterable[Acknowledgement | FinishedResult],
) -> list[types_pb2.Acknowledgement]:
    return [
        types_pb2.Acknowledgement(episode=episode_to_proto(each.episode), receipt=each.receipt)
        for each in acknowledgements
    ]


def acknowledgements_from_proto(
    messages: Sequence[types_pb2.Acknowledgement], field: str = "acknowledgements"
) -> tuple[Acknowledgement, ...]:
    """1 to 1,000 acknowledgements. Raises InvalidField naming e.g. `acknowledgements[3].receipt`."""
    size(messages, field, least=1, most=MAX_ACKNOWLEDGED)
    return each(_acknowledgement_from_proto, messages, field)


def _acknowledgement_from_proto(message: types_pb2.Acknowledgement, field: str) -> Acknowledgement:
    episode = episode_from_proto(required(message, "episode", field), path(field, "episode"))
    size(message.receipt, path(field, "receipt"), least=DIGEST_BYTES, most=DIGEST_BYTES)
    return Acknowledgement(episode, message.receipt)


def participant_id_to_proto(participant: ParticipantId) -> types_pb2.ParticipantId:
    return types_pb2.ParticipantId(kind=types_pb2.ParticipantKind.ValueType(participant.kind), name=participant.name)


def participant_id_from_proto(message: types_pb2.ParticipantId, field: str = "participant") -> ParticipantId:
    kind = enum_of(Kind, message.kind, path(field, "kind"))
    return built(ParticipantId, field, kind, message.name)


def fence_to_proto(fence: Fence) -> types_pb2.Fence:
    return types_pb2.Fence(epoch=fence.epoch, sequence=fence.sequence, checkpoint_id=fence.checkpoint_id)


def fence_from_proto(message: types_pb2.Fence, field: str = "fence") -> Fence:
    return built(Fence, field, message.epoch, message.sequence, message.checkpoint_id)


def digest_to_proto(digest: Digest) -> types_pb2.Digest:
    return types_pb2.Digest(blake3=digest.blake3, size=digest.size)


def digest_from_proto(message: types_pb2.Digest, field: str = "digest") -> Digest:
    return built(Digest, field, message.blake3, message.size)


def digests_to_proto(digests: Sequence[Digest]) -> types_pb2.DigestColumns:
    return types_pb2.DigestColumns(
        blake3=b"".join([digest.blake3 for digest in digests]), sizes=[digest.size for digest in digests]
    )


def digests_from_proto(
    message: types_pb2.DigestColumns, field: str = "blobs", *, least: int = 1, most: int = MAX_DIGESTS
) -> list[Digest]:
    """`least` to `most` digests. Raises InvalidField naming the column, or the size that is too large."""
    size(message.sizes, path(field, "sizes"), least=least, most=most)
    names = split_digests(message.blake3, len(message.sizes), path(field, "blake3"))
    for at, length in enumerate(message.sizes):
        if length > MAX_BLOB:
            where = f"{path(field, 'sizes')}[{at}]"
            raise InvalidField(f"{where} must be 0 to {MAX_BLOB}, got {length}", field=where)
    return [Digest(name, length) for name, length in zip(names, message.sizes, strict=True)]


def split_digests(joined: bytes, count: int, field: str) -> list[bytes]:
    """`count` digests of 32 bytes each. Raises InvalidField when the length is another."""
    if len(joined) != DIGEST_BYTES * count:
        raise InvalidField(
            f"{field} must have 32 bytes for each of {count} sizes, {DIGEST_BYTES * count}, got {len(joined)}",
            field=field,
        )
    return [joined[at : at + DIGEST_BYTES] for at in range(0, len(joined), DIGEST_BYTES)]


def blocker_to_proto(blocker: Blocker) -> types_pb2.Blocker:
    episode = episode_to_proto(blocker.episode) if blocker.episode else None
    return types_pb2.Blocker(
        type=blocker.type, episode=episode, subject=blocker.subject[:SHORT_TEXT], age_seconds=blocker.age
    )


def blocker_from_proto(message: types_pb2.Blocker, field: str = "blocker") -> Blocker:
    episode = episode_from_proto(message.episode, path(field, "episode")) if message.HasField("episode") else None
    return Blocker(
        text(message.type, path(field, "type"), need=True),
        episode,
        text(message.subject, path(field, "subject")),
        message.age_seconds,
    )


def restart_to_proto(restart: Restart) -> types_pb2.Restart:
    return types_pb2.Restart(episode=episode_to_proto(restart.episode), why=restart.why[:SHORT_TEXT])


def restart_from_proto(message: types_pb2.Restart, field: str = "restart") -> Restart:
    return Restart(episode_from_proto(message.episode, path(field, "episode")), text(message.why, path(field, "why")))


def lost_to_proto(lost: LostEpisode) -> types_pb2.LostEpisode:
    episode = episode_to_proto(lost.episode)
    return types_pb2.LostEpisode(episode=episode, why=lost.why[:SHORT_TEXT], checkpoint_id=lost.checkpoint_id)


def lost_from_proto(message: types_pb2.LostEpisode, field: str = "lost") -> LostEpisode:
    episode = episode_from_proto(message.episode, path(field, "episode"))
    checkpoint_id = check_id(message.checkpoint_id, path(field, "checkpoint_id")) if message.checkpoint_id else ""
    return LostEpisode(episode, text(message.why, path(field, "why")), checkpoint_id)


def lost_list_from_proto(
    messages: Sequence[types_pb2.LostEpisode], field: str = "lost", *, most: int = MAX_LOST
) -> tuple[LostEpisode, ...]:
    size(messages, field, most=most)
    return each(lost_from_proto, messages, field)


def report_to_proto(
    report: Report, restarts: Sequence[Restart] | None = None, next_page_token: str = ""
) -> types_pb2.Report:
    """The report with this page of its restarts (all of them when None); `restart_count` is always that of all."""
    shown = report.restarts if restarts is None else restarts
    return types_pb2.Report(
        ready=report.ready,
        blockers=[blocker_to_proto(blocker) for blocker in report.blockers],
        blocker_count=report.blocker_count,
        restarts=[restart_to_proto(restart) for restart in shown],
        restart_count=len(report.restarts),
        next_restarts_page_token=next_page_token,
        counts=dict(report.counts),
    )


def report_from_proto(message: types_pb2.Report, field: str = "report") -> Report:
    """The report with the restarts of this page."""
    return Report(
        each(blocker_from_proto, message.blockers, path(field, "blockers")),
        message.blocker_count,
        each(restart_from_proto, message.restarts, path(field, "restarts")),
        dict(message.counts),
    )


def participant_to_proto(info: ParticipantInfo) -> types_pb2.ParticipantInfo:
    return types_pb2.ParticipantInfo(
        id=participant_id_to_proto(info.id),
        worker=info.worker,
        boot_id=info.boot_id,
        address=info.address,
        contract_revision=info.contract_revision,
        features=info.features,
        limits=limits_to_proto(),
        state_schemas=info.state_schemas,
        capture=types_pb2.CaptureMode.ValueType(info.capture),
        cookie_only=info.cookie_only,
        relayed=info.relayed,
    )


def participant_from_proto(
    message: types_pb2.ParticipantInfo, field: str = "participant", *, stored: bool = False
) -> ParticipantInfo:
    """What a process says of itself; the address may be empty in a `stored` one."""
    for name in ("features", "state_schemas"):
        size(getattr(message, name), path(field, name), most=MAX_FEATURES)
        for at, entry in enumerate(getattr(message, name)):
            text(entry, f"{path(field, name)}[{at}]", need=True)
    return ParticipantInfo(
        participant_id_from_proto(message.id, path(field, "id")),
        check_id(message.worker, path(field, "worker")),
        check_boot_id(message.boot_id, path(field, "boot_id")),
        text(message.address, path(field, "address"), need=not stored),
        enum_of(Capture, message.capture, path(field, "capture")),
        number(message.contract_revision, path(field, "contract_revision"), least=1),
        tuple(message.features),
        tuple(message.state_schemas),
        message.cookie_only,
        message.relayed,
    )


def holdings_to_proto(holdings: Holdings) -> types_pb2.Holdings:
    def fence(held: Fence | None) -> types_pb2.Fence | None:
        return fence_to_proto(held) if held else None

    return types_pb2.Holdings(
        gate=types_pb2.GateState.ValueType(holdings.gate),
        gate_fence=fence(holdings.gate_fence),
        export=types_pb2.ExportState.ValueType(holdings.export),
        export_fence=fence(holdings.export_fence),
        restore_fence=fence(holdings.restore_fence),
        epoch=holdings.epoch,
        episodes=holdings.episodes,
        sequence=holdings.sequence,
    )


def holdings_from_proto(message: types_pb2.Holdings, field: str = "holds") -> Holdings:
    def fence(name: Literal["gate_fence", "export_fence", "restore_fence"]) -> Fence | None:
        return fence_from_proto(getattr(message, name), path(field, name)) if message.HasField(name) else None

    return Holdings(
        enum_of(GateState, message.gate, path(field, "gate")),
        enum_of(ExportState, message.export, path(field, "export")),
        fence("gate_fence"),
        fence("export_fence"),
        fence("restore_fence"),
        number(message.epoch, path(field, "epoch")),
        number(message.episodes, path(field, "episodes")),
        number(message.sequence, path(field, "sequence")),
    )
