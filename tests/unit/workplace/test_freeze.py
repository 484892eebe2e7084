"""What was frozen stays, whatever tool runs afterwards."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from servers.resources.workplace_assistant.codec import PartsCache, encode, freeze
from servers.resources.workplace_assistant.synthetic import synthetic_tables
from servers.resources.workplace_assistant.tables import Tables
from servers.resources.workplace_assistant.tools import TOOLS, call
from tests.unit.workplace.sameness import differences

ID = {"email_id": "00000011", "event_id": "00000011", "task_id": "00000011", "customer_id": "00000011"}
VALUES = ID | {
    "assigned_to_email": "ines.varga@lindenquay.example",
    "board": "Design",
    "body": "b",
    "customer_name": "ö",
    "due_date": "2023-12-01",
    "duration": "30",
    "event_name": "e",
    "event_start": "2023-12-01 10:00:00",
    "list_name": "Backlog",
    "new_value": "Edda",
    "participant_email": "p@x",
    "plot_type": "bar",
    "recipient": "a@b.example",
    "status": "Lead",
    "subject": "s",
    "task_name": "t",
    "time_max": "2023-11-01",
    "time_min": "2023-10-01",
    "value_to_plot": "total_visits",
    "visitor_id": "0001",
}
FIELD = {"customer_relationship_manager": "customer_name", "project_management": "task_name", "calendar": "event_name"}
CHANGING = {
    "email_send_email",
    "email_delete_email",
    "email_forward_email",
    "email_reply_email",
    "calendar_create_event",
    "calendar_delete_event",
    "calendar_update_event",
    "analytics_create_plot",
    "analytics_get_average_session_duration",
    "project_management_create_task",
    "project_management_delete_task",
    "project_management_update_task",
    "customer_relationship_manager_add_customer",
    "customer_relationship_manager_update_customer",
    "customer_relationship_manager_delete_customer",
}


def required_arguments(name: str) -> dict[str, Any]:
    toolkit, method = TOOLS[name]
    values = VALUES | {"field": FIELD.get(toolkit.prefix, "subject")}
    return {argument: values[argument] for argument in toolkit.schema(method)["parameters"]["required"]}


@pytest.mark.parametrize("name", TOOLS)
def test_no_tool_changes_what_was_frozen_before(name: str, pristine: Tables) -> None:
    """X02: what is exported is the state at the cut, however much the live state has changed since."""
    live = pristine.copy()
    call(
        live,
        "customer_relationship_manager_add_customer",
        required_arguments("customer_relationship_manager_add_customer"),
    )
    frozen, parts = freeze(live), encode(live)
    assert not str(call(live, name, required_arguments(name))).startswith("Error")
    assert encode(frozen) == parts
    assert bool(differences(live, frozen)) is (name in CHANGING)


def test_no_tool_changed_the_tables_that_sessions_start_from(pristine: Tables) -> None:
    """X02."""
    live = pristine.copy()
    for name in TOOLS:
        call(live, name, required_arguments(name))
    assert differences(pristine, synthetic_tables()) == []


def test_a_change_keeps_the_frames_of_all_other_tables(pristine: Tables) -> None:
    """X12: an unchanged table is recognised without looking into it."""
    live = pristine.copy()
    call(live, "email_delete_email", {"email_id": "00000011"})
    changed = [
        name for (name, ours), (_, theirs) in zip(live.items(), pristine.items(), strict=True) if ours is not theirs
    ]
    assert changed == ["emails"]


def test_a_cache_gives_the_same_parts_and_lets_go_of_dead_frames(pristine: Tables) -> None:
    """X12: an unchanged table is not encoded again."""
    cache = PartsCache()
    live = pristine.copy()
    first = encode(live, cache)
    assert first == encode(live)
    assert all(encode(live, cache)[name] is content for name, content in first.items())
    call(live, "email_delete_email", {"email_id": "00000011"})
    assert encode(live, cache) == encode(live) != first
    assert len(cache) == 8
    live.emails = pristine.emails
    assert encode(live, cache) == first
    assert len(cache) == 7


def test_a_cache_does_not_take_one_frame_for_another_table() -> None:
    """X36."""
    cache = PartsCache()
    frame = pd.DataFrame({"a": ["x"]})
    cache.put("emails", frame, {"emails/table": b""})
    assert cache.get("emails", frame) == {"emails/table": b""}
    assert cache.get("customers", frame) is None
    assert cache.get("emails", frame.copy()) is None
