"""Shapes of the Responses API as they stand on NeMo Gym's wire: optional fields are present, as null.

All functions take and return JSON values and leave their arguments as they are. A known key keeps its value; a key
that the tables below do not list is kept too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

JsonObject = dict[str, Any]


def _nulls(names: str) -> JsonObject:
    return dict.fromkeys(names.split())


_PARAMS = {
    **_nulls("background include input instructions max_output_tokens max_tool_calls metadata model"),
    "parallel_tool_calls": True,
    **_nulls("previous_response_id prompt reasoning service_tier store context_management conversation moderation"),
    **_nulls("prompt_cache_key prompt_cache_retention safety_identifier stream_options temperature text"),
    "tool_choice": "auto",
    "tools": [],
    **_nulls("top_logprobs top_p truncation user stream"),
}
_RESPONSE = {
    **_nulls("id created_at error incomplete_details instructions metadata model"),
    "object": "response",
    "output": [],
    "parallel_tool_calls": True,
    "temperature": None,
    "tool_choice": "auto",
    "tools": [],
    **_nulls("top_p background completed_at conversation max_output_tokens max_tool_calls moderation"),
    **_nulls("previous_response_id prompt prompt_cache_key prompt_cache_retention reasoning safety_identifier"),
    **_nulls("service_tier status text top_logprobs truncation usage user"),
}
_CHAT = _nulls("id choices created model object moderation service_tier system_fingerprint usage")
_CHAT_CHOICE = _nulls("finish_reason index logprobs message")
_CHAT_MESSAGE = _nulls("content refusal role annotations audio function_call tool_calls")
_CHAT_USAGE = _nulls("completion_tokens prompt_tokens total_tokens completion_tokens_details prompt_tokens_details")
_INPUT_MESSAGE = {"type": "message", "phase": None}
_OUTPUT_ITEMS: dict[str, JsonObject] = {
    "message": {"phase": None},
    "function_call": {"namespace": None},
    "function_call_output": _nulls("id status"),
}
_USAGE: JsonObject = {
    "input_tokens": 0,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 0,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 0,
}


def input_items(given: str | list[JsonObject]) -> list[JsonObject]:
    """The conversation of a request as items: a text is one message of the user."""
    return [{"content": given, "role": "user"}] if isinstance(given, str) else list(given)


def text_of(content: Any) -> str:
    """The text of a message's content, which is a text or a list of parts."""
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content or () if isinstance(part, dict))


def user_message(items: Iterable[Mapping[str, Any]]) -> str:
    """The text of the first message of the user; empty without one."""
    return next((text_of(item.get("content")) for item in items if item.get("role") == "user"), "")


def function_calls(items: Iterable[JsonObject]) -> list[JsonObject]:
    """The items that call a tool, in order."""
    return [item for item in items if item.get("type") == "function_call"]


def complete_params(params: Mapping[str, Any]) -> JsonObject:
    """Request parameters with every optional field and item field."""
    items = [_input_item(item) for item in input_items(params.get("input") or [])]
    return {**_PARAMS, **params, "input": items, "tools": list(params.get("tools") or [])}


def complete_response(response: Mapping[str, Any]) -> JsonObject:
    """A response with every optional field, also in its output items and tools; `created_at` is a float."""
    filled = {**_RESPONSE, **response}
    filled["output"] = [output_item(item) for item in filled["output"]]
    filled["tools"] = [_response_tool(tool) for tool in filled["tools"]]
    if filled["created_at"] is not None:
        filled["created_at"] = float(filled["created_at"])
    return filled


def complete_chat(completion: Mapping[str, Any]) -> JsonObject:
    """A chat completion with every optional field, also in its choices and usage."""
    choices = [
        {**_CHAT_CHOICE, **choice, "message": {**_CHAT_MESSAGE, **choice["message"]}}
        for choice in completion["choices"]
    ]
    return {**_CHAT, **completion, "choices": choices, "usage": {**_CHAT_USAGE, **(completion.get("usage") or {})}}


def output_item(item: Mapping[str, Any]) -> JsonObject:
    """An output item with every optional field."""
    filled = {**item, **{k: v for k, v in _OUTPUT_ITEMS.get(item.get("type", ""), {}).items() if k not in item}}
    if item.get("type") == "message" and isinstance(item.get("content"), list):
        filled["content"] = [_output_part(part) for part in item["content"]]
    return filled


def add_usage(left: Mapping[str, Any] | None, right: Mapping[str, Any] | None) -> JsonObject:
    """The sum of two usages; None counts as no token."""
    first, second = left or _USAGE, right or _USAGE
    return {
        name: add_usage_details(first[name], second[name])
        if isinstance(first[name], dict)
        else first[name] + second[name]
        for name in _USAGE
    }


def add_usage_details(left: Mapping[str, int], right: Mapping[str, int]) -> JsonObject:
    """The sum of two detail counts, field by field."""
    return {name: left.get(name, 0) + right.get(name, 0) for name in {**left, **right}}


def _input_item(item: Mapping[str, Any]) -> JsonObject:
    if item.get("type", "message") == "message" and "role" in item:
        return {**_INPUT_MESSAGE, **item}
    return output_item(item)


def _output_part(part: Mapping[str, Any]) -> JsonObject:
    return {"logprobs": None, **part} if part.get("type") == "output_text" else dict(part)


def _response_tool(tool: Mapping[str, Any]) -> JsonObject:
    return {"defer_loading": None, "description": None, **tool} if tool.get("type") == "function" else dict(tool)
