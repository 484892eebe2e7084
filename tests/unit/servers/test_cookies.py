"""Session cookies."""

from __future__ import annotations

import base64
import json

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from servers.http.cookies import MAX_AGE, SessionCookies, cookie_header, cookie_key, cookies_of, sign, unsign

KEY = cookie_key("SimpleAgent", "simple_agent")


async def show_session(request: Request) -> JSONResponse:
    session = request.scope["session"]
    if "set" in request.query_params:
        session["agent_session_id"] = request.query_params["set"]
    return JSONResponse(session, 503 if "fail" in request.query_params else 200)


@pytest.fixture
def client() -> httpx.AsyncClient:
    app = Starlette(routes=[Route("/", show_session)])
    return httpx.AsyncClient(transport=httpx.ASGITransport(SessionCookies(app, KEY)), base_url="http://server")


async def answered(client: httpx.AsyncClient, cookie: str | None, query: str = "") -> tuple[dict[str, str], str]:
    """The session that the server saw, and the value of the cookie that it set."""
    headers = {} if cookie is None else {"cookie": cookie}
    client.cookies.clear()
    answer = await client.get(f"/?{query}", headers=headers)
    return answer.json(), cookies_of(answer.headers.get_list("set-cookie"))[KEY]


def test_the_key_is_the_class_and_the_instance() -> None:
    assert KEY == "SimpleAgent___simple_agent"


def test_a_value_is_base64_json_with_stamp_and_signature() -> None:
    payload, stamp, signature = sign({"session_id": "s"}, KEY).split(".")
    assert base64.b64decode(payload) == b'{"session_id": "s"}'
    assert stamp
    assert signature
    assert unsign(f"{payload}.{stamp}.{signature}", KEY) == {"session_id": "s"}


@pytest.mark.parametrize(
    "value",
    ["", "xx", "a.b.c", sign({"session_id": "s"}, "Another___server")],
    ids=["empty", "no signature", "forged", "of another server"],
)
def test_a_value_that_was_not_signed_with_the_key_holds_nothing(value: str) -> None:
    assert unsign(value, KEY) == {}


async def test_a_caller_without_cookie_gets_a_session_and_keeps_it(client: httpx.AsyncClient) -> None:
    session, value = await answered(client, None)
    assert unsign(value, KEY) == session
    again, value_again = await answered(client, f"{KEY}={value}")
    assert again == session
    assert unsign(value_again, KEY) == session


async def test_a_quoted_value_is_accepted(client: httpx.AsyncClient) -> None:
    value = sign({"session_id": "x"}, KEY)
    assert "==" in value
    session, _ = await answered(client, f'other=1; {KEY}="{value}"')
    assert session == {"session_id": "x"}


async def test_a_forged_cookie_silently_becomes_a_new_session(client: httpx.AsyncClient) -> None:
    forged = sign({"session_id": "s"}, KEY)[:-3] + "AAA"
    session, _ = await answered(client, f"{KEY}={forged}")
    assert session["session_id"] != "s"


async def test_every_answer_carries_the_cookie_again_whatever_its_status(client: httpx.AsyncClient) -> None:
    answer = await client.get("/?fail=1")
    assert answer.status_code == 503
    assert answer.headers["vary"] == "Cookie"
    assert answer.headers["set-cookie"].endswith(f"; path=/; Max-Age={MAX_AGE}; httponly; samesite=lax")


async def test_what_a_handler_adds_to_the_session_is_signed_too(client: httpx.AsyncClient) -> None:
    _, value = await answered(client, None, "set=agent-session-1")
    assert list(json.loads(base64.b64decode(value.split(".")[0]))) == ["session_id", "agent_session_id"]
    session, _ = await answered(client, f"{KEY}={value}")
    assert session["agent_session_id"] == "agent-session-1"


def test_a_cookie_header_carries_all_cookies() -> None:
    assert cookie_header({"b": "2", "a": "1="}) == "a=1=; b=2"
