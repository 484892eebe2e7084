"""The coordinator's side of ParticipantService: values in, values out."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import grpc

from gymckpt.core.ids import Episode
from gymckpt.core.manifest import ParticipantInfo
from gymckpt.core.report import LostEpisode, Report, Restart
from gymckpt.core.results import FinishedResult
from gymckpt.core.transitions import RESULT_OF, Answer, Holdings, Prepared, Request, Transition
from gymckpt.errors import GymckptError, InvalidField, ParticipantLost, StaleBoot, TransportFailed
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


@contextlib.contextmanager
def answered() -> Iterator[None]:
    """Around a call and the reading of its answer. Raises the refusal, TransportFailed, or ParticipantLost for an answer that is not one of the protocol: that
    is no fault of whoever asked."""
    try:
        yield
    except grpc.RpcError as error:
        raise from_rpc_error(error) from error
    except InvalidField as error:
        raise ParticipantLost(
            f"answered what the protocol does not allow: {error.message}; start a release of it that keeps to the protocol",
            details=error.details,
        ) from error


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
        with answered():
            answer = await self._stub.GetStatus(request, timeout=timeout)
            info = codec.participant_from_proto(answer.participant)
            if info.boot_id != boot_id:
                raise StaleBoot(f"boot {boot_id} was replaced by boot {info.boot_id}")
            report = codec.report_from_proto(answer.report)
            return ParticipantStatus(
                info,
                codec.holdings_from_proto(answer.holds),
                replace(report, restarts=await self._all_restarts(answer.report, report.restarts, timeout)),
                codec.lost_list_from_proto(answer.lost),
            )

    async def episodes(self, *, timeout: float) -> frozenset[Episode]:
        """What lives there or waits there for its replacement; `timeout` is that of each page."""
        request = pb.ListEpisodesRequest(page_size=EPISODES_PAGE)
        found: set[Episode] = set()
        with answered():
            while True:
                page = await self._stub.ListEpisodes(request, timeout=timeout)
                found.update(codec.episodes_from_proto(page.episodes))
                if not page.next_page_token:
                    return frozenset(found)
                _check_next(page.next_page_token, request.page_token, len(page.episodes))
                request.page_token = page.next_page_token

    async def results(
        self, size: int, after: Episode | None, only: Iterable[Episode], *, timeout: float
    ) -> tuple[tuple[FinishedResult, ...], bool]:
        """At most `size` results that it keeps, behind the episode `after`, and whether there are more; `only` those of some episodes, unless empty."""
        request = pb.ParticipantServiceListResultsRequest(
            page_size=size, page_token=str(after or ""), episodes=codec.episodes_to_proto(only)
        )
        with answered():
            page = await self._stub.ListResults(request, timeout=timeout)
            _check_next(page.next_page_token, request.page_token, len(page.results))
            return codec.each(codec.result_from_proto, page.results, "results"), bool(page.next_page_token)

    async def transition(self, request: Request, *, timeout: float | None = None) -> Answer:
        """One transition over the unary door."""
        with answered():
            message = await self._stub.Transition(request_to_proto(request), timeout=timeout)
        return await self.whole(message, request.transition)

    def control(self, on_report: Callable[[Report], None]) -> ControlStream:
        """The stream over which transitions are pushed."""
        return ControlStream(self, self._stub.Control(), on_report)

    async def whole(self, message: pb.TransitionResponse, transition: Transition) -> Answer:
        """The answer to the transition with every page of its restarts."""
        with answered():
            answer = answer_from_proto(message)
            if type(answer.result) is not RESULT_OF[type(transition)]:
                wrong, step = message.WhichOneof("result"), type(transition).__name__
                raise InvalidField(f"result must be that of {step.lower()}, got {wrong}", field="result")
            if isinstance(answer.result, Prepared):
                report = answer.result.report
                restarts = await self._all_restarts(message.prepared.report, report.restarts, timeout=30.0)
                return replace(answer, result=replace(answer.result, report=replace(report, restarts=restarts)))
            return answer

    async def _all_restarts(
        self, page: types_pb2.Report, first: tuple[Restart, ...], timeout: float
    ) -> tuple[Restart, ...]:
        restarts, before = list(first), ""
        while page.next_restarts_page_token:
            token = page.next_restarts_page_token
            _check_next(token, before, len(page.restarts))
            before = token
            request = pb.GetStatusRequest(restarts_page_size=RESTARTS_PAGE, restarts_page_token=token)
            page = (await self._stub.GetStatus(request, timeout=timeout)).report
            restarts.extend(codec.report_from_proto(page).restarts)
        return tuple(restarts)


def _check_next(token: str, before: str, entries: int) -> None:
    """Raises InvalidField for a token that would be followed for ever."""
    if token and (token == before or not entries):
        raise InvalidField(
            f"next page token {token!r} follows {before!r} and a page of {entries} entries", field="page"
        )


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
            del self._waiting[request.number]
            # Of a stream that broke during the write its own error is told, and asyncio would report this one as seen by nobody.
            if answer.done() and not answer.cancelled():
                answer.exception()
        return await self._client.whole(message, request.transition)

    async def close(self) -> None:
        self._call.cancel()
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)

    async def _read(self) -> None:
        broken: GymckptError = TransportFailed(f"the control stream to {self._client.address} was closed")
        try:
            with answered():
                async for response in self._responses():
                    self._take(response)
            broken = TransportFailed(f"the participant at {self._client.address} ended the control stream")
        except ParticipantLost as error:
            broken = error
        except (
            GymckptError
        ) as error:  # whatever a stream ends with decides no transition: each is asked again by unary call
            broken = TransportFailed(f"the control stream to {self._client.address} broke: {error.message}")
        finally:
            self.broken = broken
            self._call.cancel()
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(broken)

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
