"""The coordinator's side of ParticipantService: values in, values out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from typing import Any

import grpc

from gymckpt.core import transitions as steps
from gymckpt.core.kinds import ExportState, GateState
from gymckpt.core.manifest import ParticipantInfo
from gymckpt.core.report import LostEpisode, Report, Restart
from gymckpt.core.transitions import Answer, Holdings, Request, Result, Transition
from gymckpt.errors import GymckptError, TransportFailed
from gymckpt.rpc import codec
from gymckpt.rpc.channel import open_channel
from gymckpt.rpc.status import from_proto_status, from_rpc_error
from gymckpt.v1 import participant_pb2 as pb
from gymckpt.v1 import types_pb2
from gymckpt.v1.participant_pb2_grpc import ParticipantServiceStub

RESTARTS_PAGE = 10_000


@dataclass(frozen=True, slots=True)
class ParticipantStatus:
    """What a participant says of itself, with all of its restarts."""

    info: ParticipantInfo
    holds: Holdings
    report: Report
    lost: tuple[LostEpisode, ...] = ()


class ParticipantClient:
    """One participant process. Errors are those of the protocol, or TransportFailed."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._channel = open_channel(address)
        self._stub = ParticipantServiceStub(self._channel)

    async def close(self) -> None:
        await self._channel.close()

    async def status(self, epoch: int = 0, *, timeout: float) -> ParticipantStatus:
        """What it holds and what blocks it; `epoch` is then the lowest that it obeys (0 asks only)."""
        request = pb.GetStatusRequest(epoch=epoch, restarts_page_size=RESTARTS_PAGE)
        answer = await self._status_page(request, timeout)
        report = codec.report_from_proto(answer.report)
        restarts = await self._more_restarts(answer.report, report.restarts, timeout)
        return ParticipantStatus(
            codec.participant_from_proto(answer.participant),
            codec.holdings_from_proto(answer.holds),
            replace(report, restarts=restarts),
            codec.lost_list_from_proto(answer.lost),
        )

    async def transition(self, request: Request, *, timeout: float | None = None) -> Answer:
        """One transition over the unary door."""
        try:
            answer = await self._stub.Transition(request_to_proto(request), timeout=timeout)
        except grpc.RpcError as error:
            raise from_rpc_error(error) from error
        return await self.whole(answer)

    def control(self, on_report: Callable[[Report], None]) -> ControlStream:
        """The stream over which transitions are pushed."""
        return ControlStream(self, self._stub.Control(), on_report)

    async def whole(self, message: pb.TransitionResponse) -> Answer:
        """The answer with every page of its restarts."""
        answer = answer_from_proto(message)
        if isinstance(answer.result, steps.Prepared) and message.prepared.report.next_restarts_page_token:
            report = answer.result.report
            restarts = await self._more_restarts(message.prepared.report, report.restarts, timeout=30.0)
            return replace(answer, result=replace(answer.result, report=replace(report, restarts=restarts)))
        return answer

    async def _more_restarts(
        self, page: types_pb2.Report, first: tuple[Restart, ...], timeout: float
    ) -> tuple[Restart, ...]:
        restarts = list(first)
        while page.next_restarts_page_token:
            token = page.next_restarts_page_token
            request = pb.GetStatusRequest(restarts_page_size=RESTARTS_PAGE, restarts_page_token=token)
            page = (await self._status_page(request, timeout)).report
            restarts.extend(codec.report_from_proto(page).restarts)
        return tuple(restarts)

    async def _status_page(self, request: pb.GetStatusRequest, timeout: float) -> pb.GetStatusResponse:
        try:
            return await self._stub.GetStatus(request, timeout=timeout)
        except grpc.RpcError as error:
            raise from_rpc_error(error) from error


class ControlStream:
    """Asks over one long stream; answers come in any order and are told apart by their numbers."""

    def __init__(self, client: ParticipantClient, call: Any, on_report: Callable[[Report], None]) -> None:
        self._client = client
        self._call = call
        self._on_report = on_report
        self._waiting: dict[int, asyncio.Future[pb.TransitionResponse]] = {}
        self._writing = asyncio.Lock()
        self.broken: GymckptError | None = None
        self._reader = asyncio.create_task(self._read())

    async def ask(self, request: Request) -> Answer:
        """Raises the refusal, or TransportFailed when the stream breaks first."""
        if self.broken is not None:
            raise self.broken
        answer: asyncio.Future[pb.TransitionResponse] = asyncio.get_running_loop().create_future()
        self._waiting[request.number] = answer
        try:
            async with self._writing:
                await self._call.write(pb.ControlRequest(transition=request_to_proto(request)))
            message = await answer
        except grpc.RpcError as error:
            raise from_rpc_error(error) from error
        except asyncio.InvalidStateError as error:
            raise TransportFailed(f"the control stream to {self._client.address} has ended") from error
        finally:
            self._waiting.pop(request.number, None)
        return await self._client.whole(message)

    async def close(self) -> None:
        self._call.cancel()
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)

    async def _read(self) -> None:
        try:
            async for response in self._responses():
                self._take(response)
            self.broken = TransportFailed(f"the participant at {self._client.address} ended the control stream")
        except grpc.RpcError as error:
            self.broken = TransportFailed(
                f"the control stream to {self._client.address} broke: {from_rpc_error(error)}"
            )
        except asyncio.CancelledError:
            self.broken = TransportFailed(f"the control stream to {self._client.address} was closed")
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(self.broken)

    def _responses(self) -> AsyncIterator[pb.ControlResponse]:
        responses: AsyncIterator[pb.ControlResponse] = self._call
        return responses

    def _take(self, response: pb.ControlResponse) -> None:
        event = response.WhichOneof("event")
        if event == "report":
            self._on_report(codec.report_from_proto(response.report))
            return
        failed = event == "failure"
        waiting = self._waiting.get(response.failure.number if failed else response.answer.number)
        if waiting is None or waiting.done():
            return
        if failed:
            waiting.set_exception(from_proto_status(response.failure.status))
        else:
            waiting.set_result(response.answer)


def request_to_proto(request: Request) -> pb.TransitionRequest:
    message = pb.TransitionRequest(
        fence=codec.fence_to_proto(request.fence), number=request.number, boot_id=request.boot_id
    )
    name, content = _transition(request.transition)
    getattr(message, name).CopyFrom(content)
    return message


def _transition(step: Transition) -> tuple[str, Any]:
    """The member of the oneof, and what it holds."""
    seconds = codec.duration_to_proto
    match step:
        case steps.Prepare():
            return "prepare", pb.Prepare(timeout=seconds(step.timeout), gate_lease=seconds(step.gate_lease))
        case steps.Snapshot():
            scope = None if step.scope is None else pb.EpisodeScope(episodes=codec.episodes_to_proto(step.scope))
            return "snapshot", pb.Snapshot(
                closing=step.closing,
                export_lease=seconds(step.export_lease),
                base_checkpoint_id=step.base_checkpoint_id,
                scope=scope,
            )
        case steps.Abort():
            return "abort", pb.Abort(why=step.why)
        case steps.Decided():
            return "decided", pb.Decided(published=step.published)
        case steps.Renew():
            return "renew", pb.Renew(gate_lease=seconds(step.gate_lease), export_lease=seconds(step.export_lease))
        case steps.Install():
            targets = [
                pb.InstallTarget(source=codec.episode_to_proto(target.source), attempt=target.attempt)
                for target in step.targets
            ]
            return "install", pb.Install(
                manifest=codec.digest_to_proto(step.manifest), targets=targets, lease=seconds(step.lease)
            )
        case steps.Discard():
            return "discard", pb.Discard(episodes=codec.episodes_to_proto(step.episodes))
        case steps.Retire():
            return "retire", pb.Retire(episodes=codec.episodes_to_proto(step.episodes), timeout=seconds(step.timeout))
        case steps.Forget():
            return "forget", pb.Forget(rollout_ids=step.rollout_ids)
        case _:
            return _EMPTY[type(step)]


_EMPTY: dict[type[Transition], tuple[str, Any]] = {
    steps.Resume: ("resume", pb.Resume()),
    steps.Upload: ("upload", pb.Upload()),
    steps.Confirm: ("confirm", pb.Confirm()),
    steps.Activate: ("activate", pb.Activate()),
}


def answer_from_proto(message: pb.TransitionResponse) -> Answer:
    name = codec.required(message, "result")
    return Answer(
        message.number,
        message.boot_id,
        codec.enum_of(GateState, message.gate, "gate"),
        codec.enum_of(ExportState, message.export, "export"),
        _RESULTS[name](getattr(message, name)),
    )


def _uploaded(message: pb.Uploaded) -> steps.Uploaded:
    return steps.Uploaded(
        codec.digest_from_proto(message.manifest, "uploaded.manifest"),
        message.blobs_sent,
        message.bytes_sent,
        message.sessions,
        codec.lost_list_from_proto(message.failed, "uploaded.failed", most=codec.MAX_EPISODES),
    )


def _installed(message: pb.Installed) -> steps.Installed:
    unloadable = codec.lost_list_from_proto(message.unloadable, "installed.unloadable", most=codec.MAX_EPISODES)
    return steps.Installed(message.sessions, unloadable)


_RESULTS: dict[str, Callable[[Any], Result]] = {
    "prepared": lambda m: steps.Prepared(codec.report_from_proto(m.report, "prepared.report"), m.closing),
    "snapshot_taken": lambda m: steps.SnapshotTaken(m.sessions, m.changed, m.freeze_seconds),
    "resumed": lambda m: steps.Resumed(m.already),
    "uploaded": _uploaded,
    "abort_done": lambda m: steps.AbortDone(m.already),
    "decision_seen": lambda _: steps.DecisionSeen(),
    "renewed": lambda _: steps.Renewed(),
    "installed": _installed,
    "confirmed": lambda m: steps.Confirmed(m.sessions),
    "activated": lambda m: steps.Activated(m.sessions),
    "discarded": lambda _: steps.Discarded(),
    "retired": lambda _: steps.Retired(),
    "forgotten": lambda _: steps.Forgotten(),
}
