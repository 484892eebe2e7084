"""A TCP proxy whose network a test can break and heal."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable
from enum import Enum
from types import TracebackType
from typing import Any

from gymckpt.errors import InvalidField, TransportFailed
from gymckpt.rpc.channel import check_address

CHUNK = 16 * 1024
IN_FLIGHT = 256  # chunks of one direction that a delay may hold: more are left with the sender
RESET = struct.pack("ii", 1, 0)  # linger for no time: closing sends RST and drops what is not delivered


class Way(Enum):
    """One direction of a connection."""

    TO_TARGET = "to target"
    TO_CALLER = "to caller"


class TcpProxy:
    """Carries connections from `address` to `target` (`host:port` or `unix:<path>`), both ways, with one fault at a time: each replaces the one before.

    A fault is in force when its method returns, for the connections that exist and for all that come. All methods belong to the event loop that started the
    proxy. Bytes that a cut holds back are not lost: as in a network, they arrive after `heal` unless the connection has been given up by then.
    """

    def __init__(self, target: str, *, listen: str = "127.0.0.1:0") -> None:
        """Port 0 picks a free one, which stays the proxy's until `stop`, also while it refuses. Raises InvalidField."""
        self.target = check_address(target, "target")
        host, _, port = check_address(listen, "listen").rpartition(":")
        if listen.startswith("unix:"):
            raise InvalidField(f"listen must be host:port, got {listen!r}", field="listen")
        self._listen = (host.strip("[]"), int(port))
        self._family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
        self._reserved: socket.socket | None = None
        self._listener: socket.socket | None = None
        self._connections: dict[_Connection, asyncio.Task[None]] = {}
        self._network = _Network()

    async def start(self) -> None:
        """Listens. Raises TransportFailed when the address cannot be bound."""
        try:
            self._reserved = self._bound(self._listen)
        except OSError as error:
            raise TransportFailed(f"cannot listen on {self._listen[0]}:{self._listen[1]}: {error}") from error
        self._listen = self._reserved.getsockname()[:2]
        self._accept_connections()

    async def stop(self) -> None:
        """Refuses, closes all connections, and gives the port back."""
        ending = list(self._connections.values())
        self.drop()
        await asyncio.gather(*ending, return_exceptions=True)
        if self._reserved is not None:
            self._reserved.close()
            self._reserved = None

    async def __aenter__(self) -> TcpProxy:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def address(self) -> str:
        """Where it listens, `host:port`."""
        host, port = self._listen
        return f"[{host}]:{port}" if self._family is socket.AF_INET6 else f"{host}:{port}"

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._connections)

    def carried(self, way: Way) -> int:
        """Bytes delivered so far."""
        return self._network.carried[way]

    # --- faults ---

    def delay(self, seconds: float = 0.0, *, bytes_per_second: float = 0.0) -> None:
        """Everything arrives `seconds` later, each way; all connections together get `bytes_per_second` each way (0: no limit)."""
        self._set(_Network(seconds=seconds, bytes_per_second=bytes_per_second))

    def drop(self) -> None:
        """Connections are closed, and new ones refused."""
        self._set(_Network(refusing=True))
        self._end(reset=False)

    def reset_after(self, count: int) -> None:
        """Each connection is reset (RST to both sides) once it has carried `count` more bytes, both ways together; 0 resets at once. What was carried
        and not read yet may be lost with it."""
        self._set(_Network(reset_after=count))
        if count == 0:
            self._end(reset=True)

    def blackhole(self) -> None:
        """Connections stay open and new ones are accepted, but nothing is carried, not even their end."""
        self._set(_Network(dead=frozenset(Way)))

    def half_open(self, dead: Way) -> None:
        """Nothing is carried in the direction `dead`; the other carries on."""
        self._set(_Network(dead=frozenset([dead])))

    def heal(self) -> None:
        """No fault: what was held back is carried, new connections are accepted."""
        self._set(_Network())

    def _set(self, network: _Network) -> None:
        before, self._network = self._network, network
        network.carried = before.carried
        before.replaced.set()
        for connection in self._connections:
            connection.left = network.reset_after
        if network.refusing and self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        elif not network.refusing and self._listener is None and self._reserved is not None:
            self._accept_connections()

    def _end(self, *, reset: bool) -> None:
        for connection, task in self._connections.items():
            connection.ended, connection.resetting = True, reset
            task.cancel()

    # --- connections ---

    def _bound(self, address: tuple[str, int]) -> socket.socket:
        bound = socket.socket(self._family, socket.SOCK_STREAM)
        bound.setblocking(False)
        # A second socket of the port, which never listens, keeps it while the first one refuses.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            bound.bind(address)
        except OSError:
            bound.close()
            raise
        return bound

    def _accept_connections(self) -> None:
        self._listener = self._bound(self._listen)
        self._listener.listen(128)
        asyncio.get_running_loop().add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        if self._listener is None:
            return
        try:
            caller, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):  # it went away before it was met
            return
        connection = _Connection(caller, self.target, lambda: self._network)
        task = asyncio.create_task(connection.run(), name=f"connection to {self.target}")
        self._connections[connection] = task
        task.add_done_callback(lambda _: self._connections.pop(connection))


class _Network:
    """The state of the network from one fault to the next."""

    def __init__(
        self,
        *,
        dead: frozenset[Way] = frozenset(),
        seconds: float = 0.0,
        bytes_per_second: float = 0.0,
        reset_after: int | None = None,
        refusing: bool = False,
    ) -> None:
        self.dead = dead
        self.seconds = seconds
        self.reset_after = reset_after
        self.refusing = refusing
        self.replaced = asyncio.Event()
        self.carried = dict.fromkeys(Way, 0)
        self._bytes_per_second = bytes_per_second
        self._free = dict.fromkeys(Way, 0.0)

    def arrival(self, way: Way, size: int, now: float) -> float:
        """When bytes that are sent now arrive."""
        if self._bytes_per_second:
            self._free[way] = max(now, self._free[way]) + size / self._bytes_per_second
            now = self._free[way]
        return now + self.seconds


class _Connection:
    """One caller and its connection to the target. `left` bytes may be carried before it is reset; None: any number."""

    def __init__(self, caller: socket.socket, target: str, network: Callable[[], _Network]) -> None:
        self.left = network().reset_after
        self.ended = False
        self.resetting = False
        self._network = network
        self._caller = caller
        self._target_address = target
        self._target: socket.socket | None = None
        caller.setblocking(False)

    async def run(self) -> None:
        """Carries until both sides have ended, or one is broken: then both are reset."""
        try:
            if self.left == 0:
                raise ConnectionResetError
            await self._while_dead(Way.TO_TARGET)
            self._target = await _connected(self._target_address)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._carry(self._caller, self._target, Way.TO_TARGET))
                both.create_task(self._carry(self._target, self._caller, Way.TO_CALLER))
        except* OSError:
            self.resetting = True
        finally:
            for end in (self._caller, self._target):
                if end is not None:
                    if self.resetting and end.family is not socket.AF_UNIX:
                        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                    end.close()

    async def _carry(self, source: socket.socket, sink: socket.socket, way: Way) -> None:
        under_way: asyncio.Queue[tuple[bytes, float]] = asyncio.Queue(IN_FLIGHT)
        async with asyncio.TaskGroup() as both:
            both.create_task(self._take(source, under_way, way))
            both.create_task(self._deliver(sink, under_way, way))

    async def _take(self, source: socket.socket, under_way: asyncio.Queue[tuple[bytes, float]], way: Way) -> None:
        loop, content = asyncio.get_running_loop(), b"-"
        while content:
            await self._while_dead(way)
            content = await loop.sock_recv(source, CHUNK)
            await under_way.put((content, self._network().arrival(way, len(content), loop.time())))

    async def _deliver(self, sink: socket.socket, under_way: asyncio.Queue[tuple[bytes, float]], way: Way) -> None:
        loop = asyncio.get_running_loop()
        while True:
            content, at = await under_way.get()
            await self._until(at)
            await self._while_dead(way)
            if self.ended:  # and healed since: what was held back is lost
                return
            if not content:
                sink.shutdown(socket.SHUT_WR)
                return
            if self.left is not None:
                content = content[: self.left]
                self.left -= len(content)
            await loop.sock_sendall(sink, content)
            self._network().carried[way] += len(content)
            if self.left == 0:
                raise ConnectionResetError

    async def _until(self, at: float) -> None:
        """Waits until it arrives; healing makes it arrive at once."""
        network = self._network()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(at):
                await network.replaced.wait()

    async def _while_dead(self, way: Way) -> None:
        while way in self._network().dead:
            await self._network().replaced.wait()


async def _connected(address: str) -> socket.socket:
    loop = asyncio.get_running_loop()
    found: list[tuple[socket.AddressFamily, Any]] = [(socket.AF_UNIX, address.removeprefix("unix:"))]
    if not address.startswith("unix:"):
        host, _, port = address.rpartition(":")
        infos = await loop.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        found = [(info[0], info[4]) for info in infos]
    for number, (family, place) in enumerate(found, 1):
        target = socket.socket(family, socket.SOCK_STREAM)
        target.setblocking(False)
        try:
            await loop.sock_connect(target, place)
            return target
        except BaseException as error:
            target.close()
            if not isinstance(error, OSError) or number == len(found):
                raise
    raise OSError(f"{address} has no address")
