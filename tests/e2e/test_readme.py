"""What the READMEs print, run as printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.ports import with_free_ports

ROOT = Path(__file__).parents[2]


def block(marker: str, file: str = "README.md") -> str:
    """The fenced block after `<!-- marker -->`."""
    text = (ROOT / file).read_text()
    found = re.search(rf"<!-- {re.escape(marker)} -->\n```[a-z]*\n(.*?)```", text, re.DOTALL)
    assert found is not None, f"{file} has no block marked {marker!r}"
    return found[1]


def test_the_embedding_example_survives_a_kill_of_everything_as_printed(tmp_path: Path) -> None:
    """P01, C09, X23: a FastAPI app of the user's own counts on after SIGKILL; its older attempt is refused."""
    (tmp_path / "app.py").write_text(block("file: app.py"))
    script = "".join(
        block(f"run: {name}")
        for name in ("start everything", "count and take a checkpoint", "kill, start again, restore")
    )
    script = with_free_ports(script, "7070", "8001", "8002")
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=180, check=False
    )
    answers = re.findall(
        r'\{"count":(\d+)\}', ran.stdout
    )  # servers write lines of their own between an answer and the end of its line
    assert answers == ["0", "1", "2", "3", "4"], ran.stdout + ran.stderr
    assert "STALE_ATTEMPT" in ran.stdout


def test_the_grpcurl_examples_run_as_printed(tmp_path: Path) -> None:
    """X20: list, describe, status, and one prepare and abort by hand, against a server that was started as printed."""
    (tmp_path / "app.py").write_text(block("file: app.py"))
    start = block("run: start everything")
    start = with_free_ports(start, "7070", "8001", "8002")
    find = """
counter() { python -c '
import json, sys
told = json.load(sys.stdin)
for member in told["members"]:
    if member["participant"] == "resources/counter":
        print(member["address"], told["epoch"], member["boot_id"])
'; }
until read -r ADDRESS EPOCH BOOT_ID < <(gymckpt --json participants | counter); do sleep 0.2; done
"""
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    script = f"set -e\ntrap 'kill $(jobs -p)' EXIT\n{start}{find}{block('grpcurl')}"
    ran = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    for expected in ("gymckpt.v1.ParticipantService", "rpc Transition", '"gate": "GATE_STATE_CLOSED"', '"abort_done"'):
        assert expected in ran.stdout, ran.stdout + ran.stderr


def test_the_reference_servers_play_a_first_rollout_as_printed(tmp_path: Path) -> None:
    """X17: it gets its reward, and its result is kept and in the checkpoint."""
    script = "".join(block(f"run: {name}", "servers/README.md") for name in ("start the servers", "play a rollout"))
    script = with_free_ports(script, "7070", "9001", "9002", "9003", "9004")
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert '"reward":1.0\n' in ran.stdout, ran.stdout + ran.stderr
    assert re.search(r"^r1 +[0-9a-f]{64} +\d+ +yes$", ran.stdout, re.MULTILINE), ran.stdout + ran.stderr
