"""Two tiny members of a run, each a process of its own: `python -m tests.e2e.cli.member counter|model --coordinator HOST:PORT`.

`counter` keeps one number per session and serves it over HTTP; `model` has no state. Each prints one JSON line once its gate is open, and ends on SIGTERM.
Sessions whose name begins with `slow` are encoded only once the process gets SIGUSR1.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import socket
import threading
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import ClassVar

import uvicorn
from fastapi import FastAPI, HTTPException
from starlette.types import Lifespan

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


class SlowState(MappingState[int]):
    """Encodes what it froze of slow sessions once `encoding` is set."""

    def __init__(self, counters: dict[str, int]) -> None:
        super().__init__(counters, schema="counter/1")
        self.encoding = threading.Event()
        self._slow: list[bytes] = []

    def freeze(self, session: str) -> bytes:
        frozen = super().freeze(session)
        if session.startswith("slow"):
            self._slow.append(frozen)
        return frozen

    def encode(self, frozen: bytes) -> Mapping[str, bytes]:
        if any(frozen is slow for slow in self._slow):
            self.encoding.wait()
        return super().encode(frozen)


def counter_app(counters: dict[str, int], log: Path | None, lifespan: Lifespan[FastAPI]) -> FastAPI:
    """Tools over `counters`, which is keyed by session. A call of /hold runs until /release is called. Each /add writes its session into a line of `log`."""
    app = FastAPI(lifespan=lifespan)
    released = asyncio.Event()

    @app.post("/seed_session")
    async def seed_session() -> dict[str, int]:
        counters[_session()] = 0
        return {"value": 0}

    @app.post("/add")
    async def add(by: int = 1) -> dict[str, int]:
        key = _session()
        counters[key] += by
        if log is not None:
            with log.open("a") as lines:
                lines.write(f"{key}\n")
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


async def run_counter(given: argparse.Namespace) -> None:
    counters: dict[str, int] = {}
    state = SlowState(counters)
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, state.encoding.set)
    participant = ResourcesParticipant("counter", state=state)
    listening = socket.create_server(("127.0.0.1", given.port))
    http = f"http://127.0.0.1:{listening.getsockname()[1]}"

    @contextlib.asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with taking_part(participant, given, http):
            yield

    app = AdmissionMiddleware(counter_app(counters, given.log, lifespan), participant)
    await uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)).serve([listening])


async def run_model(given: argparse.Namespace) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    async with taking_part(TinyModel("policy", state=None, capture=Capture.STATELESS), given, ""):
        await stopped.wait()


@contextlib.asynccontextmanager
async def taking_part(participant: Participant, given: argparse.Namespace, http: str) -> AsyncIterator[None]:
    """Serves the participant; prints the line once its gate is open."""
    async with participant.serving(coordinator=given.coordinator, grace=given.grace):
        await participant.open_gate()
        ready = {
            "participant": str(participant.id),
            "boot_id": participant.boot_id,
            "address": participant.address,
            "http": http,
            "pid": os.getpid(),
        }
        print(json.dumps(ready), flush=True)
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("who", choices=("counter", "model"))
    parser.add_argument("--coordinator", required=True)
    parser.add_argument("--port", type=int, default=0, help="of the counter's HTTP server")
    parser.add_argument("--log", type=Path, help="file that gets a line for each /add")
    parser.add_argument("--grace", type=float, default=5.0, help="seconds for a frozen cut when it is told to end")
    given = parser.parse_args()
    asyncio.run({"counter": run_counter, "model": run_model}[given.who](given))


if __name__ == "__main__":
    main()
