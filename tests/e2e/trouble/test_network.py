"""The network between any two processes cut in every way, in every phase of a round, and healed.

Whatever is cut: no half checkpoint is published, nobody stays closed beyond its lease, what was published restores, no call is carried out twice, who is
silent is named, and once the network is whole the next checkpoint and all rollouts succeed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx
import pytest
import pytest_asyncio

from gymckpt.coordinator import CheckpointArguments, RestoreArguments, ResumePolicy, Stage
from gymckpt.core.kinds import GateState
from gymckpt.errors import NotReady, ParticipantLost, RestoreAborted, TransportFailed
from gymckpt.participant import Episode
from tests.e2e.fleets import AGENT, COORDINATOR, ENVIRONMENT, MODEL, until
from tests.e2e.trouble.cables import CUTS, CabledRun, Ends
from tests.e2e.trouble.run import CALLER, COUNTER, MEMBERS, STEPS, STORE, assert_rewarded, started_as

pytestmark = pytest.mark.asyncio(loop_scope="module")

PATIENCE = 2.0
GATE_LEASE = 3.0
MIXES: tuple[dict[str, str], ...] = (
    {COUNTER: "drop", MODEL: "blackhole", AGENT: "reset", ENVIRONMENT: "unheard"},
    {COUNTER: "unanswered", MODEL: "unheard", AGENT: "drop", ENVIRONMENT: "blackhole"},
)
"""Every server cut off in another way, all at once; every way is there."""
DATA_PLANE = [(AGENT, MODEL), (AGENT, COUNTER), (ENVIRONMENT, AGENT)]
"""The last one first would let the agent end its part meanwhile."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def run(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[CabledRun]:
    """Coordinator, store and servers, each a process, with a cable between any two."""
    async with started_as(CabledRun, tmp_path_factory.mktemp("run"), apart=True, patience=PATIENCE) as run_:
        yield run_


def name_of(mix: Mapping[str, str]) -> str:
    return "-".join(mix.values())


def from_coordinator(mix: Mapping[str, str]) -> dict[Ends, str]:
    return {(COORDINATOR, server): how for server, how in mix.items()}


def to_store(mix: Mapping[str, str]) -> dict[Ends, str]:
    return {(server, STORE): how for server, how in mix.items()}


def taking(run: CabledRun, name: str, **arguments: Any) -> asyncio.Task[Any]:
    """A checkpoint under way that keeps gates closed for GATE_LEASE seconds at most."""
    given = CheckpointArguments(name, gate_lease=GATE_LEASE, **arguments)
    return asyncio.create_task(run.client.checkpoint(given))


async def assert_restores(run: CabledRun, name: str, checkpoint: str) -> None:
    """The rollout, which the checkpoint holds, ends as if nothing had happened."""
    (target,) = await run.client.restore(RestoreArguments(f"{name}-whole", checkpoint, (Episode(name),)))
    await run.assert_goes_on(name, target.attempt)
    await run.assert_accepting()


async def assert_nothing_remains(run: CabledRun, name: str, rollout: asyncio.Task[httpx.Response]) -> None:
    """The network is whole: the rollout has ended in place, every call once, and the next checkpoint succeeds at once."""
    await assert_rewarded(rollout)
    assert run.increments(name) == STEPS
    await run.checkpoint(f"{name}-later")
    await run.assert_accepting()


# --- coordinator and participants ---


@pytest.mark.parametrize(("server", "how"), [*zip([*MEMBERS, ENVIRONMENT], CUTS, strict=True)])
async def test_a_server_cut_off_before_prepare_voids_the_cut(run: CabledRun, server: str, how: str) -> None:
    """X24, X01, X33: it is named; all others are open at once, and it is by itself at the latest when its lease ends, although it hears nothing."""
    name = f"prepare-{how}"
    rollout = await run.playing(name)
    run.watch.hold_at("checkpoint.preparing")
    taken = taking(run, name, prepare_timeout=0.5)
    await run.watch.reached()
    with run.cut({(COORDINATOR, server): how}):
        run.watch.go_on()
        with pytest.raises((ParticipantLost, NotReady), match=MEMBERS[server]):
            await taken
        decision = await run.decision(name)
        assert decision is not None
        assert not decision.published
        await run.assert_accepting(without=server)
        await assert_rewarded(rollout)
    await assert_nothing_remains(run, name, rollout)


@pytest.mark.parametrize("mix", MIXES, ids=name_of)
async def test_servers_cut_off_before_their_snapshot_void_the_cut(run: CabledRun, mix: Mapping[str, str]) -> None:
    """X24, X01, X07, X33: all are named, and their gates open when their leases end, however long they are cut off."""
    name = f"snapshot-{name_of(mix)}"
    rollout = await run.playing(name)
    run.watch.hold_at("checkpoint.freezing")
    taken = taking(run, name, resume=ResumePolicy.AFTER_PUBLISH)
    await run.watch.reached()
    assert {status.holds.gate for status in (await run.statuses()).values()} == {GateState.CLOSED}
    with run.cut(from_coordinator(mix)):
        run.watch.go_on()
        with pytest.raises(ParticipantLost, match="|".join(MEMBERS.values())):
            await taken
        told = (await run.client.get_checkpoint(name)).checkpoint.why_aborted
        assert all(member in told for member in MEMBERS.values())
        await assert_rewarded(rollout)
    await assert_nothing_remains(run, name, rollout)
    decision = await run.decision(name)
    assert decision is not None
    assert not decision.published


@pytest.mark.parametrize("mix", MIXES, ids=name_of)
async def test_a_cut_that_is_complete_waits_for_its_upload(run: CabledRun, mix: Mapping[str, str]) -> None:
    """X33, X02, X26: servers that are cut off then open by themselves, and the same exports are published once the network is whole."""
    name = f"upload-{name_of(mix)}"
    rollout = await run.playing(name)
    run.watch.hold_at("checkpoint.uploading")
    taken = taking(run, name)
    await run.watch.reached()
    with run.cut(from_coordinator(mix)):
        run.watch.go_on()
        await assert_rewarded(rollout)
        assert not taken.done()
    assert (await taken).stage is Stage.PUBLISHED
    await assert_nothing_remains(run, name, rollout)
    await assert_restores(run, name, name)


@pytest.mark.parametrize("point", ["restore.retired", "restore.installed", "restore.decided"])
async def test_that_a_restore_failed_is_told_once_everyone_can_be_told(run: CabledRun, point: str) -> None:
    """X39, X28, X24: whoever is cut off may hold the attempt; nobody runs it, and the same checkpoint restores again."""
    mix = dict(zip(MEMBERS, list(CUTS)[:4], strict=True)) if point == "restore.retired" else MIXES[1]
    await run.playing(point)
    await run.checkpoint(point)
    run.watch.hold_at(point)
    restoring = run.restoring(point, point, point)
    await run.watch.reached()
    with run.cut(from_coordinator(mix)):
        run.watch.go_on()
        unretired = f"restore-{point}: {MEMBERS[ENVIRONMENT]} (0) has not retired 1 episodes"
        await until(lambda: unretired in run.said(COORDINATOR), "a retirement without an answer")
        assert not restoring.done()
    with pytest.raises(RestoreAborted, match="|".join(MEMBERS.values())):
        await restoring
    refused = await run.play(point, 1, continues=True)
    assert (refused.status_code, refused.headers["x-gymckpt-reason"]) == (409, "STALE_ATTEMPT")
    await assert_restores(run, point, point)
    await run.checkpoint(f"{point}-later")


async def test_a_network_that_breaks_every_connection_costs_retries_and_nothing_else(run: CabledRun) -> None:
    """X26, X28, X33: each transition is sent again until it is answered, and counts once."""
    rollout = await run.playing("breaking")
    cables = [run.cables[COORDINATOR, server] for server in MEMBERS]
    for cable in cables:
        cable.reset_after(3000)
    try:
        assert (await run.taking("breaking")).stage is Stage.PUBLISHED
        (target,) = await run.restoring("breaking", "breaking", "breaking")
        await run.assert_goes_on("breaking", target.attempt)
        await asyncio.wait([rollout])
    finally:
        for cable in cables:
            cable.heal()
    await run.checkpoint("breaking-later")


# --- the store ---


@pytest.mark.parametrize("mix", MIXES, ids=name_of)
async def test_servers_cut_off_from_the_store_upload_once_they_reach_it(run: CabledRun, mix: Mapping[str, str]) -> None:
    """X02, X09: rollouts run on, and what is published is the cut."""
    name = f"stored-{name_of(mix)}"
    rollout = await run.playing(name)
    run.watch.hold_at("checkpoint.uploading")
    taken = taking(run, name)
    await run.watch.reached()
    with run.cut(to_store(mix)):
        run.watch.go_on()
        await assert_rewarded(rollout)
        assert {status.holds.gate for status in (await run.statuses()).values()} == {GateState.OPEN}
        assert not taken.done()
    assert (await taken).stage is Stage.PUBLISHED
    await assert_nothing_remains(run, name, rollout)
    await assert_restores(run, name, name)


@pytest.mark.parametrize("mix", MIXES, ids=name_of)
async def test_a_restore_waits_for_servers_that_cannot_read_the_store(run: CabledRun, mix: Mapping[str, str]) -> None:
    """X28, X29: what was installed stays so, nothing runs, and it is live everywhere once the store is reached."""
    name = f"read-{name_of(mix)}"
    await run.playing(name)
    await run.checkpoint(name)
    run.watch.hold_at("restore.retired")
    restoring = run.restoring(name, name, name)
    await run.watch.reached()
    with run.cut(to_store(mix)):
        run.watch.go_on()
        refusing = f"transition=install checkpoint=restore-{name}"
        await until(lambda: refusing in run.said(COORDINATOR), "an install without the store")
        assert not restoring.done()
        assert await run.decision(f"restore-{name}") is None
    (target,) = await restoring
    assert target.attempt == 1
    await run.assert_goes_on(name, 1)
    await run.checkpoint(f"{name}-later")


@pytest.mark.parametrize("how", CUTS)
async def test_a_coordinator_cut_off_from_the_store_decides_once_it_reaches_it(run: CabledRun, how: str) -> None:
    """X25, X28, X33: a publish and the restore of it; an answer that was lost is asked for again, and is the same."""
    name = f"decided-{how}"
    rollout = await run.playing(name)
    run.watch.hold_at("checkpoint.publish")
    taken = taking(run, name)
    await run.watch.reached()
    with run.cut({(COORDINATOR, STORE): how}):
        run.watch.go_on()
        await assert_rewarded(rollout)
        assert not taken.done()
    assert (await taken).stage is Stage.PUBLISHED
    run.watch.hold_at("restore.confirmed")
    restoring = run.restoring(name, name, name)
    await run.watch.reached()
    with run.cut({(COORDINATOR, STORE): how}):
        run.watch.go_on()
        continued = run.play(name, 1, continues=True)  # too early: it is held until the decision is known
        await asyncio.wait([restoring, continued], timeout=0.5)
        assert not restoring.done()
        assert run.increments(name) == STEPS
    (target,) = await restoring
    assert target.attempt == 1
    await assert_rewarded(continued)
    await run.checkpoint(f"{name}-later")


# --- the caller ---


@pytest.mark.parametrize("how", CUTS)
async def test_a_caller_that_was_cut_off_asks_again_and_is_told_the_same(run: CabledRun, how: str) -> None:
    """X33, X29, C41: the round goes on without it."""
    name = f"caller-{how}"
    rollout = await run.playing(name)
    run.watch.hold_at("checkpoint.uploading")
    taken = taking(run, name)
    await run.watch.reached()
    with run.cut({(CALLER, COORDINATOR): how}):
        run.watch.go_on()
        await until(lambda: f"checkpoint={name} stage=PUBLISHED" in run.said(COORDINATOR), f"the end of {name}")
    await asyncio.wait([taken])
    if how in ("drop", "reset"):
        assert isinstance(taken.exception(), TransportFailed)
    again, decision = await taking(run, name), await run.decision(name)
    assert decision is not None
    assert (again.stage, again.manifest) == (Stage.PUBLISHED, decision.manifest)
    await assert_nothing_remains(run, name, rollout)


# --- the data plane ---


@pytest.mark.parametrize("how", CUTS)
async def test_calls_that_were_cut_off_are_carried_out_once(run: CabledRun, how: str) -> None:
    """X16, X38, X37: no error of the network is a tool's answer; a checkpoint meanwhile is whole or names what blocks it, and every gate is open after it."""
    name, published = f"calls-{how}", ""
    rollout = await run.playing(name)
    for caller, callee in DATA_PLANE:
        with run.cut({(caller, callee): how}):
            taken = taking(run, f"{name}-{callee}", prepare_timeout=0.5)
            await asyncio.wait([taken])
            blocked = taken.exception()
            if blocked is None:
                published = f"{name}-{callee}"
            else:
                assert callee != MODEL  # waiting for the model is a boundary
                assert isinstance(blocked, NotReady)
                assert any(MEMBERS[server] in blocked.message for server in (AGENT, ENVIRONMENT))
            await run.assert_accepting()
            assert not rollout.done()
    await assert_nothing_remains(run, name, rollout)
    await assert_restores(run, name, published)
