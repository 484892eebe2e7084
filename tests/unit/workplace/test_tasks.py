"""Built-in tasks and the calls that a scripted policy plays for a task."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from servers.resources.workplace_assistant.plan import PlannedCall, plan
from servers.resources.workplace_assistant.synthetic import synthetic_tables
from servers.resources.workplace_assistant.tables import Tables, load_tables
from servers.resources.workplace_assistant.tasks import as_jsonl, builtin_tasks
from servers.resources.workplace_assistant.tools import call, schemas
from servers.resources.workplace_assistant.verify import reward


@pytest.fixture(scope="module")
def tasks(pristine: Tables) -> list[dict[str, Any]]:
    return builtin_tasks(pristine)


def as_output(calls: list[PlannedCall]) -> list[dict[str, Any]]:
    return [{"type": "function_call", "name": item.name, "arguments": item.arguments} for item in calls]


def test_there_are_52_different_tasks_over_all_toolkits(tasks: list[dict[str, Any]]) -> None:
    requests = [task["responses_create_params"]["input"][1]["content"] for task in tasks]
    truths = [json.dumps(task["ground_truth"]) for task in tasks]
    assert len(tasks) == len(set(requests)) == len(set(truths)) == 52
    assert [task["id"] for task in tasks] == list(range(52))
    kits = ("email", "calendar", "analytics", "project_management", "customer_relationship_manager", "multi_domain")
    assert {task["category"] for task in tasks[:13]} == {f"workplace_assistant_{kit}" for kit in kits}


def test_a_task_row_has_the_shape_that_collectors_read(tasks: list[dict[str, Any]]) -> None:
    for task in tasks:
        assert list(task) == ["id", "responses_create_params", "ground_truth", "category", "environment_name"]
        assert task["responses_create_params"]["tools"] == schemas()
        assert [message["role"] for message in task["responses_create_params"]["input"]] == ["system", "user"]
    assert [json.loads(line) for line in as_jsonl(tasks).splitlines()] == tasks


def test_the_tasks_are_always_the_same(tasks: list[dict[str, Any]]) -> None:
    """X15: a replacement gets the same task from the same input."""
    assert builtin_tasks(synthetic_tables()) == tasks


def test_playing_the_ground_truth_earns_the_reward_and_less_does_not(
    pristine: Tables, tasks: list[dict[str, Any]]
) -> None:
    """S13: all rewards 1.0, and a lost change costs it."""
    for task in tasks:
        output = [item | {"type": "function_call"} for item in task["ground_truth"]]
        assert reward(pristine, task["ground_truth"], output) == 1.0
        assert reward(pristine, task["ground_truth"], output[:-1]) == 0.0


def test_most_tasks_have_three_changes_and_eight_calls(tasks: list[dict[str, Any]]) -> None:
    assert all(3 <= len(task["ground_truth"]) <= 5 for task in tasks)
    assert all(8 <= len(plan(task)) <= 20 for task in tasks)


def test_a_plan_reads_around_each_change_and_its_reads_change_nothing(
    pristine: Tables, tasks: list[dict[str, Any]]
) -> None:
    """S13: the reward of a plan does not depend on its reads."""
    for task in tasks:
        tables = pristine.copy()
        calls = plan(task)
        played = [{"name": item.name, "arguments": item.arguments} for item in calls if item.changes]
        assert played == task["ground_truth"]
        for item in calls:
            before = tables.copy()
            answer = call(tables, item.name, json.loads(item.arguments))
            assert not str(answer).startswith("Error")
            unchanged = all(
                ours is theirs for (_, ours), (_, theirs) in zip(tables.items(), before.items(), strict=True)
            )
            assert unchanged is not item.changes
        assert reward(pristine, task["ground_truth"], as_output(calls)) == 1.0


def test_a_plan_shows_each_change_to_its_reader(pristine: Tables, tasks: list[dict[str, Any]]) -> None:
    """P03: lost state shows in answers before it shows in the reward."""
    told = 0
    for task in tasks:
        tables = pristine.copy()
        answers = [call(tables, item.name, json.loads(item.arguments)) for item in plan(task)]
        on_pristine = [call(pristine.copy(), item.name, json.loads(item.arguments)) for item in plan(task)]
        told += answers != on_pristine
    assert told >= 48


def test_a_plan_needs_the_row_alone_and_is_always_the_same(tasks: list[dict[str, Any]]) -> None:
    for task in tasks:
        bare = {"ground_truth": task["ground_truth"]}
        assert plan(bare) == plan(task)


def test_a_ground_truth_that_only_reads_has_no_plan() -> None:
    task = {"ground_truth": [{"name": "analytics_total_visits_count", "arguments": "{}"}]}
    with pytest.raises(ValueError, match="'analytics_total_visits_count'"):
        plan(task)


def test_plans_of_recorded_tasks_earn_the_reward(shared: Path) -> None:
    """S13."""
    folder = shared / "data" / "nemo_gym" / "workplace_assistant"
    tables = load_tables(folder / "csv")
    rows = [json.loads(line) for line in (folder / "example.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(rows) == 5
    for task in rows:
        assert reward(tables, task["ground_truth"], as_output(plan(task))) == 1.0
