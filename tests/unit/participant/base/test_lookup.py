"""A participant that hears nothing of a restore obeys the decision in the store, or decides against it before it drops anything."""

from __future__ import annotations

from typing import Any

import pytest

from gymckpt.core.ids import Episode, Fence
from gymckpt.core.manifest import Decision
from gymckpt.core.transitions import Activate, Confirm, Install, InstallTarget, Renew
from gymckpt.errors import RestoreAborted, StoreUnavailable
from gymckpt.rpc.codec import decode_decision, encode_decision
from tests.unit.participant.base.bed import Clock, Counters, StoppableStore
from tests.unit.participant.rounds import Checkpoint, Rounds, settled, until


@pytest.fixture
async def checkpoint(rounds: Rounds) -> Checkpoint:
    source = Counters(rounds)
    source.seed("a", value=7)
    return await rounds.checkpoint(source.participant)


@pytest.fixture
def counters(rounds: Rounds, clock: Clock) -> Counters:
    return Counters(rounds, clock=clock)


async def install(rounds: Rounds, counters: Counters, checkpoint: Checkpoint, lease: float = 5.0) -> Fence:
    fence = rounds.fence("restore-x")
    await rounds.ask(counters.participant, fence, Install(checkpoint.digest, (InstallTarget(Episode("a"), 1),), lease))
    return fence


def live(counters: Counters) -> bool:
    return [session.pending for session in counters.participant.sessions] == [False]


async def test_installed_makes_it_live(
    rounds: Rounds, counters: Counters, checkpoint: Checkpoint, clock: Clock
) -> None:
    """X28"""
    fence = await install(rounds, counters, checkpoint)
    await rounds.store.put_name(f"decisions/{fence.checkpoint_id}", encode_decision(Decision(checkpoint.digest)))
    clock.now += 5
    counters.participant.tick()
    await until(lambda: live(counters))
    assert counters.values == {"a": 7}
    assert (await rounds.ask(counters.participant, fence, Activate())).sessions == 1


async def test_aborted_drops_it(rounds: Rounds, counters: Counters, checkpoint: Checkpoint, clock: Clock) -> None:
    """X28"""
    fence = await install(rounds, counters, checkpoint)
    await rounds.store.put_name(f"decisions/{fence.checkpoint_id}", encode_decision(Decision(None, "elsewhere")))
    clock.now += 5
    counters.participant.tick()
    await until(lambda: counters.participant.restoring.pending_fence is None)
    assert (counters.keys, counters.values) == ([], {})
    with pytest.raises(RestoreAborted):
        await rounds.ask(counters.participant, fence, Activate())


async def test_where_nothing_was_decided_aborted_is_before_anything_is_dropped(
    rounds: Rounds, counters: Counters, checkpoint: Checkpoint, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X28"""
    fence = await install(rounds, counters, checkpoint)
    put_name = rounds.store.put_name
    held_at_decision: list[list[str]] = []

    async def watched(name: str, value: bytes, **options: Any) -> bytes:
        held_at_decision.append(counters.keys)
        return await put_name(name, value, **options)

    monkeypatch.setattr(rounds.store, "put_name", watched)
    clock.now += 5
    counters.participant.tick()
    await until(lambda: counters.keys == [])
    assert held_at_decision == [["a"]]
    decided = decode_decision(await rounds.store.get_name(f"decisions/{fence.checkpoint_id}"))
    assert (decided.published, "lease" in decided.why) == (False, True)


async def test_a_decision_that_comes_between_look_and_write_is_obeyed(
    rounds: Rounds, counters: Counters, checkpoint: Checkpoint, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X28, X25"""
    await install(rounds, counters, checkpoint)
    put_name = rounds.store.put_name

    async def overtaken(name: str, value: bytes, **options: Any) -> bytes:
        await put_name(name, encode_decision(Decision(checkpoint.digest)))
        return await put_name(name, value, **options)

    monkeypatch.setattr(rounds.store, "put_name", overtaken)
    clock.now += 5
    counters.participant.tick()
    await until(lambda: live(counters))


async def test_without_an_answer_of_the_store_it_stays_pending_and_is_asked_for_again(
    rounds: Rounds,
    counters: Counters,
    store: StoppableStore,
    checkpoint: Checkpoint,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """X28"""
    fence = await install(rounds, counters, checkpoint)
    asked: list[str] = []

    async def gone(name: str) -> bytes:
        asked.append(name)
        raise StoreUnavailable("no answer")

    monkeypatch.setattr(store, "get_name", gone)
    for count in (1, 2):
        clock.now += 5
        counters.participant.tick()
        await until(lambda count=count: len(asked) == count)  # type: ignore[misc]
        await settled()
        assert counters.participant.restoring.pending_fence == fence
    monkeypatch.undo()
    await store.put_name(f"decisions/{fence.checkpoint_id}", encode_decision(Decision(checkpoint.digest)))
    clock.now += 5
    counters.participant.tick()
    await until(lambda: live(counters))


@pytest.mark.parametrize("word", [Confirm(), Renew()], ids=["confirm", "renew"])
async def test_every_word_of_the_restore_restarts_its_lease(
    rounds: Rounds, counters: Counters, checkpoint: Checkpoint, clock: Clock, word: Confirm | Renew
) -> None:
    """C20"""
    fence = await install(rounds, counters, checkpoint)
    for _ in range(3):
        clock.now += 4
        await rounds.ask(counters.participant, fence, word)
        counters.participant.tick()
        await settled()
    assert counters.participant.restoring.pending_fence == fence
