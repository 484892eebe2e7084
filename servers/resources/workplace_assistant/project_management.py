"""The project board."""

from __future__ import annotations

import re
from typing import Annotated, Any

from servers.resources.workplace_assistant.declare import Toolkit, optional, required
from servers.resources.workplace_assistant.tables import has_id, next_number, rows_containing, with_row

LISTS = ("Backlog", "In Progress", "In Review", "Completed")
BOARDS = ("Back end", "Front end", "Design")
FIELDS = ("task_id", "task_name", "assigned_to_email", "list_name", "due_date", "board")
CHANGEABLE = FIELDS[1:]
ADDRESS = re.compile(r"[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,}$")

TaskId = Annotated[Any, required("Id of the task, 8 digits")]


class ProjectManagementTool(Toolkit):
    prefix = "project_management"

    def get_task_information_by_id(
        self,
        task_id: TaskId = None,
        field: Annotated[Any, required("Field to return, one of: " + ", ".join(map(repr, FIELDS)))] = None,
    ) -> object:
        """Returns one field of the task with this id."""
        if not task_id:
            return "Task ID not provided."
        if not field:
            return "Field not provided."
        tasks = self._tables.project_tasks
        found = tasks[tasks["task_id"] == task_id]
        if found.empty:
            return "Task not found."
        if field not in tasks.columns:
            return "Field not found."
        return {field: found[field].iloc[0]}

    def search_tasks(
        self,
        task_name: Annotated[Any, optional("Text to find in the name")] = None,
        assigned_to_email: Annotated[Any, optional("Text to find in the assignee's address")] = None,
        list_name: Annotated[Any, optional("Text to find in the list's name")] = None,
        due_date: Annotated[Any, optional("Text to find in the due date, YYYY-MM-DD")] = None,
        board: Annotated[Any, optional("Text to find in the board's name")] = None,
    ) -> object:
        """Finds the tasks to which every given parameter applies."""
        wanted = dict(zip(CHANGEABLE, (task_name, assigned_to_email, list_name, due_date, board), strict=True))
        if not any(wanted.values()):
            return "No search parameters provided."
        if assigned_to_email and not ADDRESS.match(assigned_to_email):
            return "Invalid email format for assigned_to_email."
        found = self._tables.project_tasks
        for column, text in wanted.items():
            if text:
                found = found[rows_containing(found, column, text)]
        return found.to_dict(orient="records")

    def create_task(
        self,
        task_name: Annotated[Any, required("Name of the task")] = None,
        assigned_to_email: Annotated[Any, required("E-mail address of the assignee")] = None,
        list_name: Annotated[Any, required("List of the task, one of: " + ", ".join(map(repr, LISTS)))] = None,
        due_date: Annotated[Any, required("Due date, as YYYY-MM-DD")] = None,
        board: Annotated[Any, required("Board of the task, one of: " + ", ".join(map(repr, BOARDS)))] = None,
    ) -> str:
        """Adds a task and returns its id."""
        given = (task_name, assigned_to_email, list_name, due_date, board)
        if not all(given):
            return "Missing task details."
        row = dict(zip(CHANGEABLE, given, strict=True)) | {"assigned_to_email": assigned_to_email.lower()}
        refusal = self._refusal(row)
        if refusal:
            return refusal
        tasks = self._tables.project_tasks
        task_id = f"{next_number(tasks, 'task_id'):08d}"
        self._tables.project_tasks = with_row(tasks, {"task_id": task_id} | row)
        return task_id

    def delete_task(self, task_id: TaskId = None) -> str:
        """Deletes the task with this id."""
        if not task_id:
            return "Task ID not provided."
        tasks = self._tables.project_tasks
        if not has_id(tasks, "task_id", task_id):
            return "Task not found."
        self._tables.project_tasks = tasks[tasks["task_id"] != task_id]
        return "Task deleted successfully."

    def update_task(
        self,
        task_id: TaskId = None,
        field: Annotated[Any, required("Field to change, one of: " + ", ".join(map(repr, CHANGEABLE)))] = None,
        new_value: Annotated[Any, required("What the field shall hold")] = None,
    ) -> str:
        """Changes one field of the task with this id."""
        if not task_id or not field or not new_value:
            return "Task ID, field, or new value not provided."
        value = new_value.lower() if field == "assigned_to_email" else new_value
        refusal = self._refusal({field: value}) if field in CHANGEABLE else None
        if refusal:
            return refusal
        tasks = self._tables.project_tasks.copy()
        if not has_id(tasks, "task_id", task_id):
            return "Task not found."
        if field not in tasks.columns:
            return "Field not valid."
        tasks.loc[tasks["task_id"] == task_id, field] = value
        self._tables.project_tasks = tasks
        return "Task updated successfully."

    def _refusal(self, values: dict[str, Any]) -> str | None:
        """Why the values cannot be stored. The team are those who have a task now."""
        team = self._tables.project_tasks["assigned_to_email"]
        if "assigned_to_email" in values and values["assigned_to_email"] not in team.values:
            return "Assignee email not valid. Please choose from the list of team members."
        if "list_name" in values and values["list_name"] not in LISTS:
            return "List not valid. Please choose from: " + ", ".join(map(repr, LISTS)) + "."
        if "board" in values and values["board"] not in BOARDS:
            return "Board not valid. Please choose from: " + ", ".join(map(repr, BOARDS)) + "."
        return None
