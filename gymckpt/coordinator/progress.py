"""A value that changes while callers follow it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Generic, TypeVar

V = TypeVar("V")


class Progress(Generic[V]):
    """Followers see the newest value; a slow one skips what came between. Whoever stops following changes nothing."""

    def __init__(self, value: V) -> None:
        self.value = value
        self._changed = asyncio.Event()
        self.ended = False

    def set(self, value: V, *, ended: bool = False) -> None:
        """Something happened, whether or not it changed the value; nothing more will when `ended`."""
        self.value = value
        self.ended = self.ended or ended
        self._changed.set()
        self._changed = asyncio.Event()

    async def follow(self) -> AsyncIterator[V]:
        """The present value and what follows, to the last."""
        while True:
            changed, value, ended = self._changed, self.value, self.ended
            yield value
            if ended:
                return
            if changed is self._changed:
                await changed.wait()
