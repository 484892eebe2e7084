"""Calls over ASGI: held without refusal, dropped when nobody waits, counted whatever becomes of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gymckpt.core.kinds import Capture
from gymckpt.participant import http
from tests.unit.participant.base.bed import Counters
from tests.unit.participant.resources.web import App, Exchange, answer, read
from tests.unit.participant.rounds import Rounds, settled, until


async def test_answers_inside_a_session_carry_its_revision_and_seeds_say_how_they_are_verified(
    rounds: Rounds,
) -> None:
    """C26, R10"""
    replay = App(Counters(rounds, verify="replay"))
    assert (await replay.call("/seed_session")).headers == {"x-gymckpt-revision": "1", "x-gymckpt-verify": "replay"}
    assert (await replay.call("/add")).headers == {"x-gymckpt-revision": "2"}
    restarting = App(Counters(rounds, capture=Capture.RESTART_ONLY))
    seeded = await restarting.call("/seed_session")
    assert (seeded.headers["x-gymckpt-verify"], seeded.headers["x-gymckpt-restart"]) == ("wait", "1")


async def test_a_held_call_goes_on_with_its_whole_body_when_the_gate_opens(
    rounds: Rounds, app: App, counters: Counters
) -> None:
    """R01, X38"""
    fence, _ = await rounds.prepare(counters.participant)
    exchange = Exchange("/add").send_body(b"one ", b"two")
    held = exchange.through(app.app)
    await settled()
    assert (held.done(), exchange.sent) == (False, [])
    await rounds.resume(counters.participant, fence)
    await held
    assert (exchange.status, app.bodies[-1]) == (200, b"one two")


@pytest.mark.parametrize("request_id", [{}, {"x_gymckpt_request_id": "call-1"}], ids=["plain", "repeatable"])
async def test_a_held_call_whose_client_went_away_is_never_started(
    rounds: Rounds, app: App, counters: Counters, request_id: dict[str, str]
) -> None:
    """X38, R15"""
    fence, _ = await rounds.prepare(counters.participant)
    exchange = Exchange("/add", **request_id).send_body(b"{}")
    held = exchange.through(app.app)
    await settled()
    exchange.leave()
    await held
    await rounds.resume(counters.participant, fence)
    await settled()
    assert (counters.values, exchange.sent, len(app.calls)) == ({"r": 0}, [], 1)


async def test_an_episode_is_missed_only_as_long_as_somebody_waits_for_it(app: App, counters: Counters) -> None:
    """X38: a mistyped session whose client gave up is no loss."""
    first, second = (Exchange("/add", x_gymckpt_session="mistyped").send_body(b"{}") for _ in range(2))
    waiting = [exchange.through(app.app) for exchange in (first, second)]
    await settled()
    first.leave()
    await waiting[0]
    assert [str(episode) for episode in counters.participant.lost] == ["r"]
    second.leave()
    await waiting[1]
    assert counters.participant.lost == {}


async def test_a_slow_client_keeps_no_checkpoint_waiting_and_one_that_leaves_half_way_starts_nothing(
    rounds: Rounds, app: App, counters: Counters
) -> None:
    """R01, R15"""
    exchange = Exchange("/add").send_body(b"half of", more=True)
    slow = exchange.through(app.app)
    await settled()
    fence, prepared = await rounds.prepare(counters.participant)
    assert prepared.report.ready
    await rounds.resume(counters.participant, fence)
    exchange.leave()
    await slow
    assert (counters.values, len(app.calls)) == ({"r": 0}, 1)


async def test_a_client_that_does_not_take_its_answer_keeps_no_checkpoint_waiting(
    rounds: Rounds, app: App, counters: Counters
) -> None:
    """R01"""
    exchange, taken = Exchange("/add").send_body(b"{}"), asyncio.Event()

    async def stuck(message: Any) -> None:
        await taken.wait()

    calling = asyncio.create_task(app.app(exchange.scope, exchange.receive, stuck))
    await until(lambda: counters.values == {"r": 1})
    _, prepared = await rounds.prepare(counters.participant)
    assert prepared.report.ready
    taken.set()
    await calling


async def test_the_reply_leaves_only_after_mutation_revision_and_receipt(app: App, counters: Counters) -> None:
    """X16, X32"""
    exchange = Exchange("/add", x_gymckpt_request_id="call-1").send_body(b"{}")
    session = counters.participant.sessions.get("r")
    assert session is not None
    seen: list[tuple[int, tuple[str, ...], int]] = []

    async def watched(message: Any) -> None:
        seen.append((session.revision, tuple(session.receipts), len(counters.participant.in_flight)))

    await app.app(exchange.scope, exchange.receive, watched)
    assert set(seen) == {(2, ("call-1",), 0)}


@pytest.mark.parametrize("fault", ["raise", "raise after start", "no answer", "half an answer", "cancelled"])
async def test_a_handler_that_fails_is_uncounted_and_its_session_revised(
    app: App, counters: Counters, fault: str
) -> None:
    """X32, R15"""
    entered = asyncio.Event()

    async def add(scope: Any, receive: Any, send: Any) -> None:
        counters.values["r"] += 10
        entered.set()
        if fault == "raise":
            raise RuntimeError("the tool fails")
        if fault == "cancelled":
            await asyncio.Event().wait()
        if fault != "no answer":
            await send({"type": "http.response.start", "status": 200, "headers": []})
        if fault == "half an answer":
            await send({"type": "http.response.body", "body": b"half", "more_body": True})
        if fault == "raise after start":
            raise RuntimeError("the tool fails")

    app.handlers["/add"] = add
    exchange = Exchange("/add").send_body(b"{}")
    calling = exchange.through(app.app)
    await entered.wait()
    if fault == "cancelled":
        calling.cancel()
    await asyncio.wait({calling})
    assert calling.cancelled() or (calling.exception() is not None) is fault.startswith("raise")
    session = counters.participant.sessions.get("r")
    assert session is not None
    assert (exchange.sent, session.revision, session.unreceipted_revision) == ([], 2, 2)
    assert len(counters.participant.in_flight) == counters.participant.blocking() == 0


@pytest.mark.parametrize("fault", ["raises", "answers 500", "is cancelled"])
async def test_what_a_failing_handler_changed_is_in_the_next_checkpoint(
    rounds: Rounds, app: App, counters: Counters, fault: str
) -> None:
    """X32: although that builds on one which held the session as it was before."""
    changed = asyncio.Event()

    async def add(scope: Any, receive: Any, send: Any) -> None:
        counters.values["r"] += 10
        changed.set()
        if fault == "raises":
            raise RuntimeError("the tool fails")
        if fault == "is cancelled":
            await asyncio.Event().wait()
        await answer(send, b"no", status=500)

    first = await rounds.checkpoint(counters.participant)
    app.handlers["/add"] = add
    calling = Exchange("/add").send_body(b"{}").through(app.app)
    await changed.wait()
    if fault == "is cancelled":
        calling.cancel()
    await asyncio.wait({calling})
    assert calling.cancelled() or (calling.exception() is not None) is (fault == "raises")
    second = await rounds.checkpoint(counters.participant, base=first.manifest.checkpoint_id)
    assert second.taken.changed == 1
    held = [(await rounds.parts(checkpoint.records["r"]))["value"] for checkpoint in (first, second)]
    assert held == [b"0", b"10"]


@pytest.mark.parametrize(
    ("exchange", "status", "reason"),
    [
        (Exchange("/add", "r-a9", x_gymckpt_session="r"), 409, "STALE_ATTEMPT"),
        (Exchange("/add", "-"), 400, "INVALID_FIELD"),
        (Exchange("/add", None, x_gymckpt_session="r"), 409, "EPISODE_REQUIRED"),
        (Exchange("/add", "r", x_gymckpt_continue="perhaps"), 400, "INVALID_FIELD"),
        (Exchange("/seed_session", "gone"), 409, "STALE_ATTEMPT"),
    ],
    ids=["another attempt", "garbage", "no episode", "garbage flag", "retired"],
)
async def test_a_refusal_is_told_from_an_answer_of_the_tool_by_its_header(
    rounds: Rounds, app: App, counters: Counters, exchange: Exchange, status: int, reason: str
) -> None:
    """X38, X20, V03"""
    await rounds.retire(counters.participant, "gone")
    exchange.send_body(b"{}")
    await exchange.through(app.app)
    assert (exchange.status, exchange.headers["x-gymckpt-reason"], exchange.reason) == (status, reason, reason)
    assert (counters.values, len(app.calls)) == ({"r": 0}, 1)


async def test_reads_are_not_counted_and_stream_as_they_come(rounds: Rounds, app: App, counters: Counters) -> None:
    """R02"""
    go = asyncio.Event()

    async def events(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        await go.wait()
        await send({"type": "http.response.body", "body": b"last", "more_body": False})

    app.handlers["/mcp"] = events
    exchange = Exchange("/mcp", method="GET").send_body(b"")
    streaming = exchange.through(app.app)
    await until(lambda: exchange.body == b"first")
    _, prepared = await rounds.prepare(counters.participant)
    assert prepared.report.ready
    go.set()
    await streaming
    assert exchange.body == b"firstlast"


async def test_an_answer_in_many_chunks_arrives_whole(app: App) -> None:
    async def add(scope: Any, receive: Any, send: Any) -> None:
        await read(receive)
        await answer(send, *[b"%d," % number for number in range(100)])

    app.handlers["/add"] = add
    exchange = await app.call("/add")
    assert exchange.body == b"".join(b"%d," % number for number in range(100))
    assert [message.get("more_body") for message in exchange.sent[1:]] == [True] * 99 + [False]


async def test_a_body_above_the_bound_streams_to_its_handler_and_is_refused_only_where_it_must_be_compared(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X20"""
    monkeypatch.setattr(http, "MAX_BODY", 10)
    exchange = Exchange("/add").send_body(b"0123456789ab", b"cdef")
    await exchange.through(app.app)
    assert (exchange.status, app.bodies[-1]) == (200, b"0123456789abcdef")
    repeatable = Exchange("/add", x_gymckpt_request_id="call-1").send_body(b"0123456789ab", b"cdef")
    await repeatable.through(app.app)
    assert (repeatable.status, repeatable.reason) == (400, "INVALID_FIELD")


async def test_an_answer_above_the_bound_or_of_another_form_is_refused_and_its_session_revised(
    app: App, counters: Counters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X32"""
    monkeypatch.setattr(http, "MAX_BODY", 10)

    async def large(scope: Any, receive: Any, send: Any) -> None:
        await answer(send, b"0123456789", b"ab")

    async def other(scope: Any, receive: Any, send: Any) -> None:
        assert "extensions" not in scope
        await send({"type": "http.response.pathsend", "path": "/etc/passwd"})

    app.handlers |= {"/large": large, "/other": other}
    for route, revision in (("/large", 2), ("/other", 3)):
        exchange = await app.call(route)
        assert (exchange.status, exchange.reason) == (409, "NOT_IMPLEMENTED")
        session = counters.participant.sessions.get("r")
        assert session is not None
        assert session.revision == revision


async def test_off_means_that_every_call_passes_untouched_and_nothing_is_kept(rounds: Rounds) -> None:
    """X23"""
    tools = Counters(rounds)
    tools.participant.enabled = False
    app = App(tools)
    for route in ("/seed_session", "/add", "/close_session"):
        exchange = await app.call(route)
        assert (exchange.status, exchange.headers) == (200, {})
    assert (tools.keys, len(tools.participant.in_flight), tools.participant.lost) == ([], 0, {})
    assert tools.participant.address == ""


async def test_websockets_and_lifespan_pass(app: App) -> None:
    seen: list[str] = []

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["type"])

    app.app._app = inner
    for kind in ("lifespan", "websocket"):
        await app.app({"type": kind}, app.app, app.app)  # type: ignore[arg-type]
    assert seen == ["lifespan", "websocket"]


async def test_a_seed_whose_handler_leaves_no_usable_key_is_refused_and_uncounted(app: App, counters: Counters) -> None:
    """R03, R15"""

    async def seed(scope: Any, receive: Any, send: Any) -> None:
        scope["session"] = {"session_id": 7}
        await answer(send, b"{}")

    app.handlers["/seed_session"] = seed
    exchange = await app.call("/seed_session", "s")
    assert (exchange.status, exchange.reason) == (400, "INVALID_FIELD")
    assert (counters.keys, len(counters.participant.in_flight)) == (["r"], 0)
