"""The 27 tools by name, their schemas, and the one way to call one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from servers.resources.workplace_assistant.analytics import AnalyticsTool
from servers.resources.workplace_assistant.calendar import CalendarTool
from servers.resources.workplace_assistant.company_directory import CompanyDirectoryTool
from servers.resources.workplace_assistant.customer_relationship_manager import CustomerRelationshipManagerTool
from servers.resources.workplace_assistant.declare import Toolkit
from servers.resources.workplace_assistant.email import EmailTool
from servers.resources.workplace_assistant.project_management import ProjectManagementTool
from servers.resources.workplace_assistant.tables import Tables

TOOLKITS: tuple[type[Toolkit], ...] = (
    CompanyDirectoryTool,
    EmailTool,
    CalendarTool,
    AnalyticsTool,
    ProjectManagementTool,
    CustomerRelationshipManagerTool,
)

TOOLS: dict[str, tuple[type[Toolkit], str]] = {
    f"{toolkit.prefix}_{method}": (toolkit, method) for toolkit in TOOLKITS for method in toolkit.methods()
}
"""Tool name -> its toolkit and method."""


def schemas() -> list[dict[str, Any]]:
    """The function tools as they stand in a task's `responses_create_params.tools`."""
    return [toolkit.schema(method) for toolkit, method in TOOLS.values()]


def call(tables: Tables, name: str, arguments: Mapping[str, Any]) -> Any:
    """Plays one tool on `tables` and returns its answer as plain JSON values; NaN becomes None.

    An argument that is None counts as not given. Whatever goes wrong (an unknown tool, an unknown argument, a value
    that the tool cannot use) is answered in words, and the tables stay as they were.
    """
    given = {key: value for key, value in arguments.items() if value is not None}
    try:
        toolkit, method = TOOLS[name]
        answer = getattr(toolkit(tables), method)(**given)
    except Exception as error:  # noqa: BLE001 - the caller is a language model: it is told, and may try again
        return f"Error executing tool '{name}': {error}"
    return _plain(answer)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
