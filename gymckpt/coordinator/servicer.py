"""CoordinatorService: requests are checked and turned into values here, and nowhere else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc

from gymckpt.coordinator import catalog, values
from gymckpt.coordinator.coordinator import Coordinator
from gymckpt.core.arguments import (
    DAY,
    HOUR,
    MAX_EPISODES,
    CheckpointArguments,
    OnNotReady,
    OnUnloadable,
    RestoreArguments,
    ResumePolicy,
)
from gymckpt.core.ids import check_id
from gymckpt.core.kinds import Fate
from gymckpt.core.manifest import RestoreTarget
from gymckpt.core.recovery import Trouble
from gymckpt.errors import NotImplementedHere
from gymckpt.rpc import codec
from gymckpt.rpc.channel import check_address
from gymckpt.v1 import coordinator_pb2 as pb
from gymckpt.v1 import types_pb2
from gymckpt.v1.coordinator_pb2_grpc import CoordinatorServiceServicer, add_CoordinatorServiceServicer_to_server

Context = grpc.aio.ServicerContext[Any, Any]
OUTCOME_PAGE = 10_000
MAX_WHY = 1024
MAX_LISTED = 1000


class CoordinatorServicer(CoordinatorServiceServicer):
    """Ending a streaming call stops the waiting only."""

    service_name = "gymckpt.v1.CoordinatorService"

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    def add_to(self, server: grpc.aio.Server) -> None:
        """Registers the methods."""
        add_CoordinatorServiceServicer_to_server(self, server)

    async def Register(self, request: pb.RegisterRequest, _context: Context) -> pb.RegisterResponse:
        info = codec.participant_from_proto(codec.required(request, "participant"))
        check_address(info.address, "participant.address")
        holds = codec.holdings_from_proto(codec.required(request, "holds"))
        answer = await self._coordinator.register(info, holds, codec.lost_list_from_proto(request.lost))
        return pb.RegisterResponse(
            epoch=answer.epoch, admitted=answer.admitted, interval=codec.duration_to_proto(answer.interval)
        )

    async def ListParticipants(
        self, request: pb.ListParticipantsRequest, _context: Context
    ) -> pb.ListParticipantsResponse:
        size = codec.number(request.page_size or 1000, "page_size", most=10_000)
        start = catalog.page_start(request.page_token)
        membership = await self._coordinator.membership()
        return pb.ListParticipantsResponse(
            members=[_member_status(member) for member in membership.members[start : start + size]],
            missing=[codec.participant_id_to_proto(participant) for participant in membership.missing],
            next_page_token=catalog.next_token(start, size, len(membership.members)),
            epoch=membership.epoch,
        )

    async def ExplainBlockers(
        self, _request: pb.ExplainBlockersRequest, _context: Context
    ) -> pb.ExplainBlockersResponse:
        return pb.ExplainBlockersResponse(
            members=[_member_report(entry) for entry in await self._coordinator.explain()]
        )

    async def ExplainRecovery(
        self, request: pb.ExplainRecoveryRequest, _context: Context
    ) -> pb.ExplainRecoveryResponse:
        size = codec.number(request.page_size or 1000, "page_size", most=10_000)
        start = catalog.page_start(request.page_token)
        recovery = await self._coordinator.explain_recovery()
        return pb.ExplainRecoveryResponse(
            checkpoint_id=recovery.checkpoint_id,
            rollouts=recovery.rollouts,
            recoverable=recovery.recoverable,
            troubles=[_trouble(trouble) for trouble in recovery.troubles[start : start + size]],
            next_page_token=catalog.next_token(start, size, len(recovery.troubles)),
            silent=[codec.participant_id_to_proto(participant) for participant in recovery.silent],
        )

    async def CreateCheckpoint(
        self, request: pb.CreateCheckpointRequest, _context: Context
    ) -> AsyncIterator[pb.CreateCheckpointResponse]:
        async for progress in self._coordinator.create(checkpoint_arguments(request)):
            yield pb.CreateCheckpointResponse(progress=_progress(progress))

    async def GetCheckpoint(self, request: pb.GetCheckpointRequest, _context: Context) -> pb.GetCheckpointResponse:
        size = codec.number(request.page_size or 1000, "page_size", most=10_000)
        page = await self._coordinator.get(check_id(request.checkpoint_id, "checkpoint_id"), size, request.page_token)
        return pb.GetCheckpointResponse(
            checkpoint=_checkpoint(page.checkpoint),
            episodes=codec.episodes_to_proto(page.episodes),
            restarts=[codec.restart_to_proto(restart) for restart in page.restarts],
            lost=[codec.lost_to_proto(lost) for lost in page.lost],
            controller_state=page.controller_state,
            next_page_token=page.next_page_token,
        )

    async def ListCheckpoints(
        self, request: pb.ListCheckpointsRequest, _context: Context
    ) -> pb.ListCheckpointsResponse:
        size = codec.number(request.page_size or 100, "page_size", most=1000)
        checkpoints, token = await self._coordinator.list(size, request.page_token)
        return pb.ListCheckpointsResponse(
            checkpoints=[_checkpoint(checkpoint) for checkpoint in checkpoints], next_page_token=token
        )

    async def WatchCheckpoint(
        self, request: pb.WatchCheckpointRequest, _context: Context
    ) -> AsyncIterator[pb.WatchCheckpointResponse]:
        async for progress in self._coordinator.watch(request.checkpoint_id):
            yield pb.WatchCheckpointResponse(progress=_progress(progress))

    async def ResumeCheckpoint(
        self, request: pb.ResumeCheckpointRequest, _context: Context
    ) -> pb.ResumeCheckpointResponse:
        return pb.ResumeCheckpointResponse(
            checkpoint=_checkpoint(await self._coordinator.resume(request.checkpoint_id))
        )

    async def AbortCheckpoint(
        self, request: pb.AbortCheckpointRequest, _context: Context
    ) -> pb.AbortCheckpointResponse:
        why = codec.text(request.why, "why", most=MAX_WHY)
        return pb.AbortCheckpointResponse(
            checkpoint=_checkpoint(await self._coordinator.abort(request.checkpoint_id, why))
        )

    async def RenewCheckpoint(
        self, request: pb.RenewCheckpointRequest, _context: Context
    ) -> pb.RenewCheckpointResponse:
        await self._coordinator.renew(
            request.checkpoint_id,
            codec.duration(request, "gate_lease", longest=HOUR, default=0.0),
            codec.duration(request, "export_lease", longest=DAY, default=0.0),
        )
        return pb.RenewCheckpointResponse()

    async def PinCheckpoint(self, request: pb.PinCheckpointRequest, _context: Context) -> pb.PinCheckpointResponse:
        pinned = await self._coordinator.pin(
            check_id(request.checkpoint_id, "checkpoint_id"), request.holder, release=request.release
        )
        return pb.PinCheckpointResponse(checkpoint_id=pinned)

    async def DeleteCheckpoint(
        self, request: pb.DeleteCheckpointRequest, _context: Context
    ) -> pb.DeleteCheckpointResponse:
        await self._coordinator.delete(request.checkpoint_id)
        return pb.DeleteCheckpointResponse()

    async def RestoreCheckpoint(
        self, request: pb.RestoreCheckpointRequest, _context: Context
    ) -> AsyncIterator[pb.RestoreCheckpointResponse]:
        arguments = RestoreArguments(
            request.restore_id,
            check_id(request.checkpoint_id, "checkpoint_id"),
            codec.episodes_from_proto(request.episodes, most=MAX_EPISODES),
            OnUnloadable(request.on_unloadable or OnUnloadable.FAIL),
        )
        async for progress in self._coordinator.restore(arguments):
            for message in _restore_messages(progress):
                yield message

    async def RetireEpisodes(self, request: pb.RetireEpisodesRequest, _context: Context) -> pb.RetireEpisodesResponse:
        episodes = codec.episodes_from_proto(request.episodes, least=1, most=MAX_EPISODES)
        await self._coordinator.retire(episodes, codec.duration(request, "timeout", longest=HOUR, default=0.0))
        return pb.RetireEpisodesResponse()

    async def ForgetRollouts(self, _request: pb.ForgetRolloutsRequest, _context: Context) -> pb.ForgetRolloutsResponse:
        raise _not_here("ForgetRollouts")

    async def ListResults(self, request: pb.ListResultsRequest, _context: Context) -> pb.ListResultsResponse:
        size = codec.number(request.page_size or 100, "page_size", most=1000)
        results, last = await self._coordinator.results(size, codec.episode_from_token(request.page_token))
        return pb.ListResultsResponse(
            results=[codec.result_to_proto(result) for result in results], next_page_token=str(last or "")
        )

    async def AcknowledgeResults(
        self, request: pb.AcknowledgeResultsRequest, _context: Context
    ) -> pb.AcknowledgeResultsResponse:
        acknowledgements = codec.acknowledgements_from_proto(request.acknowledgements)
        timeout = codec.duration(request, "timeout", longest=HOUR, default=0.0)
        unknown = await self._coordinator.acknowledge(acknowledgements, timeout)
        return pb.AcknowledgeResultsResponse(unknown=codec.episodes_to_proto(unknown))


def checkpoint_arguments(request: pb.CreateCheckpointRequest) -> CheckpointArguments:
    """The request with its defaults filled in. Raises InvalidField."""
    return CheckpointArguments(
        request.checkpoint_id,
        codec.episodes_from_proto(request.episodes, most=MAX_EPISODES),
        codec.duration(request, "prepare_timeout", longest=HOUR, default=30.0),
        codec.duration(request, "gate_lease", longest=HOUR, default=60.0),
        codec.duration(request, "export_lease", longest=DAY, default=600.0),
        OnNotReady(request.on_not_ready or OnNotReady.ABORT),
        ResumePolicy(request.resume or ResumePolicy.AFTER_SNAPSHOT),
        request.full,
        dict(request.labels),
        request.controller_state,
    )


def _not_here(method: str) -> NotImplementedHere:
    return NotImplementedHere(f"{method} is not part of this release; do not retry", details={"method": method})


def _trouble(trouble: Trouble) -> pb.RolloutTrouble:
    return pb.RolloutTrouble(
        episode=codec.episode_to_proto(trouble.episode),
        participant=codec.participant_id_to_proto(trouble.participant) if trouble.participant else None,
        why=trouble.why[:MAX_WHY],
        restore=codec.episode_to_proto(trouble.restore) if trouble.restore else None,
    )


def _member_status(member: values.MemberStatus) -> pb.MemberStatus:
    return pb.MemberStatus(
        participant=codec.participant_to_proto(member.participant),
        holds=codec.holdings_to_proto(member.holds),
        silent_seconds=member.silent,
        lost=[codec.lost_to_proto(lost) for lost in member.lost],
    )


def _member_report(entry: values.MemberReport) -> pb.MemberReport:
    """The first restarts and lost episodes only; the member itself lists all."""
    report = None if entry.report is None else codec.report_to_proto(entry.report, entry.report.restarts[:MAX_LISTED])
    return pb.MemberReport(
        participant=codec.participant_to_proto(entry.participant),
        report=report,
        error=entry.error,
        holds=None if entry.holds is None else codec.holdings_to_proto(entry.holds),
        lost=[codec.lost_to_proto(lost) for lost in entry.lost[:MAX_LISTED]],
    )


def _progress(progress: values.CheckpointProgress) -> pb.CheckpointProgress:
    return pb.CheckpointProgress(
        checkpoint=_checkpoint(progress.checkpoint),
        waiting_for=[_blocked(entry) for entry in progress.waiting_for],
        uploaded=progress.uploaded,
        participants=progress.participants,
    )


def _blocked(entry: values.MemberReport) -> pb.MemberReport:
    """Blockers only: restarts are told with the checkpoint, and may be many."""
    report = None if entry.report is None else codec.report_to_proto(entry.report, restarts=())
    return pb.MemberReport(participant=codec.participant_to_proto(entry.participant), report=report, error=entry.error)


def _checkpoint(checkpoint: values.Checkpoint) -> pb.Checkpoint:
    return pb.Checkpoint(
        checkpoint_id=checkpoint.checkpoint_id,
        stage=pb.CheckpointStage.ValueType(checkpoint.stage),
        epoch=checkpoint.epoch,
        sequence=checkpoint.sequence,
        unix_millis=checkpoint.unix_millis,
        base_checkpoint_id=checkpoint.base_checkpoint_id,
        labels=dict(checkpoint.labels),
        participants=[codec.participant_id_to_proto(participant) for participant in checkpoint.participants],
        episodes=checkpoint.episodes,
        restarts=checkpoint.restarts,
        lost=checkpoint.lost,
        manifest=codec.digest_to_proto(checkpoint.manifest) if checkpoint.manifest else None,
        why_aborted=checkpoint.why_aborted,
        prepare_seconds=checkpoint.prepare_seconds,
        pause_seconds=checkpoint.pause_seconds,
        upload_seconds=checkpoint.upload_seconds,
        blobs_sent=checkpoint.blobs_sent,
        bytes_sent=checkpoint.bytes_sent,
        waited_for=checkpoint.waited_for,
        why_unreadable=checkpoint.why_unreadable[:MAX_WHY],
    )


def _restore_messages(progress: values.RestoreProgress) -> list[pb.RestoreCheckpointResponse]:
    """One message, or pages of the outcome with `done` in the last."""
    ended = progress.stage is values.RestoreStage.RESTORED
    starts = range(0, max(len(progress.outcome), 1), OUTCOME_PAGE)
    messages = []
    for start in starts:
        page = progress.outcome[start : start + OUTCOME_PAGE]
        messages.append(
            pb.RestoreCheckpointResponse(
                stage=pb.RestoreStage.ValueType(progress.stage),
                checkpoint_id=progress.checkpoint_id,
                finished=progress.finished,
                participants=progress.participants,
                restored=[_restored(target) for target in page if target.fate is Fate.RESTORED],
                restarted=[_restarted(target) for target in page if target.fate is Fate.RESTARTED],
                lost=[_restarted(target) for target in page if target.fate is Fate.LOST],
                done=ended and start == starts[-1],
            )
        )
    return messages


def _restored(target: RestoreTarget) -> pb.RestoredEpisode:
    return pb.RestoredEpisode(source=_episode(target, source=True), target=_episode(target, source=False))


def _restarted(target: RestoreTarget) -> pb.RestartedEpisode:
    return pb.RestartedEpisode(
        source=_episode(target, source=True), target=_episode(target, source=False), why=target.why
    )


def _episode(target: RestoreTarget, *, source: bool) -> types_pb2.Episode:
    return codec.episode_to_proto(target.source if source else target.target)
