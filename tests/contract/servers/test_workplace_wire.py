"""The workplace server gives the recorded answers to the recorded requests."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from itsdangerous import TimestampSigner

from servers.execution_log import ExecutionLog
from servers.http.cookies import cookie_key, cookies_of, unsign
from servers.resources.workplace_assistant.app import SERVER_CLASS, workplace_app
from servers.resources.workplace_assistant.tables import load_tables
from tests.contract.servers.captures import Exchange, exchanges

NAME = "workplace_assistant"
KEY = cookie_key(SERVER_CLASS, NAME)


@pytest.fixture
def client(shared: Path) -> httpx.AsyncClient:
    pristine = load_tables(shared / "data/nemo_gym/workplace_assistant/csv")
    app = workplace_app(NAME, pristine, ExecutionLog(NAME))
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://workplace")


def session_cookie(exchange: Exchange) -> str | None:
    """The cookie that a recorded request had, or for a seed without one that it was given: ids are chance, and the
    requests after it use that one. A valid cookie is stamped anew, or the recording would grow too old."""
    value = cookies_of(exchange.sent("cookie")).get(KEY)
    if value is None and exchange.path == "/seed_session":
        value = cookies_of(exchange.received("set-cookie"))[KEY]
    signer = TimestampSigner(KEY)
    return signer.sign(signer.unsign(value)).decode() if value is not None and signer.validate(value) else value


async def replayed(client: httpx.AsyncClient, exchange: Exchange) -> httpx.Response:
    client.cookies.clear()
    value = session_cookie(exchange)
    headers = {} if value is None else {"cookie": f'{KEY}="{value}"'}
    body = None if exchange.method == "GET" else exchange.request
    return await client.request(exchange.method, exchange.path, json=body, headers=headers)


@pytest.mark.parametrize("task", ["task0", "task3"])
async def test_a_recorded_rollout_is_answered_as_it_was(client: httpx.AsyncClient, shared: Path, task: str) -> None:
    recorded = [exchange for exchange in exchanges(shared, f"A_{task}_*") if exchange.server == NAME]
    assert recorded[0].path == "/seed_session"
    cookie: str | None = None
    for exchange in recorded:
        client.cookies.clear()
        headers = {} if cookie is None else {"cookie": f'{KEY}="{cookie}"'}
        answer = await client.post(exchange.path, json=exchange.request, headers=headers)
        assert (answer.status_code, answer.json()) == (exchange.status, exchange.response)
        again = cookies_of(answer.headers.get_list("set-cookie"))[KEY]
        assert cookie is None or unsign(again, KEY) == unsign(cookie, KEY)
        cookie = again


async def test_edge_cases_are_answered_as_they_were(client: httpx.AsyncClient, shared: Path) -> None:
    """One recording differs on purpose: closing a session frees it, where the recorded server kept it for ever."""
    recorded = [exchange for exchange in exchanges(shared, "B_edge_*") if exchange.server == NAME]
    closing = [exchange for exchange in recorded if exchange.path == "/close_session"]
    assert len(recorded) > 20
    for exchange in [exchange for exchange in recorded if exchange not in closing] + closing:
        answer = await replayed(client, exchange)
        what = f"{exchange.method} {exchange.path} {exchange.request}"
        assert (answer.status_code, answer.json()) == (exchange.status, exchange.response), what
        assert len(answer.headers.get_list("set-cookie")) == len(exchange.received("set-cookie")), what


async def test_a_seed_without_cookie_is_answered_with_one_for_two_weeks(
    client: httpx.AsyncClient, shared: Path
) -> None:
    exchange = exchanges(shared, "B_edge_001_*")[0]
    answer = await replayed(client, exchange)
    (recorded,), (made,) = exchange.received("set-cookie"), answer.headers.get_list("set-cookie")
    assert made.split("; ")[1:] == recorded.split("; ")[1:]
    assert made.split("=")[0] == recorded.split("=")[0]
    assert answer.headers["vary"] == exchange.received("vary")[0]
