"""The real workplace_assistant: embedded it answers as shipped, and killed and restored after any call it answers as if nothing had happened."""

from __future__ import annotations

import json
import os
from pathlib import Path

import httpx
import pytest

from tests.nemo_gym.calls import SESSION, Client
from tests.nemo_gym.conftest import other_pandas
from tests.nemo_gym.gym import MODEL, WORKPLACE, Gym
from tests.nemo_gym.result import add


def add_servers(gym: Gym) -> None:
    gym.add("workplace_assistant", "resources_servers", "workplace_assistant")
    gym.add_policy("http://127.0.0.1:9")


def played(gym: Gym, http: httpx.Client) -> list[tuple[int, bytes]]:
    client = Client(http, gym.url("workplace_assistant"))
    client.seed(0)
    return client.play(SESSION)


def test_an_embedded_server_answers_as_the_shipped_one_and_off_it_is_the_shipped_one(
    gym: Gym, http: httpx.Client
) -> None:
    """X01."""
    add_servers(gym)
    gym.start("workplace_assistant", WORKPLACE, stock=True)
    shipped = played(gym, http)
    assert len(shipped) == 40
    gym.kill("workplace_assistant")
    gym.start("workplace_assistant", WORKPLACE)
    assert played(gym, http) == shipped
    gym.kill("workplace_assistant")
    gym.serve_checkpoints()
    gym.start("workplace_assistant", WORKPLACE)
    gym.members(1)
    assert played(gym, http) == shipped


@pytest.mark.parametrize("pandas", ["installed", "other"])
def test_a_session_killed_after_any_of_40_calls_goes_on_with_the_same_cookie(
    gym: Gym, http: httpx.Client, pandas: str
) -> None:
    """R08, X01: under both major versions of pandas that NeMo Gym is used with."""
    if pandas == "other":
        gym.environment = {"PYTHONPATH": f"{other_pandas()}:{os.getcwd()}"}
    add_servers(gym)
    gym.serve_checkpoints()
    gym.start("policy_model", MODEL)
    gym.start("workplace_assistant", WORKPLACE)
    gym.members(2)
    whole = Client(http, gym.url("workplace_assistant"))
    whole.seed(100)
    expected = whole.play(SESSION)
    clients = [Client(http, gym.url("workplace_assistant")) for _ in range(len(SESSION) + 1)]
    for done, client in enumerate(clients):
        client.seed(done)
        assert client.play(SESSION[:done]) == expected[:done]
    gym.command("checkpoint", "create", "cut")
    gym.kill("workplace_assistant")
    gym.start("workplace_assistant", WORKPLACE)
    gym.members(2)
    restored = gym.command("checkpoint", "restore", "cut")
    assert len(restored["restored"]) == len(clients) + 1
    different = [done for done, client in enumerate(clients) if client.play(SESSION[done:]) != expected[done:]]
    add("cut_points", tried=len(clients), different=len(different))
    assert different == [], "answers differ after cuts after so many calls"


def test_recorded_rollouts_get_their_answers_from_an_embedded_server(
    gym: Gym, http: httpx.Client, shared: Path
) -> None:
    """X01."""
    recording = shared / "data" / "nemo_gym" / "workplace_assistant" / "example_rollouts.jsonl"
    rollouts = [json.loads(line) for line in recording.read_text(encoding="utf-8").strip().split("\n")]
    add_servers(gym)
    gym.serve_checkpoints()
    gym.start("workplace_assistant", WORKPLACE)
    gym.members(1)
    for place, rollout in enumerate(rollouts):
        client = Client(http, gym.url("workplace_assistant"))
        client.seed(place)
        output = rollout["response"]["output"]
        answers = {item["call_id"]: item["output"] for item in output if item["type"] == "function_call_output"}
        calls = [item for item in output if item["type"] == "function_call"]
        given = client.play([(item["name"], json.loads(item["arguments"])) for item in calls])
        assert given == [(200, answers[item["call_id"]].encode()) for item in calls]
