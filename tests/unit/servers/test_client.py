"""Calls from one server to another."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable

import httpx
import pytest

from gymckpt.errors import StaleAttempt, TransportFailed
from gymckpt.participant import REASON_HEADER
from servers.http import client
from servers.http.client import SILENCE, Outgoing, UnexpectedAnswer, http_client

Handler = Callable[[httpx.Request], httpx.Response]


def outgoing(handler: Handler, patience: float = 60.0, clock: Callable[[], float] = lambda: 0.0) -> Outgoing:
    return Outgoing(httpx.AsyncClient(transport=httpx.MockTransport(handler)), patience=patience, clock=clock)


def refused(status: int, reason: str) -> httpx.Response:
    headers = {REASON_HEADER: reason}
    return httpx.Response(status, json={"error": {"reason": reason, "message": "no"}}, headers=headers)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "RETRY_SECONDS", 0.0)


async def test_a_server_that_went_away_is_tried_until_it_is_back() -> None:
    seen: list[bytes] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request.content)
        if len(seen) == 1:
            raise httpx.ConnectError("refused")
        if len(seen) == 2:
            raise httpx.RemoteProtocolError("the reply was cut")
        return httpx.Response(200, json={"output": 1})

    answer = await outgoing(handler).post("http://tools/add", {"count": 1})
    assert answer.json() == {"output": 1}
    assert seen == [b'{"count": 1}'] * 3


async def test_patience_ends_with_a_transport_failure_that_names_the_server() -> None:
    times = iter(range(100))

    def handler(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    with pytest.raises(TransportFailed, match="http://tools/add was not reached for 5 s"):
        await outgoing(handler, patience=5, clock=lambda: float(next(times))).post("http://tools/add", {})


async def test_a_typed_refusal_is_raised_and_never_returned() -> None:
    """X38"""
    with pytest.raises(StaleAttempt, match="no"):
        await outgoing(lambda _: refused(409, "STALE_ATTEMPT")).post("http://tools/add", {})


async def test_a_closed_gate_is_waited_for() -> None:
    """X38."""
    answers = iter([refused(503, "ADMISSION_CLOSED"), httpx.Response(200, json={})])
    assert (await outgoing(lambda _: next(answers)).post("http://tools/add", {})).status == 200


async def test_an_unknown_reason_is_no_answer_either() -> None:
    """X38"""
    with pytest.raises(ValueError, match="unknown reason 'NEWER'"):
        await outgoing(lambda _: refused(409, "NEWER")).post("http://tools/add", {})


async def test_a_caller_without_use_for_a_failure_is_told_of_it() -> None:
    with pytest.raises(UnexpectedAnswer, match="http://tools/add answered 500: broken"):
        await outgoing(lambda _: httpx.Response(500, text="broken")).fetch("http://tools/add", {})


async def test_cookies_travel_by_hand_in_both_directions() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        assert request.headers["cookie"] == "a=1; b=2=="
        return httpx.Response(200, headers=[("set-cookie", "a=3; path=/"), ("set-cookie", 'c="4=="; path=/; httponly')])

    answer = await outgoing(handler).post("http://tools/add", {}, cookies={"b": "2==", "a": "1"})
    assert answer.cookies == {"a": "3", "c": "4=="}


async def test_the_http_client_itself_keeps_no_cookie() -> None:
    async with http_client() as http:
        request = http.build_request("GET", "http://tools/")
        http.cookies.extract_cookies(httpx.Response(200, headers={"set-cookie": "a=1"}, request=request))
        assert "cookie" not in http.build_request("GET", "http://tools/").headers


async def test_the_kernel_is_told_to_notice_a_peer_that_vanished() -> None:
    """X24: an open connection as the kernel has it; less than a minute of silence ends it."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server, http_client() as http:
        host, port = server.sockets[0].getsockname()
        async with http.stream("GET", f"http://{host}:{port}/"):
            [connection] = connected_to((host, port))
        with connection:
            assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            told = {name: connection.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in SILENCE}
    assert told == SILENCE
    longest = told["TCP_KEEPIDLE"] + told["TCP_KEEPINTVL"] * told["TCP_KEEPCNT"]
    assert longest * 1000 == told["TCP_USER_TIMEOUT"] < 60_000


def connected_to(address: tuple[str, int]) -> list[socket.socket]:
    """Copies of this process's connections to the address."""
    found = []
    for name in os.listdir("/dev/fd"):
        try:
            copy = socket.socket(fileno=os.dup(int(name)))
        except OSError:
            continue
        try:
            peer = copy.getpeername()
        except OSError:
            peer = None
        if peer == address:
            found.append(copy)
        else:
            copy.close()
    return found
