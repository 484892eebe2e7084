"""SIGKILL of servers of one lane while all others go on; `gymckpt checkpoint restore --lost-state` brings back what they held."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from gymckpt.cli.exits import Exit
from gymckpt.coordinator import CheckpointArguments, Stage
from gymckpt.errors import ParticipantLost
from gymckpt.participant import Episode
from servers.demo.layout import COORDINATOR, COUNTER, MODEL
from tests.e2e.trouble.lanes import HURT, SPARED, Lanes, two_lanes
from tests.e2e.trouble.one_killed import Played, played, restored

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

CHECKPOINT_POINTS = {
    "checkpoint.preparing": (HURT.agent, False),
    "checkpoint.freezing": (HURT.workplace, False),
    "checkpoint.uploading": (HURT.environment, False),
    "checkpoint.publish": (HURT.agent, True),
}
"""Who dies there, and whether that checkpoint is published nevertheless."""
RESTORE_POINTS = {
    "restore.installed": (HURT.workplace, False),
    "restore.confirmed": (HURT.environment, False),
    "restore.decided": (HURT.agent, False),
    "restore.activated": (HURT.agent, True),
}
"""Who dies there, and whether that restore is told to have succeeded."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lanes(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Lanes]:
    async with two_lanes(tmp_path_factory.mktemp("lanes")) as lanes_:
        yield lanes_


async def brought_back(rollouts: Played, *, attempt: int) -> None:
    """Exactly the rollouts of the lane are named and restored, as this attempt."""
    assert await rollouts.named() == rollouts.episodes()
    told = await restored(rollouts.lanes)
    assert targets(told) == rollouts.episodes(attempt)
    await rollouts.heard(told)


def targets(told: Any) -> set[Episode]:
    return {Episode.parse(target["target"]) for target in told["restored"]}


@pytest.mark.parametrize(
    "servers", [(HURT.environment,), (HURT.agent,), (HURT.workplace,), (HURT.agent, HURT.workplace)]
)
async def test_what_died_is_restored_while_the_rest_never_stops(lanes: Lanes, servers: tuple[str, ...]) -> None:
    """X13, X14, X16, X24, X29, X38: one server of a lane, or two at once; the other lane works on while they are gone and while they are restored."""
    async with played(lanes, "-".join(servers)) as rollouts:
        await lanes.fleet.kill(servers)
        await rollouts.the_rest_goes_on()
        await lanes.replace(servers)
        assert await rollouts.named() == rollouts.episodes()
        lanes.watch.hold_at("restore.installed")
        restoring = asyncio.create_task(restored(lanes))
        await lanes.watch.reached()
        await rollouts.the_rest_goes_on()
        lanes.watch.go_on()
        told = await restoring
        assert targets(told) == rollouts.episodes(1)
        await rollouts.heard(told)
        await rollouts.assert_ended(hurt=1)


async def test_a_server_that_no_rollout_uses_takes_nothing_with_it(lanes: Lanes) -> None:
    """X13, X24: nothing is named, nothing is restored, nobody notices."""
    async with played(lanes, COUNTER) as rollouts:
        await lanes.fleet.kill([COUNTER])
        await rollouts.the_rest_goes_on()
        await lanes.replace([COUNTER])
        assert await rollouts.named() == set()
        assert (await restored(lanes))["restored"] == []
        await rollouts.assert_ended(hurt=0)


async def test_rollouts_go_on_by_themselves_when_the_model_is_back_or_are_restored(lanes: Lanes) -> None:
    """X13, X16, X38: its calls are sent again; those of nobody who waits for it are named until then, in both lanes."""
    async with played(lanes, MODEL, feed=False) as rollouts:
        await lanes.fleet.kill([MODEL])
        await lanes.replace([MODEL])
        assert await rollouts.named() <= rollouts.everyone()
        told = await restored(lanes)
        assert {Episode.parse(target["source"]) for target in told["restored"]} <= rollouts.everyone()
        await rollouts.heard(told)
        await rollouts.assert_ended()


async def test_one_server_of_each_lane_dies_at_once(lanes: Lanes) -> None:
    """X13, X14, X29: everything is named, and everything comes back."""
    servers = (HURT.agent, SPARED.workplace)
    async with played(lanes, "-".join(servers), feed=False) as rollouts:
        await lanes.fleet.kill(servers)
        await lanes.replace(servers)
        assert await rollouts.named() == rollouts.everyone()
        told = await restored(lanes)
        assert targets(told) == rollouts.everyone(1)
        await rollouts.heard(told)
        await rollouts.assert_ended(hurt=1, spared=1)


async def test_the_coordinator_dies_with_a_server(lanes: Lanes) -> None:
    """X07, X14, X27: the rest needs neither; the successor knows what was held."""
    servers = (COORDINATOR, HURT.workplace)
    async with played(lanes, "-".join(servers)) as rollouts:
        await lanes.fleet.kill(servers)
        await rollouts.the_rest_goes_on()
        await lanes.replace(servers)
        await brought_back(rollouts, attempt=1)
        await rollouts.assert_ended(hurt=1)


async def test_the_coordinator_dies_with_a_server_while_another_is_restored(lanes: Lanes) -> None:
    """X07, X14, X28, X39: its successor ends that restore, and names what was stopped by it."""
    async with played(lanes, "decided") as rollouts:
        await lanes.fleet.kill([HURT.workplace])
        await lanes.replace([HURT.workplace])
        lanes.watch.kill_at("restore.decided")
        status, _ = await lanes.command("checkpoint", "restore", "--lost-state")
        assert status == Exit.UNREACHABLE
        servers = (COORDINATOR, HURT.agent)
        await lanes.fleet.kill(servers)
        await rollouts.the_rest_goes_on()
        await lanes.replace(servers)
        await rollouts.assert_given_in_vain(1)
        await brought_back(rollouts, attempt=2)
        await rollouts.assert_ended(hurt=2)


@pytest.mark.parametrize(("server", "told"), [(HURT.workplace, False), (HURT.environment, True)])
async def test_what_has_ended_is_over_unless_only_the_dead_server_knew(lanes: Lanes, server: str, told: bool) -> None:
    """P08, X13: its caller says that it ended; when that died with its result, maybe, it is brought back, and whoever has the result retires it."""
    async with played(lanes, f"ended-{server}") as rollouts:
        await rollouts.hurt_have_ended()
        await lanes.fleet.kill([server])
        await lanes.replace([server])
        lost = rollouts.episodes() if told else set()
        assert await rollouts.named() == lost
        again = targets(await restored(lanes))
        assert again == (rollouts.episodes(1) if told else set())
        if again:
            await lanes.coordinator.retire_episodes(again)
        await rollouts.assert_ended(hurt=0)


@pytest.mark.parametrize("then", [HURT.workplace, HURT.environment, MODEL])
async def test_another_dies_right_after_the_restore(lanes: Lanes, then: str) -> None:
    """X14, X29: the same one or another, with no newer checkpoint between: the same state again, as an attempt that nobody had."""
    async with played(lanes, f"{HURT.workplace}-{then}", feed=then != MODEL) as rollouts:
        await lanes.fleet.kill([HURT.workplace])
        await lanes.replace([HURT.workplace])
        await brought_back(rollouts, attempt=1)
        for rollout in rollouts.hurt:
            await rollouts.makes_calls(rollout, 1)
        await lanes.fleet.kill([then])
        await lanes.replace([then])
        assert await rollouts.named() >= rollouts.episodes()
        told = await restored(lanes)
        assert targets(told) >= rollouts.episodes(2)
        await rollouts.heard(told)
        await rollouts.assert_ended(hurt=2, spared=None if then == MODEL else 0)


@pytest.mark.parametrize("point", CHECKPOINT_POINTS)
async def test_a_server_dies_while_a_checkpoint_is_taken(lanes: Lanes, point: str) -> None:
    """X01, X14, X24, X26: it is whole or was never there, the rest goes on, and the latest that is whole brings the dead one's rollouts back."""
    server, published = CHECKPOINT_POINTS[point]
    async with played(lanes, point) as rollouts:
        later = f"{point}-later"
        lanes.watch.hold_at(point)
        taking = asyncio.create_task(lanes.coordinator.checkpoint(CheckpointArguments(later)))
        await lanes.watch.reached()
        await lanes.fleet.kill([server])
        lanes.watch.go_on()
        if published:
            assert (await taking).stage is Stage.PUBLISHED
        else:
            with pytest.raises(ParticipantLost, match=lanes.layout.members[server]):
                await taking
        await rollouts.the_rest_goes_on()
        await lanes.replace([server])
        assert (await lanes.recovery()).checkpoint_id == (later if published else point)
        await brought_back(rollouts, attempt=1)
        await rollouts.assert_ended(hurt=1)


@pytest.mark.parametrize("point", RESTORE_POINTS)
async def test_a_second_server_dies_while_the_first_is_restored(lanes: Lanes, point: str) -> None:
    """X14, X28, X29, X39: live everywhere or nowhere; what the restore that failed has stopped is still named, and the next one brings it back."""
    server, live = RESTORE_POINTS[point]
    async with played(lanes, point) as rollouts:
        await lanes.fleet.kill([HURT.workplace])
        await lanes.replace([HURT.workplace])
        lanes.watch.hold_at(point)
        restoring = asyncio.create_task(lanes.command("checkpoint", "restore", "--lost-state"))
        await lanes.watch.reached()
        await rollouts.the_rest_goes_on()
        await lanes.fleet.kill([server])
        lanes.watch.go_on()
        status, told = await restoring
        if live:
            assert (status, targets(told)) == (Exit.OK, rollouts.episodes(1))
            await rollouts.heard(told)
        else:
            assert (status, told["error"]["reason"]) == (Exit.REFUSED, "RESTORE_ABORTED")
            if server != HURT.environment:
                await rollouts.assert_given_in_vain(1)
        await rollouts.the_rest_goes_on()
        await lanes.replace([server])
        await brought_back(rollouts, attempt=2)
        await rollouts.assert_ended(hurt=2)
