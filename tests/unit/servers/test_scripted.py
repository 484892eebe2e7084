"""The scripted policy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from servers.model.scripted import Plan, ScriptedBackend, read_plans

CALLS = ({"name": "add", "arguments": '{"count": 1}'}, {"name": "get", "arguments": "{}"})
BACKEND = ScriptedBackend({"do it": Plan(CALLS)})


def asked(*items: dict[str, Any]) -> dict[str, Any]:
    return {"input": [{"role": "system", "content": "s"}, {"role": "user", "content": "do it"}, *items]}


async def played(backend: ScriptedBackend, task: str = "do it") -> list[dict[str, Any]]:
    """All output items of a conversation in which every call is answered `ok`."""
    items: list[dict[str, Any]] = [{"role": "user", "content": task}]
    made: list[dict[str, Any]] = []
    while not made or made[-1]["type"] == "function_call":
        (item,) = (await backend.responses({"input": items}))["output"]
        items += [item, {"type": "function_call_output", "call_id": item.get("call_id"), "output": "ok"}]
        made.append(item)
    return made


async def test_a_plan_is_played_one_call_at_a_time_and_ends_with_a_message() -> None:
    made = await played(BACKEND)
    assert [(item.get("name"), item.get("arguments")) for item in made[:2]] == [("add", '{"count": 1}'), ("get", "{}")]
    assert made[2]["content"][0]["text"] == "Done: 2 action(s) carried out."


async def test_the_same_conversation_gets_the_same_answer_from_another_process() -> None:
    assert await played(ScriptedBackend({"do it": Plan(CALLS)})) == await played(BACKEND)


async def test_another_conversation_gets_other_ids() -> None:
    ids = [item["id"] for item in await played(BACKEND)]
    assert len(set(ids)) == 3
    changed = await BACKEND.responses(asked())
    assert changed["output"][0]["id"] not in ids


async def test_an_unknown_task_is_answered_with_a_message() -> None:
    (item,) = await played(BACKEND, task="do something else")
    assert item["content"][0]["text"] == "No plan for this task."


async def test_what_the_request_says_of_its_tools_stands_in_the_response() -> None:
    response = await BACKEND.responses({**asked(), "tools": [{"name": "add"}], "temperature": 0.5})
    assert (response["tools"], response["temperature"]) == ([{"name": "add"}], 0.5)


async def test_chat_completions_play_the_same_plan() -> None:
    first = await BACKEND.chat({"messages": [{"role": "user", "content": "do it"}]})
    message = first["choices"][0]["message"]
    assert message["tool_calls"][0]["function"] == CALLS[0]
    second = await BACKEND.chat({"messages": [{"role": "user", "content": "do it"}, message]})
    assert second["choices"][0]["message"]["tool_calls"][0]["function"] == CALLS[1]
    last = await BACKEND.chat(
        {"messages": [{"role": "user", "content": "do it"}, message, second["choices"][0]["message"]]}
    )
    assert last["choices"][0]["finish_reason"] == "stop"
    assert last["choices"][0]["message"] == {"role": "assistant", "content": "Done: 2 action(s) carried out."}


def test_latency_depends_on_seed_and_conversation_alone() -> None:
    backend = ScriptedBackend({}, latency=(0.1, 0.5), seed=7)
    same = ScriptedBackend({}, latency=(0.1, 0.5), seed=7)
    other = ScriptedBackend({}, latency=(0.1, 0.5), seed=8)
    taken = [backend.latency_of(str(number)) for number in range(50)]
    assert taken == [same.latency_of(str(number)) for number in range(50)]
    assert taken != [other.latency_of(str(number)) for number in range(50)]
    assert all(0.1 <= seconds <= 0.5 for seconds in taken)
    assert len(set(taken)) == 50


def row(**more: Any) -> str:
    return json.dumps({"responses_create_params": {"input": "do it"}, **more}) + "\n"


def test_a_row_is_played_by_its_plan_or_else_by_its_ground_truth(tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_text(row(ground_truth=list(CALLS)))
    assert read_plans(file) == {"do it": Plan(CALLS)}
    file.write_text(row(ground_truth=list(CALLS), plan=[CALLS[1]]))
    assert read_plans(file) == {"do it": Plan((CALLS[1],))}


def test_a_row_without_a_plan_is_refused_by_its_line(tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_text(row(plan=[]) + row())
    with pytest.raises(ValueError, match=r"tasks\.jsonl:2: a task needs `plan` or `ground_truth`"):
        read_plans(file)
