"""Stopping a task that works for an episode: cancelled once, and its caller told why."""

from __future__ import annotations

import asyncio
from types import TracebackType

from gymckpt.errors import GymckptError


class Stoppable:
    """Work of the task that makes it. Leaving the block raises what `stop` was given; a cancellation by anybody else stays what it is."""

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None, "work of an episode runs in a task"
        self._task = task
        self._cancelling = task.cancelling()
        self._error: GymckptError | None = None

    def stop(self, error: GymckptError) -> None:
        """Cancels the task, once."""
        if self._error is None:
            self._error = error
            self._task.cancel()

    def __enter__(self) -> Stoppable:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._error is None:
            return
        cancelled_elsewhere = self._task.uncancel() > self._cancelling
        if not cancelled_elsewhere and (raised is None or isinstance(raised, asyncio.CancelledError)):
            raise self._error from None
