"""What a controller sends to /run."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

from gymckpt.errors import EpisodeRequired, GymckptError, InvalidField
from gymckpt.participant import Call, Episode, Kind
from servers.http.peers import Peer, call_headers
from servers.http.rows import read_run

BARE = Call("POST", "/run")
PARAMS = {"input": "do it"}
FLAT = {"id": 4, "responses_create_params": PARAMS, "ground_truth": [], "agent_ref": {"name": "a"}, "_ng_task_index": 7}
TYPED = {
    "episode_id": {"rollout_id": "ep-7", "attempt": 1},
    "task": {
        "task_id": {"taskset": "t", "task_id": "1"},
        "task_input": {"responses_create_params": PARAMS, "task_data": {"ground_truth": []}},
    },
}


def named(episode: str) -> Call:
    return Call("POST", "/run", Episode.parse(episode))


def test_a_typed_request_names_its_episode_and_task() -> None:
    episode, task = read_run(BARE, TYPED, "ours")
    assert str(episode) == "ep-7-a1"
    assert (task.task_id, task.params, task.data) == ({"taskset": "t", "task_id": "1"}, PARAMS, {"ground_truth": []})
    assert task.verify_body({"id": "r"}) == {
        "responses_create_params": PARAMS,
        "ground_truth": [],
        "response": {"id": "r"},
    }


@pytest.mark.parametrize(
    ("more", "episode"),
    [
        ({"_ng_rollout_index": 2}, "7-2"),
        ({"_ng_rollout_index": 2, "_ng_attempt_index": 3}, "7-2-a3"),
        ({"_ng_rollout_id": "mine"}, "mine"),
    ],
)
def test_a_flat_row_names_its_episode_by_its_indices_or_its_id(more: dict[str, Any], episode: str) -> None:
    found, task = read_run(BARE, {**FLAT, **more}, "ours")
    assert str(found) == episode
    assert task.task_id == {"taskset": "ours", "task_id": "4"}
    assert task.data == {"id": 4, "ground_truth": []}
    assert task.agent_ref == {"name": "a"}


def test_the_call_decides_the_attempt() -> None:
    assert str(read_run(named("ep-7-a2"), TYPED, "ours")[0]) == "ep-7-a2"
    assert str(read_run(named("r-a1"), FLAT, "ours")[0]) == "r-a1"


def test_the_task_is_the_same_in_every_attempt() -> None:
    first = read_run(BARE, {**FLAT, "_ng_rollout_id": "r"}, "ours")[1]
    second = read_run(named("r-a1"), {**FLAT, "_ng_rollout_id": "r", "_ng_attempt_index": 1}, "ours")[1]
    assert first.identity == second.identity


@pytest.mark.parametrize(
    ("call", "body", "error", "message"),
    [
        (BARE, FLAT, EpisodeRequired, "send x-gymckpt-episode"),
        (named("other"), TYPED, InvalidField, "of rollout 'other', its body of 'ep-7'"),
        (BARE, {**TYPED, "task": {}}, InvalidField, "task_input must be an object, got NoneType"),
        (BARE, {**TYPED, "episode_id": {"rollout_id": "r", "attempt": "1"}}, InvalidField, "attempt must be a whole"),
        (BARE, {**TYPED, "episode_id": {"rollout_id": "ep-7-a1"}}, InvalidField, "must not end like an attempt"),
        (named("r"), {"id": 1}, InvalidField, "responses_create_params must be an object, got NoneType"),
    ],
)
def test_a_malformed_run_is_refused_by_its_field(
    call: Call, body: dict[str, Any], error: type[GymckptError], message: str
) -> None:
    """X20"""
    with pytest.raises(error, match=message):
        read_run(call, body, "ours")


def test_a_peer_is_a_name_and_a_url() -> None:
    peer = Peer.parse(Kind.MODEL, "policy=http://127.0.0.1:80/")
    assert (str(peer.id), peer.url) == ("model/policy", "http://127.0.0.1:80")
    assert peer.for_episode(Episode("r", 2)) == "http://127.0.0.1:80/ng-rollout/r-a2"
    assert peer.for_episode(None) == "http://127.0.0.1:80"


@pytest.mark.parametrize("text", ["policy", "=http://x", "policy=127.0.0.1:80"])
def test_anything_else_is_no_peer(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="<name>=http://<host>:<port>"):
        Peer.parse(Kind.MODEL, text)


def test_headers_say_no_more_than_is_known() -> None:
    assert call_headers(None) == {}
    assert call_headers(Episode("r", 1), request_id="c", continues=True) == {
        "x-gymckpt-episode": "r-a1",
        "x-gymckpt-request-id": "c",
        "x-gymckpt-continue": "1",
    }
