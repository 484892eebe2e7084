"""What the tools answer to calls that no schema allows, and to values that only look right: learnt by playing random calls at NeMo Gym's own server."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import pytest

from servers.resources.workplace_assistant.tables import Tables
from servers.resources.workplace_assistant.tools import call
from tests.unit.workplace.sameness import differences

CRM = "customer_relationship_manager_"
ADDRESS = "ines.varga@lindenquay.example"
NOT_TEAM = "Assignee email not valid. Please choose from the list of team members."
NO_ID = "Invalid event ID format. Expected 8-digit ID."
NO_START = "Invalid event_start format. Expected YYYY-MM-DD HH:MM:SS."
NO_MINUTES = "Invalid duration format. Expected a number of minutes."
MAIL = {"recipient": "a@b.example", "subject": "s", "body": "b"}
EVENT = {"event_name": "e", "participant_email": "p@x", "event_start": "2023-12-01 10:00:00", "duration": "30"}
TASK = {
    "task_name": "t",
    "assigned_to_email": ADDRESS,
    "list_name": "Backlog",
    "due_date": "2023-12-01",
    "board": "Design",
}
PLOT = {"time_min": "a", "time_max": "b", "value_to_plot": "total_visits", "plot_type": "bar"}


def update(field: Any, new_value: Any, **key: Any) -> dict[str, Any]:
    return {"field": field, "new_value": new_value, **key}


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("email_send_email", MAIL | {"recipient": "a@b"}, "Invalid recipient email address."),
    ("email_send_email", MAIL | {"recipient": "a.b"}, "Invalid recipient email address."),
    (
        "email_send_email",
        MAIL | {"recipient": ["@", "."]},
        "Error sending email: 'list' object has no attribute 'lower'",
    ),
    ("email_forward_email", {"email_id": "x", "recipient": "a@b"}, "Invalid recipient email address."),
    ("email_get_email_information_by_id", {"email_id": "x", "field": ["y"]}, "Email not found."),
    ("email_delete_email", {"email_id": {"a": 1}}, "Error deleting email: "),
    ("email_reply_email", {"email_id": ["a", "b"], "body": "b"}, "Error replying to email: "),
    ("email_search_emails", {"query": 5}, "Error searching emails: 'int' object has no attribute 'lower'"),
    ("email_search_emails", {"date_min": "soon"}, "Error searching emails: "),
    ("email_search_emails", {"query": "nowhere", "date_min": "soon"}, "No emails found."),
    ("email_search_emails", {"query": "nowhere", "page_size": 0}, "Error searching emails: integer division"),
    ("calendar_search_events", {"query": "nowhere", "page_size": 0}, "No events found."),
    ("calendar_search_events", {"query": "(", "time_min": "soon"}, "Invalid time_min format."),
    ("calendar_search_events", {"time_max": "2023-12-01T10:00Z"}, "Error executing tool 'calendar_search_events': "),
    ("calendar_get_event_information_by_id", {"event_id": "7", "field": "x"}, NO_ID),
    ("calendar_get_event_information_by_id", {"event_id": "99999999", "field": "x"}, "Invalid field. "),
    ("calendar_delete_event", {"event_id": 12345678}, NO_ID),
    ("calendar_delete_event", {"event_id": "1234567\n"}, NO_ID),
    ("calendar_delete_event", {"event_id": "99999999"}, "Event not found."),
    ("calendar_update_event", update("event_id", "1", event_id="99999999"), "Invalid field. "),
    ("calendar_update_event", update("event_start", "soon", event_id="99999999"), NO_START),
    ("calendar_update_event", update("event_name", 5, event_id="99999999"), "Event not found."),
    ("calendar_create_event", EVENT | {"event_start": "2023-02-30"}, NO_START),
    ("calendar_create_event", EVENT | {"duration": "1e2"}, NO_MINUTES),
    ("calendar_create_event", EVENT | {"duration": math.nan}, NO_MINUTES),
    ("calendar_create_event", EVENT | {"duration": "-15"}, "Duration must be a positive number of minutes."),
    ("calendar_create_event", EVENT | {"duration": math.inf}, "Error executing tool 'calendar_create_event': "),
    ("analytics_create_plot", PLOT | {"time_min": ""}, "Start date not provided."),
    ("analytics_create_plot", PLOT | {"time_max": 0}, "End date not provided."),
    ("analytics_create_plot", PLOT | {"value_to_plot": []}, "Value to plot must be one of 'total_visits', "),
    ("analytics_create_plot", PLOT | {"plot_type": "pie"}, "Plot type must be one of 'bar', 'line', 'scatter', or "),
    ("analytics_total_visits_count", {"time_min": {"a": 1}}, "Error executing tool 'analytics_total_visits_count': "),
    ("project_management_create_task", TASK | {"assigned_to_email": "a@b.example"}, NOT_TEAM),
    ("project_management_create_task", TASK | {"list_name": "backlog"}, "List not valid. "),
    ("project_management_update_task", update("board", "Roof", task_id="x"), "Board not valid. "),
    ("project_management_update_task", update("colour", "red", task_id="x"), "Task not found."),
    ("project_management_update_task", update("colour", "red", task_id="00000001"), "Field not valid."),
    ("project_management_search_tasks", {"assigned_to_email": "ines", "task_name": "("}, "Invalid email format for "),
    ("project_management_search_tasks", {"task_name": 5}, "Error executing tool 'project_management_search_tasks': "),
    (CRM + "search_customers", {"page": 2}, "No search parameters provided. "),
    (CRM + "search_customers", {"customer_name": "nowhere", "page": "x"}, "No customers found."),
    (CRM + "add_customer", {"status": "Lead"}, "Please provide all required fields: "),
    (CRM + "update_customer", update("status", "lead", customer_id="x"), "Status not valid. "),
    (CRM + "update_customer", update("product_interest", ["x"], customer_id="x"), "Product interest not valid. "),
    (CRM + "update_customer", update("colour", "red", customer_id="00000001"), "Field not valid. Please choose from: "),
]


@pytest.mark.parametrize(("name", "arguments", "answer"), REFUSED)
def test_a_refusal_says_what_comes_first_and_changes_nothing(
    name: str, arguments: dict[str, Any], answer: str, tables: Tables, pristine: Tables
) -> None:
    assert str(call(tables, name, arguments)).startswith(answer)
    assert differences(tables, pristine) == []


@pytest.mark.parametrize(
    ("name", "arguments", "column", "stored"),
    [
        ("calendar_create_event", EVENT | {"event_name": {"a": 1}}, "event_name", {"a": 1}),
        ("calendar_create_event", EVENT | {"event_start": "2023-12-01"}, "event_start", "2023-12-01"),
        ("calendar_create_event", EVENT | {"duration": 30.7}, "duration", 30.7),
        ("calendar_create_event", EVENT | {"duration": "٣٠"}, "duration", "٣٠"),
        ("calendar_create_event", EVENT | {"participant_email": "NOBODY"}, "participant_email", "nobody"),
        ("project_management_create_task", TASK | {"due_date": ["later"]}, "due_date", ["later"]),
        (CRM + "add_customer", {"customer_name": "n", "assigned_to_email": "X", "status": 5}, "status", 5),
        ("email_send_email", MAIL | {"subject": 5}, "subject", 5),
        ("email_send_email", MAIL | {"recipient": ".@"}, "sender/recipient", ".@"),
        ("email_reply_email", {"email_id": "00000001", "body": ["b"]}, "body", ["b"]),
    ],
)
def test_what_is_not_checked_is_stored_as_it_came(
    name: str, arguments: dict[str, Any], column: str, stored: Any, tables: Tables
) -> None:
    assert not str(call(tables, name, arguments)).startswith("Error")
    frame = next(frame for _, frame in tables.items() if column in frame and frame[column].iloc[-1] == stored)
    assert type(frame[column].iloc[-1]) is type(stored)


@pytest.mark.parametrize("key", ["task_id", "customer_id"])
def test_the_id_of_a_row_may_be_changed_where_only_columns_are_asked_for(key: str, tables: Tables) -> None:
    name = {"task_id": "project_management_update_task", "customer_id": CRM + "update_customer"}[key]
    assert call(tables, name, update(key, "new", **{key: "00000001"})).endswith(" updated successfully.")
    assert "not found" in call(tables, name, update(key, "newer", **{key: "00000001"}))


def test_an_event_is_added_under_the_label_0(tables: Tables) -> None:
    """X15: labels may come twice."""
    assert call(tables, "calendar_create_event", EVENT) == "00000300"
    assert tables.calendar_events.index.tolist() == [*range(300), 0]


def test_forwarded_and_answered_mails_say_so_in_the_subject(tables: Tables) -> None:
    mail = tables.emails.iloc[0]
    call(tables, "email_forward_email", {"email_id": mail["email_id"], "recipient": "A@b.example"})
    call(tables, "email_reply_email", {"email_id": "500", "body": "b"})
    assert tables.emails["subject"].tolist()[-2:] == [f"FW: {mail['subject']}", f"RE: FW: {mail['subject']}"]
    assert tables.emails["sender/recipient"].tolist()[-2:] == ["a@b.example", "a@b.example"]


def test_the_team_are_those_who_have_a_task_now(tables: Tables) -> None:
    tables.project_tasks = tables.project_tasks[tables.project_tasks["assigned_to_email"] != ADDRESS]
    assert call(tables, "project_management_create_task", TASK) == NOT_TEAM


def test_a_search_takes_its_text_as_a_pattern_except_among_mails(tables: Tables) -> None:
    everyone = tables.company_directory["email_address"].tolist()
    assert call(tables, "company_directory_find_email_address", {"name": "^.*$"}) == everyone
    assert call(tables, "email_search_emails", {"query": "^.*$"}) == "No emails found."
    assert call(tables, "calendar_search_events", {"query": "^.*$"})["pagination"]["total_events"] == 300
    assert call(tables, CRM + "search_customers", {"customer_name": "^.*$"})["pagination"]["total_customers"] == 200
    assert len(call(tables, "project_management_search_tasks", {"task_name": "^.*$"})) == 300
    assert call(tables, "project_management_search_tasks", {"task_name": "nowhere"}) == []


def test_mails_are_searched_in_the_text_of_what_they_hold(tables: Tables) -> None:
    call(tables, "email_send_email", MAIL | {"subject": 1234567, "body": ["Straße"]})
    for query in ("1234567 a@b.example", "['straße']"):
        assert call(tables, "email_search_emails", {"query": query})["emails"][0]["email_id"] == "500"


def test_events_come_by_the_time_that_their_start_stands_for(tables: Tables) -> None:
    starts = ["2024-01-02", "2024-1-3 9:00", 5, "2024-01-02"]
    for start in starts:
        call(tables, "calendar_create_event", EVENT | {"event_name": ["odd"], "event_start": start})
    found = call(tables, "calendar_search_events", {"query": "p@x"})["events"]
    assert [event["event_id"] for event in found] == ["00000301", "00000300", "00000303", "00000302"]


def test_mails_of_the_same_time_come_as_the_default_sort_of_times_leaves_them(tables: Tables) -> None:
    for _ in range(20):
        call(tables, "email_send_email", MAIL)
    times = pd.to_datetime(tables.emails["sent_datetime"])
    expected = tables.emails.loc[times.sort_values(ascending=False).index, "email_id"].tolist()
    found = call(tables, "email_search_emails", {"page_size": 1000})["emails"]
    assert [mail["email_id"] for mail in found] == expected


@pytest.mark.parametrize(
    ("page", "page_size", "shown", "total_pages"),
    [(math.nan, 5, 1, 40), (math.inf, 5, 40, 40), (True, 5, 1, 40), (2, 2**70, 1, 1), ("x", -3, 1, -66)],
)
def test_a_page_is_whatever_python_takes_for_one(
    page: Any, page_size: Any, shown: int, total_pages: int, tables: Tables
) -> None:
    answer = call(
        tables, CRM + "search_customers", {"customer_name": "", "status": ".", "page": page} | {"page_size": page_size}
    )
    wanted = {"total_customers": 200, "page": shown, "page_size": page_size, "total_pages": total_pages}
    assert answer["pagination"] == wanted
