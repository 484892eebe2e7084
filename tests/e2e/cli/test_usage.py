"""What goes wrong before or beside the protocol: usage, invalid fields, nobody there, a missing extra."""

from __future__ import annotations

import socket
import subprocess
import sys
from importlib.metadata import entry_points

import pytest

from tests.e2e.cli.processes import REPOSITORY, Run, gymckpt


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("checkpoint", "create", "--prepare-timeout", "soon"), "got 'soon'"),
        (("checkpoint", "create", "--prepare-timeout", "2h"), "prepare_timeout must be more than 0 and at most 3600"),
        (("checkpoint", "create", "latest"), "checkpoint_id must not be 'latest'"),
        (("checkpoint", "create", "a/b"), "got 'a/b'"),
        (("checkpoint", "create", "--episodes", ""), "'' names no episode"),
        (("checkpoint", "restore", "--episodes", ""), "'' names no episode"),
        (("checkpoint", "create", "--label", "x"), "key=value"),
        (("checkpoint", "create", "--on-not-ready", "wait"), "'wait' is not one of 'abort', 'hold'"),
        (("checkpoint", "restore", "step-1", "--episodes", "r 1"), "got 'r 1'"),
        (("--coordinator", "nowhere", "participants"), "must be host:port"),
        (("store", "verify", "--store", "/nowhere"), "'/nowhere' holds no artifact store"),
        (("checkpoint", "create", "--controller-state", "/nowhere"), "/nowhere"),
    ],
)
def test_a_wrong_word_is_refused_by_name_before_anything_is_sent(words: tuple[str, ...], message: str) -> None:
    """X20."""
    refused = gymckpt("--coordinator", "127.0.0.1:1", *words)
    assert (refused.code, refused.stdout) == (2, "")
    assert message in refused.stderr


def test_a_command_that_needs_a_coordinator_says_how_to_name_one() -> None:
    refused = gymckpt("participants", "--json")
    assert refused.code == 2
    assert "GYMCKPT_COORDINATOR" in refused.error["message"]


def test_a_coordinator_that_is_not_there_is_told_apart_from_a_refusal() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
    for words in (("participants",), ("checkpoint", "create", "step-1"), ("store", "verify")):
        failed = gymckpt("--coordinator", address, *words)
        assert (failed.code, failed.stdout) == (3, "")
        assert "next: " in failed.stderr
        assert "Traceback" not in failed.stderr


def test_the_environment_names_the_coordinator_and_an_option_anywhere_wins(run: Run) -> None:
    address = run.coordinator.address
    assert gymckpt("participants", GYMCKPT_COORDINATOR=address).code == 0
    assert gymckpt("participants", "--coordinator", address, GYMCKPT_COORDINATOR="127.0.0.1:1").code == 0
    wrong = gymckpt("participants", GYMCKPT_COORDINATOR="nowhere")
    assert (wrong.code, "GYMCKPT_COORDINATOR must be host:port" in wrong.stderr) == (2, True)


def test_an_unknown_checkpoint_is_a_refusal_with_its_reason_and_the_next_step(run: Run) -> None:
    refused = run("checkpoint", "show", "nowhere")
    assert (refused.code, refused.stdout) == (1, "")
    assert "'nowhere'" in refused.stderr
    assert "[CHECKPOINT_NOT_FOUND]" in refused.stderr
    assert "next: `gymckpt checkpoint list` shows what there is" in refused.stderr


@pytest.mark.parametrize("name", ["click", "rich"])
def test_without_the_extra_the_message_says_which_one_is_missing(name: str) -> None:
    code = f"import sys; sys.modules[{name!r}] = None; from gymckpt.cli.main import main; main(['participants'])"
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 2
    assert ended.stderr == (
        f"gymckpt: the command line needs {name}, which the extra [cli] brings: pip install 'gymckpt[cli]'\n"
    )


def test_the_console_script_is_the_command_line() -> None:
    (script,) = entry_points(group="console_scripts", name="gymckpt")
    assert script.value == "gymckpt.cli.main:main"
