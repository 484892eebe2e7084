"""Calls from one server to another."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

import aiohttp
import httpx
from httpx_aiohttp import AiohttpTransport

from gymckpt.errors import AdmissionClosed, GymckptError, TransportFailed
from gymckpt.participant import REASON_HEADER, REVISION_HEADER
from servers.http.cookies import cookie_header, cookies_of
from servers.http.refusals import CalledServerFailed

RETRY_SECONDS = 0.2
PATIENCE_SECONDS = 600.0
SILENCE = {"TCP_KEEPIDLE": 20, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4, "TCP_USER_TIMEOUT": 40_000}
"""Calls have no time limit, so the kernel must notice a peer that vanished with its host or behind a NAT: it ends the connection 40 s after the last word of
the other side, 20 + 4 * 5 s where nothing is under way. What was sent and is not acknowledged stops those probes, and would be repeated for a quarter of an
hour: hence the last option, in milliseconds."""
# A refused or broken connection; any other failure is the fault of the caller, and repeating would not help.
_UNREACHED = (httpx.NetworkError, httpx.ConnectTimeout, httpx.RemoteProtocolError)

_log = logging.getLogger(__name__)


class UnexpectedAnswer(CalledServerFailed):
    """A server answered with a status that its caller has no use for."""

    def __init__(self, url: str, answer: Answer) -> None:
        super().__init__(f"{url} answered {answer.status}: {answer.text[:300]}")
        self.answer = answer


@dataclass(frozen=True)
class Answer:
    """What a server answered; `text` is the body."""

    status: int
    headers: httpx.Headers
    text: str

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def cookies(self) -> dict[str, str]:
        return cookies_of(self.headers.get_list("set-cookie"))

    @property
    def revision(self) -> int:
        """Revision of the session that the call was in; 0 when the server keeps none."""
        return int(self.headers.get(REVISION_HEADER, "0"))

    def json(self) -> Any:
        return json.loads(self.text)


def refusal_of(answer: Answer) -> GymckptError | None:
    """The typed refusal in an answer, as the class that its reason names; None when it is no refusal."""
    reason = answer.headers.get(REASON_HEADER)
    if reason is None:
        return None
    error_class = next((found for found in _error_classes(GymckptError) if found.reason == reason), None)
    if error_class is None:
        raise ValueError(f"unknown reason {reason!r} in {REASON_HEADER}: {answer.text[:300]}")
    message = answer.json()["error"]["message"]
    retry_after = answer.headers.get("retry-after")
    return error_class(message, retry_after=float(retry_after) if retry_after else None)


def _error_classes(base: type[GymckptError]) -> Iterator[type[GymckptError]]:
    yield base
    for inner in base.__subclasses__():
        yield from _error_classes(inner)


class Outgoing:
    """Sends calls until they are answered.

    A server that cannot be reached is tried again until it is back or `patience` seconds are over: a restarted server
    has lost nothing that a repeated call needs. A typed refusal is raised, never returned, so that nobody can take it
    for an answer; a closed gate is waited for.
    """

    def __init__(
        self,
        http: httpx.AsyncClient,
        *,
        patience: float = PATIENCE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._http = http
        self._patience = patience
        self._clock = clock

    async def post(
        self, url: str, body: Any, *, headers: Mapping[str, str] | None = None, cookies: Mapping[str, str] | None = None
    ) -> Answer:
        """The answer, whatever its status. Raises GymckptError for a refusal, TransportFailed after `patience`."""
        sent = {"content-type": "application/json", **(headers or {})}
        if cookies:
            sent["cookie"] = cookie_header(cookies)
        content = json.dumps(body).encode()
        until = self._clock() + self._patience
        while True:
            try:
                received = await self._http.post(url, content=content, headers=sent)
                answer = Answer(received.status_code, received.headers, received.text)
            except _UNREACHED as error:
                if self._clock() >= until:
                    raise TransportFailed(f"{url} was not reached for {self._patience:g} s: {error!r}") from error
                _log.info("%s is not reached (%r), trying again", url, error)
                await asyncio.sleep(RETRY_SECONDS)
                continue
            refusal = refusal_of(answer)
            if refusal is None:
                return answer
            if not isinstance(refusal, AdmissionClosed):
                raise refusal
            await asyncio.sleep(refusal.retry_after or RETRY_SECONDS)

    async def fetch(
        self, url: str, body: Any, *, headers: Mapping[str, str] | None = None, cookies: Mapping[str, str] | None = None
    ) -> Answer:
        """As `post`, for callers with no use for a failure. Raises UnexpectedAnswer unless the status is 2xx."""
        answer = await self.post(url, body, headers=headers, cookies=cookies)
        if not answer.ok:
            raise UnexpectedAnswer(url, answer)
        return answer


def http_client() -> httpx.AsyncClient:
    """A client without time limit (a held call may wait for long), without a cookie jar (callers carry cookies by hand)."""
    nothing = CookieJar(policy=DefaultCookiePolicy(allowed_domains=[]))
    timeout = httpx.Timeout(None, connect=5.0)
    return httpx.AsyncClient(
        timeout=timeout, transport=AiohttpTransport(client=_session), cookies=nothing, trust_env=False
    )


def _session() -> aiohttp.ClientSession:
    """As many connections as calls. httpx's own pool looks at every connection for every call, which kept an agent of forty rollouts busy."""
    connector = aiohttp.TCPConnector(limit=0, socket_factory=_attentive)
    return aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())


def _attentive(address: aiohttp.AddrInfoType) -> socket.socket:
    """A socket that notices silence; of SILENCE it has what the platform has."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in SILENCE.items():
        option = getattr(socket, name, None)
        if option is not None:
            made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made
