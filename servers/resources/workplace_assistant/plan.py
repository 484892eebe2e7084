"""What a scripted policy plays for a task: each change of the ground truth between two reads of what it affects.

Only the task's row is looked at, never an answer, so the same row always makes the same calls.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PlannedCall:
    """One call of a plan; `arguments` is JSON text, `changes` tells a change of the ground truth from a read."""

    name: str
    arguments: str
    changes: bool


def plan(task: Mapping[str, Any]) -> list[PlannedCall]:
    """The calls for a task: look up the people named, then read, change, read for each change.

    Raises:
        ValueError: the ground truth calls a tool that changes nothing or is unknown.
    """
    changes = [(call["name"], call["arguments"], json.loads(call["arguments"])) for call in task["ground_truth"]]
    names = dict.fromkeys(name for _, _, arguments in changes for name in _people(arguments))
    calls = [_read("company_directory_find_email_address", name=name) for name in names]
    for tool, text, arguments in changes:
        before, after = _reads_around(tool, arguments)
        calls += [before, PlannedCall(tool, text, changes=True), after]
    return calls


def _read(tool: str, /, **arguments: object) -> PlannedCall:
    return PlannedCall(tool, json.dumps(arguments, ensure_ascii=False), changes=False)


def _people(arguments: Mapping[str, Any]) -> Iterator[str]:
    """First names of the colleagues whose addresses a change sets."""
    for name, value in arguments.items():
        is_address = name in {"recipient", "participant_email", "assigned_to_email"}
        is_address |= name == "new_value" and arguments.get("field") in {"participant_email", "assigned_to_email"}
        if is_address:
            yield str(value).partition("@")[0].partition(".")[0]


def _reads_around(tool: str, arguments: Mapping[str, Any]) -> tuple[PlannedCall, PlannedCall]:
    """The read before and the read after a change."""
    match tool:
        case "email_send_email":
            read = _read("email_search_emails", query=arguments["recipient"])
        case "email_reply_email" | "email_forward_email":
            found = arguments["recipient"] if tool == "email_forward_email" else _first_words(arguments["body"])
            return _one_email(arguments), _read("email_search_emails", query=found)
        case "email_delete_email":
            read = _one_email(arguments)
        case "calendar_create_event":
            read = _read("calendar_search_events", query=arguments["event_name"])
        case "calendar_update_event" | "calendar_delete_event":
            field = arguments.get("field", "event_name")
            read = _read("calendar_get_event_information_by_id", event_id=arguments["event_id"], field=field)
        case "analytics_create_plot":
            days = {name: arguments[name] for name in ("time_min", "time_max")}
            return _read("analytics_total_visits_count", **days), _read("analytics_engaged_users_count", **days)
        case "project_management_create_task":
            read = _read("project_management_search_tasks", task_name=arguments["task_name"])
        case "project_management_update_task" | "project_management_delete_task":
            field = arguments.get("field", "task_name")
            read = _read("project_management_get_task_information_by_id", task_id=arguments["task_id"], field=field)
        case _ if tool.startswith("customer_relationship_manager_"):
            read = _read("customer_relationship_manager_search_customers", **_customer_query(tool, arguments))
        case _:
            raise ValueError(f"the ground truth calls {tool!r}, which is no tool that changes a table")
    return read, read


def _one_email(arguments: Mapping[str, Any]) -> PlannedCall:
    return _read("email_get_email_information_by_id", email_id=arguments["email_id"], field="subject")


def _first_words(text: str) -> str:
    return " ".join(text.split()[:4])


def _customer_query(tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A search whose count of customers the change moves, or else the first page of all."""
    if tool.endswith("_add_customer"):
        return {"customer_name": arguments["customer_name"]}
    field, value = arguments.get("field"), arguments.get("new_value")
    if field in {"customer_name", "customer_email", "product_interest", "status", "assigned_to_email"}:
        return {field: value}
    if field in {"last_contact_date", "follow_up_by"}:
        day = str(value)[:10]
        return {f"{field}_min": day, f"{field}_max": day}
    return {"assigned_to_email": "@"}
