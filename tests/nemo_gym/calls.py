"""Calls of one workplace session that reach whatever a restore could lose, and a client that keeps NeMo Gym's cookie as its agents do."""

from __future__ import annotations

from typing import Any

import httpx

CRM = "customer_relationship_manager_"
DAYS = {"time_min": "2023-10-01", "time_max": "2023-11-29"}
NEW_CUSTOMER = {"customer_name": "Żofia Ćma 漢字 🎈", "assigned_to_email": "lena.schmidt@atlas.com", "status": "Lead"}

SESSION: list[tuple[str, dict[str, Any]]] = [
    ("company_directory_find_email_address", {"name": "carlos"}),
    ("email_search_emails", {"query": "report"}),
    ("email_get_email_information_by_id", {"email_id": "00000189", "field": "subject"}),
    ("email_send_email", {"recipient": "a@atlas.com", "subject": "naïve — “quotes”", "body": "line\nline\u2028end"}),
    ("email_search_emails", {"query": "naïve"}),
    ("email_reply_email", {"email_id": "00000189", "body": "Danke"}),
    ("email_delete_email", {"email_id": "00000190"}),
    ("email_get_email_information_by_id", {"email_id": "00000190", "field": "subject"}),
    ("email_forward_email", {"email_id": "00000189", "recipient": "b@atlas.com"}),
    ("no_such_tool", {"x": 1}),
    ("calendar_search_events", {"query": "meeting"}),
    (
        "calendar_create_event",
        {
            "event_name": "Ünïcode",
            "participant_email": "c@atlas.com",
            "event_start": "2023-12-01 10:00:00",
            "duration": "30",
        },
    ),
    ("calendar_search_events", {"query": "Ünïcode"}),
    ("calendar_update_event", {"event_id": "00000013", "field": "duration", "new_value": "90"}),
    ("calendar_get_event_information_by_id", {"event_id": "00000013", "field": "duration"}),
    ("calendar_delete_event", {"event_id": "00000013"}),
    ("calendar_get_event_information_by_id", {"event_id": "00000013", "field": "duration"}),
    ("analytics_total_visits_count", DAYS),
    ("analytics_get_average_session_duration", {}),
    ("analytics_get_average_session_duration", DAYS),
    ("analytics_engaged_users_count", DAYS),
    ("analytics_create_plot", {**DAYS, "value_to_plot": "total_visits", "plot_type": "bar"}),
    ("analytics_create_plot", {**DAYS, "value_to_plot": "nonsense", "plot_type": "bar"}),
    ("analytics_traffic_source_count", {**DAYS, "traffic_source": "direct"}),
    ("project_management_search_tasks", {"task_name": "report"}),
    (
        "project_management_create_task",
        {
            "task_name": "T",
            "assigned_to_email": "carlos.rodriguez@atlas.com",
            "list_name": "Backlog",
            "due_date": "2023-12-24",
            "board": "Back end",
        },
    ),
    ("project_management_update_task", {"task_id": "00000003", "field": "list_name", "new_value": "Completed"}),
    ("project_management_get_task_information_by_id", {"task_id": "00000003", "field": "list_name"}),
    ("project_management_delete_task", {"task_id": "00000003"}),
    (f"{CRM}search_customers", {"status": "Lead"}),
    (f"{CRM}add_customer", NEW_CUSTOMER),
    (f"{CRM}search_customers", {"customer_name": "Żofia"}),
    (f"{CRM}search_customers", {"customer_email": "example"}),
    (f"{CRM}update_customer", {"customer_id": "00000052", "field": "notes", "new_value": {"nested": [1, None, "x"]}}),
    (f"{CRM}update_customer", {"customer_id": "00000053", "field": "customer_phone", "new_value": 7}),
    (f"{CRM}delete_customer", {"customer_id": "00000054"}),
    (f"{CRM}search_customers", {"product_interest": "Software"}),
    ("email_send_email", {"recipient": None, "subject": 5, "body": ["a"]}),
    ("email_search_emails", {"query": "Danke"}),
    ("company_directory_find_email_address", {"name": ""}),
]


class Client:
    """One session. Cookies are carried by hand and sent quoted, as NeMo Gym's client does."""

    def __init__(self, http: httpx.Client, url: str) -> None:
        self.cookies: dict[str, str] = {}
        self._http = http
        self._url = url

    def post(self, path: str, body: Any) -> tuple[int, bytes]:
        """Status and body. Cookies of the answer replace those that were kept."""
        kept = "; ".join(f'{name}="{value}"' for name, value in self.cookies.items())
        answer = self._http.post(f"{self._url}{path}", json=body, headers={"cookie": kept} if kept else {})
        self._http.cookies.clear()
        self.cookies |= {name: value.strip('"') for name, value in answer.cookies.items()}
        return answer.status_code, answer.content

    def seed(self, task: int, rollout: int = 0) -> None:
        status, body = self.post("/seed_session", {"_ng_task_index": task, "_ng_rollout_index": rollout})
        assert status == 200, body

    def play(self, calls: list[tuple[str, dict[str, Any]]]) -> list[tuple[int, bytes]]:
        return [self.post(f"/{tool}", arguments) for tool, arguments in calls]
