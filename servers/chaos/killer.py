"""Kills a random server once the fleet has been whole for a while, again and again."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import Mapping

from servers.chaos.supervised import Told
from servers.demo.layout import base_name


class Killer:
    """`pids` are those of the servers that run, by name. `kills` counts by kind of server, every kind of the fleet in turn at random."""

    def __init__(self, pids: Mapping[str, int], after: float, seed: int) -> None:
        self.kills: Counter[str] = Counter()
        self._pids = pids
        self._after = after
        self._random = random.Random(seed)
        self._whole = asyncio.Event()
        self._left: list[str] = []

    def hear(self, told: Told) -> None:
        """Takes one event of the supervisor."""
        if told["event"] == "whole":
            self._whole.set()
        elif told["event"] == "died":
            self._whole.clear()

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await self._whole.wait()
            await asyncio.sleep(self._after)
            if not self._whole.is_set():
                continue
            name = self._choose()
            self._whole.clear()
            os.kill(self._pids[name], signal.SIGKILL)
            self.kills[base_name(name)] += 1

    def _choose(self) -> str:
        """Every server once before any is killed twice."""
        if not self._left:
            self._left = sorted(self._pids)
            self._random.shuffle(self._left)
        return self._left.pop()
