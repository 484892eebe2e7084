"""Restores long after their checkpoint: again and again, and when somebody has left since."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from gymckpt.coordinator import Fate, RestoreArguments, Stage
from gymckpt.core.ids import Digest, Episode, ParticipantId
from gymckpt.core.kinds import Kind
from gymckpt.core.report import LostEpisode, Report, Restart
from gymckpt.errors import InvalidField, MemberMissing
from tests.contract.coordinator.fleet import SETTINGS, Fleet
from tests.contract.coordinator.test_restore import stored_state

R1, R2, R4 = Episode("r1"), Episode("r2"), Episode("r4")


async def test_what_starts_over_or_is_lost_is_given_another_attempt_each_time_too(fleet: Fleet) -> None:
    """X29, X13: no participant keeps it; the third restore is that of a successor, which finds it in the records alone."""
    for participant in fleet.all:
        participant.host(R1, R2, state=await stored_state(fleet))
        participant.stored = {R1, R2}
    fleet[Kind.AGENT].report = Report(restarts=(Restart(R2, "restart only"),))
    fleet[Kind.RESOURCES].lost = (LostEpisode(R4, "its process was replaced"),)
    await fleet.checkpoint("c1")
    for participant in fleet.all:
        participant.sessions.clear()
    for attempt in (1, 2, 3):
        if attempt == 3:
            await fleet.coordinate()
            await fleet.register()
        outcome = await fleet.client.restore(RestoreArguments(f"number-{attempt}", "c1"))
        given = {(target.source, target.fate): target.attempt for target in outcome}
        fates = ((R1, Fate.RESTORED), (R2, Fate.RESTARTED), (R4, Fate.LOST))
        assert given == dict.fromkeys(fates, attempt)


async def test_a_restore_needs_those_that_left_since_its_checkpoint(bare: Fleet) -> None:
    """X31, X13: although nobody misses them any more, what they held cannot be given to anyone."""
    for kind in Kind:
        await bare.add(kind)
    here = list(bare.all)
    guest = await bare.add(Kind.RESOURCES, "guest")
    settings = replace(SETTINGS, interval=0.001)
    await bare.coordinate(settings=settings, expected=(ParticipantId(Kind.MODEL, "x"),))
    await bare.register(*here, guest)
    guest.host(R1, state=await stored_state(bare))
    assert (await bare.checkpoint("c1")).episodes == 1
    await guest.die()
    await bare.register(*here)
    assert (await bare.checkpoint("c2")).stage is Stage.PUBLISHED
    with pytest.raises(MemberMissing, match="'c1' needs resources/guest"):
        await bare.client.restore(RestoreArguments("one", "c1"))
    assert await bare.names("pins") == []
    assert await bare.names("intents") == ["intents/c1", "intents/c2"]


@pytest.mark.parametrize("replaced", [False, True])
async def test_a_process_that_dies_while_the_checkpoint_is_read_costs_nothing_that_lives(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, replaced: bool
) -> None:
    """X14, X31: whether or not another one has its place already; once that is admitted the same restore succeeds."""
    for participant in fleet.all:
        participant.host(R1, state=await stored_state(fleet))
        participant.stored = {R1}
    await fleet.checkpoint("c1")
    del fleet.log[:]
    reading, go_on = asyncio.Event(), asyncio.Event()
    read = fleet.store.read

    async def slow(digests: Sequence[Digest]) -> list[bytes]:
        reading.set()
        await go_on.wait()
        return await read(digests)

    monkeypatch.setattr(fleet.store, "read", slow)
    restoring = asyncio.create_task(fleet.client.restore(RestoreArguments("one", "c1")))
    await reading.wait()
    await fleet[Kind.RESOURCES].die()
    newer = await fleet.add(Kind.RESOURCES)
    newer.stored = {R1}
    if replaced:
        await fleet.register(newer)
    go_on.set()

    with pytest.raises(MemberMissing, match="resources/x"):
        await restoring

    assert fleet.log == []
    assert [await fleet.names(prefix) for prefix in ("pins", "floors", "intents")] == [[], [], ["intents/c1"]]
    await fleet.register(newer)
    assert [target.attempt for target in await fleet.client.restore(RestoreArguments("one", "c1"))] == [1]


async def test_a_checkpoint_of_more_than_can_be_told_at_once_is_restored_a_part_at_a_time(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X13, X24: all together they would be refused by every member, asked for again, for ever. What has finished counts until it is acknowledged."""
    monkeypatch.setattr("gymckpt.coordinator.opening.MAX_EPISODES", 1)
    for participant in fleet.all:
        participant.host(R1, R2, state=await stored_state(fleet))
        participant.stored = {R1, R2}
    await fleet.checkpoint("c1")
    del fleet.log[:]
    with pytest.raises(InvalidField, match="'c1' has 2 episodes") as refused:
        await fleet.client.restore(RestoreArguments("whole", "c1"))
    assert (refused.value.field, fleet.log, await fleet.names("pins")) == ("episodes", [], [])
    for episode in (R1, R2):
        [target] = await fleet.client.restore(RestoreArguments(f"part-{episode}", "c1", (episode,)))
        assert (target.source, target.fate) == (episode, Fate.RESTORED)
    assert {episode.rollout_id for episode in fleet[Kind.AGENT].live} == {"r1", "r2"}
