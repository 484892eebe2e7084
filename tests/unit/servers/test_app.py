"""The frame of every server: identity, prefix, refusals, health."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from gymckpt.errors import AdmissionClosed, InvalidField, StaleAttempt
from gymckpt.participant import ResourcesParticipant
from servers.http.app import HEALTH_ROUTES, build_app
from servers.http.identity import this_call

REFUSALS = {
    "stale": StaleAttempt("old"),
    "closed": AdmissionClosed("later", retry_after=2.5),
    "bad": InvalidField("no"),
}


@asynccontextmanager
async def no_lifespan(_app: FastAPI) -> AsyncIterator[None]:
    yield


@pytest.fixture
def client() -> httpx.AsyncClient:
    app = build_app(no_lifespan, ResourcesParticipant("name"), cookie="Server___name")

    @app.post("/show")
    async def show(body: dict[str, Any]) -> dict[str, Any]:
        call = this_call()
        return {"route": call.route, "episode": str(call.episode), "session": call.session, "body": body}

    @app.post("/refuse/{what}")
    async def refuse(what: str) -> None:
        raise REFUSALS[what]

    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://server")


@pytest.mark.parametrize("route", HEALTH_ROUTES)
async def test_all_health_routes_say_ok(client: httpx.AsyncClient, route: str) -> None:
    answer = await client.get(route)
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
    assert answer.headers["set-cookie"].startswith("Server___name=")


@pytest.mark.parametrize("prefix", ["/ng-rollout/0-1-a2", "/ng-rollout/0-1-a2/training-token-capture"])
async def test_a_prefixed_call_reaches_the_same_route_and_names_its_episode(
    client: httpx.AsyncClient, prefix: str
) -> None:
    answer = (await client.post(f"{prefix}/show", json={"a": 1})).json()
    assert (answer["episode"], answer["body"]) == ("0-1-a2", {"a": 1})


async def test_a_header_names_the_episode_and_the_session_too(client: httpx.AsyncClient) -> None:
    headers = {"x-gymckpt-episode": "r-a1", "x-gymckpt-session": "s"}
    answer = (await client.post("/show", json={}, headers=headers)).json()
    assert answer == {"route": "/show", "episode": "r-a1", "session": "s", "body": {}}


async def test_a_prefix_that_contradicts_the_header_is_refused(client: httpx.AsyncClient) -> None:
    """X20"""
    answer = await client.post("/ng-rollout/a/show", json={}, headers={"x-gymckpt-episode": "b"})
    assert answer.status_code == 400
    assert answer.headers["x-gymckpt-reason"] == "INVALID_FIELD"
    assert "x-gymckpt-episode says b, the path prefix says a" in answer.json()["error"]["message"]


async def test_a_path_that_only_looks_prefixed_is_left_alone(client: httpx.AsyncClient) -> None:
    assert (await client.post("/ng-rollouts/a/show", json={})).status_code == 404


@pytest.mark.parametrize(
    ("what", "status", "reason"),
    [("stale", 409, "STALE_ATTEMPT"), ("closed", 503, "ADMISSION_CLOSED"), ("bad", 400, "INVALID_FIELD")],
)
async def test_a_refusal_is_marked_so_that_no_caller_takes_it_for_an_answer(
    client: httpx.AsyncClient, what: str, status: int, reason: str
) -> None:
    """X38"""
    answer = await client.post(f"/refuse/{what}")
    assert (answer.status_code, answer.headers["x-gymckpt-reason"]) == (status, reason)
    assert answer.json()["error"] == {
        "reason": reason,
        "message": REFUSALS[what].message,
        "details": REFUSALS[what].details,
    }


async def test_a_closed_gate_says_when_to_come_again(client: httpx.AsyncClient) -> None:
    assert (await client.post("/refuse/closed")).headers["retry-after"] == "3"
