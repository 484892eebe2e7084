"""One server, one process: bind, announce, serve, stop on SIGTERM."""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
from pathlib import Path
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

GRACE_SECONDS = 1


def server_arguments(description: str, name: str) -> argparse.ArgumentParser:
    """The options that every server has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--name", default=name, help="instance name, also in the session cookie (default: %(default)s)")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one; the announcement says which")
    parser.add_argument("--log", type=Path, help="append one line per executed call to this file")
    return parser


class AnnouncingServer(uvicorn.Server):
    """Prints one JSON line on standard output once connections are served."""

    announcement: dict[str, str | int]

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            print(json.dumps(self.announcement), flush=True)


def run(app: ASGIApp, *, name: str, host: str, port: int) -> None:
    """Serves until SIGTERM or SIGINT and then exits with status 0. Held calls get GRACE_SECONDS to end."""
    listening = socket.create_server((host, port), reuse_port=False)
    address = f"http://{host}:{listening.getsockname()[1]}"
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, timeout_graceful_shutdown=GRACE_SECONDS, timeout_keep_alive=60
    )
    server = AnnouncingServer(config)
    server.announcement = {"ready": True, "name": name, "address": address, "pid": os.getpid()}
    # uvicorn raises the signal that stopped it again when it has finished: this is what then receives it.
    signal.signal(signal.SIGTERM, _exit)
    signal.signal(signal.SIGINT, _exit)
    server.run(sockets=[listening])
    sys.exit(0 if server.started else 1)


def _exit(_signal: int, _frame: FrameType | None) -> None:
    sys.exit(0)
