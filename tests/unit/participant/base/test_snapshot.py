"""The cut: when it may be taken, what it holds, and that nothing changes it afterwards."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping

import pytest

from gymckpt.core.admission import Running
from gymckpt.core.kinds import Capture, ExportState, GateState
from gymckpt.core.transitions import Abort, Decided, Resume, Snapshot, Upload
from gymckpt.errors import (
    CheckpointAborted,
    CutVoid,
    InvalidPhase,
    RestartInScope,
    StaleCheckpoint,
    StoreFull,
    StoreUnavailable,
)
from gymckpt.participant import Episode
from tests.unit.participant.base.bed import Counters, StoppableStore
from tests.unit.participant.rounds import Rounds, settled


async def test_a_snapshot_without_a_prepare_and_an_upload_without_a_snapshot_are_refused(
    rounds: Rounds, counters: Counters
) -> None:
    """C12"""
    p = counters.participant
    with pytest.raises(InvalidPhase, match="prepare first"):
        await rounds.ask(p, rounds.fence(), Snapshot(1, 600.0))
    fence, _ = await rounds.prepare(p)
    with pytest.raises(InvalidPhase, match="take the snapshot first"):
        await rounds.ask(p, fence, Upload())
    assert (counters.gate(), counters.export()) == (GateState.CLOSED, ExportState.NONE)


async def test_the_cut_is_void_once_the_gate_was_reopened_or_work_was_let_in(
    rounds: Rounds, counters: Counters
) -> None:
    """X01"""
    p = counters.participant
    counters.seed("r")
    fence, prepared = await rounds.prepare(p)
    await rounds.resume(p, fence)
    with pytest.raises(CutVoid, match="reopened"):
        await rounds.snapshot(p, fence, prepared)

    fence, prepared = await rounds.prepare(p)
    ticket = counters.enter("r", within=Episode("r"))
    with pytest.raises(CutVoid):
        await rounds.snapshot(p, fence, prepared)
    counters.leave(ticket)
    with pytest.raises(CutVoid, match="1 calls were let in"):
        await rounds.snapshot(p, fence, prepared)
    assert counters.export() is ExportState.NONE


async def test_the_cut_is_void_when_a_blocker_appeared_since_prepare(rounds: Rounds, counters: Counters) -> None:
    """C18, X01"""
    p = counters.participant
    fence, prepared = await rounds.prepare(p)
    p.in_flight.enter(Running("stream", Episode("r"), "call 7", 0.0, blocks=True))
    with pytest.raises(CutVoid, match="no longer ready, 1 blockers: stream r call 7"):
        await rounds.snapshot(p, fence, prepared)
    assert counters.export() is ExportState.NONE


async def test_what_is_stored_is_the_state_at_the_cut_however_much_it_changes_before_and_during_the_upload(
    rounds: Rounds, counters: Counters, store: StoppableStore
) -> None:
    """X02, C41, C57, X33"""
    p = counters.participant
    counters.seed("r", value=5)
    fence, prepared = await rounds.prepare(p)
    taken = await rounds.snapshot(p, fence, prepared)
    assert (taken.sessions, taken.changed) == (1, 1)
    await rounds.resume(p, fence)
    assert (counters.gate(), counters.export()) == (GateState.OPEN, ExportState.FROZEN)
    counters.add("r")
    store.stop()
    publishing = asyncio.create_task(rounds.publish(p, fence, taken))
    await store.reached.wait()
    counters.add("r", 100)
    store.running.set()
    published = await publishing
    assert json.loads((await rounds.parts(published.records["r"]))["value"]) == 5
    assert (published.records["r"].revision, counters.values["r"]) == (1, 106)


async def test_a_snapshot_and_an_upload_that_come_again_answer_about_the_first_export(
    rounds: Rounds, counters: Counters
) -> None:
    """C07, C41, C57"""
    p = counters.participant
    counters.seed("r")
    fence, prepared = await rounds.prepare(p)
    taken = await rounds.snapshot(p, fence, prepared)
    await rounds.resume(p, fence)
    uploaded = await rounds.ask(p, fence, Upload())
    counters.add("r")
    assert await rounds.snapshot(p, fence, prepared) is taken
    assert await rounds.ask(p, fence, Upload()) is uploaded
    assert (counters.state.frozen, len(counters.state.encoded)) == (["r"], 1)


async def test_an_upload_whose_caller_went_away_goes_on_and_the_retry_waits_for_it(
    rounds: Rounds, counters: Counters, store: StoppableStore
) -> None:
    """C41, C57, X33"""
    p = counters.participant
    counters.seed("r")
    fence, prepared = await rounds.prepare(p)
    await rounds.snapshot(p, fence, prepared)
    store.stop()
    caller = asyncio.create_task(rounds.ask(p, fence, Upload()))
    await store.reached.wait()
    caller.cancel()
    await asyncio.wait({caller})
    retry = asyncio.create_task(rounds.ask(p, fence, Upload()))
    await settled()
    assert counters.gate() is GateState.CLOSED
    store.running.set()
    assert (await retry).sessions == 1
    assert len(counters.state.encoded) == 1
    assert counters.gate() is GateState.CLOSED


@pytest.mark.parametrize("failure", [StoreUnavailable("gone"), StoreFull("full")])
async def test_a_store_that_fails_keeps_the_cut_and_the_retry_sends_the_same(
    rounds: Rounds, counters: Counters, store: StoppableStore, failure: Exception
) -> None:
    """C47"""
    p = counters.participant
    counters.seed("r", value=3)
    fence, prepared = await rounds.prepare(p)
    taken = await rounds.snapshot(p, fence, prepared)
    await rounds.resume(p, fence)
    store.failure = failure
    with pytest.raises(type(failure)):
        await rounds.ask(p, fence, Upload())
    assert counters.export() is ExportState.FROZEN
    counters.add("r")
    published = await rounds.publish(p, fence, taken)
    assert json.loads((await rounds.parts(published.records["r"]))["value"]) == 3


async def test_abort_ends_a_running_upload_within_a_second_and_nothing_of_it_is_uploaded_afterwards(
    rounds: Rounds, counters: Counters, store: StoppableStore
) -> None:
    """X04"""
    p = counters.participant
    counters.seed("r")
    fence, prepared = await rounds.prepare(p)
    await rounds.snapshot(p, fence, prepared)
    store.stop()
    upload = asyncio.create_task(rounds.ask(p, fence, Upload()))
    await store.reached.wait()
    async with asyncio.timeout(1.0):
        assert not (await rounds.ask(p, fence, Abort("enough"))).already
        with pytest.raises(CheckpointAborted):
            await upload
    assert (counters.gate(), counters.export()) == (GateState.OPEN, ExportState.NONE)
    store.running.set()
    await settled()
    assert store.written == []
    with pytest.raises(StaleCheckpoint):
        await rounds.ask(p, fence, Upload())


async def test_the_end_of_the_export_leaves_the_gate_and_the_end_of_the_gate_the_export(
    rounds: Rounds, counters: Counters
) -> None:
    """X33"""
    p = counters.participant
    counters.seed("r")
    fence, prepared = await rounds.prepare(p)
    await rounds.snapshot(p, fence, prepared)
    await rounds.ask(p, fence, Decided(published=False))
    assert (counters.gate(), counters.export()) == (GateState.CLOSED, ExportState.NONE)
    await rounds.ask(p, fence, Resume())

    fence, prepared = await rounds.prepare(p)
    await rounds.snapshot(p, fence, prepared)
    await rounds.ask(p, fence, Resume())
    assert (counters.gate(), counters.export()) == (GateState.OPEN, ExportState.FROZEN)


async def test_every_session_in_scope_is_exported_and_no_other(rounds: Rounds, counters: Counters) -> None:
    """C36, C21"""
    p = counters.participant
    for text in ("a", "b", "c-a2"):
        counters.seed(text)
    everything = await rounds.checkpoint(p)
    assert sorted(everything.records) == ["a", "b", "c-a2"]
    listed = await rounds.checkpoint(p, scope=[Episode("b"), Episode("c", 2), Episode("unknown")])
    assert sorted(listed.records) == ["b", "c-a2"]
    assert counters.keys == ["a", "b", "c"]


async def test_one_session_that_cannot_be_frozen_or_encoded_is_named_and_the_others_are_stored(
    rounds: Rounds, counters: Counters
) -> None:
    """C44, X32"""
    p = counters.participant
    for text, value in (("a", 1), ("b", 2), ("c", 3)):
        counters.seed(text, value=value)
    counters.seed("b", key="b-too", value=7)
    foreign = object()
    counters.values["a"] = foreign  # type: ignore[assignment]
    counters.state.refuse_encode = b"7"
    published = await rounds.checkpoint(p)
    assert sorted(published.records) == ["c"]
    [frozen, encoded] = published.uploaded.failed
    assert (str(frozen.episode), str(encoded.episode)) == ("a", "b")
    assert frozen.why.startswith("resources/tools could not freeze session 'a': ValueError('not plain data")
    assert encoded.why == "resources/tools: session 'b-too' could not be encoded: RuntimeError('cannot be encoded')"


async def test_parts_may_be_any_bytes(rounds: Rounds, counters: Counters, monkeypatch: pytest.MonkeyPatch) -> None:
    """X32: an encoder's own buffer is as good as a copy of it."""
    encode = counters.state.encode
    monkeypatch.setattr(counters.state, "encode", lambda frozen: {"value": bytearray(encode(frozen)["value"])})
    counters.seed("a", value=5)
    published = await rounds.checkpoint(counters.participant)
    assert (sorted(published.records), published.uploaded.failed) == (["a"], ())


async def test_a_restart_only_session_is_reported_never_exported_and_refused_in_a_scope(rounds: Rounds) -> None:
    """C53, C56, R10"""
    tools = Counters(rounds, capture=Capture.RESTART_ONLY)
    tools.seed("r")
    tools.enter("r")
    fence, prepared = await rounds.prepare(tools.participant)
    assert [str(restart.episode) for restart in prepared.report.restarts] == ["r"]
    with pytest.raises(RestartInScope, match="r cannot be captured by resources/tools"):
        await rounds.snapshot(tools.participant, fence, prepared, scope=[Episode("r")])
    assert (await rounds.snapshot(tools.participant, fence, prepared)).sessions == 0


async def test_a_stateless_server_exports_its_sessions_without_state(rounds: Rounds) -> None:
    """R09"""
    tools = Counters(rounds, capture=Capture.STATELESS)
    tools.seed("r", key="cookie")
    published = await rounds.checkpoint(tools.participant)
    record = published.records["r"]
    assert (record.session, record.state, record.revision) == ("cookie", None, 1)
    again = Counters(rounds, capture=Capture.STATELESS)
    await rounds.restore(again.participant, published.digest, ("r", 1))
    assert again.keys == ["cookie"]


async def test_an_attempt_that_is_refused_is_not_in_the_cut_even_where_its_session_is_not_freed_yet(
    rounds: Rounds, counters: Counters
) -> None:
    """S07, C34"""
    for text in ("r", "s"):
        counters.seed(text)
    counters.participant.floors.refuse(Episode("r"))
    assert sorted((await rounds.checkpoint(counters.participant)).records) == ["s"]


async def test_abort_does_not_wait_for_an_encoder_that_is_busy_in_its_thread(
    rounds: Rounds, counters: Counters, store: StoppableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X04"""
    p = counters.participant
    counters.seed("r")
    encode, busy, go = counters.state.encode, threading.Event(), threading.Event()

    def slowly(frozen: bytes) -> Mapping[str, bytes]:
        busy.set()
        go.wait(5.0)
        return encode(frozen)

    monkeypatch.setattr(counters.state, "encode", slowly)
    fence, prepared = await rounds.prepare(p)
    await rounds.snapshot(p, fence, prepared)
    upload = asyncio.create_task(rounds.ask(p, fence, Upload()))
    await asyncio.to_thread(busy.wait, 5.0)
    try:
        async with asyncio.timeout(1.0):
            await rounds.ask(p, fence, Abort())
            with pytest.raises(CheckpointAborted):
                await upload
    finally:
        go.set()
    assert (counters.gate(), store.written) == (GateState.OPEN, [])
