"""What the dead would do next if they were not quite dead: every call is one that the older attempt was about to make."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from gymckpt.errors import StaleAttempt
from gymckpt.participant import (
    EPISODE_HEADER,
    REASON_HEADER,
    REQUEST_ID_HEADER,
    SESSION_HEADER,
    Episode,
)
from servers.demo.compare import Line
from servers.demo.cut import Standing
from servers.demo.rollouts import Rollout, outputs
from servers.responses_api import JsonObject, complete_response, function_calls, input_items

PATIENCE_SECONDS = 20.0
"""A refusal comes at once; a call that is held as long as this was not refused."""


@dataclass(frozen=True)
class Zombie:
    """The older attempt of a continued rollout, where it stood at the cut; `resources` is the address of its tools."""

    episode: Episode
    rollout: Rollout
    standing: Standing
    resources: str

    @property
    def items(self) -> list[JsonObject]:
        """Its conversation."""
        return self.standing.items

    def calls(self, model: str) -> dict[str, tuple[str, Any]]:
        """Its next seed, tool, model and verify call: URL and body by the name under which a server logs it."""
        params = self.rollout.row["responses_create_params"]
        tool, arguments = self._next_tool()
        response = complete_response({"id": "resp_zombie", "created_at": 0, "model": "zombie", "output": self.items})
        task = {name: value for name, value in self.rollout.row.items() if not name.startswith("_ng_")}
        conversation = {**params, "input": [*input_items(params["input"]), *self.items]}
        return {
            "seed_session": (f"{self.resources}/seed_session", self.rollout.row),
            tool: (f"{self.resources}/{tool}", arguments),
            "/v1/responses": (f"{model}/v1/responses", conversation),
            "verify": (f"{self.resources}/verify", {**task, "response": response}),
        }

    @property
    def headers(self) -> dict[str, str]:
        """Its identity, as its loop would send it."""
        pending = function_calls(self.items)[len(outputs(self.items)) :]
        request_id = pending[0]["call_id"] if pending else f"call_zombie_{len(self.items)}"
        session = self.standing.resources_session or f"session of {self.episode}"
        return {EPISODE_HEADER: str(self.episode), SESSION_HEADER: session, REQUEST_ID_HEADER: request_id}

    def _next_tool(self) -> tuple[str, Any]:
        plan = self.rollout.plan
        planned = plan[min(len(outputs(self.items)), len(plan) - 1)]
        return planned.name, json.loads(planned.arguments)


@dataclass(frozen=True)
class Attack:
    """How many stale calls were made, and which were not refused: rollout and name of the call."""

    tried: int = 0
    accepted: frozenset[tuple[str, str]] = frozenset()


async def attack(http: httpx.AsyncClient, zombies: Iterable[Zombie], model: str) -> Attack:
    """Makes every call of every zombie, in turn for each, all zombies side by side."""
    tried = await asyncio.gather(*(_attack(http, zombie, model) for zombie in zombies))
    accepted = frozenset((rollout, name) for calls in tried for rollout, name, refused in calls if not refused)
    return Attack(sum(map(len, tried)), accepted)


def executed(log: Iterable[Line], current: Mapping[str, int], pids: Iterable[int]) -> frozenset[tuple[str, str]]:
    """Calls of attempts older than the `current` one of their rollout that processes of `pids` carried out."""
    ours = frozenset(pids)
    return frozenset(
        (line["rollout"], line["what"])
        for line in log
        if line["pid"] in ours and line["rollout"] in current and line["attempt"] < current[line["rollout"]]
    )


async def _attack(http: httpx.AsyncClient, zombie: Zombie, model: str) -> list[tuple[str, str, bool]]:
    return [
        (zombie.rollout.rollout_id, name, await _refused(http, url, body, zombie.headers))
        for name, (url, body) in zombie.calls(model).items()
    ]


async def _refused(http: httpx.AsyncClient, url: str, body: Any, headers: dict[str, str]) -> bool:
    try:
        answer = await http.post(url, json=body, headers=headers, timeout=PATIENCE_SECONDS)
    except httpx.TimeoutException:
        return False
    return str(answer.headers.get(REASON_HEADER)) == StaleAttempt.reason
