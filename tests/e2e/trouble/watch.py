"""The test's side of a coordinator that asks before it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.e2e.trouble.served import DIE

PATIENCE_SECONDS = 60.0


class Watch:
    """Lets a coordinator pass every point but the one that it is to be stopped at, or to die at."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self._point = ""
        self._answer = b""
        self._reached = asyncio.Event()
        self._passing = asyncio.Event()
        self.killed: set[str] = set()
        """Points at which a coordinator was told to die."""

    def hold_at(self, point: str) -> None:
        """The next coordinator that comes to `point` waits there until `go_on`."""
        self._set(point, b"go on\n")

    def kill_at(self, point: str) -> None:
        """The next coordinator that comes to `point` kills itself there."""
        self._set(point, DIE)
        self._passing.set()

    async def reached(self) -> None:
        """Returns when a coordinator has come to the point."""
        try:
            await asyncio.wait_for(self._reached.wait(), PATIENCE_SECONDS)
        except TimeoutError:
            raise AssertionError(f"the coordinator never came to {self._point}") from None

    def go_on(self) -> None:
        """Lets the coordinator pass."""
        self._passing.set()

    def _set(self, point: str, answer: bytes) -> None:
        self._passing.set()  # whoever still waits at the last one is gone
        self._point, self._answer = point, answer
        self._reached, self._passing = asyncio.Event(), asyncio.Event()

    async def meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One point that a coordinator has come to."""
        point = (await reader.readline()).decode().strip()
        answer = b"go on\n"
        if point == self._point and not self._reached.is_set():
            answer, passing = self._answer, self._passing
            self._reached.set()
            await passing.wait()
            if answer == DIE:
                self.killed.add(point)
        writer.write(answer)
        writer.close()


@asynccontextmanager
async def watching(socket: Path) -> AsyncIterator[Watch]:
    """Listens at `socket`."""
    watch = Watch(socket)
    async with await asyncio.start_unix_server(watch.meet, socket):
        yield watch
        watch.go_on()
