"""What the loop knows between two steps: plain values, so that a boundary can carry them."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Literal

from servers.responses_api import JsonObject, add_usage, complete_response, function_calls


@dataclass
class LoopState:
    """`items` are the output so far, `pending` the tool calls still to be made, `revision` is that of the resources
    session as last seen, `verify_mode` how a whole run is to be verified.
    """

    resources_cookies: dict[str, str] = field(default_factory=dict)
    model_cookies: dict[str, str] = field(default_factory=dict)
    revision: int = 0
    steps: int = 0
    items: list[JsonObject] = field(default_factory=list)
    pending: list[JsonObject] = field(default_factory=list)
    response: JsonObject | None = None
    usage: JsonObject | None = None
    verify_mode: Literal["wait", "replay"] = "wait"
    finished: bool = False

    def as_json(self) -> JsonObject:
        """The state as it is now, not copied."""
        return {entry.name: getattr(self, entry.name) for entry in fields(self)}

    @classmethod
    def from_json(cls, value: JsonObject) -> LoopState:
        """The inverse. Raises TypeError for a field that the loop does not know."""
        return cls(**value)

    def take_response(self, response: JsonObject, cookies: dict[str, str], max_steps: int) -> None:
        """A response of the model arrived; without tool calls, or as the last one allowed, it ends the loop."""
        self.steps += 1
        self.response = response
        self.usage = add_usage(self.usage, response.get("usage"))
        self.model_cookies = self.model_cookies | cookies
        self.items.extend(response["output"])
        self.pending = function_calls(response["output"]) if self.steps < max_steps else []
        self.finished = not self.pending

    def take_output(self, output: str, cookies: dict[str, str], revision: int) -> None:
        """The first pending tool call was answered."""
        call = self.pending.pop(0)
        self.items.append({"call_id": call["call_id"], "output": output, "type": "function_call_output"})
        self.resources_cookies = self.resources_cookies | cookies
        self.revision = max(self.revision, revision)

    def reply(self) -> dict[str, Any]:
        """The finished response: the last one of the model, with the output and the usage of all steps."""
        assert self.response is not None
        return complete_response({**self.response, "output": self.items, "usage": self.usage})
