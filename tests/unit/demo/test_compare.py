"""The comparison of a run that was cut with one that was not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from servers.demo import compare
from servers.demo.rollouts import Result, Tasks
from servers.resources.workplace_assistant.tables import Tables
from servers.responses_api import JsonObject

WORKPLACE = "workplace_assistant"


@pytest.fixture(scope="module")
def pristine() -> Tables:
    return Tasks.builtin().pristine()


def line(what: str, rollout: str = "r", attempt: int = 0, **noted: Any) -> dict[str, Any]:
    given = {"server": WORKPLACE, "pid": 1, "session": "s", "call_id": "c", "arguments": "d"}
    return {**given, "rollout": rollout, "attempt": attempt, "what": what, **noted}


def asks(name: str, **arguments: object) -> JsonObject:
    return {"type": "function_call", "call_id": "c", "name": name, "arguments": json.dumps(arguments)}


def answers(output: str) -> JsonObject:
    return {"type": "function_call_output", "call_id": "c", "output": output}


def results(*output: JsonObject, reward: float = 1.0) -> dict[str, Result]:
    return {"r": Result(list(output), reward)}


def test_a_call_is_repeated_when_it_was_made_more_often_over_all_attempts() -> None:
    reference = [line("add"), line("add"), line("get")]
    assert compare.repeated_calls([line("add"), line("add", attempt=1), line("get")], reference) == 0
    assert compare.repeated_calls([*reference, line("add", attempt=1)], reference) == 1


@pytest.mark.parametrize("other", [{"call_id": "other"}, {"arguments": "other"}, {"rollout": "other"}])
def test_another_call_is_a_call_too_many(other: dict[str, Any]) -> None:
    assert compare.repeated_calls([line("add", **other)], [line("add")]) == 1


@pytest.mark.parametrize("other", [line("verify"), line("seed_session"), line("add", server="agent")])
def test_only_calls_of_tools_are_counted_as_repeated(other: dict[str, Any]) -> None:
    assert compare.repeated_calls([other, other], []) == 0


def test_a_conversation_must_begin_with_what_the_checkpoint_holds() -> None:
    seen = results(asks("add"), answers("1"))
    assert compare.different_prefixes({"r": [asks("add")]}, seen) == 0
    assert compare.different_prefixes({"r": [asks("get")]}, seen) == 1
    assert compare.different_prefixes({"r": [asks("add"), answers("1"), asks("add")]}, seen) == 1


def test_a_rollout_that_never_finished_has_another_prefix() -> None:
    assert compare.different_prefixes({"r": [asks("add")]}, {}) == 1


@pytest.mark.parametrize(
    ("seen", "different"),
    [
        ([asks("add"), answers("1")], 0),
        ([asks("add"), answers("2")], 1),
        ([asks("add")], 1),
        ([asks("add"), answers("1"), asks("add")], 1),
        ([], 2),
    ],
)
def test_every_item_that_is_not_that_of_the_reference_differs(seen: Sequence[JsonObject], different: int) -> None:
    assert compare.different_outputs(results(*seen), results(asks("add"), answers("1"))) == different


def test_a_missing_rollout_differs_in_every_item_and_in_its_reward() -> None:
    assert compare.different_outputs({}, results(asks("add"), answers("1"))) == 2
    assert compare.different_rewards({}, results()) == 1
    assert compare.different_rewards(results(reward=0.5), results()) == 1
    assert compare.different_rewards(results(), results()) == 0


@pytest.mark.parametrize(
    ("log", "different"),
    [
        ([line("verify", tables="a")], 0),
        ([line("verify", attempt=1, tables="a")], 0),
        ([line("verify", tables="b")], 1),
        ([line("verify", tables="a"), line("verify", attempt=1, tables="a")], 1),
        ([line("verify")], 1),
        ([], 1),
    ],
)
def test_tables_are_the_same_when_one_verification_saw_those_of_the_reference(
    log: list[dict[str, Any]], different: int
) -> None:
    assert compare.different_tables(log, [line("verify", tables="a")], ["r"]) == different


def test_tables_that_nobody_noted_are_not_the_same() -> None:
    assert compare.different_tables([line("verify")], [line("verify")], ["r"]) == 1


def test_a_read_depends_on_the_restored_state_when_it_shows_a_change_from_before_the_cut(pristine: Tables) -> None:
    email_id = str(pristine.emails["email_id"].iloc[0])
    delete = asks("email_delete_email", email_id=email_id)
    read = asks("email_get_email_information_by_id", email_id=email_id, field="subject")
    other = asks(
        "email_get_email_information_by_id", email_id=str(pristine.emails["email_id"].iloc[1]), field="subject"
    )
    output = [delete, answers("x"), read, answers("x"), other, answers("x")]
    cut_after_the_change = compare.Continuation(pristine, output, answered=1)
    assert cut_after_the_change.changed
    assert cut_after_the_change.results_after == 2
    assert cut_after_the_change.reads_of_changed_state == 1
    cut_before_the_change = compare.Continuation(pristine, output, answered=0)
    assert not cut_before_the_change.changed
    assert cut_before_the_change.reads_of_changed_state == 0


def test_a_change_is_no_read_although_its_answer_depends_on_the_change_before(pristine: Tables) -> None:
    task = {
        "task_name": "t",
        "assigned_to_email": "a@b.c",
        "list_name": "Backlog",
        "due_date": "2023-12-01",
        "board": "Design",
    }
    create = asks("project_management_create_task", **task)
    assert (
        compare.Continuation(pristine, [create, answers("1"), create, answers("2")], answered=1).reads_of_changed_state
        == 0
    )


def test_the_mean_reward_of_nothing_is_zero() -> None:
    assert compare.mean_reward({}) == 0.0
    assert compare.mean_reward({"a": Result([], 1.0), "b": Result([], 0.0)}) == 0.5
