"""One participant over a store in memory, served for real, and the two doors to it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any, Protocol

import grpc
import pytest

from gymckpt.core.ids import Fence
from gymckpt.core.transitions import Answer, Request, Transition
from gymckpt.participant.servicer import ParticipantServicer
from gymckpt.rpc.channel import open_channel
from gymckpt.rpc.codec.transitions import answer_from_proto, request_to_proto
from gymckpt.rpc.server import start_server
from gymckpt.rpc.status import from_proto_status, from_rpc_error
from gymckpt.v1 import participant_pb2 as pb
from gymckpt.v1 import participant_pb2_grpc as pb_grpc
from tests.unit.participant.base.bed import Counters, StoppableStore
from tests.unit.participant.rounds import Rounds

Stub = Any


class Door(Protocol):
    """A way to send one transition."""

    async def send(self, message: pb.TransitionRequest) -> pb.TransitionResponse:
        """Raises the error that the refusal stands for."""

    async def close(self) -> None:
        """Ends what it holds open."""


class UnaryDoor:
    """ParticipantService.Transition."""

    def __init__(self, stub: Stub) -> None:
        self._stub = stub

    async def send(self, message: pb.TransitionRequest) -> pb.TransitionResponse:
        try:
            answer: pb.TransitionResponse = await self._stub.Transition(message, timeout=5.0)
        except grpc.aio.AioRpcError as refused:
            raise from_rpc_error(refused) from refused
        return answer

    async def close(self) -> None:
        pass


class StreamDoor:
    """ParticipantService.Control; a stream that was refused is opened again."""

    def __init__(self, stub: Stub) -> None:
        self._stub = stub
        self._stream: Any = None
        self.reports: list[Any] = []
        self._waiting: dict[int, asyncio.Future[pb.TransitionResponse]] = {}
        self._reader: asyncio.Task[None] | None = None

    async def send(self, message: pb.TransitionRequest) -> pb.TransitionResponse:
        if self._reader is None or self._reader.done():
            self._stream = self._stub.Control()
            self._reader = asyncio.create_task(self._read())
        answer: asyncio.Future[pb.TransitionResponse] = asyncio.get_running_loop().create_future()
        self._waiting[message.number] = answer
        await self._stream.write(pb.ControlRequest(transition=message))
        async with asyncio.timeout(5.0):
            return await answer

    async def _read(self) -> None:
        try:
            async for event in self._stream:
                kind = event.WhichOneof("event")
                if kind == "report":
                    self.reports.append(event.report)
                elif kind == "answer":
                    self._waiting.pop(event.answer.number).set_result(event.answer)
                else:
                    self._waiting.pop(event.failure.number).set_exception(from_proto_status(event.failure.status))
        except grpc.aio.AioRpcError as ended:
            for answer in self._waiting.values():
                answer.set_exception(from_rpc_error(ended))
            self._waiting.clear()

    async def close(self) -> None:
        if self._reader is not None and not self._reader.done():
            await self._stream.done_writing()
            await asyncio.wait({self._reader}, timeout=1.0)
            await self.break_off()

    async def break_off(self) -> None:
        """Loses the stream."""
        assert self._reader is not None
        self._waiting.clear()
        self._stream.cancel()
        await asyncio.wait({self._reader})


class Member:
    """The served participant as a coordinator sees it."""

    def __init__(self, counters: Counters, stub: Stub, door: Door) -> None:
        self.counters = counters
        self.stub = stub
        self.door = door
        self._numbers = itertools.count(1)

    async def ask(self, fence: Fence, transition: Transition, *, boot_id: str = "") -> Answer:
        number = next(self._numbers)
        request = Request(fence, number, boot_id or self.counters.participant.boot_id, transition)
        answer = answer_from_proto(await self.door.send(request_to_proto(request)))
        assert (answer.number, answer.boot_id) == (number, self.counters.participant.boot_id)
        return answer

    async def result(self, fence: Fence, transition: Transition) -> Any:
        return (await self.ask(fence, transition)).result


@pytest.fixture
def store() -> StoppableStore:
    return StoppableStore()


@pytest.fixture
def rounds(store: StoppableStore) -> Rounds:
    rounds = Rounds()
    rounds.store = store
    return rounds


@pytest.fixture
async def stub(rounds: Rounds, counters: Counters) -> AsyncIterator[Stub]:
    servicer = ParticipantServicer(counters.participant)
    async with await start_server([servicer]) as server, open_channel(server.address) as channel:
        yield pb_grpc.ParticipantServiceStub(channel)
        await counters.participant.close()


@pytest.fixture
def counters(rounds: Rounds) -> Counters:
    return Counters(rounds)


@pytest.fixture(params=[UnaryDoor, StreamDoor], ids=["transition", "control"])
async def member(request: pytest.FixtureRequest, counters: Counters, stub: Stub) -> AsyncIterator[Member]:
    door = request.param(stub)
    yield Member(counters, stub, door)
    await door.close()


@pytest.fixture
async def stream(counters: Counters, stub: Stub) -> AsyncIterator[StreamDoor]:
    door = StreamDoor(stub)
    yield door
    await door.close()
