"""NeMo Gym's own tests of its servers end the same on servers that are participants, admitted by a running coordinator."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from environment_servers.single_agent_turn.app import SingleAgentTurnEnvironmentServer
from nemo_gym import PARENT_DIR

from gymckpt.errors import InvalidField
from gymckpt.nemo_gym import make_participant
from tests.nemo_gym.gym import Gym

HERE = Path(__file__).resolve().parent
LONGEST_SUITE = 180.0  # seconds
PASSED = "passed"


def outcomes(suite: str, report: Path, *words: str) -> dict[str, str]:
    """Runs the shipped suite in a process of its own; by test, how it ended."""
    settings = (
        report.parent / "pytest.ini"
    )  # of their own: an environment below this checkout would take ours, where warnings are errors
    settings.write_text("[pytest]\nasyncio_mode = auto\n")
    line = [sys.executable, "-m", "pytest", "-q", "-c", str(settings), "-p", "no:cacheprovider", *words]
    line += [f"--rootdir={report.parent}", f"--junit-xml={report}", str(Path(PARENT_DIR, suite, "tests"))]
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("GYMCKPT_", "PYTEST_"))}
    ran = subprocess.run(
        line,
        cwd=report.parent,
        env={**environment, "PYTHONPATH": str(HERE)},
        capture_output=True,
        text=True,
        timeout=LONGEST_SUITE,
        check=False,
    )
    assert ran.returncode in (0, 1), f"{suite} did not run: {ran.stdout[-3000:]}{ran.stderr[-3000:]}"
    cases = ET.parse(report).getroot().iter("testcase")
    return {
        f"{case.get('classname')}.{case.get('name')}": next((found.tag for found in case), PASSED) for case in cases
    }


def on_participants(suite: str, server: str, gym: Gym, report: Path) -> tuple[dict[str, str], int]:
    """By test, how it ended with the class of this name embedded, and how many participants the coordinator admitted in it."""
    counted, module = report.with_suffix(".counted"), f"{suite.replace('/', '.')}.app"
    gym.serve_checkpoints()
    plugin = ["-p", "suite_plugin", "--embed", f"{module}:{server}"]
    plugin += ["--coordinator", gym.coordinator, "--counted", str(counted)]
    ended = outcomes(suite, report, *plugin)
    return ended, int(counted.read_text())


@pytest.mark.parametrize(
    ("suite", "server", "fewest"),
    [
        ("resources_servers/workplace_assistant", "WorkbenchResourcesServer", 25),
        ("resources_servers/blackjack", "BlackjackEnv", 10),
        ("responses_api_agents/simple_agent", "SimpleAgent", 10),
    ],
)
def test_a_shipped_suite_ends_the_same_on_participants(
    suite: str, server: str, fewest: int, gym: Gym, tmp_path: Path
) -> None:
    """X23. What fails on the stock server (one test reads a file that is not in the package) has to fail alike.

    The handlers that a suite calls, and the apps that it builds, are those of participants; `suite_plugin` says how. At least `fewest` are admitted.
    """
    stock = outcomes(suite, tmp_path / "stock.xml")
    ended, admitted = on_participants(suite, server, gym, tmp_path / "embedded.xml")
    assert ended == stock
    assert list(stock.values()).count(PASSED) >= len(stock) - 1 > 10
    assert admitted >= fewest


def test_the_suite_of_an_environment_server_ends_the_same_with_the_block(gym: Gym, tmp_path: Path) -> None:
    """X23. Such a server takes no part, and its suite has scripted answers in place of servers: nothing is embedded, only the block is there."""
    suite = "environment_servers/single_agent_turn"
    stock = outcomes(suite, tmp_path / "stock.xml")
    ended, admitted = on_participants(suite, "SingleAgentTurnEnvironmentServer", gym, tmp_path / "embedded.xml")
    assert ended == stock
    assert (set(stock.values()), admitted) == ({PASSED}, 0)
    with pytest.raises(InvalidField, match="SingleAgentTurnEnvironmentServer is no"):
        make_participant(SingleAgentTurnEnvironmentServer)
