"""Transitions and their answers to the wire and back, for both ends of the control stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gymckpt.core.ids import check_boot_id, check_id
from gymckpt.core.kinds import ExportState, GateState
from gymckpt.core.transitions import (
    Abort,
    AbortDone,
    Acknowledge,
    Acknowledged,
    Activate,
    Activated,
    Answer,
    Confirm,
    Confirmed,
    Decided,
    DecisionSeen,
    Discard,
    Discarded,
    Forget,
    Forgotten,
    Install,
    Installed,
    InstallTarget,
    Prepare,
    Prepared,
    Renew,
    Renewed,
    Request,
    Result,
    Resume,
    Resumed,
    Retire,
    Retired,
    Snapshot,
    SnapshotTaken,
    Transition,
    Upload,
    Uploaded,
)
from gymckpt.errors import InvalidField
from gymckpt.rpc.codec import (
    DAY,
    HOUR,
    MAX_EPISODES,
    MAX_WHY,
    acknowledgements_from_proto,
    acknowledgements_to_proto,
    digest_from_proto,
    digest_to_proto,
    duration,
    duration_to_proto,
    each,
    enum_of,
    episode_from_proto,
    episode_to_proto,
    episodes_from_proto,
    episodes_to_proto,
    fence_from_proto,
    fence_to_proto,
    lost_from_proto,
    lost_to_proto,
    number,
    path,
    report_from_proto,
    report_to_proto,
    required,
    size,
    text,
)
from gymckpt.v1 import participant_pb2 as pb
from gymckpt.v1 import types_pb2

MAX_RESTARTS_PAGE = 10_000


def request_to_proto(request: Request) -> pb.TransitionRequest:
    """A request as it is sent."""
    name, encode = _TRANSITIONS_OUT[type(request.transition)]
    message = pb.TransitionRequest(fence=fence_to_proto(request.fence), number=request.number, boot_id=request.boot_id)
    getattr(message, name).CopyFrom(encode(request.transition))
    return message


def request_from_proto(message: pb.TransitionRequest) -> Request:
    """A request as it arrives. Raises InvalidField naming the field."""
    fence = fence_from_proto(required(message, "fence"), "fence")
    name = message.WhichOneof("transition")
    if name is None:
        raise InvalidField("transition is required: set one of its fields", field="transition")
    transition = _TRANSITIONS_IN[name](getattr(message, name), name)
    return Request(fence, number(message.number, "number", least=1), check_boot_id(message.boot_id), transition)


def answer_to_proto(answer: Answer) -> pb.TransitionResponse:
    """An answer as it is sent; restarts beyond the first page are read through GetStatus."""
    name, encode = _RESULTS_OUT[type(answer.result)]
    message = pb.TransitionResponse(
        number=answer.number,
        boot_id=answer.boot_id,
        gate=types_pb2.GateState.ValueType(answer.gate),
        export=types_pb2.ExportState.ValueType(answer.export),
    )
    getattr(message, name).CopyFrom(encode(answer.result))
    return message


def answer_from_proto(message: pb.TransitionResponse) -> Answer:
    """An answer as it arrives. Raises InvalidField naming the field."""
    name = message.WhichOneof("result")
    if name is None:
        raise InvalidField(f"result of transition {message.number} is none that this release knows", field="result")
    return Answer(
        message.number,
        message.boot_id,
        enum_of(GateState, message.gate, "gate"),
        enum_of(ExportState, message.export, "export"),
        _RESULTS_IN[name](getattr(message, name)),
    )


def _prepare_in(message: pb.Prepare, at: str) -> Prepare:
    return Prepare(
        duration(message, "timeout", longest=HOUR, parent=at), duration(message, "gate_lease", longest=HOUR, parent=at)
    )


def _prepare_out(prepare: Prepare) -> pb.Prepare:
    return pb.Prepare(timeout=duration_to_proto(prepare.timeout), gate_lease=duration_to_proto(prepare.gate_lease))


def _snapshot_in(message: pb.Snapshot, at: str) -> Snapshot:
    scope = None
    if message.HasField("scope"):
        scope = episodes_from_proto(message.scope.episodes, path(at, "scope.episodes"))
    base = message.base_checkpoint_id
    return Snapshot(
        number(message.closing, path(at, "closing"), least=1),
        duration(message, "export_lease", longest=DAY, parent=at),
        check_id(base, path(at, "base_checkpoint_id")) if base else "",
        scope,
    )


def _snapshot_out(snapshot: Snapshot) -> pb.Snapshot:
    message = pb.Snapshot(
        closing=snapshot.closing,
        export_lease=duration_to_proto(snapshot.export_lease),
        base_checkpoint_id=snapshot.base_checkpoint_id,
    )
    if snapshot.scope is not None:
        message.scope.CopyFrom(pb.EpisodeScope(episodes=episodes_to_proto(snapshot.scope)))
    return message


def _renew_in(message: pb.Renew, at: str) -> Renew:
    return Renew(
        duration(message, "gate_lease", longest=HOUR, default=0.0, parent=at),
        duration(message, "export_lease", longest=DAY, default=0.0, parent=at),
    )


def _renew_out(renew: Renew) -> pb.Renew:
    return pb.Renew(gate_lease=duration_to_proto(renew.gate_lease), export_lease=duration_to_proto(renew.export_lease))


def _install_in(message: pb.Install, at: str) -> Install:
    size(message.targets, path(at, "targets"), most=MAX_EPISODES)
    return Install(
        digest_from_proto(required(message, "manifest", at), path(at, "manifest")),
        each(_target_in, message.targets, path(at, "targets")),
        duration(message, "lease", longest=HOUR, parent=at),
    )


def _target_in(message: pb.InstallTarget, at: str) -> InstallTarget:
    source = episode_from_proto(required(message, "source", at), path(at, "source"))
    if message.attempt <= source.attempt:
        raise InvalidField(
            f"{at}.attempt must be above the source's {source.attempt}, got {message.attempt}", field=f"{at}.attempt"
        )
    return InstallTarget(source, message.attempt)


def _install_out(install: Install) -> pb.Install:
    targets = [pb.InstallTarget(source=episode_to_proto(t.source), attempt=t.attempt) for t in install.targets]
    return pb.Install(
        manifest=digest_to_proto(install.manifest), targets=targets, lease=duration_to_proto(install.lease)
    )


def _retire_in(message: pb.Retire, at: str) -> Retire:
    size(message.episodes, path(at, "episodes"), least=1, most=MAX_EPISODES)
    return Retire(
        episodes_from_proto(message.episodes, path(at, "episodes")),
        duration(message, "timeout", longest=HOUR, parent=at),
    )


def _retire_out(retire: Retire) -> pb.Retire:
    return pb.Retire(episodes=episodes_to_proto(retire.episodes), timeout=duration_to_proto(retire.timeout))


def _forget_in(message: pb.Forget, at: str) -> Forget:
    size(message.rollout_ids, path(at, "rollout_ids"), least=1, most=MAX_EPISODES)
    return Forget(each(check_id, message.rollout_ids, path(at, "rollout_ids")))


def _acknowledge_in(message: pb.Acknowledge, at: str) -> Acknowledge:
    return Acknowledge(
        acknowledgements_from_proto(message.acknowledgements, path(at, "acknowledgements")),
        duration(message, "timeout", longest=HOUR, parent=at),
    )


def _acknowledge_out(acknowledge: Acknowledge) -> pb.Acknowledge:
    return pb.Acknowledge(
        acknowledgements=acknowledgements_to_proto(acknowledge.acknowledgements),
        timeout=duration_to_proto(acknowledge.timeout),
    )


_TRANSITIONS_IN: dict[str, Callable[[Any, str], Transition]] = {
    "prepare": _prepare_in,
    "snapshot": _snapshot_in,
    "resume": lambda message, at: Resume(),
    "upload": lambda message, at: Upload(),
    "abort": lambda message, at: Abort(text(message.why, path(at, "why"), most=MAX_WHY)),
    "decided": lambda message, at: Decided(message.published),
    "renew": _renew_in,
    "install": _install_in,
    "confirm": lambda message, at: Confirm(),
    "activate": lambda message, at: Activate(),
    "discard": lambda message, at: Discard(episodes_from_proto(message.episodes, path(at, "episodes"))),
    "retire": _retire_in,
    "forget": _forget_in,
    "acknowledge": _acknowledge_in,
}

_TRANSITIONS_OUT: dict[type, tuple[str, Callable[[Any], Any]]] = {
    Prepare: ("prepare", _prepare_out),
    Snapshot: ("snapshot", _snapshot_out),
    Resume: ("resume", lambda _: pb.Resume()),
    Upload: ("upload", lambda _: pb.Upload()),
    Abort: ("abort", lambda abort: pb.Abort(why=abort.why)),
    Decided: ("decided", lambda decided: pb.Decided(published=decided.published)),
    Renew: ("renew", _renew_out),
    Install: ("install", _install_out),
    Confirm: ("confirm", lambda _: pb.Confirm()),
    Activate: ("activate", lambda _: pb.Activate()),
    Discard: ("discard", lambda discard: pb.Discard(episodes=episodes_to_proto(discard.episodes))),
    Retire: ("retire", _retire_out),
    Forget: ("forget", lambda forget: pb.Forget(rollout_ids=forget.rollout_ids)),
    Acknowledge: ("acknowledge", _acknowledge_out),
}


def _prepared_out(prepared: Prepared) -> pb.Prepared:
    restarts = prepared.report.restarts
    token = str(MAX_RESTARTS_PAGE) if len(restarts) > MAX_RESTARTS_PAGE else ""
    return pb.Prepared(
        report=report_to_proto(prepared.report, restarts[:MAX_RESTARTS_PAGE], token),
        closing=prepared.closing,
        waited_for=prepared.waited_for,
    )


def _uploaded_out(uploaded: Uploaded) -> pb.Uploaded:
    return pb.Uploaded(
        manifest=digest_to_proto(uploaded.manifest),
        blobs_sent=uploaded.blobs_sent,
        bytes_sent=uploaded.bytes_sent,
        sessions=uploaded.sessions,
        failed=[lost_to_proto(lost) for lost in uploaded.failed],
    )


def _uploaded_in(message: pb.Uploaded) -> Uploaded:
    return Uploaded(
        digest_from_proto(required(message, "manifest", "uploaded"), "uploaded.manifest"),
        message.blobs_sent,
        message.bytes_sent,
        message.sessions,
        each(lost_from_proto, message.failed, "uploaded.failed"),
    )


_RESULTS_OUT: dict[type, tuple[str, Callable[[Any], Any]]] = {
    Prepared: ("prepared", _prepared_out),
    SnapshotTaken: (
        "snapshot_taken",
        lambda taken: pb.SnapshotTaken(
            sessions=taken.sessions, changed=taken.changed, freeze_seconds=taken.freeze_seconds
        ),
    ),
    Resumed: ("resumed", lambda resumed: pb.Resumed(already=resumed.already)),
    Uploaded: ("uploaded", _uploaded_out),
    AbortDone: ("abort_done", lambda done: pb.AbortDone(already=done.already)),
    DecisionSeen: ("decision_seen", lambda _: pb.DecisionSeen()),
    Renewed: ("renewed", lambda _: pb.Renewed()),
    Installed: (
        "installed",
        lambda installed: pb.Installed(
            sessions=installed.sessions, unloadable=[lost_to_proto(lost) for lost in installed.unloadable]
        ),
    ),
    Confirmed: ("confirmed", lambda confirmed: pb.Confirmed(sessions=confirmed.sessions)),
    Activated: ("activated", lambda activated: pb.Activated(sessions=activated.sessions)),
    Discarded: ("discarded", lambda _: pb.Discarded()),
    Retired: ("retired", lambda _: pb.Retired()),
    Forgotten: ("forgotten", lambda _: pb.Forgotten()),
    Acknowledged: (
        "acknowledged",
        lambda acknowledged: pb.Acknowledged(unknown=episodes_to_proto(acknowledged.unknown)),
    ),
}

_RESULTS_IN: dict[str, Callable[[Any], Result]] = {
    "prepared": lambda message: Prepared(
        report_from_proto(message.report, "report"), number(message.closing, "prepared.closing"), message.waited_for
    ),
    "snapshot_taken": lambda message: SnapshotTaken(message.sessions, message.changed, message.freeze_seconds),
    "resumed": lambda message: Resumed(message.already),
    "uploaded": _uploaded_in,
    "abort_done": lambda message: AbortDone(message.already),
    "decision_seen": lambda message: DecisionSeen(),
    "renewed": lambda message: Renewed(),
    "installed": lambda message: Installed(
        message.sessions, each(lost_from_proto, message.unloadable, "installed.unloadable")
    ),
    "confirmed": lambda message: Confirmed(message.sessions),
    "activated": lambda message: Activated(message.sessions),
    "discarded": lambda message: Discarded(),
    "retired": lambda message: Retired(),
    "forgotten": lambda message: Forgotten(),
    "acknowledged": lambda message: Acknowledged(episodes_from_proto(message.unknown, "acknowledged.unknown")),
}
