"""The network between the artifact store and whoever uses it cut in every way, or slow: rollouts never wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from gymckpt.coordinator import Stage
from gymckpt.core.kinds import GateState
from tests.e2e.fleets import COORDINATOR, until
from tests.e2e.trouble.cables import (
    CUTS,
    MIXES,
    CabledRun,
    Ends,
    assert_nothing_remains,
    assert_restores,
    name_of,
    taking,
)
from tests.e2e.trouble.run import STEPS, STORE, assert_rewarded

pytestmark = pytest.mark.asyncio(loop_scope="module")


def to_store(mix: Mapping[str, str]) -> dict[Ends, str]:
    return {(server, STORE): how for server, how in mix.items()}


@pytest.mark.parametrize("mix", MIXES, ids=name_of)
async def test_servers_cut_off_from_the_store_upload_once_they_reach_it(
    cabled: CabledRun, mix: Mapping[str, str]
) -> None:
    """X02, X09: rollouts run on, and what is published is the cut."""
    name = f"stored-{name_of(mix)}"
    rollout = await cabled.playing(name)
    cabled.watch.hold_at("checkpoint.uploading")
    taken = taking(cabled, name)
    await cabled.watch.reached()
    with cabled.cut(to_store(mix)):
        cabled.watch.go_on()
        await assert_rewarded(rollout)
        assert {status.holds.gate for status in (await cabled.statuses()).values()} == {GateState.OPEN}
        assert not taken.done()
    assert (await taken).stage is Stage.PUBLISHED
    await assert_nothing_remains(cabled, name, rollout)
    await assert_restores(cabled, name, name)


@pytest.mark.parametrize("mix", MIXES, ids=name_of)
async def test_a_restore_waits_for_servers_that_cannot_read_the_store(
    cabled: CabledRun, mix: Mapping[str, str]
) -> None:
    """X28, X29: what was installed stays so, nothing runs, and it is live everywhere once the store is reached."""
    name = f"read-{name_of(mix)}"
    await cabled.playing(name)
    await cabled.checkpoint(name)
    cabled.watch.hold_at("restore.retired")
    restoring = cabled.restoring(name, name, name)
    await cabled.watch.reached()
    with cabled.cut(to_store(mix)):
        cabled.watch.go_on()
        refusing = f"transition=install checkpoint=restore-{name}"
        await until(lambda: refusing in cabled.said(COORDINATOR), "an install without the store")
        assert not restoring.done()
        assert await cabled.decision(f"restore-{name}") is None
    (target,) = await restoring
    assert target.attempt == 1
    await cabled.assert_goes_on(name, 1)
    await cabled.checkpoint(f"{name}-later")


@pytest.mark.parametrize("how", CUTS)
async def test_a_coordinator_cut_off_from_the_store_decides_once_it_reaches_it(cabled: CabledRun, how: str) -> None:
    """X25, X28, X33: a publish and the restore of it; an answer that was lost is asked for again, and is the same."""
    name = f"decided-{how}"
    rollout = await cabled.playing(name)
    cabled.watch.hold_at("checkpoint.publish")
    taken = taking(cabled, name)
    await cabled.watch.reached()
    with cabled.cut({(COORDINATOR, STORE): how}):
        cabled.watch.go_on()
        await assert_rewarded(rollout)
        assert not taken.done()
    assert (await taken).stage is Stage.PUBLISHED
    cabled.watch.hold_at("restore.confirmed")
    restoring = cabled.restoring(name, name, name)
    await cabled.watch.reached()
    with cabled.cut({(COORDINATOR, STORE): how}):
        cabled.watch.go_on()
        continued = cabled.play(name, 1, continues=True)  # too early: it is held until the decision is known
        await asyncio.wait([restoring, continued], timeout=0.5)
        assert not restoring.done()
        assert cabled.increments(name) == STEPS
    (target,) = await restoring
    assert target.attempt == 1
    await assert_rewarded(continued)
    await cabled.checkpoint(f"{name}-later")


async def test_a_slow_store_costs_no_pause(cabled: CabledRun) -> None:
    """X02, X03: gates are closed for as long as without it, and a restore only takes longer."""
    rollout = await cabled.playing("slow")
    cabled.watch.hold_at("checkpoint.freezing")
    taken = taking(cabled, "slow")
    await cabled.watch.reached()
    cables = [cable for (_, callee), cable in cabled.cables.items() if callee == STORE]
    for cable in cables:
        cable.delay(0.25, bytes_per_second=100_000)
    try:
        cabled.watch.go_on()
        checkpoint = await taken
        assert checkpoint.stage is Stage.PUBLISHED
        assert checkpoint.upload_seconds > 1.0 > checkpoint.pause_seconds
        await assert_rewarded(rollout)
        await assert_restores(cabled, "slow", "slow")
    finally:
        for cable in cables:
            cable.heal()
    await cabled.checkpoint("slow-later")
