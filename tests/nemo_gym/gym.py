"""A small NeMo Gym of real processes, without its command line: each server is started, killed and started again by itself."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.ports import free_port

HERE = Path(__file__).resolve().parent
LONGEST_START = 60.0  # seconds
LONGEST_COMMAND = 90.0

WORKPLACE = "resources_servers.workplace_assistant.app:WorkbenchResourcesServer"
MODEL = "responses_api_models.openai_model.app:SimpleModelServer"
AGENT = "responses_api_agents.simple_agent.app:SimpleAgent"


@dataclass
class Gym:
    """Servers by instance name. All that they say goes to `<directory>/<name>.log`."""

    directory: Path
    configuration: dict[str, Any] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    coordinator: str = ""

    def __post_init__(self) -> None:
        # Ray takes a cluster that was killed for a living one when it looks in the same place; its sockets want a short path.
        self._ray = tempfile.mkdtemp(prefix="ray-")
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "empty").mkdir(exist_ok=True)
        self.configuration = {"head_server": {"host": "127.0.0.1", "port": free_port()}, "dry_run": False}

    def add(self, name: str, kind: str, component: str, **settings: Any) -> None:
        """One more server in the configuration."""
        self.ports[name] = free_port()
        server = {"entrypoint": "app.py", "host": "127.0.0.1", "port": self.ports[name], **settings}
        self.configuration[name] = {kind: {component: server}}

    def add_policy(self, upstream: str) -> None:
        policy = {"openai_base_url": f"{upstream}/v1", "openai_api_key": "x", "openai_model": "scripted"}
        self.add("policy_model", "responses_api_models", "openai_model", **policy)

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.ports[name]}"

    def serve_checkpoints(self) -> None:
        """Starts the coordinator and its store, and turns checkpointing on for whoever starts after it."""
        port = free_port()
        self.coordinator = f"127.0.0.1:{port}"
        words = ["gymckpt.cli", "serve", "--store", str(self.directory / "store"), "--listen", self.coordinator]
        self._spawn("coordinator", [sys.executable, "-m", *words])
        self.configuration["checkpoint"] = {"coordinator": self.coordinator}
        self.wait("coordinator", lambda: socket.create_connection(("127.0.0.1", port), 1.0).close())

    def start(self, name: str, server: str, *, stock: bool = False) -> None:
        """`module:Class` as a participant, or as NeMo Gym ships it; returns when it is healthy."""
        module, _, _ = server.partition(":")
        words = ["-m", module] if stock else ["-m", "gymckpt.nemo_gym", "run", server]
        self._spawn(name, [sys.executable, *words])
        self.healthy(name)

    def start_wrapped(self, name: str, directory: Path) -> None:
        """What `wrap` made."""
        self._spawn(name, [sys.executable, str(directory / "app.py")])
        self.healthy(name)

    def start_script(self, name: str, script: str, *words: str) -> None:
        """A Python file of this folder that takes `--port`."""
        self.ports.setdefault(name, free_port())
        self._spawn(name, [sys.executable, str(HERE / script), "--port", str(self.ports[name]), *words])
        self.healthy(name)

    def start_command(self, name: str, words: list[str]) -> None:
        """Any command, as NeMo Gym's own is run: without a configuration that somebody else made."""
        self._spawn(name, words, injected=False)

    def healthy(self, name: str) -> None:
        self.wait(name, lambda: httpx.get(f"{self.url(name)}/health", timeout=2.0).raise_for_status())

    def kill(self, name: str) -> None:
        """SIGKILL to it and what it started; returns when the process is gone. One that has ended is fine."""
        process = self.running.pop(name)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def end(self) -> None:
        for name in list(self.running):
            self.kill(name)
        shutil.rmtree(self._ray, ignore_errors=True)

    def command(self, *words: str) -> Any:
        """A command of gymckpt, and the document that it answers. Fails with what it said when it fails."""
        line = [sys.executable, "-m", "gymckpt.cli", "--coordinator", self.coordinator, "--json", *words]
        ran = subprocess.run(line, capture_output=True, text=True, timeout=LONGEST_COMMAND, check=False)
        assert ran.returncode == 0, f"{words}: {ran.returncode} {ran.stdout} {ran.stderr}"
        return json.loads(ran.stdout)

    def members(self, count: int) -> None:
        """Returns when so many members are admitted."""
        self.wait("coordinator", lambda: self._check_members(count))

    def _check_members(self, count: int) -> None:
        document = self.command("participants")
        if len([member for member in document["members"] if not member.get("gone")]) != count:
            raise OSError(f"not {count} members: {document}")

    def counts(self, name: str) -> dict[str, int]:
        """What a member holds, by kind of thing."""
        members = self.command("explain")["members"]
        [found] = [member for member in members if member["participant"].endswith(f"/{name}")]
        counted: dict[str, int] = found["report"]["counts"]
        return counted

    def said(self, name: str) -> str:
        return (self.directory / f"{name}.log").read_text(errors="replace")

    def _spawn(self, name: str, words: list[str], *, injected: bool = True) -> None:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("GYMCKPT_")}
        environment |= {"GRPC_ENABLE_FORK_SUPPORT": "0", "RAY_TMPDIR": self._ray, **self.environment}
        if injected:
            environment |= {"NEMO_GYM_CONFIG_DICT": json.dumps(self.configuration), "NEMO_GYM_CONFIG_PATH": name}
        with (self.directory / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                words,
                cwd=self.directory / "empty",
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait(self, name: str, holds: Any) -> None:
        """Asks until it holds. Fails when the process ends first, or in LONGEST_START."""
        deadline = time.monotonic() + LONGEST_START
        problem: Exception
        while True:
            try:
                holds()
            except (OSError, httpx.HTTPError) as failed:
                problem = failed
            else:
                return
            assert self.running[name].poll() is None, f"{name} ended:\n{self.said(name)[-3000:]}"
            assert time.monotonic() < deadline, f"{name}: {problem!r}\n{self.said(name)[-3000:]}"
            time.sleep(0.05)
