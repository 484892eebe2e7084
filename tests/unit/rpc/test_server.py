"""What every method of every service does alike, seen through a real server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any, cast

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from gymckpt.errors import GymckptError, InvalidField, StaleEpoch, TransportFailed
from gymckpt.rpc.channel import check_address, open_channel
from gymckpt.rpc.server import RpcServer, start_server
from gymckpt.rpc.status import from_rpc_error
from gymckpt.v1 import artifact_store_pb2, coordinator_pb2

STORE = "gymckpt.v1.ArtifactStoreService"
COORDINATOR = "gymckpt.v1.CoordinatorService"


class Answering:
    """A service of some methods, as a generated servicer would register them."""

    def __init__(self, service_name: str, handlers: dict[str, Any]) -> None:
        self.service_name = service_name
        self._handlers = handlers

    def add_to(self, server: grpc.aio.Server) -> None:
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(self.service_name, self._handlers),))


class Refusal:
    """Refuses in every method shape, or fails by accident when asked for the name `accident`."""

    async def GetName(self, request: Any, context: Any) -> Any:
        if request.name == "accident":
            raise ZeroDivisionError("by accident")
        raise StaleEpoch("epoch 3 is below 5", details={"epoch": "3"})

    async def GetInfo(self, request: Any, context: Any) -> Any:
        return artifact_store_pb2.GetInfoResponse(backend="memory")

    async def Read(self, request: Any, context: Any) -> AsyncIterator[Any]:
        yield artifact_store_pb2.ReadResponse()
        raise StaleEpoch("epoch 3 is below 5")

    async def Write(self, request_iterator: Any, context: Any) -> AsyncIterator[Any]:
        async for _ in request_iterator:
            yield artifact_store_pb2.WriteResponse()
        raise StaleEpoch("epoch 3 is below 5")


async def register(request: Any, context: Any) -> Any:
    return coordinator_pb2.RegisterResponse(admitted=True)


def handler(make: Any, behavior: Any, request: Any, response: Any) -> Any:
    return make(behavior, request.FromString, response.SerializeToString)


def services() -> list[Answering]:
    refusal, store, coordinator = Refusal(), artifact_store_pb2, coordinator_pb2
    unary, answers, both = (
        grpc.unary_unary_rpc_method_handler,
        grpc.unary_stream_rpc_method_handler,
        grpc.stream_stream_rpc_method_handler,
    )
    stored = {
        "GetName": handler(unary, refusal.GetName, store.GetNameRequest, store.GetNameResponse),
        "GetInfo": handler(unary, refusal.GetInfo, store.GetInfoRequest, store.GetInfoResponse),
        "FindMissing": handler(unary, refusal.GetInfo, store.FindMissingRequest, store.GetInfoResponse),
        "Read": handler(answers, refusal.Read, store.ReadRequest, store.ReadResponse),
        "Write": handler(both, refusal.Write, store.WriteRequest, store.WriteResponse),
    }
    registered = {"Register": handler(unary, register, coordinator.RegisterRequest, coordinator.RegisterResponse)}
    return [Answering(STORE, stored), Answering(COORDINATOR, registered)]


@pytest.fixture
async def server() -> AsyncIterator[RpcServer]:
    async with await start_server(services()) as running:
        yield running


@pytest.fixture
async def channel(server: RpcServer) -> AsyncIterator[grpc.aio.Channel]:
    async with open_channel(server.address) as opened:
        yield opened


def method(channel: grpc.aio.Channel, name: str) -> Any:
    """A method of the store, taking and giving bytes."""
    make = {"Read": channel.unary_stream, "Write": channel.stream_stream}.get(name, channel.unary_unary)
    return cast("Any", make)(f"/{STORE}/{name}")


async def refusal(call: Any) -> GymckptError:
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await call
    return from_rpc_error(failed.value)


async def all_of(stream: Any) -> list[Any]:
    return [message async for message in stream]


async def test_a_typed_refusal_reaches_the_caller_of_every_method_shape(channel: grpc.aio.Channel) -> None:
    refusals = [
        await refusal(method(channel, "GetName")(b"")),
        await refusal(all_of(method(channel, "Read")(b""))),
        await refusal(all_of(method(channel, "Write")(iter([b""])))),
    ]
    assert [(type(error), error.message) for error in refusals] == [(StaleEpoch, "epoch 3 is below 5")] * 3


async def test_an_accident_is_logged_and_told_apart_from_a_refusal(
    channel: grpc.aio.Channel, caplog: pytest.LogCaptureFixture
) -> None:
    request = artifact_store_pb2.GetNameRequest(name="accident").SerializeToString()
    with caplog.at_level(logging.ERROR):
        error = await refusal(method(channel, "GetName")(request))
    assert isinstance(error, TransportFailed)
    assert "INTERNAL" in error.message
    assert "ZeroDivisionError" in error.message
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ZeroDivisionError]


@pytest.mark.parametrize(
    ("path", "data", "field"),
    [
        (f"{STORE}/GetName", b"\x0a\x01a\x98\x06\x01", "99"),
        (f"{STORE}/FindMissing", b"\x0a\x03\x98\x06\x01", "blobs.99"),
        (f"{STORE}/GetName", b"\xff\xff\xff", "request"),
        (f"{COORDINATOR}/Register", b"\x0a\x04\x0a\x02\x08\x63", "participant.id.kind"),
        (f"{COORDINATOR}/Register", b"\x1a\x03\x98\x06\x01", "lost[0].99"),
    ],
)
async def test_unknown_fields_and_enum_values_and_garbage_are_refused_by_name(
    channel: grpc.aio.Channel, path: str, data: bytes, field: str
) -> None:
    """X20."""
    error = await refusal(cast("Any", channel.unary_unary(f"/{path}"))(data))
    assert isinstance(error, InvalidField)
    assert error.field == field


async def test_an_unknown_field_on_a_stream_ends_it_with_its_number(channel: grpc.aio.Channel) -> None:
    """X20."""
    error = await refusal(all_of(method(channel, "Write")(iter([b"", b"\x98\x06\x01"]))))
    assert isinstance(error, InvalidField)
    assert error.field == "99"


async def test_a_newer_caller_may_ask_what_this_side_speaks(channel: grpc.aio.Channel) -> None:
    answer = await method(channel, "GetInfo")(b"\x98\x06\x01")
    assert artifact_store_pb2.GetInfoResponse.FromString(answer).backend == "memory"


async def test_health_is_told_per_service(server: RpcServer, channel: grpc.aio.Channel) -> None:
    check: Any = channel.unary_unary("/grpc.health.v1.Health/Check")

    async def status_of(name: str) -> int:
        answer = await check(health_pb2.HealthCheckRequest(service=name).SerializeToString())
        return int(health_pb2.HealthCheckResponse.FromString(answer).status)

    serving, stopped = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
    assert [await status_of(name) for name in ("", STORE, COORDINATOR)] == [serving] * 3
    await server.set_serving(STORE, False)
    assert [await status_of(name) for name in (STORE, COORDINATOR)] == [stopped, serving]


@pytest.mark.parametrize(
    "symbol", [STORE, "gymckpt.v1.Reason", "google.rpc.ErrorInfo", "google.rpc.RetryInfo", "gymckpt.v1.Episode"]
)
async def test_reflection_knows_the_services_and_the_error_details(channel: grpc.aio.Channel, symbol: str) -> None:
    ask: Any = channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
    request = reflection_pb2.ServerReflectionRequest(file_containing_symbol=symbol).SerializeToString()
    (data,) = await all_of(ask(iter([request])))
    answer = reflection_pb2.ServerReflectionResponse.FromString(data)
    file = FileDescriptorProto.FromString(answer.file_descriptor_response.file_descriptor_proto[0])
    assert symbol.startswith(file.package)


async def test_a_taken_address_is_refused_by_name(server: RpcServer) -> None:
    with pytest.raises(TransportFailed, match=str(server.port)):
        await start_server(services(), server.address)


async def test_a_unix_socket_serves_too(tmp_path: Any) -> None:
    async with (
        await start_server(services(), f"unix:{tmp_path}/s") as running,
        open_channel(running.address) as opened,
    ):
        assert await asyncio.wait_for(method(opened, "GetInfo")(b""), timeout=30)
        assert running.port == 0


@pytest.mark.parametrize(
    "address", ["", "host", "host:", ":80", "host:port", "host:70000", "unix:", "dns:///a:1", "a b:1"]
)
def test_an_address_that_is_none_is_refused_by_name(address: str) -> None:
    """X20."""
    with pytest.raises(InvalidField) as refused:
        check_address(address, "participant.address")
    assert refused.value.field == "participant.address"
