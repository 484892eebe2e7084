"""What a participant does with its event loop: waking whoever waits, and work that outlives whoever asked for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

log = logging.getLogger("gymckpt.participant")

R = TypeVar("R")


class OnLoop:
    """All of it belongs to one event loop. An event exists only while somebody waits for it: telling nobody costs nothing."""

    def __init__(self) -> None:
        self._readiness: asyncio.Event | None = None
        self._moved: asyncio.Event | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    def notify(self) -> None:
        """Readiness may have changed."""
        if self._readiness is not None:
            self._readiness.set()
            self._readiness = None

    def readiness_changed(self) -> Coroutine[Any, Any, bool]:
        """Awaitable of the next `notify` after this call, however late it is awaited."""
        if self._readiness is None:
            self._readiness = asyncio.Event()
        return self._readiness.wait()

    def moved(self) -> None:
        """The gate opened, restored state became live or was dropped, or attempts were retired: whoever is held looks again."""
        if self._moved is not None:
            self._moved.set()
            self._moved = None
        self.notify()

    def has_moved(self) -> Coroutine[Any, Any, bool]:
        """Awaitable of the next `moved` after this call, however late it is awaited."""
        if self._moved is None:
            self._moved = asyncio.Event()
        return self._moved.wait()

    def spawn(self, work: Coroutine[Any, Any, R], name: str) -> asyncio.Task[R]:
        """Runs work that outlives whoever asked for it; `close` ends it."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("%s failed: %r", task.get_name(), error)

    async def close(self) -> None:
        """Ends uploads, installs, look-ups and retirements under way."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
