"""A store whose files were flipped, cut or deleted behind its back: the damage is named, nothing of it is restored, and what is whole restores."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.cli.processes import Processes, Run, gymckpt


def flip(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(bytes([content[0] ^ 1, *content[1:]]))


def cut_short(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


DAMAGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "r1": (flip, "DAMAGED_BLOB"),
    "r2": (cut_short, "DAMAGED_BLOB"),
    "r3": (Path.unlink, "BLOB_NOT_FOUND"),
}
"""What is done to the state of each rollout in `newer`, and how its restore is refused."""


@pytest.fixture
def processes() -> Iterator[Processes]:
    """Starts processes; all end with the test."""
    running = Processes()
    try:
        yield running
    finally:
        running.end()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with `older`, where r1, r2 and r3 count 11, 12 and 13, and `newer`, where they count 111, 112 and 113. Every process is dead."""
    store = tmp_path_factory.mktemp("store")
    running = Processes()
    try:
        run = started(running, store)
        for number in (1, 2, 3):
            run.count(f"r{number}", 10 + number, f"s{number}")
        assert run("checkpoint", "create", "older").code == 0
        for number in (1, 2, 3):
            run.call("/add?by=100", f"r{number}", f"s{number}")
        assert run("checkpoint", "create", "newer").code == 0
        for process in (run.counter, run.model, run.coordinator):
            process.kill()
    finally:
        running.end()
    return store


@pytest.fixture
def store(whole: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    return Path(shutil.copytree(whole, tmp_path / "store"))


def started(processes: Processes, store: Path) -> Run:
    coordinator = processes.serve("--store", str(store))
    return Run(processes, coordinator, *(processes.member(who, coordinator.address) for who in ("counter", "model")))


def blob_with(store: Path, content: bytes) -> tuple[Path, str]:
    """The file of the one blob with this content, and the blob's name."""
    (file,) = [file for file in (store / "blobs.v1").rglob("*.*") if file.read_bytes() == content]
    return file, file.name.replace(".", ":")


def test_damage_is_named_and_never_restored_from(processes: Processes, store: Path) -> None:
    """X08, X05, C10, X39: the blob, the checkpoint and the rollouts; nothing is installed, and the checkpoint before it restores."""
    digests = {}
    for rollout, (damage, _) in DAMAGE.items():
        file, digests[rollout] = blob_with(store, f"11{rollout[1]}".encode())
        damage(file)
    run = started(processes, store)
    for rollout, (_, reason) in DAMAGE.items():
        refused = run("checkpoint", "restore", "newer", "--episodes", rollout, "--json")
        assert (refused.code, refused.error["reason"]) == (4, reason)
        details = refused.error["details"]
        named = (digests[rollout], "newer", rollout)
        assert (details["digest"], details["checkpoint_id"], details["rollouts"]) == named
        assert all(name in refused.error["message"] for name in named)
    members = run("explain", "--json").json["members"]
    assert [member["report"]["counts"].get("sessions", 0) for member in members] == [0, 0]

    verified = run("store", "verify", "--json")
    assert verified.code == 4
    found = {entry["digest"]: (entry["checkpoint_ids"], entry["rollout_ids"]) for entry in verified.json["damage"]}
    assert found == {digests[rollout]: (["newer"], [rollout]) for rollout in DAMAGE}

    restored = run("checkpoint", "restore", "older", "--json")
    assert restored.code == 0, restored.stderr
    attempts = {entry["source"]: entry["target"] for entry in restored.json["restored"]}
    assert attempts == {rollout: f"{rollout}-a2" for rollout in DAMAGE}
    assert run.call("/add?by=1", attempts["r1"], "s1") == {"value": 12}
    assert run("checkpoint", "create", "after").code == 0


def test_a_manifest_that_is_lost_is_named_with_everyone_in_its_checkpoint(processes: Processes, store: Path) -> None:
    """X08: below a manifest nothing is known but whose checkpoint it is."""
    run = started(processes, store)
    digest = run("checkpoint", "show", "newer", "--json").json["checkpoint"]["manifest"]
    run.coordinator.kill()
    (file,) = (store / "blobs.v1").rglob(digest.replace(":", "."))
    file.unlink()

    verified = gymckpt("store", "verify", "--store", str(store), "--json")
    assert verified.code == 4
    (found,) = verified.json["damage"]
    assert (found["digest"], found["checkpoint_ids"]) == (digest, ["newer"])
    run = started(processes, store)
    listed = run("checkpoint", "list", "--json")
    assert listed.code == 0
    told = {
        c["checkpoint_id"]: (c["stage"], c["episodes"], digest in c["why_unreadable"])
        for c in listed.json["checkpoints"]
    }
    assert told == {"newer": ("PUBLISHED", 0, True), "older": ("PUBLISHED", 3, False)}
    assert listed.stderr.startswith("warning: nothing can be restored from newer; see 'Store damaged")
    explained = run("explain", "--json")
    assert (explained.code, explained.error["details"]["checkpoint_id"]) == (4, "newer")
    assert (len(explained.json["members"]), explained.json["recovery"]) == (2, None)
    refused = run("checkpoint", "restore", "newer", "--json")
    assert (refused.code, refused.error["details"]["checkpoint_id"]) == (4, "newer")
    assert digest in refused.error["message"]
    assert run("checkpoint", "restore", "older", "--json").code == 0


def test_a_restore_from_damage_stops_nothing_that_lives(processes: Processes, store: Path) -> None:
    """X08, X14, X28: it is refused before anybody is asked to stop, and what it was to replace goes on as the attempt that it was."""
    run = started(processes, store)
    run.count("live", 5, "s-live")
    run.count("r1", 1, "s1")
    assert run("checkpoint", "create", "mixed").code == 0
    file, digest = blob_with(store, b"5")
    flip(file)

    refused = run("checkpoint", "restore", "mixed", "--json")
    assert (refused.code, refused.error["reason"]) == (4, "DAMAGED_BLOB")
    details = refused.error["details"]
    assert details == {"digest": digest, "checkpoint_id": "mixed", "rollouts": "live"}
    assert all(value in refused.error["message"] for value in details.values())

    assert run.call("/add?by=1", "live", "s-live") == {"value": 6}
    assert run.call("/add?by=1", "r1", "s1") == {"value": 2}
    recovery = run("explain", "--json").json["recovery"]
    assert (recovery["checkpoint_id"], recovery["recoverable"]) == ("mixed", 2)
    assert {trouble["episode"] for trouble in recovery["troubles"]}.isdisjoint({"live", "r1"})
    assert run("checkpoint", "create", "after", "--full").code == 0
    restored = run("checkpoint", "restore", "after", "--json").json["restored"]
    assert [entry["target"] for entry in restored] == ["live-a1", "r1-a1"]
    assert run.call("/add?by=1", "live-a1", "s-live") == {"value": 7}
