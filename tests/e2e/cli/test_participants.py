"""`gymckpt participants` against real processes."""

from __future__ import annotations

from tests.e2e.cli.processes import Processes, Run, until


def test_members_are_listed_with_who_they_are_and_what_they_hold(run: Run) -> None:
    """S01."""
    run.count("r1", 5)
    listed = run("participants", "--json")
    assert listed.code == 0
    assert listed.json["epoch"] == 1
    members = {member["participant"]: member for member in listed.json["members"]}
    assert list(members) == ["model/policy", "resources/counter"]
    counter = members["resources/counter"]
    assert counter["boot_id"] == run.counter.ready["boot_id"]
    assert counter["address"] == run.counter.address
    assert (counter["export"], counter["gate_fence"], counter["restore_fence"]) == ("NONE", None, None)
    assert (counter["capture"], counter["state_schemas"]) == ("EXPORTED", ["counter/1"])


def test_blockers_name_the_work_its_episode_and_its_age(run: Run, held: str) -> None:
    """C37, S03."""
    members = {m["participant"]: m for m in run("explain", "--json").json["members"]}
    assert members["model/policy"]["report"]["ready"] is True
    report = members["resources/counter"]["report"]
    assert (report["ready"], report["blocker_count"]) == (False, 1)
    (blocker,) = report["blockers"]
    assert (blocker["type"], blocker["episode"], blocker["subject"]) == ("tool_call", held, "/hold s1")
    assert blocker["age_seconds"] > 0
    human = run("explain").stdout
    assert "resources/counter: not ready, 1 blocker " in human
    assert f"  tool_call {held} /hold s1 for " in human


def test_a_member_that_does_not_answer_is_named_beside_the_others(run: Run) -> None:
    """X24."""
    run.counter.kill()
    members = {m["participant"]: m for m in run("explain", "--json").json["members"]}
    assert members["model/policy"]["error"] == ""
    assert members["resources/counter"]["report"] is None
    assert members["resources/counter"]["error"]


def test_an_expected_member_that_is_missing_is_named_and_no_checkpoint_is_taken(processes: Processes) -> None:
    """X31."""
    coordinator = processes.serve("--expect", "model/policy,resources/counter")
    run = Run(processes, coordinator, coordinator, processes.member("model", coordinator.address))

    assert run("participants", "--json").json["missing"] == ["resources/counter"]
    assert "missing: resources/counter; start it" in run("participants").stdout
    refused = run("checkpoint", "create", "step-1", "--json")

    assert (refused.code, refused.error["reason"]) == (1, "MEMBER_MISSING")
    assert "resources/counter" in refused.error["message"]
    assert run("checkpoint", "list", "--json").json == {"checkpoints": []}


def test_a_gate_that_opened_is_listed_as_open_once_the_member_was_heard_again(run: Run) -> None:
    """S01."""

    def all_open() -> bool:
        return all(member["gate"] == "OPEN" for member in run("participants", "--json").json["members"])

    until(all_open, "open gates")
