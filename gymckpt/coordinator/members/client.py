"""The coordinator's side of ParticipantService: values in, values out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import grpc

from gymckpt.core.ids import Episode
from gymckpt.core.manifest import ParticipantInfo
from gymckpt.core.report import LostEpisode, Report, Restart
from gymckpt.core.results import FinishedResult
from gymckpt.core.transitions import Answer, Holdings, Prepared, Request
from gymckpt.errors import GymckptError, StaleBoot, TransportFailed
from gymckpt.rpc import codec
from gymckpt.rpc.channel import open_channel
from gymckpt.rpc.codec.transitions import answer_from_proto, request_to_proto
from gymckpt.rpc.status import from_proto_status, from_rpc_error
from gymckpt.v1 import participant_pb2 as pb
from gymckpt.v1 import types_pb2
from gymckpt.v1.participant_pb2_grpc import ParticipantServiceStub

RESTARTS_PAGE = 10_000
EPISODES_PAGE = 10_000


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

    async def status(self, boot_id: str, epoch: int = 0, *, timeout: float) -> ParticipantStatus:
        """What this process holds and what blocks it; `epoch` is then the lowest that it obeys (0 asks only). Raises StaleBoot where another one serves."""
        request = pb.GetStatusRequest(boot_id=boot_id, epoch=epoch, restarts_page_size=RESTARTS_PAGE)
        answer = await self._status_page(request, timeout)
        info = codec.participant_from_proto(answer.participant)
        if info.boot_id != boot_id:
            raise StaleBoot(f"boot {boot_id} was replaced by boot {info.boot_id}")
        report = codec.report_from_proto(answer.report)
        restarts = await self._more_restarts(answer.report, report.restarts, timeout)
        return ParticipantStatus(
            info,
            codec.holdings_from_proto(answer.holds),
            replace(report, restarts=restarts),
            codec.lost_list_from_proto(answer.lost),
        )

    async def episodes(self, *, timeout: float) -> frozenset[Episode]:
        """What lives there or waits there for its replacement; `timeout` is that of each page."""
        request = pb.ListEpisodesRequest(page_size=EPISODES_PAGE)
        found: set[Episode] = set()
        while True:
            try:
                page = await self._stub.ListEpisodes(request, timeout=timeout)
            except grpc.RpcError as error:
                raise from_rpc_error(error) from error
            found.update(codec.episodes_from_proto(page.episodes))
            if not page.next_page_token:
                return frozenset(found)
            request.page_token = page.next_page_token

    async def results(
        self, size: int, after: Episode | None, only: Iterable[Episode], *, timeout: float
    ) -> tuple[tuple[FinishedResult, ...], bool]:
        """At most `size` results that it keeps, behind the episode `after`, and whether there are more; `only` those of some episodes, unless empty."""
        request = pb.ParticipantServiceListResultsRequest(
            page_size=size, page_token=str(after or ""), episodes=codec.episodes_to_proto(only)
        )
        try:
            page = await self._stub.ListResults(request, timeout=timeout)
        except grpc.RpcError as error:
            raise from_rpc_error(error) from error
        return codec.each(codec.result_from_proto, page.results, "results"), bool(page.next_page_token)

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
        if isinstance(answer.result, Prepared) and message.prepared.report.next_restarts_page_token:
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
