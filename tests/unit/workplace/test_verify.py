"""The reward."""

from __future__ import annotations

import json
from typing import Any

import pytest

from servers.resources.workplace_assistant.synthetic import synthetic_tables
from servers.resources.workplace_assistant.tables import Tables
from servers.resources.workplace_assistant.verify import reward
from tests.unit.workplace.sameness import differences

Call = tuple[str, dict[str, Any]]

MOVE: Call = (
    "project_management_update_task",
    {"task_id": "00000007", "field": "task_name", "new_value": "Paint the Roof"},
)
DROP: Call = ("email_delete_email", {"email_id": "00000007"})
ADD: Call = (
    "customer_relationship_manager_add_customer",
    {"customer_name": "Edda Ø", "assigned_to_email": "x@y", "status": "Lead"},
)
AVERAGE: Call = ("analytics_get_average_session_duration", {})


def truth(*calls: Call) -> list[dict[str, Any]]:
    return [{"name": name, "arguments": json.dumps(arguments)} for name, arguments in calls]


def output(*calls: Call) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    for item in truth(*calls):
        items += [item | {"type": "function_call", "call_id": "c"}, {"type": "function_call_output", "output": "{}"}]
    return [*items, {"type": "message", "content": []}]


@pytest.mark.parametrize(
    ("predicted", "expected"),
    [
        ([MOVE, DROP, ADD], 1.0),
        ([DROP, MOVE, ADD], 1.0),
        ([AVERAGE, MOVE, DROP, ADD], 1.0),
        ([MOVE, DROP, (ADD[0], ADD[1] | {"customer_phone": None, "notes": ""})], 1.0),
        ([(MOVE[0], MOVE[1] | {"new_value": "paint the roof"}), DROP, ADD], 1.0),
        ([MOVE, DROP], 0.0),
        ([], 0.0),
        ([MOVE, DROP, ADD, ADD], 0.0),
        ([(MOVE[0], MOVE[1] | {"new_value": "paint the door"}), DROP, ADD], 0.0),
        ([MOVE, DROP, (ADD[0], ADD[1] | {"customer_phone": "None"})], 0.0),
        ([MOVE, DROP, (ADD[0], ADD[1] | {"customer_phone": "1"})], 0.0),
    ],
)
def test_only_the_final_tables_count(predicted: list[Call], expected: float, pristine: Tables) -> None:
    """S13."""
    assert reward(pristine, truth(MOVE, DROP, ADD), output(*predicted)) == expected


def test_nothing_to_do_and_nothing_done_is_right(pristine: Tables) -> None:
    assert reward(pristine, [], []) == 1.0


def test_arguments_that_are_no_json_object_change_nothing(pristine: Tables) -> None:
    bad = [{"type": "function_call", "name": DROP[0], "arguments": text} for text in ("{", "[1]", "", None)]
    assert reward(pristine, [], bad) == 1.0
    assert reward(pristine, truth(DROP), bad) == 0.0


def test_the_tables_given_stay_as_they_are() -> None:
    """X02."""
    given = synthetic_tables()
    reward(given, truth(MOVE, DROP, ADD), output(AVERAGE, MOVE))
    assert differences(given, synthetic_tables()) == []
