"""The way of README.md: wrapped servers, started by the real `gym` command line and driven by its collector."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.nemo_gym.gym import Gym, free_port
from tests.nemo_gym.rollouts import row

STARTED = (
    "resources_servers/workplace_assistant_checkpointed",
    "responses_api_models/openai_model_checkpointed",
    "responses_api_agents/simple_agent",
    "environment_servers/legacy_agent",
)


@pytest.fixture
def command() -> str:
    """NeMo Gym's own command of this environment."""
    return str(Path(sysconfig.get_path("scripts"), "gym"))


@pytest.fixture
def environments(tmp_path: Path) -> Path:
    """An environment per server, as NeMo Gym wants them: all are this one."""
    for server in STARTED:
        place = tmp_path / "environments" / server
        place.mkdir(parents=True)
        (place / ".venv").symlink_to(sys.prefix)
    return tmp_path / "environments"


@pytest.fixture
def started(gym: Gym, command: str, environments: Path, tmp_path: Path) -> Iterator[Gym]:
    """Wrapped servers under `gym env start`."""
    gym.start_script("upstream", "upstream.py")
    gym.serve_checkpoints()
    subprocess.run(
        [
            sys.executable,
            "-m",
            "gymckpt.nemo_gym",
            "wrap",
            str(tmp_path / "root"),
            "workplace_assistant",
            "openai_model",
        ],
        check=True,
        cwd=tmp_path,
    )
    gym.ports["head"] = free_port()
    words = ["env", "start", "--search-dir", str(tmp_path / "root")]
    words += ["--resources-server", "workplace_assistant_checkpointed", "--model-type", "openai_model_checkpointed"]
    words += ["--model", "scripted", "--model-url", f"{gym.url('upstream')}/v1", "--model-api-key", "x"]
    words += [f"++checkpoint.coordinator={gym.coordinator}", f"++head_server.port={gym.ports['head']}"]
    words += [f"++uv_venv_dir={environments}", "++skip_venv_if_present=true"]
    gym.environment = {"RAY_USAGE_STATS_ENABLED": "0"}
    gym.start_command("head", ["env", "--default-signal=INT", command, *words])  # a background shell ignores it
    gym.wait("head", lambda: httpx.get(f"{gym.url('head')}/readyz", timeout=2.0).raise_for_status())
    yield gym
    gym.running["head"].send_signal(signal.SIGINT)
    gym.running["head"].wait(30)


def test_wrapped_servers_are_members_and_play_the_collectors_rollouts(
    started: Gym, command: str, tmp_path: Path
) -> None:
    """X05."""
    started.members(2)
    rows, output = tmp_path / "rows.jsonl", tmp_path / "rollouts.jsonl"
    agent = {"type": "responses_api_agents", "name": "workplace_assistant_simple_agent"}
    tasks = [{**row(task, steps=4), "agent_ref": agent} for task in range(3)]
    rows.write_text("".join(f"{json.dumps(task)}\n" for task in tasks))
    words = ["eval", "run", "--no-serve", "--agent", agent["name"], "--input", str(rows), "--output", str(output)]
    words += [f"++head_server.port={started.ports['head']}", "--concurrency", "3"]
    ran = subprocess.run(
        [command, *words], cwd=tmp_path, env=dict(os.environ), capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]
    rewards = [json.loads(line)["reward"] for line in output.read_text().strip().split("\n")]
    assert rewards == [1.0, 1.0, 1.0]
    taken = started.command("checkpoint", "create", "after")
    assert taken["checkpoint"]["stage"] == "PUBLISHED"
