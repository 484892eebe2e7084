"""What one turn knows at a boundary."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Literal

from servers.responses_api import JsonObject

VerifyMode = Literal["wait", "replay"]


@dataclass
class TurnState:
    """`stage` is what comes next: seed, invoke_agent, close_agent, verify, return. Sessions are named by their cookies
    and ids; `resources_revision` is the revision of the resources session that this server has seen."""

    resources_session_id: str
    agent_session_id: str
    stage: str = "seed"
    resources_cookies: dict[str, str] = field(default_factory=dict)
    agent_cookies: dict[str, str] = field(default_factory=dict)
    resources_revision: int = 0
    verify_mode: VerifyMode = "wait"
    response: JsonObject | None = None
    result: JsonObject | None = None

    def payload(self) -> JsonObject:
        """What the boundary before `stage` carries."""
        return {name: value for name, value in asdict(self).items() if name != "stage"}

    @classmethod
    def continued(cls, continuation: JsonObject) -> TurnState:
        """The state at a restored boundary: its payload and `stage`. Raises TypeError for an unknown field."""
        return cls(**continuation)
