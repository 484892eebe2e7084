"""A checkpoint that was made under another pandas: refused when it is restored, or its episodes start over, and never restored to something else.

One process says that its pandas is another one, and does all else as before. With GYMCKPT_OTHER_PANDAS, a directory that holds another major version
(`pip install --no-deps --target DIRECTORY pandas==2.3.3 pytz tzdata`), it really is.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import httpx
import pandas
import pytest

from gymckpt.cli.exits import Exit
from gymckpt.participant import Episode
from tests.nemo_gym.calls import SESSION, Client
from tests.nemo_gym.conftest import other_pandas
from tests.nemo_gym.gym import LONGEST_COMMAND, MODEL, WORKPLACE, Gym

COUNTER = "resources_servers.example_session_state_mgmt.app:StatefulCounterResourcesServer"
SAID = "1.5.3"
ASSISTANT, COUNTERS = "workplace_assistant", "example_session_state_mgmt"


@pytest.fixture(params=["said", "installed"])
def other(request: pytest.FixtureRequest, gym: Gym) -> str:
    """The version of the other pandas; the first workplace server of the gym runs under it, beside a server without pandas."""
    gym.environment = {"PYTHONPATH": os.getcwd(), "OTHER_PANDAS": SAID}
    server, version = "tests.nemo_gym.other_pandas:WorkbenchResourcesServer", SAID
    if request.param == "installed":
        directory = other_pandas()
        [found] = directory.glob("pandas-*.dist-info")
        server, version = WORKPLACE, found.name.removeprefix("pandas-").removesuffix(".dist-info")
        gym.environment["PYTHONPATH"] = f"{directory}:{os.getcwd()}"
    gym.add(ASSISTANT, "resources_servers", ASSISTANT)
    gym.add(COUNTERS, "resources_servers", COUNTERS, domain="agent")
    gym.add_policy("http://127.0.0.1:9")
    gym.serve_checkpoints()
    gym.start(ASSISTANT, server)
    gym.environment = {"PYTHONPATH": os.getcwd()}
    gym.start(COUNTERS, COUNTER)
    gym.start("policy_model", MODEL)
    gym.members(3)
    return version


def restore(gym: Gym, *words: str) -> subprocess.CompletedProcess[str]:
    line = [
        sys.executable,
        "-m",
        "gymckpt.cli",
        "--coordinator",
        gym.coordinator,
        "--json",
        "checkpoint",
        "restore",
        "cut",
    ]
    return subprocess.run([*line, *words], capture_output=True, text=True, timeout=LONGEST_COMMAND, check=False)


def sources(found: list[dict[str, Any]]) -> list[str]:
    return [entry["source"] for entry in found]


def test_another_pandas_is_refused_by_name_or_its_episodes_start_over(other: str, gym: Gym, http: httpx.Client) -> None:
    """R08, C11, X13, X20."""
    assistants = [Client(http, gym.url(ASSISTANT)) for _ in range(2)]
    counters = [Client(http, gym.url(COUNTERS)) for _ in range(2)]
    for task, client in enumerate(assistants):
        client.seed(task)
        assert {status for status, _ in client.play(SESSION[: 3 + task])} == {200}
    for task, client in enumerate(counters):
        seed = {"initial_count": 10 * task, "_ng_task_index": 2 + task, "_ng_rollout_index": 0}
        assert client.post("/seed_session", seed)[0] == 200
    gym.command("checkpoint", "create", "cut")
    for name, server in ((ASSISTANT, WORKPLACE), (COUNTERS, COUNTER)):
        gym.kill(name)
        gym.start(name, server)
    gym.members(3)
    refused = restore(gym)
    assert refused.returncode == Exit.REFUSED
    told = refused.stdout + refused.stderr
    for part in (
        "0-0",
        f"made under pandas {other}",
        f"this is pandas {pandas.__version__}",
        "--on-unloadable restart",
    ):
        assert part in told
    assert gym.counts(ASSISTANT)["sessions"] == gym.counts(COUNTERS)["sessions"] == 0
    begun = restore(gym, "--on-unloadable", "restart")
    assert begun.returncode == Exit.OK, begun.stderr
    outcome = json.loads(begun.stdout)
    assert sources(outcome["restored"]) == ["2-0", "3-0"]
    assert sources(outcome["restarted"]) == ["0-0", "1-0"]
    assert outcome["lost"] == []
    assert all(f"made under pandas {other}" in entry["why"] for entry in outcome["restarted"])
    for task, client in enumerate(counters):
        assert client.post("/get_counter_value", {}) == (
            200,
            json.dumps({"count": 10 * task}, separators=(",", ":")).encode(),
        )
    again = Client(http, gym.url(ASSISTANT))
    attempt = Episode.parse(outcome["restarted"][0]["target"]).attempt
    seed = {"_ng_task_index": 0, "_ng_rollout_index": 0, "_ng_attempt_index": attempt}
    assert again.post("/seed_session", seed)[0] == 200
    assert again.play(SESSION[:1])[0][0] == 200
