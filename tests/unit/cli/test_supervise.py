"""`gymckpt supervise` as far as it needs no coordinator: what it is told that cannot be done."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gymckpt.cli.exits import Exit
from gymckpt.cli.root import run
from tests.unit.supervisor.test_keeper import running

# The second server ends for good once the first one runs, so that its next start fails.
FILE = """
coordinator = "127.0.0.1:9"
restart_after = 0.01

[server.first]
command = ["sh", "-c", "echo $$ > first.pid; exec sleep 600"]

[server.second]
command = ["./second", "--port", "7"]
"""
SECOND = """#!/bin/sh
until [ -s first.pid ]; do sleep 0.01; done
rm -- "$0"
"""


def test_a_command_that_is_not_there_is_told_in_one_line_and_no_server_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """X20, V03."""
    (tmp_path / "run.toml").write_text(FILE)
    second = tmp_path / "second"
    second.write_text(SECOND)
    second.chmod(0o755)
    assert run(["supervise", str(tmp_path / "run.toml"), "--json"]) == Exit.USAGE
    said = capsys.readouterr()
    (line,) = (line for line in said.err.splitlines() if "INVALID_FIELD" in line)
    error = json.loads(line)["error"]
    assert error["message"].startswith("[server.second]: the command `./second --port 7` cannot be started: [Errno 2]")
    assert (error["details"]["field"], error["next"].partition(";")[0]) == ("server.second.command", "correct the file")
    events = [json.loads(event) for event in said.out.splitlines()]
    assert {event["server"] for event in events if event["event"] == "started"} == {"first", "second"}
    assert not running(int((tmp_path / "first.pid").read_text()))
