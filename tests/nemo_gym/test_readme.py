"""What `gymckpt/nemo_gym/README.md` prints, run as printed."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sysconfig
import tempfile
from pathlib import Path

import pytest

from tests.ports import with_free_ports

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "gymckpt" / "nemo_gym" / "README.md").read_text()
PORTS = ("7070", "8000", "11000")
LONGEST = 240.0  # seconds


def blocks() -> list[str]:
    """The fenced blocks after `<!-- run: ... -->`, in order."""
    return re.findall(r"<!-- run: [a-z ]+ -->\n```sh\n(.*?)```", README, re.DOTALL)


def run(script: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """In a session of its own, of which nothing is left afterwards."""
    scripts, ray = sysconfig.get_path("scripts"), tempfile.mkdtemp(prefix="ray-")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GYMCKPT_")}
    environment |= {"PATH": f"{scripts}:{os.environ['PATH']}", "CHECKOUT": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0"}
    environment["RAY_TMPDIR"] = (
        ray  # a cluster that was killed is taken for a living one by whoever looks in the same place
    )
    said, file = directory.with_suffix(".said"), directory.with_suffix(".sh")
    file.write_text(script)  # in a file: the shell's own command line must hold nothing that the script looks for
    with said.open("w") as out:
        process = subprocess.Popen(
            ["bash", str(file)],
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(LONGEST)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            shutil.rmtree(ray, ignore_errors=True)
    return subprocess.CompletedProcess(process.args, code, said.read_text())


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Empty, as the README asks."""
    made = tmp_path / "my-run"
    made.mkdir()
    return made


def test_rollouts_of_a_gym_run_outlive_the_kill_of_their_resources_server_as_printed(directory: Path) -> None:
    """P01, X13, X14. Installing is left out: the environment of these tests has everything."""
    script = "\n".join(["set -e", *blocks()])
    assert [printed for printed in PORTS if printed not in script] == []
    script = with_free_ports(script, *PORTS)
    ran = run(script, directory)
    logs = "".join(f"\n{log.name}:\n{log.read_text(errors='replace')[-3000:]}" for log in directory.glob("*.log"))
    assert ran.returncode == 0, ran.stdout + logs
    restored = re.search(r"RESTORED, (\d+) restored, 0 restarted, 0 lost", ran.stdout)
    assert restored is not None, ran.stdout + logs
    assert int(restored[1]) >= 10
    assert (directory / "gym.log").read_text().count("ended by SIGKILL: starting it again") == 1
    rollouts = [json.loads(line) for line in (directory / "rollouts.jsonl").read_text().splitlines()]
    assert [rollout["reward"] for rollout in rollouts] == [1.0] * 20
    assert "lost:" not in ran.stdout.rpartition("epoch")[2]
