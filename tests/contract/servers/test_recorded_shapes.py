"""What the shape functions make of recorded requests is what the recorded servers made of them."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from servers.http.aggregate import aggregate
from servers.model.events import response_events
from servers.responses_api import complete_chat, complete_params, complete_response
from tests.contract.servers.captures import Exchange, exchanges


def pairs(recorded: list[Exchange]) -> list[tuple[Exchange, Exchange]]:
    """Each call of the model server with the call to its upstream that followed."""
    return [
        (left, right)
        for left, right in itertools.pairwise(recorded)
        if left.server == "policy_model" and right.server.startswith("upstream")
    ]


def events_of(stream: str) -> list[tuple[str, Any]]:
    """Name and data of each server-sent event."""
    events = [event.split("\n") for event in stream.split("\n\n") if event]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in events]


@pytest.mark.parametrize("pattern", ["A_task*", "E_single_agent_turn_*"])
def test_the_model_server_fills_in_the_answer_of_its_upstream(shared: Path, pattern: str) -> None:
    found = pairs(exchanges(shared, pattern))
    assert found
    for model, upstream in found:
        assert complete_response(upstream.response) == model.response


def test_chat_completions_are_filled_in_too(shared: Path) -> None:
    (model, upstream), *_ = [
        pair for pair in pairs(exchanges(shared, "B_edge_*")) if pair[0].path == "/v1/chat/completions"
    ]
    assert complete_chat(upstream.response) == model.response


def test_a_streamed_response_is_the_recorded_events(shared: Path) -> None:
    (model, upstream), *_ = [
        pair
        for pair in pairs(exchanges(shared, "B_edge_*"))
        if isinstance(pair[0].request, dict) and pair[0].request.get("stream")
    ]
    made = response_events(complete_response(upstream.response)).decode()
    assert events_of(made) == events_of(model.response)


@pytest.mark.parametrize("pattern", ["A_task*", "E_single_agent_turn_*"])
def test_a_graded_rollout_carries_complete_parameters_and_response(shared: Path, pattern: str) -> None:
    verified = [exchange for exchange in exchanges(shared, pattern) if exchange.path == "/verify"]
    assert verified
    for exchange in verified:
        body: dict[str, Any] = exchange.response
        assert complete_params(exchange.request["responses_create_params"]) == body["responses_create_params"]
        assert complete_response(exchange.request["response"]) == body["response"]


def test_metrics_are_those_of_the_recorded_servers(shared: Path) -> None:
    for exchange in exchanges(shared, "A_aggregate_*_aggregate_metrics.json"):
        made = aggregate(exchange.request["verify_responses"])
        assert set(made) == set(exchange.response)
        for name in ("agent_metrics", "key_metrics"):
            assert made[name] == pytest.approx(exchange.response[name])
        assert len(made["group_level_metrics"]) == len(exchange.response["group_level_metrics"])
        for group, recorded in zip(made["group_level_metrics"], exchange.response["group_level_metrics"], strict=True):
            assert list(group) == list(recorded)
            assert group == recorded
