"""A supervised fleet whose servers are killed one after another, judged as a person would: by exit status and report."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from servers.chaos.run import Chaos, Settings
from servers.chaos.supervised import Supervised
from servers.demo.rollouts import Tasks
from servers.execution_log import read_log
from tests.e2e.test_demo import is_running

ROOT = Path(__file__).resolve().parents[2]
ROLLOUTS = 16

pytestmark = pytest.mark.slow


def test_servers_are_killed_one_by_one_and_every_rollout_has_its_result(tmp_path: Path) -> None:
    """X01, X13, X14, X16, X24, X28, X29, X38: nothing is lost, nothing that the checkpoint held runs twice, and the rest never stops."""
    report, kept = tmp_path / "chaos.json", tmp_path / "kept"
    size = ("--rollouts", str(ROLLOUTS), "--concurrency", "12", "--every", "1", "--kill-after", "1.5")
    words = (sys.executable, "-m", "servers.chaos", *size, "--report", str(report), "--directory", str(kept))
    ran = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    seen = json.loads(report.read_text())
    zero = ("lost", "tool_calls_repeated", "rewards_different", "sessions_left")
    assert {name: seen[name] for name in zero} == dict.fromkeys(zero, 0)
    assert seen["rollouts"] == ROLLOUTS
    assert seen["kills"] == sum(seen["kills_by_kind"].values()) >= 3
    assert seen["continued"] > 0
    assert seen["checkpoints"] > 0
    pids = {line["pid"] for line in read_log(kept / "disturbed.jsonl")}
    assert [pid for pid in pids if is_running(pid)] == [], "the supervisor left servers behind"


def test_a_supervisor_that_is_told_to_stop_takes_a_last_checkpoint_and_its_servers_with_it(tmp_path: Path) -> None:
    """P01: and the next one goes on from it."""
    chaos = Chaos(Settings(Tasks.builtin(), tmp_path, rollouts=1, lanes=1), print)
    supervised = Supervised(chaos.layout("only", tmp_path / "store"), tmp_path, 3600.0, lambda _: None)
    file = tmp_path / "run.toml"
    file.write_text(supervised.configuration())
    for last in ("no", "yes"):
        words = (sys.executable, "-m", "gymckpt.cli", "supervise", str(file), "--json")
        with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as running:
            assert running.stdout is not None
            events = []
            for line in running.stdout:
                events.append(json.loads(line))
                if events[-1]["event"] == "whole":
                    running.send_signal(signal.SIGTERM)
            assert running.wait() == 0
        assert events[-1]["event"] == "checkpoint", events
        assert events[-1]["checkpoint"]["stage"] == "PUBLISHED"
        assert events[-1]["checkpoint"]["base_checkpoint_id"].startswith("last-") == (last == "yes")
        pids = [event["pid"] for event in events if event["event"] == "started"]
        assert len(pids) == 6
        assert [pid for pid in pids if is_running(pid)] == []
    assert os.listdir(tmp_path / "store")
