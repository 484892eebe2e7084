"""A session of example_single_tool_call that is closed stays closed: on an embedded server, and on one that was restored."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from nemo_gym.base_resources_server import ResourcesCloseSessionRequest, ResourcesSeedSessionRequest
from nemo_gym.episode_types import EpisodeId, TaskId
from nemo_gym.testing.session_conformance import check_resources_session_contract
from resources_servers.example_single_tool_call.app import SimpleWeatherResourcesServer

from gymckpt.nemo_gym.adapters import adapter_of
from gymckpt.participant.call import Message, Receive, Scope, Send
from gymckpt.participant.http import Body
from tests.nemo_gym.calls import Client
from tests.nemo_gym.embedded import made
from tests.nemo_gym.gym import MODEL, Gym

SERVER = "resources_servers.example_single_tool_call.app:SimpleWeatherResourcesServer"
NAME = "weather"
TASK = TaskId(taskset="weather", task_id="1")


class Forwarded:
    """An app that is a process elsewhere: what it is asked, that one answers."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = Body(receive)
        await body.read()
        headers = [pair for pair in scope["headers"] if pair[0] not in (b"host", b"content-length")]
        async with httpx.AsyncClient(timeout=30.0) as client:
            answer = await client.request(
                scope["method"], f"{self._url}{scope['path']}", headers=headers, content=b"".join(body.chunks)
            )
        start: Message = {"type": "http.response.start", "status": answer.status_code, "headers": answer.headers.raw}
        await send(start)
        await send({"type": "http.response.body", "body": answer.content})


def seed(session: str) -> dict[str, Any]:
    body: dict[str, Any] = request(session).model_dump(mode="json")
    return body


def request(session: str) -> ResourcesSeedSessionRequest:
    episode = EpisodeId(rollout_id=f"of-{session}", attempt=0)
    return ResourcesSeedSessionRequest(resources_session_id=session, episode_id=episode, task_id=TASK, task_data={})


def close(session: str, rollout: str = "") -> dict[str, Any]:
    return {"resources_session_id": session, "episode_id": {"rollout_id": rollout or f"of-{session}", "attempt": 0}}


def closing(session: str) -> ResourcesCloseSessionRequest:
    return ResourcesCloseSessionRequest.model_validate(close(session))


def check_contract(gym: Gym, session: str) -> None:
    """NeMo Gym's own check."""
    app: Any = Forwarded(gym.url(NAME))
    check_resources_session_contract(app, request(session), keeps_state=True)


def status(gym: Gym, http: httpx.Client, path: str, body: dict[str, Any]) -> int:
    """Of a call by a client that brings no cookie."""
    return Client(http, gym.url(NAME)).post(path, body)[0]


@pytest.fixture
def weather(gym: Gym) -> Gym:
    gym.add(NAME, "resources_servers", "example_single_tool_call", domain="agent")
    gym.add_policy("http://127.0.0.1:9")
    gym.serve_checkpoints()
    gym.start("policy_model", MODEL)
    gym.start(NAME, SERVER)
    gym.members(2)
    return gym


def test_closed_sessions_stay_closed_after_a_restore(weather: Gym, http: httpx.Client) -> None:
    """R03, R08, X12. The only session of the second checkpoint has not changed since the first one, in which the other one was open."""
    check_contract(weather, "before")
    living, closed = Client(http, weather.url(NAME)), Client(http, weather.url(NAME))
    assert living.post("/seed_session", seed("living"))[0] == 200
    assert closed.post("/seed_session", seed("closed"))[0] == 200
    weather.command("checkpoint", "create", "first")
    assert closed.post("/close_session", close("closed"))[0] == 200
    created = weather.command("checkpoint", "create", "second", "--resume", "by-caller")
    assert created["checkpoint"]["base_checkpoint_id"] == "first"
    assert created["checkpoint"]["episodes"] == 1
    weather.kill(NAME)
    weather.start(NAME, SERVER)
    weather.members(2)
    weather.command("checkpoint", "resume", "second")
    restored = weather.command("checkpoint", "restore", "second")
    assert [entry["source"] for entry in restored["restored"]] == ["of-living"]
    for session in ("closed", "before", "before-never-seeded"):
        assert status(weather, http, "/seed_session", seed(session)) == 500, session
    assert living.post("/get_weather", {"city": "Oslo"})[0] == 200
    assert status(weather, http, "/close_session", close("living", "of-somebody-else")) == 500
    assert living.post("/close_session", close("living"))[0] == 200
    assert status(weather, http, "/seed_session", {**seed("living"), "episode_id": {"rollout_id": "new"}}) == 500
    check_contract(weather, "after")


async def test_a_session_is_bound_again_and_one_that_the_checkpoint_holds_open_is_open() -> None:
    """R08."""
    first, second = (made(SimpleWeatherResourcesServer, name, {}) for name in ("first", "second"))
    exporter, importer = (adapter_of(SimpleWeatherResourcesServer)(server) for server in (first, second))
    for server, session in ((first, "a"), (first, "b"), (second, "a")):
        await server.seed_session(request(session))
    exporter.seeded("s", request("a").model_dump_json().encode())
    await asyncio.gather(first.close_resources_session(closing("b")), second.close_resources_session(closing("a")))
    parts = exporter.encode(exporter.freeze("s"))
    importer.install("s", importer.load(parts))
    assert importer.holds("s")
    assert second._session_episodes == first._session_episodes
    assert second._closed_session_ids == {"b"}
    assert importer.encode(importer.freeze("s")) == parts
    importer.discard("s")
    assert exporter.encode(importer.freeze("s"))["binding"] == b"null"
