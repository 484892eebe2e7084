"""`gymckpt supervise` as a process of its own, over the fleet of the demo on ports that stay."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from servers.demo.fleet import ROOT, Program, signal_group
from servers.demo.layout import COORDINATOR, Layout

Told = dict[str, Any]
"""One event as `gymckpt supervise --json` prints it."""


def free_ports(count: int) -> list[int]:
    """So many, each held until all are found."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


class Supervised:
    """Writes the configuration, starts the supervisor, and hands each event to `hear`."""

    def __init__(self, layout: Layout, directory: Path, checkpoint_every: float, hear: Callable[[Told], None]) -> None:
        names = [name for tier in layout.tiers() for name in tier]
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))
        self._layout = layout
        self._directory = directory
        self._every = checkpoint_every
        self._hear = hear
        self.pids: dict[str, int] = {}

    def address(self, name: str) -> str:
        """Where the server is, whichever process is behind it."""
        port = self.ports[name]
        return f"127.0.0.1:{port}" if name == COORDINATOR else f"http://127.0.0.1:{port}"

    async def run(self) -> None:
        """Until it is cancelled: then the supervisor is told to stop. Raises RuntimeError when it ends by itself."""
        file = self._directory / "fleet.toml"
        file.write_text(self.configuration())
        with (self._directory / "supervise.err").open("ab") as errors:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "gymckpt.cli", "supervise", str(file), "--json",
                cwd=ROOT, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=errors,
                start_new_session=True, limit=2**24,
            )  # fmt: skip
        assert process.stdout is not None
        try:
            async for line in process.stdout:
                told = json.loads(line)
                self._note(told)
                self._hear(told)
            raise RuntimeError(f"the supervisor ended with status {await process.wait()}, see {errors.name}")
        finally:
            await self._end(process)

    def configuration(self) -> str:
        """The TOML file."""
        lines = [
            f'coordinator = "{self.address(COORDINATOR)}"',
            f"checkpoint_every = {self._every}",
            "restart_after = 0.2",
        ]
        for name, port in self.ports.items():
            lines += self._table(name, self._layout.program(name, self.address, port))
        return "\n".join(lines) + "\n"

    def _table(self, name: str, program: Program) -> list[str]:
        command = json.dumps([sys.executable, "-m", program.module, *program.arguments])
        lines = ["", f"[server.{name}]", f"command = {command}", f"directory = {json.dumps(str(ROOT))}"]
        lines.append(f"log = {json.dumps(str(self._directory / f'{name}.log'))}")
        if name in self._layout.members:
            lines.append(f'participant = "{self._layout.members[name]}"')
        if program.environment:
            pairs = ", ".join(f"{key} = {json.dumps(value)}" for key, value in program.environment.items())
            lines.append(f"environment = {{ {pairs} }}")
        return lines

    def _note(self, told: Told) -> None:
        if told["event"] == "started":
            self.pids[told["server"]] = told["pid"]
        elif told["event"] == "died":
            self.pids.pop(told["server"], None)

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM)
        try:
            async with asyncio.timeout(60):
                await process.wait()
        except TimeoutError:
            signal_group(process.pid, signal.SIGKILL)
            for pid in self.pids.values():
                signal_group(pid, signal.SIGKILL)
