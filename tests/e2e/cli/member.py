"""Two tiny members of a run, each a process of its own: `python -m tests.e2e.cli.member counter|model --coordinator HOST:PORT`.

`counter` keeps one number per session and serves it over HTTP; `model` has no state. Each prints one JSON line once its gate is open, and ends on SIGTERM.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from typing import ClassVar

import uvicorn
from fastapi import FastAPI, HTTPException

from gymckpt.participant import (
    AdmissionMiddleware,
    Capture,
    Kind,
    MappingState,
    Participant,
    ResourcesParticipant,
    current_call,
)


class TinyModel(Participant):
    """A policy model that nobody calls: a checkpoint needs one."""

    kind: ClassVar[Kind] = Kind.MODEL


def counter_app(counters: dict[str, int]) -> FastAPI:
    """Tools over `counters`, which is keyed by session. A call of /hold runs until /release is called."""
    app = FastAPI()
    released = asyncio.Event()

    @app.post("/seed_session")
    async def seed_session() -> dict[str, int]:
        counters[_session()] = 0
        return {"value": 0}

    @app.post("/add")
    async def add(by: int = 1) -> dict[str, int]:
        key = _session()
        counters[key] += by
        return {"value": counters[key]}

    @app.post("/hold")
    async def hold() -> dict[str, int]:
        await released.wait()
        return {"value": counters[_session()]}

    @app.get("/release")
    async def release() -> None:
        released.set()

    @app.get("/value/{session}")
    async def value(session: str) -> dict[str, int]:
        if session not in counters:
            raise HTTPException(404, f"no session {session!r}; sessions: {sorted(counters)}")
        return {"value": counters[session]}

    return app


def _session() -> str:
    call = current_call()
    if call is None or call.session is None:
        raise HTTPException(400, "send x-gymckpt-session")
    return call.session


async def run_counter(coordinator: str) -> None:
    counters: dict[str, int] = {}
    participant = ResourcesParticipant("counter", state=MappingState(counters, schema="counter/1"))
    app = counter_app(counters)
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(AdmissionMiddleware(app, participant), log_level="warning"))

    async def until_stopped() -> None:
        await server.serve(sockets=[listening])

    await _take_part(participant, coordinator, f"http://127.0.0.1:{listening.getsockname()[1]}", until_stopped)


async def run_model(coordinator: str) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)

    async def until_stopped() -> None:
        await stopped.wait()

    await _take_part(TinyModel("policy", state=None, capture=Capture.STATELESS), coordinator, "", until_stopped)


async def _take_part(
    participant: Participant, coordinator: str, http: str, until_stopped: Callable[[], Awaitable[None]]
) -> None:
    async with participant.serving(coordinator=coordinator):
        await participant.open_gate()
        ready = {
            "participant": str(participant.id),
            "boot_id": participant.boot_id,
            "address": participant.address,
            "http": http,
            "pid": os.getpid(),
        }
        print(json.dumps(ready), flush=True)
        await until_stopped()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("who", choices=("counter", "model"))
    parser.add_argument("--coordinator", required=True)
    given = parser.parse_args()
    asyncio.run({"counter": run_counter, "model": run_model}[given.who](given.coordinator))


if __name__ == "__main__":
    main()
