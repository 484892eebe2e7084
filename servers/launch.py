"""Starts the reference servers as processes of their own, waits until each serves, and ends them."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

START_SECONDS = 60.0
STOP_SECONDS = 10.0


class StartFailed(Exception):
    """A server ended or said nothing before it served."""


@dataclass
class ServerProcess:
    """A running server; `command` starts another one like it, on the same port when it names one."""

    name: str
    address: str
    command: Sequence[str]
    process: subprocess.Popen[bytes]

    @classmethod
    def start(
        cls,
        module: str,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        errors: Path | None = None,
        timeout: float = START_SECONDS,
    ) -> ServerProcess:
        """Starts `python -m module arguments` and returns once it serves.

        `environment` is added to this process's own; standard error is appended to the file `errors`, or shared with
        this process. Raises StartFailed.
        """
        command = (sys.executable, "-m", module, *arguments)
        stderr = None if errors is None else errors.open("ab")
        try:
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=stderr, env={**os.environ, **(environment or {})}
            )
        finally:
            if stderr is not None:
                stderr.close()
        try:
            said = _announcement(process, timeout)
        except StartFailed as error:
            process.kill()
            process.wait()
            raise StartFailed(f"{' '.join(command)} {error}") from None
        return cls(said["name"], said["address"], command, process)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def stop(self) -> int:
        """SIGTERM; returns the exit status. Raises subprocess.TimeoutExpired when the server does not end."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self._ended(STOP_SECONDS)

    def kill(self) -> int:
        """SIGKILL; returns the exit status."""
        self.process.kill()
        return self._ended(STOP_SECONDS)

    def _ended(self, timeout: float) -> int:
        status = self.process.wait(timeout)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return status


def _announcement(process: subprocess.Popen[bytes], timeout: float) -> dict[str, str]:
    """The line that a server prints when it serves. Raises StartFailed."""
    assert process.stdout is not None
    until = time.monotonic() + timeout
    line = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while not line.endswith(b"\n"):
            if not selector.select(max(0.0, until - time.monotonic())):
                raise StartFailed(f"said nothing for {timeout:g} s")
            read = os.read(process.stdout.fileno(), 65536)
            if not read:
                raise StartFailed(f"ended with status {process.wait()} before it served")
            line += read
    said: dict[str, str] = json.loads(line)
    return said


@dataclass
class Fleet:
    """One server of each kind, in the order in which they were started: whoever is called first."""

    servers: dict[str, ServerProcess] = field(default_factory=dict)

    @property
    def environment(self) -> ServerProcess:
        return self.servers["environment"]

    @property
    def agent(self) -> ServerProcess:
        return self.servers["agent"]

    @property
    def model(self) -> ServerProcess:
        return self.servers["model"]

    @property
    def resources(self) -> ServerProcess:
        return self.servers["resources"]

    def stop(self) -> dict[str, int]:
        """Stops callers before the servers they call; returns exit statuses by kind."""
        return {kind: server.stop() for kind, server in reversed(self.servers.items())}

    def kill(self) -> None:
        """SIGKILL to all."""
        for server in self.servers.values():
            server.kill()


@dataclass(frozen=True)
class FleetPlan:
    """What to start: `resources` is the folder of a resources server; options go to the server of that kind. `ports`
    keeps addresses over restarts (0 or absent: any free one)."""

    resources: str
    tasks: Sequence[Path]
    directory: Path
    options: Mapping[str, Sequence[str]] = field(default_factory=dict)
    ports: Mapping[str, int] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def log(self) -> Path:
        """The execution log of all servers of all fleets of this plan."""
        return self.directory / "executions.jsonl"

    def start(self) -> Fleet:
        """The running fleet. Raises StartFailed; what had started is killed then."""
        fleet = Fleet()
        try:
            fleet.servers["resources"] = self._start("resources", f"servers.resources.{self.resources}")
            tasks = [option for file in self.tasks for option in ("--tasks", str(file))]
            ledger = ["--ledger", str(self.directory / "ledger.sqlite")]
            fleet.servers["model"] = self._start("model", "servers.model", *tasks, *ledger)
            tools = ("--resources", _named(fleet.resources))
            fleet.servers["agent"] = self._start("agent", "servers.agent", "--model", _named(fleet.model), *tools)
            agent = ("--agent", _named(fleet.agent))
            fleet.servers["environment"] = self._start("environment", "servers.environment", *agent, *tools)
        except BaseException:
            fleet.kill()
            raise
        return fleet

    def _start(self, kind: str, module: str, *arguments: str) -> ServerProcess:
        given = ("--port", str(self.ports.get(kind, 0)), "--log", str(self.log), *self.options.get(kind, ()))
        errors = self.directory / f"{kind}.err"
        return ServerProcess.start(module, *given, *arguments, environment=self.environment, errors=errors)


def _named(server: ServerProcess) -> str:
    return f"{server.name}={server.address}"
