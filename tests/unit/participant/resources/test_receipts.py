"""A repeatable mutation that comes again is answered from its receipt and never applied again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gymckpt.participant.receipts import MAX_RECEIPT
from tests.unit.participant.base.bed import Counters
from tests.unit.participant.resources.web import App, Exchange, answer, read
from tests.unit.participant.rounds import Rounds, settled


def repeatable(route: str = "/add", body: bytes = b"{}", request_id: str = "call-1", **options: Any) -> Exchange:
    return Exchange(route, x_gymckpt_request_id=request_id, **options).send_body(body)


async def test_the_same_request_again_gets_the_same_answer_and_changes_nothing(app: App) -> None:
    """V01, X16"""

    async def add(scope: Any, receive: Any, send: Any) -> None:
        app.counters.values["r"] += 1
        await answer(send, b"o", b"k", status=201, headers=[(b"x-tool", b"adder"), (b"set-cookie", b"c=1")])

    app.handlers["/add"] = add
    first, again = repeatable(), repeatable()
    await first.through(app.app)
    await again.through(app.app)
    assert app.counters.values == {"r": 1}
    assert (again.status, again.body) == (first.status, first.body) == (201, b"ok")
    assert again.headers == {"x-tool": "adder", "x-gymckpt-revision": "2"}
    assert first.headers == {"x-tool": "adder", "set-cookie": "c=1", "x-gymckpt-revision": "2"}


async def test_two_that_race_are_applied_once(app: App) -> None:
    """V01, X16, V08"""
    entered, go = asyncio.Event(), asyncio.Event()

    async def add(scope: Any, receive: Any, send: Any) -> None:
        entered.set()
        await go.wait()
        app.counters.values["r"] += 1
        await answer(send, str(app.counters.values["r"]).encode())

    app.handlers["/add"] = add
    exchanges = [repeatable() for _ in range(5)]
    tasks = [exchange.through(app.app) for exchange in exchanges]
    await entered.wait()
    await settled()
    assert app.counters.participant.in_flight.blocking == 1
    go.set()
    await asyncio.gather(*tasks)
    assert [exchange.body for exchange in exchanges] == [b"1"] * 5
    assert app.counters.values == {"r": 1}


async def test_when_the_first_of_two_that_race_fails_without_an_answer_the_second_is_carried_out(app: App) -> None:
    """X16"""
    entered, go = asyncio.Event(), asyncio.Event()

    async def add(scope: Any, receive: Any, send: Any) -> None:
        if not entered.is_set():
            entered.set()
            await go.wait()
            raise RuntimeError("the tool fails")
        await answer(send, b"second")

    app.handlers["/add"] = add
    first, second = repeatable(), repeatable()
    failing, waiting = first.through(app.app), second.through(app.app)
    await entered.wait()
    await settled()
    go.set()
    with pytest.raises(RuntimeError):
        await failing
    await waiting
    assert (first.sent, second.body) == ([], b"second")


@pytest.mark.parametrize("status", [400, 404, 500])
async def test_an_answer_that_says_failure_is_a_receipt_as_well(app: App, status: int) -> None:
    """X16, X32"""
    ran: list[int] = []

    async def add(scope: Any, receive: Any, send: Any) -> None:
        ran.append(status)
        await answer(send, b"no", status=status)

    app.handlers["/add"] = add
    exchanges = [repeatable(), repeatable()]
    for exchange in exchanges:
        await exchange.through(app.app)
    assert [(exchange.status, exchange.body) for exchange in exchanges] == [(status, b"no")] * 2
    assert len(ran) == 1
    session = app.counters.participant.sessions.get("r")
    assert session is not None
    assert (session.revision, session.unreceipted_revision) == (2, 0)


@pytest.mark.parametrize(
    "again", [repeatable(body=b"{ }"), repeatable("/sub"), repeatable(method="PUT")], ids=["body", "route", "method"]
)
async def test_an_id_that_was_used_for_another_request_is_refused(app: App, again: Exchange) -> None:
    """X16"""
    await repeatable().through(app.app)
    await again.through(app.app)
    assert (again.status, again.reason) == (409, "ARGUMENT_CONFLICT")
    assert app.counters.values == {"r": 1}


async def test_receipts_come_back_with_their_session_and_never_outlive_it(
    rounds: Rounds, app: App, counters: Counters
) -> None:
    """X16, V01"""
    await repeatable().through(app.app)
    await repeatable(request_id="call-2").through(app.app)
    published = await rounds.checkpoint(counters.participant)
    assert (published.records["r"].revision, published.records["r"].unreceipted_revision) == (3, 0)
    target = Counters(rounds)
    await rounds.restore(target.participant, published.digest, ("r", 1))
    web = App(target)
    again = Exchange("/add", "r-a1", x_gymckpt_request_id="call-2").send_body(b"{}")
    await again.through(web.app)
    assert (again.body, again.headers["x-gymckpt-revision"], target.values) == (b"2", "3", {"r": 2})
    await web.call("/close_session", "r-a1")
    await web.call("/seed_session", "r-a1")
    fresh = Exchange("/add", "r-a1", x_gymckpt_request_id="call-2").send_body(b"{}")
    await fresh.through(web.app)
    assert len(web.calls) == 3


async def test_an_answer_too_large_to_keep_is_given_once_and_still_not_applied_again(app: App) -> None:
    """X16"""
    ran: list[int] = []

    async def add(scope: Any, receive: Any, send: Any) -> None:
        ran.append(len(await read(receive)))
        await answer(send, b"x" * (MAX_RECEIPT + 1))

    app.handlers["/add"] = add
    first, again = repeatable(), repeatable()
    await first.through(app.app)
    await again.through(app.app)
    assert (len(first.body), again.status, again.reason, ran) == (MAX_RECEIPT + 1, 409, "CONFLICT", [2])
    session = app.counters.participant.sessions.get("r")
    assert session is not None
    assert session.unreceipted_revision == 2


async def test_without_a_request_id_every_call_is_applied_and_unreceipted(app: App) -> None:
    """X32"""
    await app.call("/add")
    await app.call("/add")
    session = app.counters.participant.sessions.get("r")
    assert session is not None
    assert (app.counters.values, session.revision, session.unreceipted_revision) == ({"r": 2}, 3, 3)


async def test_a_repeat_is_held_like_any_call_while_the_gate_is_closed(
    rounds: Rounds, app: App, counters: Counters
) -> None:
    """R01, X16"""
    await repeatable().through(app.app)
    fence, _ = await rounds.prepare(counters.participant)
    again = repeatable()
    held = again.through(app.app)
    await settled()
    assert not held.done()
    await rounds.resume(counters.participant, fence)
    await held
    assert again.body == b"1"
