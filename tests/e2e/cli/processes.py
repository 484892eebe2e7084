"""Real processes: a coordinator with its store, two members, and commands that are run against them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[3]
LONGEST_COMMAND = 60.0  # seconds; a command that hangs fails its test


@dataclass
class Process:
    """A running process that has printed its line of JSON."""

    popen: subprocess.Popen[str]
    ready: dict[str, Any]

    @property
    def address(self) -> str:
        return str(self.ready["address"])

    def kill(self) -> None:
        """SIGKILL: it has no chance to say anything."""
        self.popen.kill()
        self.popen.wait(LONGEST_COMMAND)

    def terminate(self) -> tuple[int, str]:
        """SIGTERM; exit code and what it had said on standard error."""
        self.popen.send_signal(signal.SIGTERM)
        _, said = self.popen.communicate(timeout=LONGEST_COMMAND)
        return self.popen.returncode, said


@dataclass
class Ran:
    """A command that ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        """The one document on standard output."""
        return json.loads(self.stdout)

    @property
    def error(self) -> dict[str, Any]:
        """The one document on standard error."""
        found: dict[str, Any] = json.loads(self.stderr)["error"]
        return found


@dataclass
class Processes:
    """Starts processes and ends every one of them with the test."""

    started: list[Process] = field(default_factory=list)

    def start(self, *words: str) -> Process:
        """`python -m <words>`, once it printed its line. Fails with what it said when it ends before."""
        popen = subprocess.Popen(
            [sys.executable, "-m", *words],
            cwd=REPOSITORY,
            env=_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert popen.stdout is not None
        too_long = threading.Timer(LONGEST_COMMAND, popen.kill)
        too_long.start()
        line = popen.stdout.readline()
        too_long.cancel()
        if not line:
            _, said = popen.communicate(timeout=LONGEST_COMMAND)
            raise AssertionError(f"{' '.join(words)} ended with {popen.returncode} before it was ready:\n{said}")
        process = Process(popen, json.loads(line))
        self.started.append(process)
        return process

    def serve(self, *words: str) -> Process:
        listen = () if "--listen" in words else ("--listen", "127.0.0.1:0")
        store = () if "--store" in words else ("--store", "memory:")
        return self.start("gymckpt.cli", "serve", "--json", *store, *listen, *words)

    def member(self, who: str, coordinator: str, *words: str) -> Process:
        return self.start("tests.e2e.cli.member", who, "--coordinator", coordinator, *words)

    def end(self) -> None:
        for process in self.started:
            process.popen.kill()
            process.popen.communicate(timeout=LONGEST_COMMAND)


@dataclass
class Run:
    """A coordinator and the members `model/policy` and `resources/counter`."""

    processes: Processes
    coordinator: Process
    counter: Process
    model: Process

    def __call__(self, *words: str) -> Ran:
        """`gymckpt --coordinator <ours> <words>`."""
        return gymckpt("--coordinator", self.coordinator.address, *words)

    def call(self, route: str, episode: str, session: str = "s1", timeout: float = LONGEST_COMMAND) -> dict[str, Any]:
        """A tool call inside an episode. Raises Refused; TimeoutError when it is held for `timeout` seconds."""
        headers = {"x-gymckpt-episode": episode, "x-gymckpt-session": session}
        request = urllib.request.Request(f"{self.counter.ready['http']}{route}", method="POST", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return dict(json.load(answer))
        except urllib.error.HTTPError as refused:
            with refused:
                raise Refused(refused.code, refused.headers.get("x-gymckpt-reason", "")) from refused

    def count(self, episode: str, value: int, session: str = "s1") -> None:
        """Gives the episode a session whose counter stands at `value`."""
        self.call("/seed_session", episode, session)
        assert self.call(f"/add?by={value}", episode, session) == {"value": value}

    def release(self) -> None:
        """Ends calls of /hold."""
        with urllib.request.urlopen(f"{self.counter.ready['http']}/release", timeout=LONGEST_COMMAND) as answer:
            assert answer.status == 200

    def encode(self) -> None:
        """Lets slow sessions be encoded."""
        self.counter.popen.send_signal(signal.SIGUSR1)

    def creating(self, *words: str) -> subprocess.Popen[str]:
        """`gymckpt checkpoint create <words> --json` under way."""
        line = command("--coordinator", self.coordinator.address, "checkpoint", "create", *words, "--json")
        return subprocess.Popen(line, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def stage(self, checkpoint_id: str) -> str:
        """Where a checkpoint is; nowhere before it was begun."""
        shown = self("checkpoint", "show", checkpoint_id, "--json")
        return str(shown.json["checkpoint"]["stage"]) if shown.code == 0 else ""

    def replace_counter(self) -> None:
        """kill -9 of the counter, then a new process of it."""
        self.counter.kill()
        self.counter = self.processes.member("counter", self.coordinator.address)


def start_run(processes: Processes) -> Run:
    """A coordinator with a store in memory, a counter and a model."""
    coordinator = processes.serve()
    counter = processes.member("counter", coordinator.address)
    return Run(processes, coordinator, counter, processes.member("model", coordinator.address))


class Refused(Exception):
    """The counter refused a call."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"{status} {reason}")
        self.status = status
        self.reason = reason


def ended(popen: subprocess.Popen[str]) -> Ran:
    """A command that was started, at its end."""
    stdout, stderr = popen.communicate(timeout=LONGEST_COMMAND)
    return Ran(popen.returncode, stdout, stderr)


def until(satisfied: Callable[[], bool], what: str) -> None:
    """Asks again and again; each time is a whole command. Raises AssertionError when `what` was not seen in time."""
    end = time.monotonic() + LONGEST_COMMAND
    while not satisfied():
        assert time.monotonic() < end, f"never seen: {what}"


def command(*words: str) -> list[str]:
    """The command line of this interpreter."""
    return [sys.executable, "-m", "gymckpt.cli", *words]


def gymckpt(*words: str, **environment: str) -> Ran:
    """One command, to its end."""
    ended = subprocess.run(
        command(*words),
        cwd=REPOSITORY,
        env=_environment() | environment,
        capture_output=True,
        text=True,
        timeout=LONGEST_COMMAND,
        check=False,
    )
    return Ran(ended.returncode, ended.stdout, ended.stderr)


def _environment() -> dict[str, str]:
    """Ours, without what would configure gymckpt from outside."""
    return {key: value for key, value in os.environ.items() if not key.startswith("GYMCKPT_")}
