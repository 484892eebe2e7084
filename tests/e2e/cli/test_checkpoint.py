"""`gymckpt checkpoint` against real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.e2e.cli.processes import LONGEST_COMMAND, REPOSITORY, Refused, Run, command, until


def test_a_checkpoint_is_created_listed_and_shown_with_what_the_caller_gave(run: Run, tmp_path: Path) -> None:
    """C01, S04."""
    run.count("r1", 5)
    state = tmp_path / "state"
    state.write_bytes(b"\x00rng\xff")

    words = ("--label", "step=1", "--label", "policy=v3", "--controller-state", str(state), "--json")
    created = run("checkpoint", "create", "step-1", *words)

    assert (created.code, created.stderr) == (0, "")
    assert created.json["checkpoint"]["stage"] == "PUBLISHED"
    assert created.json["checkpoint"]["episodes"] == 1
    assert created.json["waiting_for"] == []
    listed = run("checkpoint", "list", "--json").json["checkpoints"]
    assert [(c["checkpoint_id"], c["stage"]) for c in listed] == [("step-1", "PUBLISHED")]
    copy = tmp_path / "copy"
    shown = run("checkpoint", "show", "--controller-state", str(copy), "--json").json
    assert shown["episodes"] == ["r1"]
    assert shown["checkpoint"]["labels"] == {"policy": "v3", "step": "1"}
    assert shown["checkpoint"]["participants"] == ["model/policy", "resources/counter"]
    assert copy.read_bytes() == b"\x00rng\xff"


def test_every_answer_has_a_form_for_people(run: Run) -> None:
    run.count("r1", 5)
    created = run("checkpoint", "create", "step-1", "--label", "step=1")
    assert created.stdout.startswith("checkpoint step-1: PUBLISHED (epoch 1, sequence 1)\n  1 episode can continue")
    assert "step-1" in run("checkpoint", "list").stdout.splitlines()[1]
    assert "  continues r1\n" in run("checkpoint", "show", "step-1").stdout
    assert "resources/counter" in run("participants").stdout
    run.replace_counter()
    restored = run("checkpoint", "restore", "--restore-id", "again")
    assert restored.stdout == (
        "restore again of step-1: RESTORED, 1 restored, 0 restarted, 0 lost\n  continues as r1 -> r1-a1\n"
    )


def test_an_id_is_made_up_and_told_at_once_when_none_is_given(run: Run) -> None:
    ids = {run("checkpoint", "create").stderr.removeprefix("taking checkpoint ").strip() for _ in range(2)}
    listed = run("checkpoint", "list", "--json").json["checkpoints"]
    assert {c["checkpoint_id"] for c in listed} == ids
    assert len(ids) == 2


def test_after_kill_9_a_rollout_continues_as_the_next_attempt_and_the_old_one_is_refused(run: Run) -> None:
    """C09, V03, X13."""
    run.count("r1", 5)
    run.count("r2", 7, session="s2")
    assert run("checkpoint", "create", "step-1").code == 0
    run.call("/add?by=100", "r1")
    run.replace_counter()

    restored = run("checkpoint", "restore", "latest", "--restore-id", "again", "--json")

    assert (restored.code, restored.stderr) == (0, "")
    assert restored.json == {
        "restore_id": "again",
        "checkpoint_id": "step-1",
        "stage": "RESTORED",
        "restored": [
            {"source": "r1", "target": "r1-a1", "why": ""},
            {"source": "r2", "target": "r2-a1", "why": ""},
        ],
        "restarted": [],
        "lost": [],
    }
    assert run.call("/add?by=1", "r1-a1") == {"value": 6}
    assert run.call("/add?by=1", "r2-a1", "s2") == {"value": 8}
    with pytest.raises(Refused, match="409 STALE_ATTEMPT"):
        run.call("/add?by=1", "r1")


def test_only_the_named_episodes_are_restored(run: Run, tmp_path: Path) -> None:
    """C21."""
    run.count("r1", 5)
    run.count("r2", 7, session="s2")
    run("checkpoint", "create", "step-1")
    run.replace_counter()
    scope = tmp_path / "scope"
    scope.write_text("r2\n")

    restored = run("checkpoint", "restore", "step-1", "--episodes", f"@{scope}", "--json").json

    assert [entry["target"] for entry in restored["restored"]] == ["r2-a1"]


def test_a_checkpoint_that_is_not_ready_is_aborted_and_says_what_it_waits_for(run: Run, held: str) -> None:
    """C02, C37."""
    failed = run("checkpoint", "create", "step-1", "--prepare-timeout", "300ms", "--json")

    assert (failed.code, failed.stdout) == (1, "")
    assert failed.error["reason"] == "NOT_READY"
    assert held in failed.error["details"]["blockers"]
    assert "gymckpt explain" in failed.error["next"]
    shown = run("checkpoint", "show", "step-1", "--json").json["checkpoint"]
    assert shown["stage"] == "ABORTED"
    assert run.call("/seed_session", "r9", "s9") == {"value": 0}


def test_a_held_checkpoint_goes_on_with_the_same_command(run: Run, held: str) -> None:
    """C02."""
    words = ("checkpoint", "create", "step-1", "--prepare-timeout", "300ms", "--on-not-ready", "hold", "--json")
    first = run(*words)
    assert first.code == 5
    assert first.json["checkpoint"]["stage"] == "HELD"
    waiting = {entry["participant"]: entry["report"]["blockers"][0] for entry in first.json["waiting_for"]}
    assert (waiting["resources/counter"]["type"], waiting["resources/counter"]["episode"]) == ("tool_call", held)

    run.release()
    second = run(*words)

    assert (second.code, second.json["checkpoint"]["stage"]) == (0, "PUBLISHED")


def test_abort_ends_a_held_checkpoint_and_its_id_stays_refused(run: Run, held: str) -> None:
    """X04, C05."""
    create = ("checkpoint", "create", "step-1", "--prepare-timeout", "300ms", "--on-not-ready", "hold", "--json")
    assert run(*create).code == 5

    aborted = run("checkpoint", "abort", "step-1", "--why", "wrong weights", "--json")

    assert (aborted.code, aborted.json["stage"]) == (0, "ABORTED")
    assert "wrong weights" in aborted.json["why_aborted"]
    again = run(*create)
    assert (again.code, again.error["reason"]) == (1, "CHECKPOINT_ABORTED")
    assert run.call("/seed_session", "r9", "s9") == {"value": 0}


def test_abort_of_a_published_checkpoint_leaves_it_and_says_so(run: Run) -> None:
    """X25."""
    run.count("r1", 5)
    run("checkpoint", "create", "step-1", "--resume", "by-caller")
    aborted = run("checkpoint", "abort", "step-1", "--json")
    assert (aborted.code, aborted.json["stage"]) == (1, "PUBLISHED")
    assert run.call("/add?by=1", "r1", timeout=10.0) == {"value": 6}
    human = run("checkpoint", "abort", "step-1")
    assert (human.code, "published first and stands; every gate is open" in human.stdout) == (1, True)


def test_gates_stay_closed_until_the_caller_resumes(run: Run) -> None:
    """R01, X33."""
    run.count("r1", 5)
    created = run("checkpoint", "create", "step-1", "--resume", "by-caller", "--json")
    assert (created.code, created.json["checkpoint"]["stage"]) == (0, "PUBLISHED")
    with pytest.raises(TimeoutError):
        run.call("/add?by=100", "r1", timeout=1.0)

    resumed = run("checkpoint", "resume", "step-1", "--json")

    assert (resumed.code, resumed.json["stage"]) == (0, "PUBLISHED")
    # The call whose client went away while it was held never ran.
    assert run.call("/add?by=1", "r1") == {"value": 6}


def test_a_listed_episode_that_nobody_can_continue_is_warned_of_by_name(run: Run) -> None:
    run.count("r1", 5)
    words = ("checkpoint", "create", "step-1", "--episodes", "r1,r7", "--resume", "by-caller")

    human = run(*words)
    program = run(*words, "--json")

    assert human.code == 0
    assert human.stderr.startswith("warning: 1 episode lost, not in the checkpoint: r7: ")
    assert "gates stay closed until `gymckpt checkpoint resume step-1`, at most 60 s\n" in human.stdout
    (lost,) = program.json["lost"]
    assert (program.code, lost["episode"], lost["why"] in human.stderr) == (0, "r7", True)


def test_resume_repeats_without_harm(run: Run) -> None:
    """C05."""
    run("checkpoint", "create", "step-1")
    resumed = run("checkpoint", "resume", "step-1", "--json")
    assert (resumed.code, resumed.json["stage"]) == (0, "PUBLISHED")


def test_the_same_arguments_repeat_the_outcome_and_others_are_refused(run: Run) -> None:
    """C08, C60."""
    first = run("checkpoint", "create", "step-1", "--json").json["checkpoint"]
    again = run("checkpoint", "create", "step-1", "--json").json["checkpoint"]
    assert (again["sequence"], again["manifest"]) == (first["sequence"], first["manifest"])
    other = run("checkpoint", "create", "step-1", "--full", "--json")
    assert (other.code, other.error["reason"]) == (1, "ARGUMENT_CONFLICT")


def test_an_interrupt_ends_only_the_waiting_and_the_same_command_joins_again(run: Run, held: str) -> None:
    """C02."""
    words = ("--coordinator", run.coordinator.address, "checkpoint", "create", "step-1")
    waiting = subprocess.Popen(
        command(*words), cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    until(lambda: bool(run("checkpoint", "list", "--json").json["checkpoints"]), "the checkpoint")
    waiting.send_signal(signal.SIGINT)
    stdout, stderr = waiting.communicate(timeout=LONGEST_COMMAND)

    assert (waiting.returncode, stdout) == (130, "")
    assert "only the waiting ended" in stderr
    assert "Traceback" not in stderr
    assert run("checkpoint", "show", "step-1", "--json").json["checkpoint"]["stage"] == "PREPARING"
    run.release()
    joined = run("checkpoint", "create", "step-1", "--json")
    assert (joined.code, joined.json["checkpoint"]["stage"]) == (0, "PUBLISHED")


def test_progress_goes_to_standard_error_when_that_is_a_terminal(run: Run) -> None:
    words = ("--coordinator", run.coordinator.address, "--json", "checkpoint", "create", "step-1")
    screen, terminal = os.openpty()
    with open(screen, "rb", buffering=0) as shown:
        creating = subprocess.Popen(command(*words), cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=terminal, text=True)
        os.close(terminal)
        stdout, _ = creating.communicate(timeout=LONGEST_COMMAND)
        drawn = shown.read(65536)
    assert creating.returncode == 0
    assert json.loads(stdout)["checkpoint"]["stage"] == "PUBLISHED"
    assert b"step-1" in drawn
