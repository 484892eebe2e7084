"""How a model's calls and a checkpoint pass each other."""

from __future__ import annotations

import asyncio

import pytest

from gymckpt.core.ids import Episode
from gymckpt.errors import CutVoid, InvalidField, StaleAttempt, StoreFull
from gymckpt.participant.model import ModelParticipant
from tests.unit.participant.model.conftest import Asked, Fleet, ask
from tests.unit.participant.rounds import Rounds, blocked, settled, until


def call_ids(model: ModelParticipant, rollout: str) -> list[str]:
    return [row["call_id"] for row in model.ledger.rows(rollout)]


async def test_a_generation_under_way_never_blocks_and_its_response_is_held_until_resume(
    model: ModelParticipant, rounds: Rounds
) -> None:
    """M01, M04: the response is not in the lineage of the cut, because nobody received it."""
    await ask(model, "r")
    asked = Asked(model, "r")
    await asked.admitted.wait()
    fence, prepared = await rounds.prepare(model)
    assert prepared.report.ready
    asked.generated.set()
    await until(lambda: model.counts()["held"] == 1)
    assert not asked.sent.is_set()
    checkpoint = await rounds.publish(model, fence, await rounds.snapshot(model, fence, prepared))
    record = checkpoint.records["r"]
    assert list(await rounds.parts(record)) == ["calls/00000000"]
    assert record.boundary == "0.0"
    await rounds.resume(model, fence)
    assert await asked.result() == "0.1"
    assert call_ids(model, "r") == ["0.0", "0.1"]


async def test_a_response_whose_first_byte_went_out_blocks_until_it_is_sent(
    model: ModelParticipant, rounds: Rounds
) -> None:
    """M02: and belongs to the cut that waited for it."""
    asked = Asked(model, "r", streams=True)
    await asked.first_byte.wait()
    fence, preparing = rounds.closing(model)
    await settled()
    assert blocked(model.report()) == [("stream", "r")]
    assert not preparing.done()
    call_id = await asked.result()
    prepared = await preparing
    checkpoint = await rounds.publish(model, fence, await rounds.snapshot(model, fence, prepared))
    assert checkpoint.records["r"].boundary == call_id


async def test_a_stream_does_not_begin_while_the_gate_is_closed(model: ModelParticipant, rounds: Rounds) -> None:
    """M02: a cut that is ready stays ready."""
    asked = Asked(model, "r")
    await asked.admitted.wait()
    fence, prepared = await rounds.prepare(model)
    asked.generated.set()
    await settled()
    assert model.blocker_count() == 0
    await rounds.snapshot(model, fence, prepared)
    await rounds.resume(model, fence)
    await asked.result()


async def test_a_new_call_waits_for_the_gate_and_then_goes_on(model: ModelParticipant, rounds: Rounds) -> None:
    """M03: it is not refused, and does not block."""
    fence, _ = await rounds.prepare(model)
    asked = Asked(model, "r")
    await settled()
    assert not asked.admitted.is_set()
    assert model.blocker_count() == 0
    await rounds.resume(model, fence)
    assert await asked.result() == "0.0"


async def test_a_call_retired_while_it_waited_is_refused(model: ModelParticipant, rounds: Rounds) -> None:
    """M03."""
    fence, _ = await rounds.prepare(model)
    asked = Asked(model, "r")
    await settled()
    resumed = rounds.resume(model, fence)
    await resumed
    await rounds.retire(model, "r")
    with pytest.raises(StaleAttempt):
        await asked.result()
    assert model.ledger.rows("r") == []


async def test_retiring_cancels_calls_waits_for_them_and_drops_the_ledger(
    model: ModelParticipant, rounds: Rounds
) -> None:
    """M17, M09: of this rollout alone; late calls are refused."""
    await ask(model, "r")
    await ask(model, "other")
    asked, other = Asked(model, "r"), Asked(model, "other")
    await asked.admitted.wait()
    await other.admitted.wait()
    await rounds.retire(model, "r")
    with pytest.raises(StaleAttempt, match="r was retired while its call"):
        await asked.task
    with pytest.raises(StaleAttempt):
        await Asked(model, "r").result()
    await other.result()
    assert (call_ids(model, "r"), call_ids(model, "other")) == ([], ["0.1", "0.3"])
    assert [session.key for session in model.sessions] == ["other"]


async def test_retiring_two_attempts_at_once_cancels_a_call_once(model: ModelParticipant, rounds: Rounds) -> None:
    """M17."""
    cancelled: list[str] = []
    cleaned = asyncio.Event()

    async def calling() -> None:
        async with model.call(Episode("r")):
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.append("once")
                await cleaned.wait()

    called = asyncio.create_task(calling())
    await until(lambda: len(model.in_flight) == 1)
    retiring = [asyncio.create_task(rounds.retire(model, text)) for text in ("r", "r-a1")]
    await settled()
    assert [task.done() for task in retiring] == [False, False]
    cleaned.set()
    await asyncio.gather(*retiring)
    with pytest.raises(StaleAttempt):
        await called
    assert cancelled == ["once"]


@pytest.mark.parametrize("text", [None, "r"])
async def test_a_call_within_a_step_that_the_checkpoint_waits_for_is_let_through(
    model: ModelParticipant, rounds: Rounds, text: str | None
) -> None:
    """X37: it and its answer pass the closing gate, it blocks until it is through, and it stays out of the lineage."""
    holding = Asked(model, None, within="r")
    await holding.admitted.wait()
    fence, preparing = rounds.closing(model)
    await settled()
    asked = Asked(model, text, within="r")
    await asked.admitted.wait()
    assert blocked(model.report()) == [("within", "r"), ("within", "r")]
    await holding.result()
    await asked.result()
    prepared = await preparing
    assert model.ledger.rows("r") == []
    late = Asked(model, text, within="r")
    await late.result()
    with pytest.raises(CutVoid, match="let in"):
        await rounds.snapshot(model, fence, prepared)


async def test_calls_that_name_no_episode_pass_a_closed_gate(model: ModelParticipant, rounds: Rounds) -> None:
    """M20: a judge's calls do not belong to a rollout."""
    fence, prepared = await rounds.prepare(model)
    asked = Asked(model, None)
    await asked.result()
    assert asked.parent is None
    checkpoint = await rounds.publish(model, fence, await rounds.snapshot(model, fence, prepared))
    assert checkpoint.records == {}


async def test_a_call_that_its_client_dropped_leaves_nothing(model: ModelParticipant, rounds: Rounds) -> None:
    """M04: cancelled while its response is held; the retry has the same parent, and only the retry is in the lineage."""
    await ask(model, "r")
    dropped = Asked(model, "r")
    await dropped.admitted.wait()
    fence, _ = await rounds.prepare(model)
    dropped.generated.set()
    await until(lambda: model.counts()["held"] == 1)
    dropped.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await dropped.task
    await rounds.resume(model, fence)
    retried = Asked(model, "r")
    assert await retried.result() == "0.2"
    assert (dropped.parent, retried.parent) == ("0.0", "0.0")
    assert call_ids(model, "r") == ["0.0", "0.2"]
    assert len(model.in_flight) == 0


async def test_a_rollout_may_have_only_so_many_calls(fleet: Fleet) -> None:
    """The error names the limit, before anything is generated; other rollouts are not concerned."""
    model = fleet.model(max_calls=2)
    await ask(model, "r", calls=2)
    refused = Asked(model, "r")
    with pytest.raises(StoreFull, match=r"holds 2 calls of rollout 'r', at most 2 are allowed \(max_calls\)"):
        await refused.result()
    assert not refused.admitted.is_set()
    await ask(model, "other", calls=2)
    assert call_ids(model, "r") == ["0.0", "0.1"]


async def test_a_call_that_nobody_received_takes_no_room(fleet: Fleet, rounds: Rounds) -> None:
    model = fleet.model(max_calls=2)
    await ask(model, "r")
    dropped = Asked(model, "r")
    await dropped.admitted.wait()
    fence, _ = await rounds.prepare(model)
    dropped.generated.set()
    await until(lambda: model.counts()["held"] == 1)
    dropped.task.cancel()
    await settled()
    await rounds.resume(model, fence)
    await ask(model, "r")
    assert call_ids(model, "r") == ["0.0", "0.2"]


@pytest.mark.parametrize(("row", "message"), [({"parent": "x"}, "'parent'"), ({"response": object()}, "plain data")])
async def test_a_row_that_cannot_be_kept_is_refused(
    model: ModelParticipant, row: dict[str, object], message: str
) -> None:
    """C44."""
    async with model.call(Episode("r")) as call:
        with pytest.raises(InvalidField, match=message):
            await call.finished(row)
    assert model.ledger.rows("r") == []


async def test_rows_name_their_call_their_parent_and_where_they_were_made(model: ModelParticipant) -> None:
    await ask(model, "r-a2", calls=2)
    assert model.ledger.rows("r") == [
        {
            "call_id": f"0.{number}",
            "parent": parent,
            "made": "r-a2",
            "request_digest": "d",
            "response": {"text": f"answer 0.{number}"},
        }
        for number, parent in ((0, None), (1, "0.0"))
    ]
