"""`gymckpt serve` as a process: ready line, signals, a store that outlives it, a successor."""

from __future__ import annotations

import os
from pathlib import Path

from tests.e2e.cli.processes import Processes, Run, gymckpt


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


def test_a_successor_waits_for_members_that_a_person_says_are_gone_no_longer(
    processes: Processes, tmp_path: Path
) -> None:
    """X07."""
    first = processes.serve("--store", str(tmp_path / "store"))
    stopped = processes.member("model", first.address)
    os.kill(stopped.popen.pid, 19)  # SIGSTOP: neither dead nor answering
    first.kill()

    second = processes.serve("--store", str(tmp_path / "store"), "--gone", "model/policy")

    assert second.ready["epoch"] == 2
    assert gymckpt("--coordinator", second.address, "participants", "--json").json["epoch"] == 2


def test_a_second_coordinator_on_the_same_directory_is_refused(processes: Processes, tmp_path: Path) -> None:
    processes.serve("--store", str(tmp_path))
    second = gymckpt("serve", "--store", str(tmp_path), "--listen", "127.0.0.1:0", "--json")
    assert (second.code, second.stdout, second.error["reason"]) == (3, "", "STORE_UNAVAILABLE")
    assert str(tmp_path) in second.error["message"]


def test_a_port_that_is_taken_is_refused_by_name(processes: Processes) -> None:
    first = processes.serve()
    second = gymckpt("serve", "--store", "memory:", "--listen", first.address)
    assert second.code == 3
    assert first.address in second.stderr
