"""Servers as processes of their own: started and waited for one by one or together, killed by process group."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

READY_SECONDS = 60.0
ROOT = Path(__file__).resolve().parents[2]


class ServerFailed(Exception):
    """A server ended, or said nothing, before it was ready; the message ends with its last words."""


@dataclass(frozen=True)
class Program:
    """`python -m <module> <arguments>`, known in its fleet as `name`, with `environment` added to the fleet's."""

    name: str
    module: str
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


class Server:
    """A started program that has announced `address`. It leads a process group of its own, so that whatever it started dies with it."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, address: str) -> None:
        self.name = name
        self.pid = process.pid
        self.address = address
        self._process = process
        self._reading = asyncio.create_task(_drain(process))

    @property
    def returncode(self) -> int | None:
        """None while it runs."""
        return self._process.returncode

    async def end(self, signal_number: signal.Signals = signal.SIGKILL) -> None:
        """Sends the signal to the group and returns when the process is gone."""
        signal_group(self.pid, signal_number)
        await self._process.wait()
        await self._reading


class Fleet:
    """Processes by name, each with `environment` beside what it inherits. What they say on standard error goes to `<directory>/<name>.err`, of all of
    that name."""

    def __init__(self, directory: Path, environment: Mapping[str, str] | None = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self.environment = dict(environment or {})
        self.servers: dict[str, Server] = {}

    def address(self, name: str) -> str:
        """Where the server listens, as it announced it."""
        return self.servers[name].address

    def port(self, name: str) -> int:
        """Port of `address`."""
        return int(self.address(name).rpartition(":")[2])

    @property
    def pids(self) -> dict[str, int]:
        """Process id by name."""
        return {name: server.pid for name, server in self.servers.items()}

    async def start(self, *programs: Program) -> None:
        """Starts all at once and waits until each has announced itself. Raises ServerFailed for the first that does not; whatever had not by then is killed."""
        starting = [asyncio.create_task(self._start(program), name=program.name) for program in programs]
        try:
            await asyncio.gather(*starting)
        except BaseException:
            for task in starting:
                task.cancel()
            await asyncio.gather(*starting, return_exceptions=True)
            raise

    async def kill(self, names: Iterable[str] | None = None) -> None:
        """SIGKILL to the process groups of `names` (all), at once; returns when the processes are gone."""
        await self._end(names, signal.SIGKILL)

    async def stop(self, names: Iterable[str] | None = None) -> None:
        """As `kill`, with SIGTERM: the servers close what they hold."""
        await self._end(names, signal.SIGTERM)

    async def _end(self, names: Iterable[str] | None, signal_number: signal.Signals) -> None:
        ending = [self.servers.pop(name) for name in (list(self.servers) if names is None else names)]
        for server in ending:
            signal_group(server.pid, signal_number)
        await asyncio.gather(*(server.end(signal_number) for server in ending))

    async def _start(self, program: Program) -> None:
        said = self._directory / f"{program.name}.err"
        with said.open("ab") as errors:
            process = await self._spawn(program, errors)
        try:
            async with asyncio.timeout(READY_SECONDS):
                address = await _announced(process)
        except BaseException as failure:
            signal_group(process.pid, signal.SIGKILL)
            await process.wait()
            if isinstance(failure, TimeoutError | ServerFailed):
                last = "\n".join(said.read_text(errors="replace").splitlines()[-15:])
                raise ServerFailed(
                    f"{program.name} ({program.module}) did not become ready: {failure}\n{last}"
                ) from None
            raise
        self.servers[program.name] = Server(program.name, process, address)

    async def _spawn(self, program: Program, errors: IO[bytes]) -> asyncio.subprocess.Process:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("GYMCKPT_")}
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            program.module,
            *program.arguments,
            cwd=ROOT,
            env={**inherited, **self.environment, **program.environment},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )


def signal_group(pid: int, signal_number: signal.Signals) -> None:
    """Sends a signal to the process group that `pid` leads; one that is gone is fine."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal_number)


async def _announced(process: asyncio.subprocess.Process) -> str:
    """The address in the first line that is a JSON object with one. Raises ServerFailed when the output ends before it."""
    assert process.stdout is not None
    async for line in process.stdout:
        with contextlib.suppress(ValueError):
            said = json.loads(line)
            if isinstance(said, dict) and "address" in said:
                return str(said["address"])
    raise ServerFailed(f"it ended with status {await process.wait()}")


async def _drain(process: asyncio.subprocess.Process) -> None:
    """Reads on, so that a server that prints never blocks."""
    assert process.stdout is not None
    while await process.stdout.read(65536):
        pass
