"""How an episode that has finished is kept: for whoever asks again, for every checkpoint, and until it is acknowledged."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gymckpt.core.chunks import digest_of
from gymckpt.core.ids import Episode
from gymckpt.core.results import FinishedResult
from gymckpt.errors import (
    AlreadyRestored,
    InvalidField,
    NotRestored,
    StaleAttempt,
    TaskMismatch,
)
from gymckpt.participant.environment import EnvironmentParticipant, Run
from tests.unit.participant.environment.conftest import Play
from tests.unit.participant.environment.results import (
    BODY,
    RECEIPT,
    RESULT,
    Playing,
    acknowledge,
    again,
    counted,
    finished,
    fresh,
    listed,
)
from tests.unit.participant.rounds import Rounds, settled


@pytest.fixture
def environment(rounds: Rounds) -> EnvironmentParticipant:
    return fresh(rounds)


async def test_a_run_that_is_repeated_gets_the_result_and_plays_nothing(
    environment: EnvironmentParticipant, rounds: Rounds
) -> None:
    """X17: however often, and while gates are closed as well; asked otherwise than at first it is refused, and nothing changes."""
    assert await finished(environment) == RESULT
    assert await again(environment) == RESULT
    fence, _ = await rounds.prepare(environment)
    assert await again(environment) == RESULT
    await rounds.resume(environment, fence)
    with pytest.raises(TaskMismatch, match="r was played for the task"):
        await finished(environment, task={"id": 8})
    with pytest.raises(NotRestored, match="repeat it as it began"):
        await finished(environment, continues=True)
    assert await again(environment) == RESULT
    assert counted(environment) == (0, 0, 1)
    assert environment.holdings().episodes == 1


async def test_nothing_is_kept_where_checkpointing_is_off(rounds: Rounds) -> None:
    environment = EnvironmentParticipant("single_agent_turn")
    unwritable = object()
    assert await finished(environment, result=unwritable) is unwritable
    assert (counted(environment), len(environment.sessions)) == ((0, 0, 0), 0)


@pytest.mark.parametrize("result", [None, object(), {1, 2}])
async def test_what_is_not_a_result_is_refused_and_nothing_kept(
    environment: EnvironmentParticipant, result: Any
) -> None:
    """X20."""
    with pytest.raises(InvalidField):
        await finished(environment, result=result)
    assert (counted(environment), len(environment.sessions)) == ((0, 0, 0), 0)


async def test_a_result_with_half_a_character_is_kept_as_json_that_anybody_can_read(
    environment: EnvironmentParticipant, rounds: Rounds
) -> None:
    """X17: models do say such things."""
    await finished(environment, result={"text": "ä\ud800"})
    assert await again(environment) == {"text": "ä\ud800"}
    checkpoint = await rounds.checkpoint(environment)
    assert (await rounds.parts(checkpoint.records["r"]))["result"] == b'{"text":"\\u00e4\\ud800"}'


async def test_an_episode_that_fails_keeps_nothing(environment: EnvironmentParticipant) -> None:
    async def script(run: Run) -> None:
        await run.boundary("verify", {})
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        await Play(environment, "r", script).result()
    assert (counted(environment), len(environment.sessions)) == ((0, 0, 0), 0)


async def test_a_result_is_exported_restored_and_answered_as_the_next_attempt(
    environment: EnvironmentParticipant, rounds: Rounds
) -> None:
    """X17, X30, E13: a session like any other, which touches nothing; however often it is asked for."""
    await finished(environment)
    first = await rounds.checkpoint(environment)
    record = first.records["r"]
    assert (record.boundary, record.touches, record.session) == ("finished", (), "r")
    assert (await rounds.parts(record))["result"] == BODY
    successor = fresh(rounds)
    installed = await rounds.restore(successor, first.digest, ("r", 1))
    assert (installed.sessions, installed.unloadable) == (1, ())
    with pytest.raises(AlreadyRestored):
        await finished(successor, "r-a1")
    with pytest.raises(StaleAttempt):
        await again(successor, "r")
    with pytest.raises(TaskMismatch, match="r-a1 was restored for the task"):
        await again(successor, "r-a1", continues=True, task={"id": 8})
    for _ in range(2):
        assert await again(successor, "r-a1", continues=True) == RESULT
    assert (await listed(successor))["r-a1"] == FinishedResult(Episode("r", 1), digest_of(BODY), durable=True)
    second = await rounds.checkpoint(successor)
    assert second.states == first.states
    third = fresh(rounds)
    await rounds.restore(third, second.digest, ("r-a1", 2))
    assert await again(third, "r-a2", continues=True) == RESULT


async def test_a_continued_attempt_that_has_finished_is_repeated_as_a_continue(
    environment: EnvironmentParticipant, rounds: Rounds
) -> None:
    """X30."""

    async def script(run: Run) -> None:
        async with run.step("replay"):
            await asyncio.Event().wait()

    await Play(environment, "r", script).began.wait()
    checkpoint = await rounds.checkpoint(environment)
    successor = fresh(rounds)
    await rounds.restore(successor, checkpoint.digest, ("r", 1))
    assert await finished(successor, "r-a1", continues=True) == RESULT
    assert await again(successor, "r-a1", continues=True) == RESULT
    with pytest.raises(AlreadyRestored):
        await finished(successor, "r-a1")
    assert not (await listed(successor))["r-a1"].durable


async def test_a_pending_result_is_neither_answered_nor_listed_nor_acknowledged(
    environment: EnvironmentParticipant, rounds: Rounds
) -> None:
    """E02: until it is live; a restore that is dropped leaves nothing."""
    await finished(environment)
    checkpoint = await rounds.checkpoint(environment)
    successor = fresh(rounds)
    fence, _ = await rounds.install(successor, checkpoint.digest, ("r", 1))
    asking = Play(successor, "r-a1", Playing(), continues=True)
    await settled()
    assert not asking.began.is_set()
    assert await listed(successor) == {}
    assert await acknowledge(successor, rounds, ("r-a1", RECEIPT)) == ["r-a1"]
    await rounds.discard(successor, fence)
    with pytest.raises(NotRestored):
        await asking.result()
    assert counted(successor) == (0, 0, 0)


async def test_an_episode_that_finished_since_the_base_is_encoded_anew_and_then_reused(
    environment: EnvironmentParticipant, rounds: Rounds
) -> None:
    """X12: the boundary that the base holds is not its result; an unchanged result costs nothing."""

    async def script(run: Run) -> None:
        await run.boundary("verify", {})
        async with run.step("replay"):
            await episode.told()
        run.complete(RESULT)

    episode = Play(environment, "r", script)
    await episode.began.wait()
    first = await rounds.checkpoint(environment)
    episode.go()
    await episode.result()
    assert not (await listed(environment))["r"].durable
    second = await rounds.checkpoint(environment, base=first.manifest.checkpoint_id)
    assert (second.taken.changed, second.records["r"].boundary) == (1, "finished")
    third = await rounds.checkpoint(environment, base=second.manifest.checkpoint_id)
    assert (third.taken.changed, third.states) == (0, second.states)
    assert (await listed(environment))["r"].durable


async def test_an_episode_that_completes_while_a_prepare_waits_is_in_the_cut_with_its_result(
    environment: EnvironmentParticipant, rounds: Rounds
) -> None:
    """P08: its caller may die before it hears the result."""

    async def script(run: Run) -> str:
        await run.boundary("return", {})
        async with run.finishing():
            await episode.told()
        run.complete(RESULT)
        return "finished"

    episode = Play(environment, "r", script)
    await episode.began.wait()
    fence, preparing = rounds.closing(environment)
    await settled()
    assert not preparing.done()
    episode.go()
    prepared = await preparing
    checkpoint = await rounds.publish(environment, fence, await rounds.snapshot(environment, fence, prepared))
    assert await episode.result() == "finished"
    assert checkpoint.records["r"].boundary == "finished"
    successor = fresh(rounds)
    await rounds.restore(successor, checkpoint.digest, ("r", 1))
    assert await again(successor, "r-a1", continues=True) == RESULT


async def test_an_episode_that_completes_after_a_replay_step_is_cut_at_its_boundary_and_answers_afterwards(
    environment: EnvironmentParticipant, rounds: Rounds
) -> None:
    """P08: the cut has counted it where it stood, and it stays there."""

    async def script(run: Run) -> str:
        await run.boundary("verify", {})
        async with run.step("replay"):
            await episode.told()
        run.complete(RESULT)
        return "finished"

    episode = Play(environment, "r", script)
    await episode.began.wait()
    fence, prepared = await rounds.prepare(environment)
    episode.go()
    await settled()
    assert not episode.task.done()
    checkpoint = await rounds.publish(environment, fence, await rounds.snapshot(environment, fence, prepared))
    assert checkpoint.records["r"].boundary == "verify"
    await rounds.resume(environment, fence)
    assert await episode.result() == "finished"
    assert await again(environment) == RESULT


async def test_a_result_outlives_the_client_that_went_away_while_it_waited(
    environment: EnvironmentParticipant, rounds: Rounds
) -> None:
    """X17: completed, held at the gate, never heard; nobody need play it again."""

    async def script(run: Run) -> None:
        await run.boundary("verify", {})
        async with run.step("replay"):
            await episode.told()
        run.complete(RESULT)

    episode = Play(environment, "r", script)
    await episode.began.wait()
    fence, prepared = await rounds.prepare(environment)
    episode.go()
    await settled()
    episode.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await episode.result()
    checkpoint = await rounds.publish(environment, fence, await rounds.snapshot(environment, fence, prepared))
    assert checkpoint.records["r"].boundary == "finished"
    await rounds.resume(environment, fence)
    assert await again(environment) == RESULT


async def test_the_result_of_an_episode_that_could_not_be_captured_can_be(
    environment: EnvironmentParticipant, rounds: Rounds
) -> None:
    """P10: it touches that server no longer."""

    async def script(run: Run) -> None:
        await run.mark_restart("tools cannot be captured")
        await episode.told()
        run.complete(RESULT)

    episode = Play(environment, "r", script)
    await episode.began.wait()
    assert (await rounds.checkpoint(environment)).records == {}
    episode.go()
    await episode.result()
    checkpoint = await rounds.checkpoint(environment)
    assert (checkpoint.records["r"].boundary, environment.restarts()) == ("finished", {})


async def test_retiring_an_attempt_and_starting_a_later_one_free_the_result(
    environment: EnvironmentParticipant, rounds: Rounds
) -> None:
    for text in ("r", "s", "t-a1"):
        await finished(environment, text)
    await rounds.retire(environment, "r")
    assert await finished(environment, "s-a1") == RESULT
    with pytest.raises(StaleAttempt):
        await finished(environment, "t")
    assert list(await listed(environment)) == ["s-a1", "t-a1"]
    assert counted(environment) == (0, 0, 2)


async def test_a_refused_start_of_a_later_attempt_frees_nothing(environment: EnvironmentParticipant) -> None:
    await finished(environment)
    with pytest.raises(NotRestored):
        await finished(environment, "r-a1", continues=True)
    assert await again(environment) == RESULT


async def test_an_episode_that_is_retired_while_it_finishes_leaves_nothing(
    environment: EnvironmentParticipant, rounds: Rounds
) -> None:
    """C33: the retire waits for the cleanup, and then frees what that left."""

    async def script(run: Run) -> None:
        async with run.finishing():
            await episode.told()
        run.complete(RESULT)

    episode = Play(environment, "r", script)
    await episode.began.wait()
    await settled()
    retiring = asyncio.create_task(rounds.retire(environment, "r"))
    await settled()
    episode.go()
    await retiring
    assert (await episode.result(), len(environment.sessions)) == (None, 0)
    assert counted(environment) == (0, 0, 0)
