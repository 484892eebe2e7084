"""`gymckpt serve` as a process: ready line, signals, a store that outlives it, a successor."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from tests.e2e.cli.processes import LONGEST_COMMAND, REPOSITORY, Processes, Run, command, gymckpt


def test_the_ready_line_names_the_address_and_sigterm_ends_it_cleanly(processes: Processes) -> None:
    coordinator = processes.serve()
    assert coordinator.ready == {
        "address": coordinator.address,
        "epoch": 1,
        "store": "memory:",
        "pid": coordinator.popen.pid,
    }
    assert coordinator.address.startswith("127.0.0.1:")
    assert gymckpt("--coordinator", coordinator.address, "participants").code == 0

    code, said = coordinator.terminate()

    assert code == 0
    assert "Traceback" not in said


def test_checkpoints_in_a_directory_outlive_the_coordinator(processes: Processes, tmp_path: Path) -> None:
    """X07, S04."""
    first = processes.serve("--store", str(tmp_path / "store"))
    members = [processes.member(who, first.address) for who in ("counter", "model")]
    run = Run(processes, first, *members)
    run.count("r1", 5)
    assert run("checkpoint", "create", "step-1").code == 0
    first.kill()

    # The same address again, so that the members that still run find it.
    second = processes.serve("--store", str(tmp_path / "store"), "--listen", first.address)

    assert second.ready["epoch"] == 2
    assert run("checkpoint", "show", "latest", "--json").json["episodes"] == ["r1"]
    assert run("checkpoint", "create", "step-2", "--json").json["checkpoint"]["epoch"] == 2


@pytest.fixture
def unsure(processes: Processes, tmp_path: Path) -> str:
    """A store whose coordinator is dead, with a member that is neither dead nor answering."""
    store = str(tmp_path / "store")
    coordinator = processes.serve("--store", store)
    member = processes.member("model", coordinator.address)
    member.popen.send_signal(signal.SIGSTOP)
    coordinator.kill()
    return store


def test_a_successor_does_not_wait_for_a_member_that_a_person_says_is_gone(processes: Processes, unsure: str) -> None:
    """X07."""
    second = processes.serve("--store", unsure, "--gone", "model/policy")

    assert second.ready["epoch"] == 2
    assert gymckpt("--coordinator", second.address, "participants", "--json").json["epoch"] == 2


def test_a_successor_that_waits_for_a_member_says_so_and_ends_cleanly_on_sigterm(unsure: str) -> None:
    """X07."""
    words = command("serve", "--store", unsure)
    second = subprocess.Popen(words, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert second.stderr is not None
    assert any("waiting for" in line and "model/policy" in line for line in second.stderr)
    second.terminate()
    stdout, stderr = second.communicate(timeout=LONGEST_COMMAND)
    assert (second.returncode, stdout) == (0, "")
    assert "Traceback" not in stderr


def test_a_second_coordinator_on_the_same_directory_is_refused(processes: Processes, tmp_path: Path) -> None:
    processes.serve("--store", str(tmp_path))
    second = gymckpt("serve", "--store", str(tmp_path), "--listen", "127.0.0.1:0", "--json")
    assert (second.code, second.stdout, second.error["reason"]) == (3, "", "STORE_UNAVAILABLE")
    assert str(tmp_path) in second.error["message"]
    assert "stop that process, or name another directory" in second.error["next"]
    verified = gymckpt("store", "verify", "--store", str(tmp_path), "--json")
    assert (verified.code, verified.error["next"]) == (3, second.error["next"])


def test_a_store_that_is_no_directory_is_refused_with_what_to_look_at(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refused = gymckpt("serve", "--store", str(tmp_path / "file"), "--json")
    assert (refused.code, "the store's directory" in refused.error["next"]) == (3, True)


def test_a_port_that_is_taken_is_refused_by_name(processes: Processes) -> None:
    first = processes.serve()
    second = gymckpt("serve", "--store", "memory:", "--listen", first.address)
    assert second.code == 3
    assert f"cannot listen on {first.address}: another process listens there" in second.stderr
    assert "choose another --listen" in second.stderr
    assert ("GRPC_VERBOSITY" in second.stderr, "Traceback" in second.stderr) == (False, False)
