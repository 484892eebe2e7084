"""The script for preemption that the README prints, run as printed, under load."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cli.processes import LONGEST_COMMAND, REPOSITORY, gymckpt, until

README = REPOSITORY / "gymckpt/cli/README.md"
EPISODES = 4
MORE = 20  # calls of each episode after a restore before the next preemption, and before the end
START_SERVERS = """#!/bin/bash
{python} -m tests.e2e.cli.member counter --coordinator $GYMCKPT_COORDINATOR --port {port} --log {log} > {said} 2>&1 &
{python} -m tests.e2e.cli.member model --coordinator $GYMCKPT_COORDINATOR > {said} 2>&1 &
wait
"""


class Machine:
    """Where the printed script runs."""

    def __init__(self, directory: Path) -> None:
        (found,) = re.findall(r"<!-- run: preemption -->\n```bash\n(.*?)```", README.read_text(), re.DOTALL)
        listening = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        coordinator, self.port = (held.getsockname()[1] for held in listening)
        for held in listening:
            held.close()
        self.coordinator = f"127.0.0.1:{coordinator}"
        self.directory, self.log = directory, directory / "executions"
        (directory / "run.sh").write_text(found.replace("127.0.0.1:7000", self.coordinator))
        servers = directory / "start-servers.sh"
        said = directory / "servers.said"
        servers.write_text(START_SERVERS.format(python=sys.executable, port=self.port, log=self.log, said=said))
        servers.chmod(0o755)
        self._script: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Returns when both members take part."""
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = os.environ | {"PATH": path, "PYTHONPATH": str(REPOSITORY), "STORE": str(self.directory / "store")}
        self._script = subprocess.Popen(
            ["bash", "run.sh"], cwd=self.directory, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )  # fmt: skip
        until(lambda: self._here() == ["model/policy", "resources/counter"], "both members")

    def preempt(self) -> None:
        """SIGTERM of the script, to its end; nothing of the run is left."""
        assert self._script is not None
        self._script.send_signal(signal.SIGTERM)
        stdout, stderr = self._script.communicate(timeout=LONGEST_COMMAND)
        assert (self._script.returncode, "no new checkpoint" in stderr) == (0, False), stdout + stderr
        for address in (self.coordinator, f"127.0.0.1:{self.port}"):
            host, port = address.split(":")
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((host, int(port)))

    def end(self) -> None:
        if self._script is not None and self._script.poll() is None:
            self.preempt()

    def executions(self) -> Counter[str]:
        """How often each session was counted up, outside of what a checkpoint holds."""
        return Counter(self.log.read_text().split()) if self.log.exists() else Counter()

    def command(self, *words: str) -> Any:
        return gymckpt("--coordinator", self.coordinator, *words, "--json")

    def call(self, route: str, headers: dict[str, str], method: str = "POST") -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LONGEST_COMMAND)
        try:
            connection.request(method, route, headers=headers)
            answer = connection.getresponse()
            body = answer.read().decode()
            assert answer.status == 200, body
            return body
        finally:
            connection.close()

    def value(self, session: str) -> int:
        found = re.findall(r"\d+", self.call(f"/value/{session}", {}, "GET"))
        return int(found[0])

    def _here(self) -> list[str]:
        told = self.command("participants")
        members = told.json["members"] if told.code == 0 else []
        return sorted(member["participant"] for member in members if member["gate"] == "OPEN")


class Agent(threading.Thread):
    """One attempt: counts its session up, call after call, each under a request id that is the same in all attempts. It ends at the first call that gets no
    answer, or when it is told that it was enough."""

    def __init__(self, machine: Machine, number: int, attempt: int, answered: int) -> None:
        super().__init__()
        self.session, self.answered = f"s{number}", answered
        self.some, self.enough = threading.Event(), threading.Event()
        self._first = answered
        self._machine, self._number, self._attempt = machine, number, attempt
        self.start()

    def run(self) -> None:
        rollout = f"r{self._number}"
        episode = f"{rollout}-a{self._attempt}" if self._attempt else rollout
        headers = {"x-gymckpt-episode": episode, "x-gymckpt-session": self.session}
        try:
            if self._attempt == 0:
                self._machine.call("/seed_session", headers)
            while not self.enough.is_set():
                self._machine.call("/add?by=1", headers | {"x-gymckpt-request-id": f"{rollout}-{self.answered}"})
                self.answered += 1
                if self.answered >= self._first + MORE:
                    self.some.set()
        except ConnectionError:
            return

    def next(self) -> Agent:
        """The attempt that continues this one, with the call that got no answer."""
        return Agent(self._machine, self._number, self._attempt + 1, self.answered)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    try:
        yield made
    finally:
        made.end()


def test_a_preempted_run_goes_on_with_no_call_run_twice_and_none_run_after_the_cut(machine: Machine) -> None:
    """L09, L10, C09, X13: preempted twice."""
    machine.start()
    agents = [Agent(machine, number, 0, 0) for number in range(EPISODES)]
    for _ in range(2):
        _wait_for_some(agents)
        machine.preempt()
        _join(agents)

        machine.start()
        restored = machine.command("checkpoint", "restore", "latest")

        assert restored.code == 0, restored.stderr
        assert len(restored.json["restored"]) == EPISODES
        # What ran is what was restored: nothing ran after the cut.
        assert {agent.session: machine.value(agent.session) for agent in agents} == machine.executions()
        agents = [agent.next() for agent in agents]
    _wait_for_some(agents)
    for agent in agents:
        agent.enough.set()
    _join(agents)
    assert machine.executions() == {agent.session: agent.answered for agent in agents}


def _wait_for_some(agents: list[Agent]) -> None:
    for agent in agents:
        assert agent.some.wait(LONGEST_COMMAND)


def _join(agents: list[Agent]) -> None:
    for agent in agents:
        agent.join(LONGEST_COMMAND)
        assert not agent.is_alive()
