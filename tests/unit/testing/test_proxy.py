"""TcpProxy between real sockets: each fault, what it does to connections that exist and to new ones, and that it heals."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from gymckpt.errors import InvalidField, TransportFailed
from gymckpt.testing import TcpProxy, Way

SOON = 10.0  # seconds in which what must happen happens
QUIET = 0.2  # seconds in which what must not happen would have
LARGE = bytes(range(256)) * 4096  # 1 MiB


class Line:
    """A caller's end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def say(self, content: bytes) -> None:
        self.writer.write(content)

    async def hear(self, size: int) -> bytes:
        async with asyncio.timeout(SOON):
            return await self.reader.readexactly(size)

    async def rest(self) -> bytes:
        """Whatever comes until the other side ends."""
        async with asyncio.timeout(SOON):
            return await self.reader.read()

    async def hears_nothing(self) -> bool:
        try:
            async with asyncio.timeout(QUIET):
                await self.reader.read(1)
        except TimeoutError:
            return True
        return False


class Echo:
    """A target that answers what it hears; `ends` counts the connections whose end it was told."""

    def __init__(self) -> None:
        self.heard = 0
        self.resets = 0
        self.ends = 0
        self.lines: list[asyncio.StreamWriter] = []

    async def meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.lines.append(writer)
        try:
            while content := await reader.read(65536):
                self.heard += len(content)
                writer.write(content)
                await writer.drain()
            self.ends += 1
        except ConnectionResetError:
            self.resets += 1
        finally:
            writer.close()


@pytest.fixture
def echo() -> Echo:
    return Echo()


@pytest_asyncio.fixture
async def proxy(echo: Echo) -> AsyncIterator[TcpProxy]:
    async with await asyncio.start_server(echo.meet, "127.0.0.1", 0) as target:
        port = target.sockets[0].getsockname()[1]
        async with TcpProxy(f"127.0.0.1:{port}") as running:
            yield running
        for line in echo.lines:
            line.transport.abort()


Dial = Callable[[], Awaitable[Line]]


@pytest_asyncio.fixture
async def dial(proxy: TcpProxy) -> AsyncIterator[Dial]:
    lines: list[Line] = []

    async def opened() -> Line:
        host, _, port = proxy.address.rpartition(":")
        lines.append(Line(*await asyncio.open_connection(host, int(port))))
        return lines[-1]

    yield opened
    for line in lines:
        line.writer.transport.abort()


async def until(condition: Callable[[], bool]) -> None:
    last = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < last
        await asyncio.sleep(0.005)


async def assert_carries(dial: Dial) -> None:
    line = await dial()
    line.say(b"hello")
    assert await line.hear(5) == b"hello"


async def test_bytes_and_ends_are_carried_both_ways_and_counted(proxy: TcpProxy, dial: Dial, echo: Echo) -> None:
    line = await dial()
    line.say(LARGE)
    line.writer.write_eof()
    assert await line.rest() == LARGE
    assert (proxy.carried(Way.TO_TARGET), proxy.carried(Way.TO_CALLER)) == (len(LARGE), len(LARGE))
    await until(lambda: echo.ends == 1 and proxy.connections == 0)


async def test_a_unix_socket_may_be_the_target(tmp_path: Path, echo: Echo) -> None:
    path = tmp_path / "target"
    async with await asyncio.start_unix_server(echo.meet, path), TcpProxy(f"unix:{path}") as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(proxy.address.rpartition(":")[2]))
        writer.write(b"hello")
        writer.write_eof()
        assert await reader.read() == b"hello"
        writer.close()


async def test_delay_holds_every_byte_that_long_and_does_not_bound_how_many_are_under_way(
    proxy: TcpProxy, dial: Dial
) -> None:
    line = await dial()
    proxy.delay(0.1)
    loop = asyncio.get_running_loop()
    began = loop.time()
    line.say(LARGE)
    assert await line.hear(1) == LARGE[:1]
    assert loop.time() - began >= 0.2
    assert await line.hear(len(LARGE) - 1) == LARGE[1:]
    # Sixty-four chunks, one after the other, would have taken 6.4 seconds.
    assert loop.time() - began < 5.0


async def test_bandwidth_is_shared_by_all_connections(proxy: TcpProxy, dial: Dial) -> None:
    lines = [await dial() for _ in range(2)]
    proxy.delay(bytes_per_second=200_000)
    loop = asyncio.get_running_loop()
    began = loop.time()
    for line in lines:
        line.say(bytes(50_000))
    await asyncio.gather(*(line.hear(50_000) for line in lines))
    assert loop.time() - began >= 0.5
    proxy.heal()
    lines[0].say(LARGE)
    assert await lines[0].hear(len(LARGE)) == LARGE


async def test_drop_closes_what_is_open_and_refuses_what_comes_and_keeps_its_port(
    proxy: TcpProxy, dial: Dial, echo: Echo
) -> None:
    line, address = await dial(), proxy.address
    line.say(b"hello")
    assert await line.hear(5) == b"hello"
    proxy.drop()
    assert await line.rest() == b""
    await until(lambda: echo.ends == 1)
    with pytest.raises(ConnectionRefusedError):
        await dial()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", int(address.rpartition(":")[2])))
    proxy.heal()
    assert proxy.address == address
    await assert_carries(dial)


async def test_what_was_held_back_is_lost_with_its_connection(proxy: TcpProxy, dial: Dial, echo: Echo) -> None:
    line = await dial()
    await until(lambda: len(echo.lines) == 1)
    proxy.half_open(Way.TO_CALLER)
    line.say(b"hello")
    await until(lambda: echo.heard == 5)
    assert await line.hears_nothing()
    proxy.drop()
    proxy.heal()
    assert await line.rest() == b""
    assert proxy.carried(Way.TO_CALLER) == 0


async def test_reset_comes_after_exactly_that_many_bytes_and_reaches_both_sides(
    proxy: TcpProxy, dial: Dial, echo: Echo
) -> None:
    line = await dial()
    proxy.reset_after(7)
    hearing = asyncio.create_task(line.hear(2))
    line.say(b"hello")
    assert await hearing == b"he"
    with pytest.raises(ConnectionResetError):
        await line.rest()
    await until(lambda: echo.resets == 1)
    assert (proxy.carried(Way.TO_TARGET), proxy.carried(Way.TO_CALLER)) == (5, 2)

    later = await dial()
    later.say(b"hello, hello")
    with pytest.raises(ConnectionResetError):
        await later.rest()
    await until(lambda: proxy.carried(Way.TO_TARGET) == 12)
    proxy.heal()
    await assert_carries(dial)


async def test_reset_after_nothing_is_at_once(proxy: TcpProxy, dial: Dial, echo: Echo) -> None:
    line = await dial()
    await until(lambda: len(echo.lines) == 1)
    proxy.reset_after(0)
    with pytest.raises(ConnectionResetError):
        await line.rest()
    await until(lambda: echo.resets == 1)
    with pytest.raises(ConnectionResetError):
        await (await dial()).rest()
    assert len(echo.lines) == 1


async def test_blackhole_accepts_and_carries_nothing_until_it_heals(proxy: TcpProxy, dial: Dial, echo: Echo) -> None:
    line = await dial()
    await until(lambda: len(echo.lines) == 1)
    proxy.blackhole()
    new = await dial()
    for each in (line, new):
        each.say(b"hello")
    line.writer.write_eof()
    assert await line.hears_nothing()
    assert (echo.heard, echo.ends, len(echo.lines)) == (0, 0, 1)
    proxy.heal()
    assert await line.rest() == b"hello"
    assert await new.hear(5) == b"hello"


@pytest.mark.parametrize("dead", Way)
async def test_half_open_carries_one_way_only(proxy: TcpProxy, dial: Dial, echo: Echo, dead: Way) -> None:
    line = await dial()
    await until(lambda: len(echo.lines) == 1)
    proxy.half_open(dead)
    line.say(b"hello")
    if dead is Way.TO_CALLER:
        await until(lambda: echo.heard == 5)
        assert await line.hears_nothing()
    else:
        echo.lines[0].write(b"unasked")
        assert await line.hear(7) == b"unasked"
        assert echo.heard == 0
    proxy.heal()
    assert await line.hear(5) == b"hello"


async def test_a_broken_side_breaks_the_other(dial: Dial, echo: Echo, proxy: TcpProxy) -> None:
    line = await dial()
    await until(lambda: len(echo.lines) == 1)
    echo.lines[0].get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    echo.lines[0].transport.abort()
    with pytest.raises(ConnectionResetError):
        await line.rest()
    await until(lambda: proxy.connections == 0)


async def test_a_target_that_is_not_there_resets_the_caller() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        async with TcpProxy(f"127.0.0.1:{nobody.getsockname()[1]}") as proxy:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(proxy.address.rpartition(":")[2]))
            with pytest.raises(ConnectionResetError):
                await reader.read()
            writer.close()


async def test_addresses_that_are_none_or_taken_are_refused(proxy: TcpProxy) -> None:
    with pytest.raises(InvalidField, match="target must be host:port"):
        TcpProxy("nowhere")
    with pytest.raises(InvalidField, match="listen must be host:port"):
        TcpProxy("127.0.0.1:1", listen="unix:/tmp/x")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        other = TcpProxy("127.0.0.1:1", listen=f"127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(TransportFailed, match="cannot listen"):
            await other.start()


def test_it_needs_no_test_framework() -> None:
    code = "import sys; sys.modules['pytest'] = None; import gymckpt.testing"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
