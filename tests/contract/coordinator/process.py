"""A coordinator in a process of its own, which ends at a point as if it were killed: `python process.py <directory> <listen> [<point>]`."""

from __future__ import annotations

import asyncio
import os
import sys

from gymckpt.coordinator import Faults, Settings, serve
from gymckpt.store import LocalStore


class EndAt(Faults):
    """No clean-up runs: nothing is flushed, closed or told."""

    def __init__(self, point: str) -> None:
        self.point = point

    async def reach(self, point: str) -> None:
        if point == self.point:
            os._exit(9)


async def main(directory: str, listen: str, point: str = "") -> None:
    settings = Settings(interval=1.0, patience=2.0, retry_after=0.1)
    store = await LocalStore.open(directory)
    server = await serve(store, listen, settings=settings, faults=EndAt(point))
    print(server.address, flush=True)
    await server.wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
