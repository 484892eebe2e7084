"""Dropping restored state before it is live, and after."""

from __future__ import annotations

import asyncio

import pytest

from gymckpt.core.ids import Episode
from gymckpt.core.kinds import GateState
from gymckpt.core.transitions import Abort, Activate, Confirm, Discard, Install, InstallTarget
from gymckpt.errors import (
    GymckptError,
    InvalidPhase,
    RestoreAborted,
    StaleAttempt,
    StaleCheckpoint,
)
from tests.unit.participant.base.bed import Counters, StoppableStore
from tests.unit.participant.rounds import Checkpoint, Rounds, settled

ABC = (("a", 1), ("b", 1), ("c", 1))


@pytest.fixture
async def checkpoint(rounds: Rounds) -> Checkpoint:
    source = Counters(rounds)
    for number, text in enumerate("abc"):
        source.seed(text, key=f"cookie-{text}", value=number)
    return await rounds.checkpoint(source.participant)


def nothing_held(counters: Counters) -> bool:
    p = counters.participant
    return (counters.keys, counters.values, p.restoring.pending_fence, counters.gate()) == (
        [],
        {},
        None,
        GateState.OPEN,
    )


@pytest.mark.parametrize("drop", [Discard(), Abort("failed elsewhere")], ids=["discard", "abort"])
async def test_dropped_state_is_gone_for_good_and_what_was_held_for_it_is_told(
    rounds: Rounds, counters: Counters, checkpoint: Checkpoint, drop: Discard | Abort
) -> None:
    """X28, X04"""
    p = counters.participant
    fence, _ = await rounds.install(p, checkpoint.digest, *ABC)
    held = asyncio.create_task(p.claim(Episode("a", 1), "cookie-a", continues=True))
    await settled()
    await rounds.ask(p, fence, drop)
    await rounds.ask(p, fence, drop)
    assert nothing_held(counters)
    for transition in (Confirm(), Activate()):
        with pytest.raises(RestoreAborted):
            await rounds.ask(p, fence, transition)
    with pytest.raises(StaleCheckpoint):
        await rounds.ask(p, fence, Install(checkpoint.digest, (), 60.0))
    with pytest.raises(GymckptError, match="no restored state"):
        await held


async def test_abort_ends_a_running_install_within_a_second(
    rounds: Rounds, counters: Counters, store: StoppableStore, checkpoint: Checkpoint
) -> None:
    """X04, C50"""
    p, fence = counters.participant, rounds.fence("restore-x")
    store.stop()
    install = asyncio.create_task(
        rounds.ask(p, fence, Install(checkpoint.digest, (InstallTarget(Episode("a"), 1),), 60.0))
    )
    await store.reached.wait()
    async with asyncio.timeout(1.0):
        await rounds.ask(p, fence, Abort())
        with pytest.raises(RestoreAborted, match="dropped"):
            await install
    store.running.set()
    await settled()
    assert nothing_held(counters)


async def test_retiring_a_pending_target_ends_its_restore_and_frees_all_it_brought(
    rounds: Rounds, counters: Counters, checkpoint: Checkpoint
) -> None:
    """C50, X39, C23"""
    p = counters.participant
    fence, _ = await rounds.install(p, checkpoint.digest, *ABC)
    await rounds.retire(p, "a-a1", "b-a1", "c-a1")
    assert nothing_held(counters)
    with pytest.raises(RestoreAborted):
        await rounds.ask(p, fence, Activate())
    with pytest.raises(StaleAttempt):
        p.enter_now(counters.call("a-a1", session="cookie-a"))


async def test_live_restored_state_is_not_discarded_but_can_be_retired(
    rounds: Rounds, counters: Counters, checkpoint: Checkpoint
) -> None:
    """C23, R14"""
    p = counters.participant
    fence, _ = await rounds.install(p, checkpoint.digest, *ABC)
    await rounds.ask(p, fence, Activate())
    with pytest.raises(InvalidPhase, match="retire its attempts instead"):
        await rounds.ask(p, fence, Discard())
    assert (await rounds.ask(p, fence, Abort())).already
    assert len(counters.keys) == 3
    await rounds.retire(p, "a-a1", "b-a1", "c-a1")
    assert nothing_held(counters)


async def test_discarding_some_targets_keeps_the_others(
    rounds: Rounds, counters: Counters, checkpoint: Checkpoint
) -> None:
    p = counters.participant
    fence, _ = await rounds.install(p, checkpoint.digest, *ABC)
    await rounds.ask(p, fence, Discard((Episode("b", 1), Episode("unknown", 1))))
    assert (await rounds.ask(p, fence, Confirm())).sessions == 2
    await rounds.ask(p, fence, Activate())
    assert counters.values == {"cookie-a": 0, "cookie-c": 2}
    assert not p.floors.refuses(Episode("b", 1))
