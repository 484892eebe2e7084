"""`gymckpt store verify` on whole and on damaged stores."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.cli.processes import Processes, Run, gymckpt


@pytest.fixture
def directory(processes: Processes, tmp_path: Path) -> Path:
    """A store that nobody serves any more, with checkpoint step-1 of r1, whose counter stands at 5."""
    coordinator = processes.serve("--store", str(tmp_path))
    members = [processes.member(who, coordinator.address) for who in ("counter", "model")]
    run = Run(processes, coordinator, *members)
    run.count("r1", 5)
    assert run("checkpoint", "create", "step-1").code == 0
    assert run("store", "verify").code == 0
    for process in (*members, coordinator):
        process.kill()
    return tmp_path


def damage(directory: Path, content: bytes) -> str:
    """Flips a bit of the one blob with this content; returns its name."""
    (path,) = [path for path in (directory / "blobs.v1").rglob("*.*") if path.read_bytes() == content]
    path.write_bytes(bytes([content[0] ^ 1, *content[1:]]))
    return path.name.replace(".", ":")


def test_a_whole_store_passes(directory: Path) -> None:
    verified = gymckpt("store", "verify", "--store", str(directory), "--json")
    assert (verified.code, verified.json["damage"]) == (0, [])
    assert verified.json["blobs_checked"] > 0
    assert gymckpt("store", "verify", "--store", str(directory)).stdout.endswith("bytes checked: no damage\n")


def test_a_damaged_blob_is_named_with_the_checkpoints_and_rollouts_that_need_it(directory: Path) -> None:
    """X08."""
    digest = damage(directory, b"5")

    found = gymckpt("store", "verify", "--store", str(directory), "--json")

    assert found.code == 4
    (entry,) = found.json["damage"]
    assert (entry["digest"], entry["checkpoint_ids"], entry["rollout_ids"]) == (digest, ["step-1"], ["r1"])
    human = gymckpt("store", "verify", "--store", str(directory))
    assert human.code == 4
    assert f"{digest}: missing" in human.stdout
    assert "  checkpoints: step-1\n  rollouts: r1\n" in human.stdout


def test_a_served_store_is_verified_through_its_coordinator_and_its_damage_stops_a_restore(
    directory: Path, processes: Processes
) -> None:
    """X08."""
    digest = damage(directory, b"5")
    coordinator = processes.serve("--store", str(directory))
    members = [processes.member(who, coordinator.address) for who in ("counter", "model")]
    run = Run(processes, coordinator, *members)

    failed = run("checkpoint", "restore", "step-1", "--json")
    assert (failed.code, failed.error["reason"]) == (4, "DAMAGED_BLOB")
    assert "store verify" in failed.error["next"]

    found = run("store", "verify", "--json")
    assert (found.code, [entry["digest"] for entry in found.json["damage"]]) == (4, [digest])
