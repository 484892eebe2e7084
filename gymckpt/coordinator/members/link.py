"""One member process and the way to it: the control stream, and the unary door when the stream breaks."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass

from gymckpt.coordinator.members.client import ControlStream, ParticipantClient, ParticipantStatus
from gymckpt.core.ids import Episode, Fence
from gymckpt.core.manifest import MemberAddress, ParticipantInfo
from gymckpt.core.report import Report
from gymckpt.core.results import FinishedResult
from gymckpt.core.transitions import Answer, Request, Transition
from gymckpt.errors import GymckptError, StaleBoot, TransportFailed

RETRY_SECONDS = 0.2
PROBE_SECONDS = 2.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Refusal:
    """The member refused."""

    error: GymckptError


@dataclass(frozen=True, slots=True)
class Lost:
    """The member did not answer in time, or (`gone`) its process is known to be dead."""

    why: str
    gone: bool


Outcome = Answer | Refusal | Lost


def ignore_report(_report: Report) -> None:
    """Readiness that nobody waits for."""


class Link:
    """Sends transitions to the one process that `info` names. A transition may be sent again: same fence and kind give the same answer."""

    def __init__(self, info: ParticipantInfo) -> None:
        self.info = info
        self.on_report: Callable[[Report], None] = ignore_report
        self._client = ParticipantClient(info.address)
        self._stream: ControlStream | None = None
        self._number = 0
        self._waiting: set[asyncio.Timeout] = set()  # for answers
        self._why_dead = ""

    @property
    def name(self) -> str:
        return f"{self.info.id} ({self.info.worker})"

    @property
    def gone(self) -> str:
        """Why the process is known to be dead; empty while it is not."""
        return self._why_dead

    def mark_gone(self, why: str) -> None:
        """The process is known to be dead: whoever waits for it stops."""
        self._why_dead = self._why_dead or why
        for patience in self._waiting:
            if not patience.expired():
                patience.reschedule(0.0)

    async def close(self) -> None:
        if self._stream is not None:
            await self._stream.close()
        await self._client.close()

    async def status(self, epoch: int = 0, *, timeout: float) -> ParticipantStatus | Refusal | Lost:
        """What the member says of itself; never another process's word."""
        try:
            async with self._waits():
                return await self._status(epoch, timeout)
        except TimeoutError:
            return Lost(self._why_dead, True)

    async def _status(self, epoch: int, timeout: float) -> ParticipantStatus | Refusal | Lost:
        try:
            return await self._client.status(self.info.boot_id, epoch, timeout=timeout)
        except StaleBoot as error:
            self.mark_gone(error.message)
            return Lost(self._why_dead, True)
        except TransportFailed as error:
            await self._check_alive(error.message)
            return Lost(self._why_dead or error.message, bool(self._why_dead))
        except GymckptError as error:
            return Refusal(error)

    async def episodes(self, *, timeout: float) -> frozenset[Episode]:
        """What lives there or waits there for its replacement. Raises GymckptError."""
        try:
            async with self._waits():
                return await self._client.episodes(timeout=timeout)
        except TimeoutError:
            raise TransportFailed(self._why_dead) from None

    async def results(
        self, size: int, after: Episode | None, only: Iterable[Episode], *, timeout: float
    ) -> tuple[tuple[FinishedResult, ...], bool]:
        """A page of the results that it keeps, and whether there are more. Raises GymckptError."""
        try:
            async with self._waits():
                return await self._client.results(size, after, only, timeout=timeout)
        except TimeoutError:
            raise TransportFailed(self._why_dead) from None

    async def send(self, fence: Fence, transition: Transition, deadline: float | None) -> Outcome:
        """Sends until it is answered, refused, `deadline` (of the event loop's clock) has passed, or the process is dead."""
        try:
            async with self._waits(deadline):
                if self._why_dead:
                    return Lost(self._why_dead, True)
                return await self._exchange(fence, transition)
        except TimeoutError:
            if self._why_dead:
                return Lost(self._why_dead, True)
            return Lost(f"no answer to {type(transition).__name__.lower()} by its deadline", False)

    @contextlib.asynccontextmanager
    async def _waits(self, deadline: float | None = None) -> AsyncIterator[None]:
        """Around whatever waits for the process. Raises TimeoutError at the deadline, and as soon as the process is known to be dead: a call that is still on
        its way when this link is closed would be cancelled, and with it whoever asked."""
        async with asyncio.timeout_at(deadline) as patience:
            self._waiting.add(patience)
            try:
                yield
            finally:
                self._waiting.discard(patience)

    async def _exchange(self, fence: Fence, transition: Transition) -> Outcome:
        while True:
            self._number += 1
            request = Request(fence, self._number, self.info.boot_id, transition)
            try:
                answer = await self._ask(request)
            except StaleBoot as error:
                self.mark_gone(error.message)
                return Lost(error.message, True)
            except TransportFailed as error:
                await self._check_alive(error.message)
                if self._why_dead:
                    return Lost(self._why_dead, True)
                await asyncio.sleep(RETRY_SECONDS)
                continue
            except GymckptError as error:
                return Refusal(error)
            if answer.boot_id != self.info.boot_id:
                self.mark_gone(f"boot {answer.boot_id} answered for boot {self.info.boot_id}")
                return Lost(self._why_dead, True)
            return answer

    async def _ask(self, request: Request) -> Answer:
        """Over the stream; over the unary door when the stream breaks."""
        if self._stream is None or self._stream.broken is not None:
            self._stream = self._client.control(self._reported)
        try:
            return await self._stream.ask(request)
        except TransportFailed as error:
            log.info("%s: %s; asking by unary call", self.name, error.message)
            return await self._client.transition(request)

    def _reported(self, report: Report) -> None:
        self.on_report(report)

    async def _check_alive(self, why: str) -> None:
        """Tells a dead process (nothing listens, or another boot answers) from a broken network."""
        try:
            await self._client.status(self.info.boot_id, timeout=PROBE_SECONDS)
        except StaleBoot as error:
            self.mark_gone(error.message)
        except GymckptError as error:
            if await refuses(MemberAddress(self.info.address, self.info.relayed)):
                self.mark_gone(f"nothing listens at {self.info.address} ({why})")
            else:
                log.info("%s does not answer: %s", self.name, error.message)


async def refuses(reached: MemberAddress) -> bool:
    """Whether the host is there and says that nothing listens at the process's own address."""
    address = reached.address
    if reached.relayed:
        return False
    try:
        if address.startswith("unix:"):
            opening = asyncio.open_unix_connection(address.removeprefix("unix:"))
        else:
            host, _, port = address.rpartition(":")
            opening = asyncio.open_connection(host.strip("[]"), int(port))
        _, writer = await asyncio.wait_for(opening, PROBE_SECONDS)
    except (ConnectionRefusedError, FileNotFoundError):
        return True
    except (OSError, TimeoutError, UnicodeError):  # the last one for what cannot be the name of a host
        return False
    writer.close()
    return False
