"""ParticipantService over one participant: two doors, one function."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import grpc
from google.rpc import status_pb2

from gymckpt.core.ids import check_boot_id
from gymckpt.core.kinds import GateState
from gymckpt.core.report import LostEpisode
from gymckpt.core.transitions import Request
from gymckpt.errors import GymckptError, InvalidField
from gymckpt.rpc.codec import (
    episode_from_token,
    episodes_from_proto,
    episodes_to_proto,
    holdings_to_proto,
    lost_to_proto,
    number,
    participant_to_proto,
    report_to_proto,
    required,
    result_to_proto,
)
from gymckpt.rpc.codec.transitions import MAX_RESTARTS_PAGE, answer_to_proto, request_from_proto
from gymckpt.rpc.status import to_proto_status
from gymckpt.v1 import participant_pb2 as pb
from gymckpt.v1 import participant_pb2_grpc as pb_grpc

if TYPE_CHECKING:
    from gymckpt.participant.base import Participant

MAX_LOST = 10_000
MAX_EPISODES_PAGE = 10_000
PAGE = 1_000
MAX_RESULTS_PAGE = 1_000
RESULTS_PAGE = 100
REPORT_SECONDS = 0.1

log = logging.getLogger("gymckpt.participant")


class ParticipantServicer(pb_grpc.ParticipantServiceServicer):
    """Wire in, values to the participant, wire out."""

    service_name = "gymckpt.v1.ParticipantService"

    def __init__(self, participant: Participant) -> None:
        self._p = participant
        self._running: set[asyncio.Task[None]] = set()  # transitions of streams: they outlive theirs

    def add_to(self, server: grpc.aio.Server) -> None:
        pb_grpc.add_ParticipantServiceServicer_to_server(self, server)

    async def Describe(self, request: pb.DescribeRequest, context: Any) -> pb.DescribeResponse:
        return pb.DescribeResponse(participant=participant_to_proto(self._p.info))

    async def GetStatus(self, request: pb.GetStatusRequest, context: Any) -> pb.GetStatusResponse:
        size = number(request.restarts_page_size, "restarts_page_size", most=MAX_RESTARTS_PAGE) or PAGE
        start = _page_start(request.restarts_page_token, "restarts_page_token")
        if request.epoch or request.boot_id:
            self._p.check_boot(check_boot_id(request.boot_id))
        if request.epoch:
            self._p.observe_epoch(request.epoch)
        report = self._p.report()
        end = start + size
        token = str(end) if end < len(report.restarts) else ""
        lost = [LostEpisode(episode, self._p.lost[episode]) for episode in sorted(self._p.lost)[:MAX_LOST]]
        return pb.GetStatusResponse(
            participant=participant_to_proto(self._p.info),
            holds=holdings_to_proto(self._p.holdings()),
            report=report_to_proto(report, report.restarts[start:end], token),
            lost=[lost_to_proto(entry) for entry in lost],
            floors=len(self._p.floors),
        )

    async def ListEpisodes(self, request: pb.ListEpisodesRequest, context: Any) -> pb.ListEpisodesResponse:
        size = number(request.page_size, "page_size", most=MAX_EPISODES_PAGE) or PAGE
        start = _page_start(request.page_token, "page_token")
        episodes = sorted({session.episode for session in self._p.sessions if session.result is None})
        end = start + size
        return pb.ListEpisodesResponse(
            episodes=episodes_to_proto(episodes[start:end]), next_page_token=str(end) if end < len(episodes) else ""
        )

    async def ListResults(
        self, request: pb.ParticipantServiceListResultsRequest, context: Any
    ) -> pb.ParticipantServiceListResultsResponse:
        size = number(request.page_size, "page_size", most=MAX_RESULTS_PAGE) or RESULTS_PAGE
        only = episodes_from_proto(request.episodes, most=MAX_RESULTS_PAGE)
        page, more = await self._p.results.page(size, episode_from_token(request.page_token), only)
        return pb.ParticipantServiceListResultsResponse(
            results=[result_to_proto(entry) for entry in page], next_page_token=str(page[-1].episode) if more else ""
        )

    async def Transition(self, request: pb.TransitionRequest, context: Any) -> pb.TransitionResponse:
        # Whoever waits may go away; what was begun goes on.
        return answer_to_proto(await asyncio.shield(self._p.apply(request_from_proto(request))))

    async def Control(
        self, request_iterator: AsyncIterator[pb.ControlRequest], context: Any
    ) -> AsyncIterator[pb.ControlResponse]:
        answers: asyncio.Queue[pb.ControlResponse | BaseException | None] = asyncio.Queue()
        reader = asyncio.create_task(self._read(request_iterator, answers), name="control stream")
        reporter = asyncio.create_task(self._report(answers), name="control reports")
        try:
            while (answer := await answers.get()) is not None:
                if isinstance(answer, BaseException):
                    raise answer
                yield answer
        finally:
            reader.cancel()
            reporter.cancel()
            await asyncio.wait({reader, reporter})

    async def _read(self, requests: AsyncIterator[pb.ControlRequest], answers: asyncio.Queue[Any]) -> None:
        """Starts each transition as it comes, so that an abort overtakes a waiting prepare; ends once all are answered."""
        ours: set[asyncio.Task[None]] = set()
        try:
            async for message in requests:
                request = request_from_proto(required(message, "transition"))
                task = asyncio.create_task(self._carry_out(request, answers), name=f"transition {request.number}")
                for tasks in (ours, self._running):
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)
            if ours:
                await asyncio.wait(set(ours))
            answers.put_nowait(None)
        except Exception as error:  # noqa: BLE001 - whatever ends the stream is raised by Control, which alone can answer it
            answers.put_nowait(error)

    async def _carry_out(self, request: Request, answers: asyncio.Queue[Any]) -> None:
        """Answers whatever happens: a transition that is never answered is waited for."""
        try:
            answers.put_nowait(pb.ControlResponse(answer=answer_to_proto(await self._p.apply(request))))
            return
        except GymckptError as refusal:
            status = to_proto_status(refusal)
        except Exception as accident:
            log.exception("transition %d of %s failed unexpectedly", request.number, request.fence.checkpoint_id)
            status = status_pb2.Status(
                code=grpc.StatusCode.INTERNAL.value[0],
                message=f"{type(request.transition).__name__.lower()} failed unexpectedly: {type(accident).__name__}",
            )
        answers.put_nowait(pb.ControlResponse(failure=pb.Failure(number=request.number, status=status)))

    async def _report(self, answers: asyncio.Queue[Any]) -> None:
        """Readiness as it changes while the gate is closing, at most once per REPORT_SECONDS."""
        while True:
            await asyncio.gather(self._p.readiness_changed(), asyncio.sleep(REPORT_SECONDS))
            if self._p.gate.state is GateState.CLOSING and answers.empty():
                answers.put_nowait(pb.ControlResponse(report=report_to_proto(self._p.report(), ())))


def _page_start(token: str, field: str) -> int:
    if token == "":
        return 0
    if not token.isascii() or not token.isdigit() or len(token) > 9:
        raise InvalidField(f"{field} must come from the answer before, got {token[:40]!r}", field=field)
    return int(token)
