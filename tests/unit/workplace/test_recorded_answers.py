"""Answers and rewards that a running workplace server gave, as recorded: ours must be equal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from servers.resources.workplace_assistant.tables import Tables, load_tables
from servers.resources.workplace_assistant.tools import TOOLS, call, schemas
from servers.resources.workplace_assistant.verify import reward

Exchange = tuple[str, dict[str, Any], Any]


@pytest.fixture(scope="module")
def recorded(shared: Path) -> Path:
    return shared / "data" / "nemo_gym" / "workplace_assistant"


@pytest.fixture(scope="module")
def real_tables(recorded: Path) -> Tables:
    return load_tables(recorded / "csv")


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def exchanges(output: list[dict[str, Any]]) -> list[Exchange]:
    """Calls of a response with their recorded answers."""
    answers = {item["call_id"]: item["output"] for item in output if item["type"] == "function_call_output"}
    calls = [item for item in output if item["type"] == "function_call"]
    return [(item["name"], json.loads(item["arguments"]), json.loads(answers[item["call_id"]])) for item in calls]


def cookie(capture: dict[str, Any]) -> str:
    """The session of a captured exchange: the signed payload's first part, from the request or else the answer."""
    headers = [*capture["request"]["headers"], *capture["response"]["headers"]]
    values = [value for name, value in headers if name.lower() in {"cookie", "set-cookie"}]
    return str(values[0]).partition("=")[2].strip('"').partition(".")[0]


def captures(shared: Path) -> Iterator[list[dict[str, Any]]]:
    """Each recorded run's exchanges with the workplace server, in order."""
    folder = shared / "data" / "nemo_gym_wire"
    for run in sorted({path.name.rsplit("_index", 1)[0] for path in folder.glob("[ABC]_*_index.json")}):
        files = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob(f"{run}_[0-9]*.json"))]
        yield [capture for capture in files if capture["server"] == "workplace_assistant"]


def tool_of(capture: dict[str, Any]) -> str | None:
    """The tool that an exchange called, if it called one and was admitted."""
    name = capture["request"]["path"].rpartition("/")[2]
    answered = capture["response"]["status"].split()[1] == "200" and capture["request"]["method"] == "POST"
    return name if answered and (name in TOOLS or name == "no_such_tool") else None


def test_every_tool_call_of_the_recorded_rollouts_gets_the_recorded_answer(recorded: Path, real_tables: Tables) -> None:
    """P01: a continued rollout sees the answers that an uninterrupted one sees."""
    rollouts = [exchanges(row["response"]["output"]) for row in lines(recorded / "example_rollouts.jsonl")]
    assert sum(map(len, rollouts)) >= 8
    for rollout in rollouts:
        tables = real_tables.copy()
        for name, arguments, answer in rollout:
            assert {"output": call(tables, name, arguments)} == answer


def test_every_tool_call_seen_on_the_wire_gets_the_recorded_answer(shared: Path, real_tables: Tables) -> None:
    """P01: answers of single calls, errors among them, each on its session's tables."""
    compared = 0
    for run in captures(shared):
        sessions: dict[str, Tables] = {}
        for capture in run:
            session = cookie(capture)
            name = tool_of(capture)
            if capture["request"]["path"].endswith("/seed_session"):
                sessions[session] = real_tables.copy()
            elif name is not None:
                answer = call(sessions[session], name, capture["request"]["body"])
                assert {"output": answer} == capture["response"]["body"], capture["request"]
                compared += 1
    assert compared >= 15


def test_every_verify_seen_on_the_wire_gets_the_recorded_reward(shared: Path, real_tables: Tables) -> None:
    """S13."""
    compared = 0
    for run in captures(shared):
        for capture in run:
            request, answer = capture["request"], capture["response"]["body"]
            if request["path"].endswith("/verify") and "reward" in answer:
                body = request["body"]
                ours = reward(real_tables, body["ground_truth"], body["response"]["output"])
                assert ours == answer["reward"]
                compared += 1
    assert compared >= 3


def test_the_tools_have_the_names_and_parameters_of_the_recorded_tasks(recorded: Path) -> None:
    """P01: recorded tasks run on our tools. Descriptions are our own, everything else is equal."""

    def undescribed(tool: dict[str, Any]) -> dict[str, Any]:
        properties = tool["parameters"]["properties"]
        types = {name: {"type": parameter["type"]} for name, parameter in properties.items()}
        parameters = tool["parameters"] | {"properties": types}
        return {**tool, "description": "", "parameters": parameters}

    ours = [undescribed(tool) for tool in schemas()]
    for task in lines(recorded / "example.jsonl"):
        assert ours == [undescribed(tool) for tool in task["responses_create_params"]["tools"]]
