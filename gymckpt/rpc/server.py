"""The gRPC server of one process: strict requests, health per service, reflection, one port."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Protocol

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from gymckpt.errors import TransportFailed
from gymckpt.rpc.channel import KEEPALIVE_OPTIONS, KEEPALIVE_SECONDS, MESSAGE_OPTIONS, check_address
from gymckpt.rpc.codec import descriptor_pool
from gymckpt.rpc.interceptors import ProtocolInterceptor

SERVER_OPTIONS = (
    *KEEPALIVE_OPTIONS,
    *MESSAGE_OPTIONS,
    ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_SECONDS * 500),
    # Two processes on one port would each get half of the calls.
    ("grpc.so_reuseport", 0),
)


class Service(Protocol):
    """A servicer that knows its own name."""

    service_name: str

    def add_to(self, server: grpc.aio.Server) -> None:
        """Registers its methods."""


class RpcServer:
    """A started server. `address` is where it listens: `host:port` with the port that was bound, or `unix:<path>`."""

    def __init__(
        self, server: grpc.aio.Server, statuses: health.aio.HealthServicer, names: Sequence[str], address: str
    ) -> None:
        self._server = server
        self._statuses = statuses
        self._names = tuple(names)
        self.address = address

    @property
    def port(self) -> int:
        """The bound TCP port; 0 on a unix socket."""
        return 0 if self.address.startswith("unix:") else int(self.address.rpartition(":")[2])

    async def set_serving(self, service_name: str, serving: bool) -> None:
        """Changes what health says of one service."""
        status = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        await self._statuses.set(service_name, status)

    async def stop(self, grace: float = 1.0) -> None:
        """Says NOT_SERVING, refuses new calls, and ends running ones after `grace` seconds."""
        for name in ("", *self._names):
            await self.set_serving(name, False)
        await self._server.stop(grace)

    async def wait(self) -> None:
        """Returns when the server has stopped."""
        await self._server.wait_for_termination()

    async def __aenter__(self) -> RpcServer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()


async def start_server(services: Sequence[Service], listen: str = "127.0.0.1:0") -> RpcServer:
    """Serves `services` at `listen` (port 0 picks a free one). Raises InvalidField; TransportFailed when it is taken."""
    check_address(listen, "listen")
    server = grpc.aio.server(interceptors=[ProtocolInterceptor()], options=SERVER_OPTIONS)
    for service in services:
        service.add_to(server)
    names = [service.service_name for service in services]
    statuses = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(statuses, server)
    reflected: Sequence[Any] = [*names, health.SERVICE_NAME, reflection.SERVICE_NAME]
    reflection.enable_server_reflection(reflected, server, pool=descriptor_pool())
    try:
        port = server.add_insecure_port(listen)
    except RuntimeError as taken:
        raise TransportFailed(
            f"cannot listen on {listen}: another process listens there, or it is no address that this one may bind; choose another",
            details={"listen": listen},
        ) from taken
    await server.start()
    address = listen if listen.startswith("unix:") else f"{listen.rpartition(':')[0]}:{port}"
    running = RpcServer(server, statuses, names, address)
    for name in ("", *names):
        await running.set_serving(name, True)
    return running
