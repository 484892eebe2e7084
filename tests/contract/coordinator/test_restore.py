"""How a restore comes to be everywhere, or nowhere."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from gymckpt.coordinator import CheckpointArguments, OnUnloadable, RestoreArguments, RestoreStage, Stage
from gymckpt.core.ids import Digest, Episode
from gymckpt.core.kinds import Fate, GateState, Kind
from gymckpt.core.manifest import Floor, Part, RestoreTarget, StoredSession
from gymckpt.core.report import LostEpisode, Report, Restart
from gymckpt.core.transitions import Activate, Confirm, Install, Retire, Transition
from gymckpt.errors import (
    ArgumentConflict,
    BlobNotFound,
    CheckpointNotFound,
    Conflict,
    DamagedBlob,
    InvalidField,
    MemberMissing,
    RestoreAborted,
    StoreUnavailable,
    UnloadableState,
)
from gymckpt.rpc import codec
from gymckpt.store import MemoryStore
from tests.contract.coordinator.fleet import SETTINGS, Fleet

R1, R2, R3, R4 = (Episode(f"r{n}") for n in range(1, 5))


async def stored_state(fleet: Fleet) -> Digest:
    (state,) = await fleet.store.write([codec.encode_session(StoredSession("fake/1", ()))])
    return state


async def published(fleet: Fleet, *episodes: Episode, checkpoint_id: str = "c1") -> None:
    """A checkpoint of these episodes; afterwards the participants hold nothing of them."""
    state = await stored_state(fleet)
    for participant in fleet.all:
        participant.host(*episodes, state=state)
        participant.stored = set(episodes)
    assert (await fleet.checkpoint(checkpoint_id)).stage is Stage.PUBLISHED
    for participant in fleet.all:
        participant.sessions.clear()


def live(fleet: Fleet) -> list[set[Episode]]:
    return [participant.live for participant in fleet.all]


async def floors(fleet: Fleet, operation: str) -> list[Floor]:
    entries = await fleet.store.list_names(f"floors/{operation}")
    return [floor for entry in entries for floor in codec.decode_floors(entry.value)]


async def test_a_restore_gives_every_episode_its_next_attempt(fleet: Fleet) -> None:
    """C09, X13: floors before the first install, retires of what is older, then install, confirm, activate."""
    await published(fleet, R1, Episode("r2", 3))
    del fleet.log[:]
    progress = [p async for p in fleet.client.restore_checkpoint(RestoreArguments("one", "latest"))]
    assert progress[-1].stage is RestoreStage.RESTORED
    assert progress[-1].outcome == (
        RestoreTarget(R1, 1, Fate.RESTORED),
        RestoreTarget(Episode("r2", 3), 4, Fate.RESTORED),
    )
    assert live(fleet) == [{Episode("r1", 1), Episode("r2", 4)}] * 4
    assert [type(step) for _, step in fleet.log[::4]] == [Retire, Install, Confirm, Activate]
    assert fleet.kinds_told(Retire)[:2] == ["environment", "agent"]
    assert await floors(fleet, "restore-one") == [Floor("r1", 0, 1), Floor("r2", 3, 4)]
    assert await fleet.names("pins") == []


async def test_every_asked_episode_is_restored_restarted_or_named_as_lost(fleet: Fleet) -> None:
    """X13, C36."""
    state = await stored_state(fleet)
    for participant in fleet.all:
        participant.host(R1, R2, state=state)
        participant.stored = {R1, R2}
    fleet[Kind.ENVIRONMENT].host(R3)
    fleet[Kind.ENVIRONMENT].stored.add(R3)
    fleet[Kind.AGENT].report = Report(restarts=(Restart(R2, "restart only"),))
    fleet[Kind.RESOURCES].lost = (LostEpisode(R4, "its process was replaced"),)
    await fleet.checkpoint("c1")
    for participant in fleet.all:
        participant.sessions.clear()
    outcome = await fleet.client.restore(RestoreArguments("one", "c1"))
    assert {target.source: target.fate for target in outcome} == {
        R1: Fate.RESTORED,
        R2: Fate.RESTARTED,
        R3: Fate.RESTORED,
        R4: Fate.LOST,
    }
    assert {target.attempt for target in outcome} == {1}
    # R3 had declared no boundary yet: it is restored without state, and starts over from its input as a continued attempt.
    assert live(fleet) == [
        {Episode("r1", 1)} | ({Episode("r3", 1)} if p.id.kind is Kind.ENVIRONMENT else set()) for p in fleet.all
    ]


async def test_some_episodes_can_be_restored_alone(fleet: Fleet) -> None:
    """C21."""
    await published(fleet, R1, R2)
    assert [t.source for t in await fleet.client.restore(RestoreArguments("one", "c1", (R2,)))] == [R2]
    assert live(fleet) == [{Episode("r2", 1)}] * 4


async def test_an_attempt_is_never_given_twice(fleet: Fleet) -> None:
    """X29, X14: a restore after a restore, after a retire, and after one that failed."""
    await published(fleet, R1)
    assert (await fleet.client.restore(RestoreArguments("one", "c1")))[0].attempt == 1
    assert (await fleet.client.restore(RestoreArguments("two", "c1")))[0].attempt == 2
    assert live(fleet) == [{Episode("r1", 2)}] * 4
    await fleet.client.retire_episodes([Episode("r1", 5)])
    fleet[Kind.AGENT].script[Install] = RestoreAborted("scripted")
    with pytest.raises(RestoreAborted):
        await fleet.client.restore(RestoreArguments("three", "c1"))
    fleet[Kind.AGENT].script.clear()
    assert (await fleet.client.restore(RestoreArguments("four", "c1")))[0].attempt == 7


async def test_an_install_that_the_store_refuses_is_asked_for_again_until_its_deadline(fleet: Fleet) -> None:
    """X28, X29: an outage costs neither the restore nor an attempt; one without end fails it."""
    await published(fleet, R1)
    agent = fleet[Kind.AGENT]
    agent.script[Install] = StoreUnavailable("away")
    restoring = asyncio.create_task(fleet.client.restore(RestoreArguments("one", "c1")))
    await fleet.until(lambda: sum(isinstance(told, Install) for told in agent.told) == 1)
    agent.script.clear()
    assert [target.attempt for target in await restoring] == [1]
    assert live(fleet) == [{Episode("r1", 1)}] * 4

    await fleet.coordinate(settings=replace(SETTINGS, install_timeout=0.7))
    await fleet.register()
    agent.script[Install] = StoreUnavailable("away for good")
    with pytest.raises(RestoreAborted, match="away for good"):
        await fleet.client.restore(RestoreArguments("two", "c1"))


@pytest.mark.parametrize("step", [Retire, Install])
async def test_a_silent_process_whose_place_another_takes_is_not_waited_for(fleet: Fleet, step: type) -> None:
    """X24, X28: an install may take minutes, and a retirement is asked for until it is answered, but not of a process that is replaced."""
    await published(fleet, R1)
    silent = fleet[Kind.RESOURCES]
    silent.script[step] = asyncio.Event()
    restoring = asyncio.create_task(fleet.client.restore(RestoreArguments("one", "c1")))
    await fleet.until(lambda: any(isinstance(told, step) for told in silent.told))
    await fleet.register(await fleet.add(Kind.RESOURCES))
    with pytest.raises(RestoreAborted, match=f"boot {silent.boot_id} was replaced by boot"):
        await asyncio.wait_for(restoring, 10)
    assert live(fleet) == [set()] * 4


async def test_the_same_request_gives_the_same_outcome_and_another_one_is_refused(fleet: Fleet) -> None:
    """C60."""
    await published(fleet, R1)
    first = await fleet.client.restore(RestoreArguments("one", "c1"))
    told = len(fleet.log)
    assert await fleet.client.restore(RestoreArguments("one", "c1")) == first
    with pytest.raises(ArgumentConflict):
        await fleet.client.restore(RestoreArguments("one", "c1", (R1,)))
    assert len(fleet.log) == told


FAILING: list[type[Transition]] = [Install, Confirm, Activate]


@pytest.mark.parametrize("step", FAILING)
async def test_a_refusal_anywhere_retires_the_targets_everywhere(fleet: Fleet, step: type[Transition]) -> None:
    """O06, X39, X28: nobody can run the attempt, and a process born later refuses it."""
    await published(fleet, R1)
    fleet[Kind.AGENT].script[step] = RestoreAborted("scripted")
    with pytest.raises(RestoreAborted, match="agent/x"):
        await fleet.client.restore(RestoreArguments("one", "c1"))
    assert live(fleet) == [set()] * 4
    assert {(p.pending == set(), p.retired["r1"]) for p in fleet.all} == {(True, 1)}
    assert Floor("r1", 1, 0) in await floors(fleet, "restore-one")
    with pytest.raises(RestoreAborted):
        await fleet.client.restore(RestoreArguments("one", "c1"))


@pytest.mark.parametrize("step", FAILING)
async def test_a_participant_that_dies_leaves_the_restore_nowhere(fleet: Fleet, step: type[Transition]) -> None:
    """X28, X39."""
    await published(fleet, R1)
    victim = fleet[Kind.RESOURCES]
    victim.script[step] = asyncio.Event()
    restoring = asyncio.create_task(fleet.client.restore(RestoreArguments("one", "c1")))
    await fleet.until(lambda: any(isinstance(told, step) for told in victim.told))
    await victim.die()
    with pytest.raises(RestoreAborted, match="resources/x"):
        await restoring
    survivors = [p for p in fleet.all if p is not victim]
    assert [(p.live, p.pending, p.retired["r1"]) for p in survivors] == [(set(), set(), 1)] * 3


async def test_failed_is_told_only_when_nobody_can_run_the_attempt(fleet: Fleet) -> None:
    """X39: one that does not acknowledge its retire keeps the caller waiting."""
    await published(fleet, R1)
    fleet[Kind.AGENT].script[Confirm] = RestoreAborted("scripted")
    silent = fleet[Kind.MODEL]
    restoring = asyncio.create_task(fleet.client.restore(RestoreArguments("one", "c1")))
    await fleet.until(lambda: any(isinstance(told, Confirm) for told in silent.told))
    silent.script[Retire] = acknowledge = asyncio.Event()
    await fleet.until(lambda: sum(isinstance(told, Retire) for told in silent.told) >= 2)
    assert not restoring.done()
    with pytest.raises(Conflict, match="restore-one"):
        await fleet.checkpoint("c2")
    acknowledge.set()
    with pytest.raises(RestoreAborted):
        await restoring


async def test_what_cannot_be_loaded_fails_the_restore_or_restarts_alone(fleet: Fleet) -> None:
    """C46, X13."""
    await published(fleet, R1, R2)
    fleet[Kind.AGENT].unloadable = {R1: "schema fake/2"}
    with pytest.raises(UnloadableState, match="schema fake/2"):
        await fleet.client.restore(RestoreArguments("one", "c1"))
    assert live(fleet) == [set()] * 4
    outcome = await fleet.client.restore(RestoreArguments("two", "c1", on_unloadable=OnUnloadable.RESTART))
    assert [(t.source, t.attempt, t.fate) for t in outcome] == [(R2, 2, Fate.RESTORED), (R1, 2, Fate.RESTARTED)]
    assert live(fleet) == [{Episode("r2", 2)}] * 4


async def test_a_damaged_checkpoint_is_told_as_such(fleet: Fleet) -> None:
    """C10: nothing is installed."""
    await published(fleet, R1)
    fleet[Kind.MODEL].script[Install] = DamagedBlob("blob 00 is damaged")
    with pytest.raises(DamagedBlob, match="blob 00"):
        await fleet.client.restore(RestoreArguments("one", "c1"))
    assert live(fleet) == [set()] * 4


@pytest.mark.parametrize("policy", list(OnUnloadable))
@pytest.mark.parametrize("lost", ["part", "session", "participant manifest", "manifest"])
async def test_a_checkpoint_that_cannot_be_read_costs_nothing_that_lives(
    fleet: Fleet, lost: str, policy: OnUnloadable
) -> None:
    """X08, X14: nobody is told anything, nothing is written, no attempt is given, and what runs goes on; what needs nothing of the damage is restored."""
    digest = await lacking(fleet, lost)
    del fleet.log[:]
    names = await fleet.names("")
    everyone = lost.endswith("manifest")
    with pytest.raises(BlobNotFound) as refused:
        await fleet.client.restore(RestoreArguments("one", "c1", (R1, R2), policy))
    details = {"digest": str(digest), "checkpoint_id": "c1", "rollouts": "r1,r2" if everyone else "r1"}
    assert refused.value.details == details
    assert all(value in refused.value.message for value in details.values())
    assert fleet.log == []
    assert await fleet.names("") == names
    assert {episode for episode, _ in fleet[Kind.AGENT].sessions} == {R1, R2}
    if not everyone:
        assert [t.target for t in await fleet.client.restore(RestoreArguments("two", "c1", (R2,)))] == [
            Episode("r2", 1)
        ]
        assert (await fleet.client.restore(RestoreArguments("one", "latest", (R2,))))[0].attempt == 2


async def lacking(fleet: Fleet, lost: str) -> Digest:
    """A checkpoint of r1 and r2, which go on living, and a blob that it has lost: of r1 at an agent, or of all. The coordinator has the manifest in memory."""
    found: dict[str, Digest] = {}
    for rollout in (R2, R1):
        (part,) = await fleet.store.write([f"state of {rollout}".encode()])
        (state,) = await fleet.store.write([codec.encode_session(StoredSession("fake/1", (Part("own", part),)))])
        fleet[Kind.AGENT].host(rollout, state=state)
        found.update(part=part, session=state)
    for participant in fleet.all:
        participant.stored = {R1, R2}
    await fleet.checkpoint("c1")
    taken = (await fleet.client.get_checkpoint("c1")).checkpoint
    assert taken.manifest is not None
    found["manifest"] = taken.manifest
    (manifest,) = await fleet.store.read([taken.manifest])
    (agent,) = [
        entry
        for entry in codec.decode_checkpoint_manifest(manifest).participants
        if entry.participant.id.kind is Kind.AGENT
    ]
    found["participant manifest"] = agent.manifest
    assert isinstance(fleet.store, MemoryStore)
    del fleet.store._blobs[found[lost]]
    return found[lost]


async def test_state_of_another_release_costs_nothing_that_lives(fleet: Fleet) -> None:
    """C46, X14, X13: a server that was replaced says what it loads; with RESTART its episodes start over, and all others are restored."""
    for rollout, schema in ((R1, "fake/1"), (R2, "fake/2")):
        (state,) = await fleet.store.write([codec.encode_session(StoredSession(schema, ()))])
        for participant in fleet.all:
            participant.host(rollout, state=state)
            participant.stored = {R1, R2}
    await fleet.checkpoint("c1")
    agent = fleet[Kind.AGENT]
    await agent.die()
    newer = await fleet.add(Kind.AGENT)
    newer.schemas, newer.stored, newer.unloadable = ("fake/2", "fake/3"), {R1, R2}, {R1: "schema fake/1"}
    await fleet.register()
    del fleet.log[:]
    names = await fleet.names("")

    with pytest.raises(UnloadableState) as refused:
        await fleet.client.restore(RestoreArguments("one", "c1"))

    assert refused.value.details == {"episodes": "r1"}
    assert "r1: agent/x loads 'fake/2' or 'fake/3', the checkpoint holds 'fake/1'" in refused.value.message
    assert (fleet.log, await fleet.names("")) == ([], names)
    assert [t.target for t in await fleet.client.restore(RestoreArguments("two", "c1", (R2,)))] == [Episode("r2", 1)]
    outcome = await fleet.client.restore(RestoreArguments("three", "c1", (R1,), OnUnloadable.RESTART))
    assert [(t.source, t.attempt, t.fate) for t in outcome] == [(R1, 1, Fate.RESTARTED)]


async def test_a_checkpoint_is_read_once_where_nothing_lives(fleet: Fleet) -> None:
    """X39: nothing can be lost, so only the participants read it; here they need not."""
    await lacking(fleet, "part")
    for participant in fleet.all:
        participant.sessions.clear()
    assert (await fleet.client.restore(RestoreArguments("one", "c1")))[0].fate is Fate.RESTORED


async def test_a_restore_is_joined_while_its_checkpoint_is_read(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """C60, X28: a caller that lost its answer repeats the call at any moment."""
    await lacking(fleet, "session")
    reading, go_on = asyncio.Event(), asyncio.Event()
    find = fleet.store.read

    async def slow(digests: Sequence[Digest]) -> list[bytes]:
        reading.set()
        await go_on.wait()
        return await find(digests)

    monkeypatch.setattr(fleet.store, "read", slow)
    one, other = (asyncio.create_task(fleet.client.restore(RestoreArguments("one", "c1", (R2,)))) for _ in range(2))
    await reading.wait()
    with pytest.raises(Conflict, match="restore-one"):
        await fleet.client.restore(RestoreArguments("two", "c1", (R2,)))
    one.cancel()
    go_on.set()
    assert [target.attempt for target in await other] == [1]


async def test_a_restore_needs_every_participant_of_its_checkpoint(fleet: Fleet) -> None:
    """X31."""
    await published(fleet, R1)
    await fleet[Kind.RESOURCES].die()
    with pytest.raises(MemberMissing, match="resources/x"):
        await fleet.client.restore(RestoreArguments("one", "c1"))
    assert await fleet.names("intents") == ["intents/c1"]


async def test_nothing_is_kept_of_a_restore_that_never_began(fleet: Fleet) -> None:
    """X29."""
    with pytest.raises(CheckpointNotFound):
        await fleet.client.restore(RestoreArguments("one", "latest"))
    await published(fleet, R1)
    with pytest.raises(InvalidField, match="r9"):
        await fleet.client.restore(RestoreArguments("one", "c1", (Episode("r9"),)))
    assert await fleet.names("pins") == []
    assert (await fleet.client.restore(RestoreArguments("one", "c1")))[0].attempt == 1


async def test_a_caller_that_goes_away_stops_only_its_own_waiting(fleet: Fleet) -> None:
    """X28."""
    await published(fleet, R1)
    fleet[Kind.AGENT].script[Install] = slow = asyncio.Event()
    restoring = asyncio.create_task(fleet.client.restore(RestoreArguments("one", "c1")))
    await fleet.until(lambda: any(isinstance(told, Install) for told in fleet[Kind.AGENT].told))
    restoring.cancel()
    slow.set()
    assert (await fleet.client.restore(RestoreArguments("one", "c1")))[0].fate is Fate.RESTORED
    assert live(fleet) == [{Episode("r1", 1)}] * 4


async def test_the_restored_can_be_checkpointed_and_restored_again(fleet: Fleet) -> None:
    """X15, E10: as the next attempt, from the newer checkpoint."""
    await published(fleet, R1)
    await fleet.client.restore(RestoreArguments("one", "latest"))
    await published(fleet, Episode("r1", 1), checkpoint_id="c2")
    (target,) = await fleet.client.restore(RestoreArguments("two", "latest"))
    assert (target.source, target.attempt) == (Episode("r1", 1), 2)
    assert fleet.gates() == {GateState.OPEN}


async def test_a_checkpoint_waits_until_a_restore_has_ended(fleet: Fleet) -> None:
    await published(fleet, R1)
    fleet[Kind.AGENT].script[Install] = slow = asyncio.Event()
    restoring = asyncio.create_task(fleet.client.restore(RestoreArguments("one", "c1")))
    await fleet.until(lambda: any(isinstance(told, Install) for told in fleet[Kind.AGENT].told))
    with pytest.raises(Conflict, match="restore-one"):
        await fleet.checkpoint(CheckpointArguments("c2"))
    slow.set()
    await restoring
    assert (await fleet.checkpoint("c2")).stage is Stage.PUBLISHED
