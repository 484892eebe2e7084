"""How a tool is declared: its docstring describes it, its signature's annotations describe the parameters.

    class EmailTool(Toolkit):
        prefix = "email"

        def delete_email(self, email_id: Annotated[Any, required("Id of the email")] = None) -> str:
            '''Deletes an email.'''

A value is what the caller's JSON held: nothing checks it against the schema, so every parameter is `Any`. Every
parameter has a default, because a tool answers in words that something is missing.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, get_type_hints

from servers.resources.workplace_assistant.tables import Tables


@dataclass(frozen=True)
class Parameter:
    """What the schema says of one parameter. `json_type` is "string" or "integer"."""

    description: str
    json_type: str
    required: bool


def required(description: str) -> Parameter:
    """A text that the caller must give."""
    return Parameter(description, "string", required=True)


def optional(description: str) -> Parameter:
    """A text that the caller may give."""
    return Parameter(description, "string", required=False)


def optional_count(description: str) -> Parameter:
    """A whole number that the caller may give."""
    return Parameter(description, "integer", required=False)


class Toolkit:
    """Tools over one session's tables. Public methods are the tools; a tool is named `<prefix>_<method>`."""

    prefix: ClassVar[str]

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    @classmethod
    def methods(cls) -> Iterator[str]:
        """Names of the tool methods, in the order of their definition."""
        return (name for name, value in vars(cls).items() if inspect.isfunction(value) and not name.startswith("_"))

    @classmethod
    def schema(cls, method: str) -> dict[str, Any]:
        """The function tool of one method, as it stands in a task's `tools`."""
        function = getattr(cls, method)
        hints = get_type_hints(function, include_extras=True)
        parameters = {name: hint.__metadata__[0] for name, hint in hints.items() if name != "return"}
        return {
            "type": "function",
            "name": f"{cls.prefix}_{method}",
            "description": inspect.getdoc(function),
            "parameters": {
                "type": "object",
                "properties": {
                    name: {"type": parameter.json_type, "description": parameter.description}
                    for name, parameter in parameters.items()
                },
                "required": [name for name, parameter in parameters.items() if parameter.required],
                "additionalProperties": False,
            },
            "strict": False,
        }
