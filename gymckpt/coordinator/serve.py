"""Coordinator and artifact store of one run, in one process behind one port."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from types import TracebackType

from gymckpt.coordinator.coordinator import Coordinator
from gymckpt.coordinator.faults import Faults
from gymckpt.coordinator.servicer import CoordinatorServicer
from gymckpt.coordinator.values import Settings
from gymckpt.core.ids import ParticipantId
from gymckpt.rpc.server import RpcServer, start_server
from gymckpt.store import Backend, StoreServicer


class CoordinatorServer:
    """A running coordinator; `address` is where both services listen."""

    def __init__(self, coordinator: Coordinator, server: RpcServer) -> None:
        self.coordinator = coordinator
        self.address = server.address
        self._server = server

    async def wait(self) -> None:
        """Returns when the server has stopped."""
        await self._server.wait()

    async def stop(self, grace: float = 0.0) -> None:
        """Ends the rounds under way if it can within `grace` seconds (see `Coordinator.finish`), then calls and tasks, without deciding anything: what is
        still open is decided by the successor."""
        if grace > 0:
            await self._server.set_serving(CoordinatorServicer.service_name, False)
            await self.coordinator.finish(grace)
        await self.coordinator.stop()
        await self._server.stop()

    async def __aenter__(self) -> CoordinatorServer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()


async def serve(
    store: Backend,
    listen: str = "127.0.0.1:0",
    *,
    expected: Iterable[ParticipantId] = (),
    gone: Collection[str] = (),
    settings: Settings | None = None,
    faults: Faults | None = None,
) -> CoordinatorServer:
    """Serves the store at once, since participants need it to start, and the coordinator as soon as it has taken over.

    `expected` must be there for a checkpoint (the members of the last one when empty); `gone` names `kind/name` of processes known to be dead, which are not
    waited for. Raises InvalidField, StaleEpoch when another coordinator starts meanwhile, TransportFailed when the address cannot be bound.
    """
    coordinator = Coordinator(store, expected=expected, gone=gone, settings=settings, faults=faults)
    servicer = CoordinatorServicer(coordinator)
    server = await start_server([StoreServicer(store), servicer], listen)
    await server.set_serving(servicer.service_name, False)
    running = CoordinatorServer(coordinator, server)
    try:
        await coordinator.start()
    except BaseException:
        await running.stop()
        raise
    await server.set_serving(servicer.service_name, True)
    return running
