"""The network between any two processes cut in every way, in every phase of a round, and healed.

Whatever is cut: no half checkpoint is published, nobody stays closed beyond its lease, what was published restores, no call is carried out twice, who is
silent is named, and once the network is whole the next checkpoint and all rollouts succeed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

import pytest
import pytest_asyncio

from gymckpt.coordinator import ResumePolicy, Stage
from gymckpt.core.kinds import GateState
from gymckpt.errors import NotReady, ParticipantLost, RestoreAborted, TransportFailed
from tests.e2e.fleets import AGENT, COORDINATOR, ENVIRONMENT, MODEL, until
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
from tests.e2e.trouble.run import CALLER, COUNTER, MEMBERS, STORE, assert_rewarded, started_as

pytestmark = pytest.mark.asyncio(loop_scope="module")

DATA_PLANE = [(AGENT, MODEL), (AGENT, COUNTER), (ENVIRONMENT, AGENT)]
"""The last one first would let the agent end its part meanwhile."""


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def minute(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[asyncio.Task[None]]:
    """What happens in a fleet of its own, beside the other tests, while its store is away."""
    async with started_as(CabledRun, tmp_path_factory.mktemp("away"), apart=True) as away:
        happening = asyncio.create_task(store_away(away))
        yield happening
        happening.cancel()


async def store_away(run: CabledRun) -> None:
    """Nobody reaches the store for a minute, which is longer than connections are believed in."""
    since = asyncio.get_running_loop().time()
    rollout = await run.playing("away")
    run.watch.hold_at("checkpoint.uploading")
    taken = run.taking("away")
    await run.watch.reached()
    with run.cut({ends: "blackhole" for ends in run.cables if ends[1] == STORE}):
        run.watch.go_on()
        await assert_rewarded(rollout)
        while asyncio.get_running_loop().time() < since + 65.0:  # one rollout after the other
            await assert_rewarded(run.play(f"away-{asyncio.get_running_loop().time()}"))
        assert {status.holds.gate for status in (await run.statuses()).values()} == {GateState.OPEN}
        assert not taken.done()
    assert (await taken).stage is Stage.PUBLISHED
    await assert_restores(run, "away", "away")
    await run.checkpoint("away-later")


def from_coordinator(mix: Mapping[str, str]) -> dict[Ends, str]:
    return {(COORDINATOR, server): how for server, how in mix.items()}


# --- coordinator and participants ---


@pytest.mark.parametrize(("server", "how"), [*zip([*MEMBERS, ENVIRONMENT], CUTS, strict=True)])
async def test_a_server_cut_off_before_prepare_voids_the_cut(cabled: CabledRun, server: str, how: str) -> None:
    """X24, X01, X33: it is named; all others are open at once, and it is by itself at the latest when its lease ends, although it hears nothing."""
    name = f"prepare-{how}"
    rollout = await cabled.playing(name)
    cabled.watch.hold_at("checkpoint.preparing")
    taken = taking(cabled, name, prepare_timeout=0.5)
    await cabled.watch.reached()
    with cabled.cut({(COORDINATOR, server): how}):
        cabled.watch.go_on()
        with pytest.raises((ParticipantLost, NotReady), match=MEMBERS[server]):
            await taken
        decision = await cabled.decision(name)
        assert decision is not None
        assert not decision.published
        await cabled.assert_accepting(without=server)
        await assert_rewarded(rollout)
    await assert_nothing_remains(cabled, name, rollout)


@pytest.mark.parametrize("mix", MIXES, ids=name_of)
async def test_servers_cut_off_before_their_snapshot_void_the_cut(cabled: CabledRun, mix: Mapping[str, str]) -> None:
    """X24, X01, X07, X33: all are named, and their gates open when their leases end, however long they are cut off."""
    name = f"snapshot-{name_of(mix)}"
    rollout = await cabled.playing(name)
    cabled.watch.hold_at("checkpoint.freezing")
    taken = taking(cabled, name, resume=ResumePolicy.AFTER_PUBLISH)
    await cabled.watch.reached()
    assert {status.holds.gate for status in (await cabled.statuses()).values()} == {GateState.CLOSED}
    with cabled.cut(from_coordinator(mix)):
        cabled.watch.go_on()
        with pytest.raises(ParticipantLost, match="|".join(MEMBERS.values())):
            await taken
        told = (await cabled.client.get_checkpoint(name)).checkpoint.why_aborted
        assert all(member in told for member in MEMBERS.values())
        await assert_rewarded(rollout)
    await assert_nothing_remains(cabled, name, rollout)
    decision = await cabled.decision(name)
    assert decision is not None
    assert not decision.published


@pytest.mark.parametrize("mix", MIXES, ids=name_of)
async def test_a_cut_that_is_complete_waits_for_its_upload(cabled: CabledRun, mix: Mapping[str, str]) -> None:
    """X33, X02, X26: servers that are cut off then open by themselves, and the same exports are published once the network is whole."""
    name = f"upload-{name_of(mix)}"
    rollout = await cabled.playing(name)
    cabled.watch.hold_at("checkpoint.uploading")
    taken = taking(cabled, name)
    await cabled.watch.reached()
    with cabled.cut(from_coordinator(mix)):
        cabled.watch.go_on()
        await assert_rewarded(rollout)
        assert not taken.done()
    assert (await taken).stage is Stage.PUBLISHED
    await assert_nothing_remains(cabled, name, rollout)
    await assert_restores(cabled, name, name)


@pytest.mark.parametrize("point", ["restore.retired", "restore.installed", "restore.decided"])
async def test_that_a_restore_failed_is_told_once_everyone_can_be_told(cabled: CabledRun, point: str) -> None:
    """X39, X28, X24: whoever is cut off may hold the attempt; nobody runs it, and the same checkpoint restores again."""
    mix = dict(zip(MEMBERS, list(CUTS)[:4], strict=True)) if point == "restore.retired" else MIXES[1]
    await cabled.playing(point)
    await cabled.checkpoint(point)
    cabled.watch.hold_at(point)
    restoring = cabled.restoring(point, point, point)
    await cabled.watch.reached()
    with cabled.cut(from_coordinator(mix)):
        cabled.watch.go_on()
        unretired = f"restore-{point}: {MEMBERS[ENVIRONMENT]} (0) has not retired 1 episodes"
        tries = 2 if point == "restore.installed" else 1
        await until(lambda: cabled.said(COORDINATOR).count(unretired) == tries, "a retirement without an answer")
        assert not restoring.done()
    with pytest.raises(RestoreAborted, match="|".join(MEMBERS.values())):
        await restoring
    refused = await cabled.play(point, 1, continues=True)
    assert (refused.status_code, refused.headers["x-gymckpt-reason"]) == (409, "STALE_ATTEMPT")
    await assert_restores(cabled, point, point)
    await cabled.checkpoint(f"{point}-later")


async def test_a_network_that_breaks_every_connection_costs_retries_and_nothing_else(cabled: CabledRun) -> None:
    """X26, X28, X33: each transition is sent again until it is answered, and counts once."""
    rollout = await cabled.playing("breaking")
    cables = [cabled.cables[COORDINATOR, server] for server in MEMBERS]
    for cable in cables:
        cable.reset_after(3000)
    try:
        assert (await cabled.taking("breaking")).stage is Stage.PUBLISHED
        (target,) = await cabled.restoring("breaking", "breaking", "breaking")
        await cabled.assert_goes_on("breaking", target.attempt)
        await asyncio.wait([rollout])
    finally:
        for cable in cables:
            cable.heal()
    await cabled.checkpoint("breaking-later")


# --- the caller ---


@pytest.mark.parametrize("how", CUTS)
async def test_a_caller_that_was_cut_off_asks_again_and_is_told_the_same(cabled: CabledRun, how: str) -> None:
    """X33, X29, C41: the round goes on without it."""
    name = f"caller-{how}"
    rollout = await cabled.playing(name)
    cabled.watch.hold_at("checkpoint.uploading")
    taken = taking(cabled, name)
    await cabled.watch.reached()
    with cabled.cut({(CALLER, COORDINATOR): how}):
        cabled.watch.go_on()
        await until(lambda: f"checkpoint={name} stage=PUBLISHED" in cabled.said(COORDINATOR), f"the end of {name}")
    await asyncio.wait([taken])
    if how in ("drop", "reset"):
        assert isinstance(taken.exception(), TransportFailed)
    again, decision = await taking(cabled, name), await cabled.decision(name)
    assert decision is not None
    assert (again.stage, again.manifest) == (Stage.PUBLISHED, decision.manifest)
    await assert_nothing_remains(cabled, name, rollout)


# --- the data plane ---


@pytest.mark.parametrize("how", CUTS)
async def test_calls_that_were_cut_off_are_carried_out_once(cabled: CabledRun, how: str) -> None:
    """X16, X38, X37: no error of the network is a tool's answer; a checkpoint meanwhile is whole or names what blocks it, and every gate is open after it."""
    name = f"calls-{how}"
    rollout = await cabled.playing(name)
    for caller, callee in DATA_PLANE:
        with cabled.cut({(caller, callee): how}):
            if callee == COUNTER:
                await cabled.calling_a_tool(rollout)
            taken = taking(cabled, f"{name}-{callee}", prepare_timeout=0.5)
            await asyncio.wait([taken])
            blocked = taken.exception()
            if callee == COUNTER:
                assert isinstance(blocked, NotReady)
                assert MEMBERS[AGENT] in blocked.message
            elif callee == MODEL:
                assert blocked is None  # waiting for the model is a boundary
            await cabled.assert_accepting()
            assert not rollout.done()
            if how == "unanswered":
                cabled.cables[caller, callee].drop()  # the answers are lost, not late
    await assert_nothing_remains(cabled, name, rollout)
    await assert_restores(cabled, name, f"{name}-{MODEL}")


# --- the store (test_network_to_store.py has the rest) ---


async def test_a_store_that_is_away_for_a_minute_is_waited_for(minute: asyncio.Task[None]) -> None:
    """X02, X09, X33: with the leases as they are by default; rollouts run on, and what is published at last is the cut."""
    await minute
