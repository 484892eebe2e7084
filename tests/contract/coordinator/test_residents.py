"""What a restore does about processes that keep their episodes to themselves: two agents here, beside three that export."""

from __future__ import annotations

import pytest

from gymckpt.coordinator import OnUnloadable, RestoreArguments, Stage
from gymckpt.core.ids import Episode
from gymckpt.core.kinds import Capture, Fate, Kind
from gymckpt.core.manifest import Floor, StoredSession
from gymckpt.core.transitions import Confirm, Discard, Retire
from gymckpt.errors import RestoreAborted, UnloadableState
from gymckpt.rpc import codec
from tests.contract.coordinator.fake import FakeParticipant
from tests.contract.coordinator.fleet import Fleet

R1, R2, R3 = (Episode(f"r{n}") for n in range(1, 4))
NEXT1, NEXT2 = Episode("r1", 1), Episode("r2", 1)


async def agent(fleet: Fleet, name: str) -> FakeParticipant:
    participant = await fleet.add(Kind.AGENT, name)
    participant.capture = Capture.RESIDENT
    return participant


@pytest.fixture
async def agents(bare: Fleet) -> tuple[FakeParticipant, FakeParticipant]:
    """`x` holds r1, `y` holds r2 and r3, and the checkpoint c1 names them; resources know r1 and r2, nobody else knows r3."""
    for kind in (Kind.ENVIRONMENT, Kind.MODEL, Kind.RESOURCES):
        await bare.add(kind)
    x, y = await agent(bare, "x"), await agent(bare, "y")
    await bare.coordinate()
    await bare.register(bare[Kind.ENVIRONMENT], bare[Kind.MODEL], bare[Kind.RESOURCES], x, y)
    (state,) = await bare.store.write([codec.encode_session(StoredSession("fake/1", ()))])
    bare[Kind.RESOURCES].host(R1, R2, state=state)
    bare[Kind.RESOURCES].stored = {R1, R2}
    x.host(R1, session="run-1")
    y.host(R2, R3, session="run-1")
    assert (await bare.checkpoint("c1")).stage is Stage.PUBLISHED
    del bare.log[:]
    return x, y


def retired(fleet: Fleet) -> list[tuple[str, tuple[Episode, ...]]]:
    return [(name, step.episodes) for name, step in fleet.log if isinstance(step, Retire)]


def others(fleet: Fleet) -> list[str]:
    return [str(fleet[kind].id) for kind in (Kind.ENVIRONMENT, Kind.MODEL, Kind.RESOURCES)]


async def test_what_living_processes_hold_is_restored_and_not_stopped_there(
    bare: Fleet, agents: tuple[FakeParticipant, FakeParticipant]
) -> None:
    """X13: r3, which nobody else knows, is no part of the restore."""
    outcome = await bare.client.restore(RestoreArguments("one", "c1"))
    assert [(target.source, target.fate, target.attempt) for target in outcome] == [
        (R1, Fate.RESTORED, 1),
        (R2, Fate.RESTORED, 1),
    ]
    assert sorted(retired(bare)) == sorted((name, (R1, R2)) for name in others(bare))
    assert all(participant.sessions for participant in agents)


async def test_what_a_process_held_that_is_gone_is_restarted_and_retired_everywhere(
    bare: Fleet, agents: tuple[FakeParticipant, FakeParticipant]
) -> None:
    """X13, X28: residents are told first, and only of what is over; its next attempt may start anywhere."""
    x, y = agents
    await y.die()
    await bare.register(await agent(bare, "y"))
    outcome = await bare.client.restore(RestoreArguments("one", "c1"))
    why = f"agent/y held it in a process that is gone (boot {y.boot_id})"
    assert [(target.target, target.fate, target.why) for target in outcome] == [
        (NEXT1, Fate.RESTORED, ""),
        (NEXT2, Fate.RESTARTED, why),
    ]
    assert sorted(retired(bare)[:2]) == [("agent/x", (R2,)), ("agent/y", (R2,))]
    assert sorted(retired(bare)[2:]) == sorted((name, (R1, R2)) for name in others(bare))
    assert bare[Kind.RESOURCES].live == {NEXT1}
    assert set(x.sessions) == {(R1, "run-1")}
    entries = await bare.store.list_names("floors/restore-one")
    floors = [floor for entry in entries for floor in codec.decode_floors(entry.value)]
    assert floors == [Floor("r1", 0, 1), Floor("r2", 0, 0)]


@pytest.mark.parametrize("on_unloadable", OnUnloadable)
async def test_what_has_ended_since_the_cut_is_restarted_alone(
    bare: Fleet, agents: tuple[FakeParticipant, FakeParticipant], on_unloadable: OnUnloadable
) -> None:
    """X13: whatever the caller wants done with state that cannot be loaded; what others installed of it is dropped."""
    _, y = agents
    y.unloadable = {R2: "it has ended"}
    outcome = await bare.client.restore(RestoreArguments("one", "c1", on_unloadable=on_unloadable))
    assert [(target.target, target.fate, target.why) for target in outcome] == [
        (NEXT1, Fate.RESTORED, ""),
        (NEXT2, Fate.RESTARTED, "agent/y: it has ended"),
    ]
    assert {name for name, step in bare.log if step == Discard((NEXT2,))} >= {"agent/y", *others(bare)}
    assert bare[Kind.RESOURCES].live == {NEXT1}


async def test_what_cannot_be_loaded_elsewhere_still_fails_the_restore(
    bare: Fleet, agents: tuple[FakeParticipant, FakeParticipant]
) -> None:
    """X28, X39: then what would have gone on at a resident is retired there too."""
    bare[Kind.RESOURCES].unloadable = {R1: "schema"}
    agents[1].unloadable = {R2: "it has ended"}
    with pytest.raises(UnloadableState, match="1 episodes cannot be loaded: r1: resources/x: schema"):
        await bare.client.restore(RestoreArguments("one", "c1"))
    assert ("agent/x", (NEXT1, NEXT2)) in retired(bare)


async def test_an_aborted_restore_retires_what_would_have_gone_on(
    bare: Fleet, agents: tuple[FakeParticipant, FakeParticipant]
) -> None:
    """X39: "failed" is told once nobody runs the attempt, and those rollouts start over."""
    bare[Kind.MODEL].script[Confirm] = RestoreAborted("scripted")
    with pytest.raises(RestoreAborted):
        await bare.client.restore(RestoreArguments("one", "c1"))
    assert {name for name, episodes in retired(bare) if episodes == (NEXT1, NEXT2)} == {
        "agent/x",
        "agent/y",
        *others(bare),
    }
    assert agents[0].sessions == {}


async def test_of_two_attempts_of_one_rollout_the_newer_goes_on_where_it_runs(
    bare: Fleet, agents: tuple[FakeParticipant, FakeParticipant]
) -> None:
    """X13, X29: the older one is over, and its replacement is the one that runs."""
    x, _ = agents
    x.sessions.clear()
    x.host(NEXT1, session="run-2")
    bare[Kind.RESOURCES].host(NEXT1, session="t")
    bare[Kind.RESOURCES].stored.add(NEXT1)
    assert (await bare.checkpoint("c2")).stage is Stage.PUBLISHED
    outcome = await bare.client.restore(RestoreArguments("one", "c2"))
    assert {(target.source, target.fate, target.attempt) for target in outcome} == {
        (R1, Fate.LOST, 2),
        (NEXT1, Fate.RESTORED, 2),
        (R2, Fate.RESTORED, 1),
    }
    assert set(x.sessions) == {(NEXT1, "run-2")}
