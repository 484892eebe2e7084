"""A policy that plays plans: no weights and no state, so every call can be repeated and gets the same answer.

The first message of the user names the task; the number of calls in the conversation is the position in its plan.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from servers.execution_log import digest_of
from servers.responses_api import JsonObject, function_calls, input_items, user_message

CREATED = 1_700_000_000
MODEL = "scripted"


@dataclass(frozen=True)
class Plan:
    """Calls as `{"name", "arguments"}` (the arguments as JSON text), played one at a time, then a final message."""

    calls: tuple[Mapping[str, str], ...]

    @property
    def final(self) -> str:
        return f"Done: {len(self.calls)} action(s) carried out."


Planner = Callable[[JsonObject], Sequence[Mapping[str, str]]]


def planned(row: JsonObject) -> Sequence[Mapping[str, str]]:
    """The calls for a task: its `plan`, or else its `ground_truth`. Raises ValueError for a row with neither."""
    calls = row.get("plan", row.get("ground_truth"))
    if not isinstance(calls, list):
        raise ValueError("a task needs `plan` or `ground_truth`, a list of calls")
    return calls


def read_plans(file: Path, planner: Planner = planned) -> dict[str, Plan]:
    """The plans of a file of task rows, one JSON object a line, by the first message of the user.

    Raises ValueError for a row without a plan, naming its line.
    """
    plans: dict[str, Plan] = {}
    for number, line in enumerate(file.read_text().splitlines(), start=1):
        row = json.loads(line)
        try:
            calls = planner(row)
        except ValueError as error:
            raise ValueError(f"{file}:{number}: {error}") from error
        message = user_message(input_items(row["responses_create_params"]["input"]))
        plans.setdefault(message, Plan(tuple({"name": call["name"], "arguments": call["arguments"]} for call in calls)))
    return plans


class ScriptedBackend:
    """Plays `plans`. An answer takes a time between `latency`'s two numbers of seconds, always the same for the same
    conversation and `seed`; ids depend on the conversation alone."""

    def __init__(self, plans: Mapping[str, Plan], *, latency: tuple[float, float] = (0.0, 0.0), seed: int = 0) -> None:
        self._plans = plans
        self._latency = latency
        self._seed = seed

    async def responses(self, body: JsonObject) -> JsonObject:
        items = input_items(body["input"])
        conversation = digest_of(items)
        call = self._next_call(user_message(items), len(function_calls(items)))
        await self._think(conversation)
        if call is None:
            text = self._final(user_message(items))
            output: JsonObject = {
                "type": "message",
                "id": _id("msg", conversation),
                "role": "assistant",
                "status": "completed",
            }
            output["content"] = [{"type": "output_text", "text": text, "annotations": []}]
        else:
            output = {"type": "function_call", "id": _id("fc", conversation), "call_id": _id("call", conversation)}
            output |= {**call, "status": "completed"}
        return {
            "id": _id("resp", conversation),
            "created_at": CREATED,
            "status": "completed",
            "model": body.get("model") or MODEL,
            "output": [output],
            "metadata": {},
            **{name: body[name] for name in _ECHOED if name in body},
            "usage": _responses_usage(_tokens(items), _tokens(output)),
        }

    async def chat(self, body: JsonObject) -> JsonObject:
        messages = body["messages"]
        conversation = digest_of(messages)
        user = user_message(messages)
        call = self._next_call(user, sum(len(message.get("tool_calls") or ()) for message in messages))
        await self._think(conversation)
        message: JsonObject = {"role": "assistant", "content": None if call else self._final(user)}
        if call is not None:
            message["tool_calls"] = [{"id": _id("call", conversation), "type": "function", "function": dict(call)}]
        prompt, completion = _tokens(messages), _tokens(message)
        return {
            "id": _id("chatcmpl", conversation, "-"),
            "object": "chat.completion",
            "created": CREATED,
            "model": body.get("model") or MODEL,
            "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if call else "stop"}],
            "usage": {
                "prompt_tokens": prompt,
                "completion_tokens": completion,
                "total_tokens": prompt + completion,
            },
        }

    def latency_of(self, conversation: str) -> float:
        """Seconds that the answer to a conversation (its digest) takes."""
        return random.Random(f"{self._seed}:{conversation}").uniform(*self._latency)

    async def _think(self, conversation: str) -> None:
        await asyncio.sleep(self.latency_of(conversation))

    def _next_call(self, user: str, made: int) -> Mapping[str, str] | None:
        plan = self._plans.get(user)
        return plan.calls[made] if plan is not None and made < len(plan.calls) else None

    def _final(self, user: str) -> str:
        plan = self._plans.get(user)
        return "No plan for this task." if plan is None else plan.final


_ECHOED = ("parallel_tool_calls", "tool_choice", "tools", "temperature", "top_p")


def _id(kind: str, conversation: str, separator: str = "_") -> str:
    return f"{kind}{separator}{conversation[:24]}"


def _tokens(value: Any) -> int:
    return max(1, len(json.dumps(value)) // 4)


def _responses_usage(given: int, made: int) -> JsonObject:
    return {
        "input_tokens": given,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": made,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": given + made,
    }
