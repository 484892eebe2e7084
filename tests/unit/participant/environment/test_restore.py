"""How an episode continues as its next attempt."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gymckpt.core.ids import Episode, ParticipantId
from gymckpt.core.kinds import Kind
from gymckpt.core.manifest import Floor, Touch
from gymckpt.errors import (
    AlreadyRestored,
    DuplicateEpisode,
    InvalidPhase,
    NotRestored,
    StaleAttempt,
    TaskMismatch,
    UnloadableState,
)
from gymckpt.participant.environment import EnvironmentParticipant, Run
from gymckpt.participant.environment_state import EnvironmentState
from tests.unit.participant.environment.conftest import Play
from tests.unit.participant.rounds import Checkpoint, Rounds, settled, until

RESOURCES = ParticipantId(Kind.RESOURCES, "workplace_assistant")
PAYLOAD: dict[str, Any] = {
    "z": {"b": 1, "a": [2**70, None, float("inf")]},
    "observations": [{"n": n} for n in range(40)],
    "text": "ä\u2028",
}


async def parked(
    environment: EnvironmentParticipant, rounds: Rounds, text: str = "r", **options: Any
) -> tuple[Play, Checkpoint]:
    """An episode at boundary `verify`, and a published checkpoint of it; the gate stays closed."""

    async def script(run: Run) -> str:
        await episode.told()
        await run.boundary("verify", PAYLOAD, [Touch(RESOURCES, "cookie", 3)])
        await episode.told()
        return "finished"

    episode = Play(environment, text, script, **options)
    await episode.began.wait()
    fence, preparing = rounds.closing(environment)
    episode.go()
    prepared = await preparing
    return episode, await rounds.publish(environment, fence, await rounds.snapshot(environment, fence, prepared))


@pytest.fixture
def successor(rounds: Rounds) -> EnvironmentParticipant:
    """The same environment in a fresh process."""
    return EnvironmentParticipant("single_agent_turn")


async def idle(run: Run) -> str:
    async with run.step("replay"):
        await asyncio.Event().wait()
    return "unreachable"


async def nothing(run: Run) -> str:
    return "finished"


async def test_an_episode_continues_with_its_payload_exactly_once(
    environment: EnvironmentParticipant, successor: EnvironmentParticipant, rounds: Rounds
) -> None:
    """E03, C44, C29, E13: key order, large integers and infinities come back; a second continue is refused."""
    _, checkpoint = await parked(environment, rounds)
    installed = await rounds.restore(successor, checkpoint.digest, ("r", 1))
    assert (installed.sessions, installed.unloadable) == (1, ())
    episode = Play(successor, "r-a1", idle, continues=True)
    await episode.began.wait()
    (continuation,) = episode.seen
    assert continuation == {"stage": "verify", **PAYLOAD}
    assert list(continuation["z"]) == ["b", "a"]
    with pytest.raises(DuplicateEpisode):
        await Play(successor, "r-a1", nothing, continues=True).result()
    assert not episode.task.done()


async def test_a_replacement_with_another_task_is_refused_and_the_restored_state_kept(
    environment: EnvironmentParticipant, successor: EnvironmentParticipant, rounds: Rounds
) -> None:
    """E01: key order does not make another task; the refusal costs nothing."""
    _, checkpoint = await parked(environment, rounds, task={"id": 7, "text": "x"})
    await rounds.restore(successor, checkpoint.digest, ("r", 1))
    with pytest.raises(TaskMismatch, match="r-a1 was restored for the task"):
        await Play(successor, "r-a1", nothing, continues=True, task={"id": 8, "text": "x"}).result()
    episode = Play(successor, "r-a1", nothing, continues=True, task={"text": "x", "id": 7})
    await episode.result()
    assert episode.seen[0]["stage"] == "verify"


async def test_a_replacement_waits_until_the_restored_state_is_live(
    environment: EnvironmentParticipant, successor: EnvironmentParticipant, rounds: Rounds
) -> None:
    """E02: nothing runs on pending state; after the activation it goes on."""
    _, checkpoint = await parked(environment, rounds)
    fence, _ = await rounds.install(successor, checkpoint.digest, ("r", 1))
    episode = Play(successor, "r-a1", nothing, continues=True)
    await settled()
    assert not episode.began.is_set()
    await rounds.discard(successor, fence)
    with pytest.raises(NotRestored):
        await episode.result()
    await rounds.restore(successor, checkpoint.digest, ("r", 2))
    await Play(successor, "r-a2", nothing, continues=True).result()


async def test_continuing_what_is_not_restored_and_starting_what_is_are_refused(
    environment: EnvironmentParticipant, successor: EnvironmentParticipant, rounds: Rounds
) -> None:
    """X30: and the restored state is still there for the rightful continue."""
    _, checkpoint = await parked(environment, rounds)
    await rounds.restore(successor, checkpoint.digest, ("r", 1))
    with pytest.raises(NotRestored):
        await Play(successor, "other", nothing, continues=True).result()
    with pytest.raises(AlreadyRestored):
        await Play(successor, "r-a1", nothing).result()
    with pytest.raises(StaleAttempt):
        await Play(successor, "r", nothing).result()
    assert await Play(successor, "r-a1", nothing, continues=True).result() == "finished"


async def test_a_process_born_after_a_restore_starts_only_later_attempts(environment: EnvironmentParticipant) -> None:
    """X27: nothing of the restored attempt is here, and it may run elsewhere."""
    environment.floors.learn([Floor("r", refused=0, target=1)])
    for text in ("r", "r-a1"):
        with pytest.raises(StaleAttempt):
            await Play(environment, text, nothing).result()
    assert len(environment.sessions) == 0
    assert await Play(environment, "r-a2", nothing).result() == "finished"


async def test_an_episode_without_a_boundary_continues_from_its_input(
    environment: EnvironmentParticipant, successor: EnvironmentParticipant, rounds: Rounds
) -> None:
    """C36."""
    episode = Play(environment, "r", idle)
    await episode.began.wait()
    checkpoint = await rounds.checkpoint(environment)
    await rounds.restore(successor, checkpoint.digest, ("r", 1))
    replacement = Play(successor, "r-a1", nothing, continues=True)
    assert await replacement.result() == "finished"
    assert replacement.seen == [None]


async def test_unclaimed_episodes_are_in_the_next_checkpoint_as_they_were(
    environment: EnvironmentParticipant, successor: EnvironmentParticipant, rounds: Rounds
) -> None:
    """E09, P13, X15: under their next attempt, with the same session blob, boundary and touches; restored again they continue from there."""
    _, first = await parked(environment, rounds)
    await rounds.restore(successor, first.digest, ("r", 1))
    second = await rounds.checkpoint(successor)
    before, after = first.records["r"], second.records["r-a1"]
    assert (after.state, after.boundary, after.touches, after.revision) == (
        before.state,
        before.boundary,
        before.touches,
        before.revision,
    )
    third = EnvironmentParticipant("single_agent_turn")
    await rounds.restore(third, second.digest, ("r-a1", 2))
    assert (await rounds.checkpoint(third)).states == first.states
    replacement = Play(third, "r-a2", nothing, continues=True)
    await replacement.result()
    assert replacement.seen == [{"stage": "verify", **PAYLOAD}]


async def test_unclaimed_episodes_outside_the_scope_are_left_out_and_kept(
    environment: EnvironmentParticipant, successor: EnvironmentParticipant, rounds: Rounds
) -> None:
    """C30 as read in section 15: a checkpoint deletes nothing."""
    _, checkpoint = await parked(environment, rounds)
    await rounds.restore(successor, checkpoint.digest, ("r", 1))
    assert (await rounds.checkpoint(successor, scope=[Episode("else")])).records == {}
    await Play(successor, "r-a1", nothing, continues=True).result()


async def test_a_claimed_episode_is_counted_at_its_restored_boundary_while_it_replays(
    environment: EnvironmentParticipant, successor: EnvironmentParticipant, rounds: Rounds
) -> None:
    """C36: until it declares another one."""
    _, first = await parked(environment, rounds)
    await rounds.restore(successor, first.digest, ("r", 1))
    await Play(successor, "r-a1", idle, continues=True).began.wait()
    assert (await rounds.checkpoint(successor)).states == first.states


async def test_a_second_crash_before_the_replacement_started_restores_again(
    environment: EnvironmentParticipant, successor: EnvironmentParticipant, rounds: Rounds
) -> None:
    """E10, X14: the same checkpoint, one attempt further."""
    _, checkpoint = await parked(environment, rounds)
    await rounds.restore(successor, checkpoint.digest, ("r", 1))
    fresh = EnvironmentParticipant("single_agent_turn")
    await rounds.restore(fresh, checkpoint.digest, ("r", 2))
    episode = Play(fresh, "r-a2", nothing, continues=True)
    await episode.result()
    assert episode.seen[0]["stage"] == "verify"


async def test_a_restore_is_refused_while_the_rollout_is_live_here(
    environment: EnvironmentParticipant, rounds: Rounds
) -> None:
    """E11: per rollout, so that survivors can take part; and the live episode goes on."""
    episode, checkpoint = await parked(environment, rounds)
    assert environment.gate.fence is not None
    await rounds.resume(environment, environment.gate.fence)
    with pytest.raises(InvalidPhase, match="of r; retire it"):
        await rounds.restore(environment, checkpoint.digest, ("r", 1))
    episode.go()
    assert await episode.result() == "finished"
    await rounds.restore(environment, checkpoint.digest, ("r", 1))
    await Play(environment, "r-a1", nothing, continues=True).result()


@pytest.mark.parametrize("change", ["nothing", "a boundary"])
async def test_only_what_changed_since_the_base_is_encoded_again(
    environment: EnvironmentParticipant, rounds: Rounds, change: str
) -> None:
    """X12."""

    async def script(run: Run) -> None:
        await run.boundary("invoke_agent", {"n": 1})
        async with run.step("replay"):
            await episode.told()
        await run.boundary("close_agent", {"n": 2})
        async with run.step("replay"):
            episode.seen.append("second")
            await episode.told()

    episode = Play(environment, "r", script)
    await episode.began.wait()
    first = await rounds.checkpoint(environment)
    if change == "a boundary":
        episode.go()
        await until(lambda: "second" in episode.seen)
    second = await rounds.checkpoint(environment, base=first.manifest.checkpoint_id)
    assert second.taken.changed == (1 if change == "a boundary" else 0)
    assert (second.states == first.states) is (change == "nothing")


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"stage": b"verify"},
        {"task": b"d", "stage": b"verify"},
        {"task": b"d", "payload/layout": b"[]"},
        {"task": b"d", "stage": b"verify", "payload/layout": b"{"},
        {"task": b"d", "other": b""},
        {"result": b"1"},
        {"task": b"d", "result": b"{"},
        {"task": b"d", "result": b"1", "stage": b"verify"},
    ],
)
def test_parts_that_are_not_an_episode_are_refused(parts: dict[str, bytes]) -> None:
    """C46."""
    with pytest.raises(UnloadableState):
        EnvironmentParticipant("e").state.load(parts)  # type: ignore[union-attr]
    assert EnvironmentState.schema == "gymckpt.environment/1"
