"""Servers started by `run` and by what `wrap` makes find what stock ones find, and a wrapped one outlives its process."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from nemo_gym import PARENT_DIR
from omegaconf import OmegaConf
from packaging.requirements import Requirement

from gymckpt.errors import InvalidField
from gymckpt.nemo_gym.launch import wrap
from tests.nemo_gym.gym import Gym

JUDGE = "equivalence_llm_judge"
SERVER = f"resources_servers.{JUDGE}.app:LLMJudgeResourcesServer"


def shipped_settings() -> dict[str, Any]:
    """Those of the shipped judge, whose prompt is named by a path that is relative to the server's directory."""
    path = Path(PARENT_DIR, "resources_servers", JUDGE, "configs", f"{JUDGE}.yaml")
    settings: Any = OmegaConf.to_container(OmegaConf.load(path)[JUDGE].resources_servers[JUDGE])
    assert not Path(settings["judge_prompt_template_fpath"]).is_absolute()
    return {key: value for key, value in settings.items() if key != "entrypoint"}


@pytest.fixture
def judged(gym: Gym) -> Gym:
    """A coordinator is running, and the judge configured."""
    gym.add_policy("http://127.0.0.1:9")
    gym.serve_checkpoints()
    return gym


def child_of(process: int) -> int:
    return int(Path(f"/proc/{process}/task/{process}/children").read_text().split()[0])


def boot_of(gym: Gym) -> str:
    [member] = gym.command("participants")["members"]
    boot: str = member["boot_id"]
    return boot


def test_run_finds_files_that_lie_beside_the_server_from_anywhere(judged: Gym) -> None:
    """X20: the process starts in an empty directory."""
    judged.add(JUDGE, "resources_servers", JUDGE, **shipped_settings())
    judged.start(JUDGE, SERVER)
    judged.members(1)


@pytest.mark.skipif(sys.platform != "linux", reason="finds the server below its keeper in /proc")
def test_a_wrapped_server_finds_its_files_and_is_back_on_its_port_after_a_kill(judged: Gym, tmp_path: Path) -> None:
    """X14, X26: it is another process of the same participant."""
    [wrapped] = wrap(tmp_path / "root", [JUDGE])
    judged.add(JUDGE, "resources_servers", wrapped.name, **shipped_settings())
    judged.environment = {"NEMO_GYM_EXTRA_ROOTS": str(tmp_path / "root")}
    judged.start_wrapped(JUDGE, wrapped)
    judged.members(1)
    boot = boot_of(judged)
    os.kill(child_of(judged.running[JUDGE].pid), signal.SIGKILL)
    judged.wait(JUDGE, lambda: another(judged, boot))
    judged.healthy(JUDGE)
    assert "ended by SIGKILL: starting it again" in judged.said(JUDGE)


def another(gym: Gym, boot: str) -> None:
    """Raises until one other process is the member."""
    members = [member["boot_id"] for member in gym.command("participants")["members"] if not member.get("gone")]
    if members in ([], [boot]):
        raise OSError(f"still {members}")


def test_a_wrapped_server_requires_the_gymckpt_that_wrapped_it(tmp_path: Path) -> None:
    """X20: an index may have another one of that name."""
    [wrapped] = wrap(tmp_path, [JUDGE])
    lines = (wrapped / "requirements.txt").read_text().splitlines()
    [ours] = [Requirement(line) for line in lines if line.startswith("gymckpt")]
    assert (ours.extras, ours.url) == ({"pandas"}, Path(__file__).resolve().parents[2].as_uri())


def test_servers_wrapped_together_are_configured_with_each_other(tmp_path: Path) -> None:
    """X20: under the names that their instances have always had."""
    wrapped, _, agent = wrap(tmp_path, ["workplace_assistant", "openai_model", "simple_agent"])
    configuration = OmegaConf.load(wrapped / "configs" / f"{wrapped.name}.yaml")
    assert list(configuration.workplace_assistant.resources_servers) == [wrapped.name]
    assert list(configuration.workplace_assistant_simple_agent.responses_api_agents) == [agent.name]


@pytest.mark.parametrize(
    ("component", "problem"), [("no_such", "ships no 'no_such'"), ("code_fim", "has no requirements.txt")]
)
def test_what_cannot_be_wrapped_is_refused(component: str, problem: str, tmp_path: Path) -> None:
    """X20."""
    with pytest.raises(InvalidField, match=problem):
        wrap(tmp_path, [JUDGE, component])
    assert list(tmp_path.iterdir()) == []
