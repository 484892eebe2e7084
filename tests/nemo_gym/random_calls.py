"""Seeded random calls of a toolkit: mostly what a model would ask, drawn from the tables as they are, and often enough what no tool expects."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from servers.resources.workplace_assistant import analytics, customer_relationship_manager, project_management
from servers.resources.workplace_assistant.tables import Tables
from servers.resources.workplace_assistant.tools import TOOLS

TABLES_OF = {
    "company_directory": ("company_directory",),
    "email": ("emails",),
    "calendar": ("calendar_events",),
    "analytics": ("analytics_data", "analytics_plots"),
    "project_management": ("project_tasks",),
    "customer_relationship_manager": ("customers",),
}
"""Toolkit -> the tables that its tools work on; values are drawn from the first."""

LIMITS = {
    "sent_datetime": ("date_min", "date_max"),
    "event_start": ("time_min", "time_max"),
    "date_of_visit": ("time_min", "time_max"),
    "last_contact_date": ("last_contact_date_min", "last_contact_date_max"),
    "follow_up_by": ("follow_up_by_min", "follow_up_by_max"),
    "sender/recipient": ("recipient",),
}
"""Column -> arguments of other names that take its values."""

CHOICES: dict[str, tuple[Any, ...]] = {
    "value_to_plot": analytics.PLOT_VALUES,
    "plot_type": analytics.PLOT_TYPES,
    "traffic_source": analytics.TRAFFIC_SOURCES,
    "list_name": project_management.LISTS,
    "board": project_management.BOARDS,
    "status": customer_relationship_manager.STATUSES,
    "product_interest": customer_relationship_manager.PRODUCTS,
    "page": (1, 1, 2, 3, 40, 0, -1),
    "page_size": (5, 1, 2, 10, 1000, 0, -3),
    "duration": ("30", "90", 45, "0", "-15", "1e2"),
}
ODD_VALUES: tuple[Any, ...] = (
    None, 0, 1, -1, 7, 2.5, -0.0, 1e300, float("inf"), float("nan"), 2**70, True, False, [], ["a"], ["a", "b"], [1, None], {}, {"a": [1, None]}, {"in": "text"},
    ["\ud83d"], {"é": float("inf")}, [1e300, 1e-7],
)  # fmt: skip
ODD_TEXTS = (
    "", " ", "\t\n", "None", "nan", "true", "0", "x" * 3000, "é e\u0301 ✅ 漢字", "👩‍👩‍👧", "a\u2028b\u2029c\x85d", "\x00", "\ud83d", "ß", "SS", "\u0130",
    "i\u0307", "\ufb01", "\u212a", ".", ".*", "(", "[a-", "a|b", "^s", "\\", "\\d+", "\\S", "$", "+", "*", "(?i)a", "(a)", "@", "@@", "a@b", "a@b.cd", ".COM",
    "2023-02-30", "2023-13-01", "2023/11/05", "30.11.2023", "yesterday", "2023", "2023-11", "2023-11-05T10:00:00", "2023-11-05T10:00:00Z",
    "2023-11-05 10:00:00+02:00", "20231105", "9999-12-31", "0001-01-01", "1e3", "12abc", "٣", "field", "email_id", "index", "__class__",
)  # fmt: skip
BODIES = (
    b"", b"null", b"[]", b"[1]", b'"text"', b"5", b"true", b"{", b"{'a': 1}", b'{"a": 1,}', b"\xff\xfe", b'{"a": "\xff"}', b"{} {}", b"nan",
    b'{"page": 1, "page": "2"}', b"[" * 2000, b'\xef\xbb\xbf{}', '{"name": "é"}'.encode("utf-16"), b'{"a\x00b": 1}', b'{"": 1}', b'{"self": 1}',
)  # fmt: skip
NAMES = ("", "x", "search", "find email", "é", "_tables", "__init__", "..", "a.b", "%2F", "email_", "search_emails ")


class RandomCalls:
    """Calls of one toolkit. The values follow `tables`, the live session, as calls change it."""

    def __init__(self, seed: str, toolkit: str, tables: Tables) -> None:
        self._random = Random(seed)
        self._toolkit = toolkit
        self._tools = [name for name, (owner, _) in TOOLS.items() if owner.prefix == toolkit]
        self._tables = tables

    def next(self) -> tuple[str, bytes]:
        """A tool's name, as it stands in the path, and the body."""
        tool = self._random.choice(self._tools)
        if self._chance(0.02):
            return f"{self._toolkit}_{self._random.choice(NAMES)}", self._body({})
        if self._chance(0.03):
            return tool, self._random.choice(BODIES)
        return tool, self._body(self._arguments(tool))

    def _body(self, arguments: dict[str, Any]) -> bytes:
        text = json.dumps(arguments, ensure_ascii=self._chance(0.5))
        return text.encode("utf-8", "surrogatepass")

    def _arguments(self, tool: str) -> dict[str, Any]:
        toolkit, method = TOOLS[tool]
        parameters = toolkit.schema(method)["parameters"]
        oddness = 0.0 if self._chance(0.5) else 0.4
        arguments: dict[str, Any] = {}
        for name in parameters["properties"]:
            left_out = oddness / 8 if name in parameters["required"] else 0.6
            if not self._chance(left_out):
                odd = self._chance(oddness)
                arguments[name] = self._odd() if odd else self._plausible(name, arguments)
        if self._chance(oddness / 8):
            arguments[self._random.choice(("nope", "self", "", "é", "Page", "name "))] = self._odd()
        return arguments

    def _odd(self) -> Any:
        return self._random.choice(self._random.choice((ODD_VALUES, ODD_TEXTS)))

    def _plausible(self, name: str, before: dict[str, Any]) -> Any:
        if name == "new_value":
            field = before.get("field")
            return self._plausible(field if isinstance(field, str) else "query", {})
        table = getattr(self._tables, TABLES_OF[self._toolkit][0])
        if name == "field":
            return self._random.choice([*table.columns])
        if name in CHOICES and self._chance(0.9):
            return self._random.choice(CHOICES[name])
        columns = [column for column in table.columns if name == column or name in LIMITS.get(column, ())]
        cell = self._cell(table, columns or [*table.columns])
        if name.endswith("_id") and self._chance(0.9):
            return cell
        return self._altered(cell) if isinstance(cell, str) else cell

    def _cell(self, table: Any, columns: list[Any]) -> Any:
        cells = table[self._random.choice(columns)].tolist()
        cell = self._random.choice(cells) if cells else "x"
        return None if cell != cell else cell

    def _altered(self, text: str) -> str:
        start = self._random.randrange(len(text) + 1)
        word = self._random.choice(text.split() or [text])
        forms = (
            text,
            text,
            word,
            word,
            text[:10],
            text[start : start + 3],
            text.upper(),
            text.swapcase(),
            f" {text} ",
            f"{word} é",
            f"{word} {word}",
        )
        return self._random.choice(forms)

    def _chance(self, probability: float) -> bool:
        return self._random.random() < probability
