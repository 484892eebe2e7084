"""What a supervisor without servers of its own does about state that is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gymckpt.coordinator import Fate
from gymckpt.core.ids import Episode
from gymckpt.core.kinds import Kind
from gymckpt.core.manifest import StoredSession
from gymckpt.core.transitions import Confirm, Install, Upload
from gymckpt.errors import BlobNotFound, CutVoid, DamagedBlob, GymckptError, RestoreAborted
from gymckpt.rpc import codec
from gymckpt.store import MemoryStore
from gymckpt.supervisor import Config, Event, Supervisor
from tests.contract.coordinator.fleet import Fleet
from tests.contract.coordinator.test_keeping import listed
from tests.contract.coordinator.test_recovery import R1, R2, published


@asynccontextmanager
async def supervised(
    fleet: Fleet, unloadable: Episode | None = None, every: float = 0.0, *, keep: int = 0, lacking: bool = False
) -> AsyncIterator[asyncio.Queue[Event]]:
    """Events of a supervisor that finds the episodes of a checkpoint lost, as after a death; `lacking`: and the latest checkpoint without the state of r1."""
    await published(fleet, R1, R2)
    if lacking:
        (state,) = await fleet.store.write([codec.encode_session(StoredSession("fake/2", ()))])
        fleet[Kind.AGENT].host(R1, state=state)
        await fleet.checkpoint("c2")
        assert isinstance(fleet.store, MemoryStore)
        del fleet.store._blobs[state]
    await fleet[Kind.RESOURCES].die()
    fresh = await fleet.add(Kind.RESOURCES)
    fresh.stored = {R1, R2}
    if unloadable is not None:
        fresh.unloadable[unloadable] = "schema fake/2"
    await fleet.register()
    events: asyncio.Queue[Event] = asyncio.Queue()
    stop = asyncio.Event()
    config = Config(fleet.server.address, (), every, keep=keep)
    running = asyncio.create_task(Supervisor(config, events.put_nowait).run(stop))
    try:
        yield events
    finally:
        stop.set()
        await running


async def the(events: asyncio.Queue[Event], kind: str) -> Event:
    """The next event of this kind."""
    async with asyncio.timeout(20):
        while (event := await events.get()).kind != kind:
            assert event.kind == "trouble", event
    return event


async def test_a_restore_that_failed_is_tried_again_with_what_it_has_stopped(fleet: Fleet) -> None:
    """X14: nothing that a checkpoint holds starts over because a second server died meanwhile."""
    fleet[Kind.AGENT].script[Confirm] = RestoreAborted("is not held any more")
    async with supervised(fleet) as events:
        error = (await the(events, "trouble")).error
        assert error is not None
        assert error.reason == "RESTORE_ABORTED"
        fleet[Kind.AGENT].script.clear()
        progress = (await the(events, "restored")).restore
        assert progress is not None
        assert [(target.source, target.fate) for target in progress.outcome] == [
            (R1, Fate.RESTORED),
            (R2, Fate.RESTORED),
        ]
        assert all(target.attempt >= 2 for target in progress.outcome)
        await the(events, "whole")


@pytest.mark.parametrize("failure", [DamagedBlob("blob 00 is damaged"), BlobNotFound("blob 00 is not there")])
async def test_what_the_store_has_lost_starts_over(fleet: Fleet, failure: GymckptError) -> None:
    """X13: it is named once, and not tried for ever; the attempt that was given out in vain is not given again."""
    fleet[Kind.AGENT].script[Install] = failure
    async with supervised(fleet) as events:
        retired = await the(events, "retired")
        assert retired.episodes == (Episode("r1", 1), Episode("r2", 1))
        await the(events, "whole")


async def test_what_the_store_has_lost_of_one_rollout_costs_no_other(fleet: Fleet) -> None:
    """X13, X14, X08: the one that it hits starts over, all others are restored; no attempt is given out in vain."""
    async with supervised(fleet, lacking=True) as events:
        assert (await the(events, "retired")).episodes == (R1,)
        progress = (await the(events, "restored")).restore
        assert progress is not None
        assert [target.target for target in progress.outcome] == [Episode("r2", 1)]
        await the(events, "whole")


async def test_what_a_server_cannot_load_starts_over_and_the_rest_is_restored(fleet: Fleet) -> None:
    """X13: nobody is there to be asked."""
    async with supervised(fleet, unloadable=R2) as events:
        progress = (await the(events, "restored")).restore
        assert progress is not None
        assert [(target.source, target.fate) for target in progress.outcome] == [
            (R1, Fate.RESTORED),
            (R2, Fate.RESTARTED),
        ]
        await the(events, "whole")


async def test_a_base_that_cannot_be_reused_is_followed_by_a_full_checkpoint(fleet: Fleet) -> None:
    """X05: and that by one that reuses again; else no checkpoint would succeed ever after."""
    async with supervised(fleet, every=0.05) as events, asyncio.timeout(20):
        await the(events, "restored")
        fleet[Kind.AGENT].script[Upload] = CutVoid("base 'c1' no longer holds 1 session")
        while (await events.get()).kind != "trouble":
            pass
        fleet[Kind.AGENT].script.clear()
        for full in (True, False):
            while (event := await events.get()).checkpoint is None:
                pass
            assert (event.checkpoint.base_checkpoint_id == "") == full


async def test_only_the_newest_checkpoints_are_kept_and_what_is_pinned(fleet: Fleet) -> None:
    """L10: the last one, which keeps the gates closed, is one of those to keep."""
    async with supervised(fleet, every=0.05, keep=2) as events, asyncio.timeout(20):
        await fleet.client.pin_checkpoint("c1", "me")
        taken: list[str] = []
        while len(taken) < 4:
            if (event := await events.get()).checkpoint is not None:
                taken.append(event.checkpoint.checkpoint_id)
    while not events.empty():
        if (event := events.get_nowait()).checkpoint is not None:
            taken.append(event.checkpoint.checkpoint_id)
    assert await listed(fleet) == [taken[-1], taken[-2], "c1"]
    assert taken[-1].startswith("last-")
