"""The demo as a person starts it: a process of its own, judged by its exit status and its report."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from servers.execution_log import read_log

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("GYMCKPT_SHARED", ROOT.parent / "shared")) / "data" / "nemo_gym" / "workplace_assistant"
ZERO = (
    "restarted",
    "lost",
    "tool_calls_repeated",
    "prefix_different",
    "tool_outputs_different",
    "tables_different",
    "rewards_different",
    "second_checkpoint_different",
    "stale_attempts_accepted",
    "sessions_left",
)
OTHERS = (
    "rollouts",
    "finished_before",
    "continued",
    "continued_from_input",
    "continued_with_changed_state",
    "tool_results_after_restore",
    "reads_of_changed_state_after_restore",
    "stale_attempts_tried",
    "turns_waited_for",
    "checkpoints",
    "mean_reward",
    "mean_reward_uninterrupted",
    "prepare_ms",
    "pause_ms",
)

pytestmark = pytest.mark.slow


def demo(directory: Path, *arguments: str) -> tuple[dict[str, Any], str]:
    """What the demo reports, and what it prints; it must end well and leave no process behind."""
    report = directory / "demo.json"
    ended = subprocess.run(
        (
            sys.executable,
            "-m",
            "servers.demo",
            "--report",
            str(report),
            "--directory",
            str(directory / "kept"),
            *arguments,
        ),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert left_running(directory / "kept") == []
    seen: dict[str, Any] = json.loads(report.read_text())
    return seen, ended.stdout


def left_running(directory: Path) -> list[int]:
    """Processes that executed calls for this demo and are still there."""
    logs = (directory / "disturbed.jsonl", directory / "undisturbed.jsonl")
    pids = {line["pid"] for log in logs for line in read_log(log)}
    assert len(pids) == 3 * 4, (
        "three lives, and in each an environment, an agent, a model and a workplace server that did something"
    )
    return [pid for pid in sorted(pids) if is_running(pid)]


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def check(seen: dict[str, Any], rollouts: int) -> None:
    """Everything that a run of any size must show."""
    assert seen.keys() == {*ZERO, *OTHERS}
    assert {name: seen[name] for name in ZERO} == dict.fromkeys(ZERO, 0)
    assert seen["rollouts"] == rollouts
    assert seen["finished_before"] + seen["continued"] == rollouts
    assert seen["continued"] > 0
    assert seen["continued_with_changed_state"] > 0
    assert seen["continued_from_input"] * 5 <= seen["continued"]
    assert seen["stale_attempts_tried"] >= 4 * seen["continued"]
    assert seen["tool_results_after_restore"] >= seen["reads_of_changed_state_after_restore"] > 0
    assert seen["mean_reward"] == seen["mean_reward_uninterrupted"] == 1.0
    assert seen["checkpoints"] == 5
    assert seen["prepare_ms"]["n"] == 4
    assert seen["pause_ms"]["n"] == 3
    for spread in (seen["prepare_ms"], seen["pause_ms"]):
        assert 0 < spread["p50"] <= spread["max"]


def test_a_crash_of_every_process_changes_nothing(tmp_path: Path) -> None:
    """P14, P01, P13, S13, V03: all is killed in mid-turn, and comes back elsewhere."""
    seen, printed = demo(tmp_path, "--rollouts", "10")
    check(seen, 10)
    assert "Nothing differs" in printed


def test_a_crash_changes_nothing_of_recorded_tasks_either(tmp_path: Path) -> None:
    """P14, P01, P13: as before with tasks and tables of the real environment; all servers come back on their old ports."""
    if not SHARED.is_dir():
        pytest.skip(f"the recorded tasks are not here: {SHARED} is missing; GYMCKPT_SHARED says where they are")
    tasks, tables = str(SHARED / "example.jsonl"), str(SHARED / "csv")
    seen, _ = demo(tmp_path, "--rollouts", "10", "--same-ports", "--tasks", tasks, "--tables", tables)
    check(seen, 10)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_demo_that_is_told_to_stop_takes_its_servers_with_it(tmp_path: Path, number: signal.Signals) -> None:
    kept = tmp_path / "kept"
    command = (sys.executable, "-m", "servers.demo", "--report", str(tmp_path / "demo.json"), "--directory", str(kept))
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
        assert running.stdout is not None
        said = next(line for line in running.stdout if "rollouts begin" in line)
        until_executed(kept / "disturbed.jsonl")
        running.send_signal(number)
        said += running.stdout.read()
        assert running.wait() != 0, said
    pids = {line["pid"] for line in read_log(kept / "disturbed.jsonl")}
    assert pids, said
    assert [pid for pid in pids if is_running(pid)] == []


def until_executed(log: Path) -> None:
    """Returns once a server has executed something."""
    last = time.monotonic() + 60
    while not log.exists() or not log.stat().st_size:
        assert time.monotonic() < last, "no call was executed"
        time.sleep(0.05)
