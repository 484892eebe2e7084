"""Shapes of the Responses API."""

from __future__ import annotations

from typing import Any

from servers.responses_api import (
    add_usage,
    complete_chat,
    complete_params,
    complete_response,
    function_calls,
    input_items,
    user_message,
)

USAGE = {
    "input_tokens": 3,
    "input_tokens_details": {"cached_tokens": 1},
    "output_tokens": 2,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 5,
}


def test_a_text_input_is_one_message_of_the_user() -> None:
    assert input_items("hi") == [{"content": "hi", "role": "user"}]


def test_the_first_message_of_the_user_is_found_behind_others_and_in_parts() -> None:
    parts = [{"type": "input_text", "text": "do "}, {"type": "input_text", "text": "it"}]
    items: list[dict[str, Any]] = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": parts},
        {"role": "user", "content": "x"},
    ]
    assert user_message(items) == "do it"
    assert user_message([{"role": "system", "content": "s"}]) == ""


def test_completing_keeps_what_is_there_and_leaves_the_argument_alone() -> None:
    params = {"input": "hi", "temperature": 0.5, "of_a_later_version": 1}
    complete = complete_params(params)
    assert complete["temperature"] == 0.5
    assert complete["of_a_later_version"] == 1
    assert complete["input"] == [{"type": "message", "phase": None, "content": "hi", "role": "user"}]
    assert complete["tool_choice"] == "auto"
    assert complete["user"] is None
    assert params == {"input": "hi", "temperature": 0.5, "of_a_later_version": 1}


def test_a_completed_response_is_complete_already() -> None:
    call = {"type": "function_call", "id": "fc", "call_id": "c", "name": "t", "arguments": "{}", "status": "completed"}
    text = {"type": "output_text", "text": "done", "annotations": []}
    message = {"type": "message", "id": "m", "role": "assistant", "content": [text]}
    tool = {"type": "function", "name": "t", "parameters": {}, "strict": True}
    response = complete_response({"id": "r", "created_at": 1, "output": [call, message], "tools": [tool]})
    assert complete_response(response) == response
    assert response["created_at"] == 1.0
    assert response["output"][0]["namespace"] is None
    assert response["output"][1]["content"][0]["logprobs"] is None
    assert response["tools"][0]["defer_loading"] is None


def test_usage_is_summed_with_its_details_and_starts_at_nothing() -> None:
    assert add_usage(None, USAGE) == USAGE
    summed = add_usage(USAGE, USAGE)
    assert summed["total_tokens"] == 10
    assert summed["input_tokens_details"] == {"cached_tokens": 2}
    assert USAGE["total_tokens"] == 5


def test_only_function_calls_are_function_calls() -> None:
    items = [{"type": "message"}, {"type": "function_call", "call_id": "a"}, {"type": "function_call_output"}]
    assert function_calls(items) == [{"type": "function_call", "call_id": "a"}]


def test_a_chat_completion_gets_its_optional_fields() -> None:
    completion = {"id": "c", "choices": [{"index": 0, "message": {"role": "assistant", "content": "x"}}]}
    complete = complete_chat(completion)
    assert complete["choices"][0]["message"]["tool_calls"] is None
    assert complete["choices"][0]["logprobs"] is None
    assert complete["usage"]["prompt_tokens"] is None
