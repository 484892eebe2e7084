"""How an episode ends: by itself, retired, or out of time."""

from __future__ import annotations

import asyncio

import pytest

from gymckpt.errors import DeadlineExceeded, DuplicateEpisode, StaleAttempt
from gymckpt.participant.environment import EnvironmentParticipant, Run
from tests.unit.participant.environment.conftest import Play
from tests.unit.participant.rounds import Rounds, blocked, settled, until


async def working(run: Run) -> None:
    await asyncio.Event().wait()


async def test_a_second_start_of_a_live_episode_is_refused_and_the_first_goes_on(
    environment: EnvironmentParticipant,
) -> None:
    """E12."""

    async def script(run: Run) -> str:
        await episode.told()
        return "finished"

    episode = Play(environment, "r", script)
    await episode.began.wait()
    for text in ("r", "r-a1"):
        with pytest.raises(DuplicateEpisode, match="r runs here"):
            await Play(environment, text, working).result()
    episode.go()
    assert await episode.result() == "finished"
    assert (len(environment.sessions), environment.blocker_count()) == (0, 0)


@pytest.mark.parametrize("mode", ["between steps", "wait", "replay"])
async def test_retiring_cancels_the_work_once_and_answers_when_it_has_stopped(
    environment: EnvironmentParticipant, rounds: Rounds, mode: str
) -> None:
    """E08, C17: meanwhile the attempt is already refused; its caller is told why."""
    cancelled: list[str] = []
    cleaned = asyncio.Event()

    async def script(run: Run) -> None:
        try:
            if mode == "between steps":
                await asyncio.Event().wait()
            async with run.step("wait" if mode == "wait" else "replay"):
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append("once")
            raise
        finally:
            async with run.finishing():
                await cleaned.wait()

    episode = Play(environment, "r", script)
    await episode.began.wait()
    await settled()
    retiring = [asyncio.create_task(rounds.retire(environment, "r")) for _ in range(2)]
    await settled()
    assert cancelled == ["once"]
    assert not any(task.done() for task in retiring)
    with pytest.raises(StaleAttempt):
        await Play(environment, "r", working).result()
    cleaned.set()
    await asyncio.gather(*retiring)
    with pytest.raises(StaleAttempt, match="r was retired while it ran"):
        await episode.result()
    assert (cancelled, len(environment.sessions), environment.blocker_count()) == (["once"], 0, 0)


async def test_retiring_waits_for_an_episode_that_is_finishing_and_does_not_cancel_it(
    environment: EnvironmentParticipant, rounds: Rounds
) -> None:
    """E08: its result is delivered."""

    async def script(run: Run) -> str:
        async with run.finishing():
            await episode.told()
        return "finished"

    episode = Play(environment, "r", script)
    await episode.began.wait()
    retiring = asyncio.create_task(rounds.retire(environment, "r"))
    await settled()
    assert not retiring.done()
    episode.go()
    await retiring
    assert await episode.result() == "finished"


async def test_retiring_frees_restored_episodes_of_earlier_attempts_only(
    environment: EnvironmentParticipant, rounds: Rounds
) -> None:
    """C13, C23."""

    async def replaying(run: Run) -> None:
        async with run.step("replay"):
            await asyncio.Event().wait()

    for text in ("r", "other"):
        await Play(environment, text, replaying).began.wait()
    checkpoint = await rounds.checkpoint(environment)
    successor = EnvironmentParticipant("single_agent_turn")
    await rounds.restore(successor, checkpoint.digest, ("r", 3), ("other", 1))
    await rounds.retire(successor, "r-a2")
    assert len(successor.sessions) == 2
    await rounds.retire(successor, "r-a3")
    assert [str(session.episode) for session in successor.sessions] == ["other-a1"]


async def test_an_episode_whose_retire_was_cut_short_blocks_the_next_checkpoint_and_is_not_exported(
    environment: EnvironmentParticipant, rounds: Rounds
) -> None:
    """C33, C34."""

    async def script(run: Run) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await episode.told()

    episode = Play(environment, "r", script)
    await episode.began.wait()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await rounds.retire(environment, "r")
    await settled()
    fence, prepared = await rounds.prepare(environment, timeout=0.01)
    assert set(blocked(prepared.report)) == {("retiring", "r")}
    await rounds.resume(environment, fence)
    again = asyncio.create_task(rounds.retire(environment, "r"))
    await settled()
    assert not again.done()
    episode.go()
    await again
    with pytest.raises(StaleAttempt):
        await episode.result()


async def test_the_cleanup_of_a_parked_episode_whose_client_went_away_waits_for_the_gate(
    environment: EnvironmentParticipant, rounds: Rounds
) -> None:
    """X01: what it would close is part of the cut; the cut stays ready, and holds the episode at its boundary."""

    async def script(run: Run) -> None:
        try:
            await episode.told()
            await run.boundary("verify", {})
        finally:
            async with run.finishing():
                episode.seen.append("cleaned up")

    episode = Play(environment, "r", script)
    await episode.began.wait()
    fence, preparing = rounds.closing(environment)
    episode.go()
    prepared = await preparing
    episode.task.cancel()
    await settled()
    assert (episode.seen, environment.blocker_count()) == ([None], 0)
    checkpoint = await rounds.publish(environment, fence, await rounds.snapshot(environment, fence, prepared))
    assert checkpoint.records["r"].boundary == "verify"
    await rounds.resume(environment, fence)
    with pytest.raises(asyncio.CancelledError):
        await episode.result()
    assert episode.seen == [None, "cleaned up"]


async def test_a_cancellation_by_anybody_else_stays_one(environment: EnvironmentParticipant) -> None:
    """A client that went away is not a retire."""
    episode = Play(environment, "r", working)
    await episode.began.wait()
    episode.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await episode.result()
    assert (len(environment.sessions), environment.blocker_count()) == (0, 0)


async def test_a_cancellation_stays_one_although_the_episode_was_retired_too(
    environment: EnvironmentParticipant, rounds: Rounds
) -> None:
    """A server that shuts down must not be told to go on."""

    async def script(run: Run) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await episode.told()

    episode = Play(environment, "r", script)
    await episode.began.wait()
    retiring = asyncio.create_task(rounds.retire(environment, "r"))
    await until(lambda: episode.task.cancelling() == 1)
    episode.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await episode.result()
    await retiring


class Clock:
    """Time of the running event loop, which only the test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    async def move(self, seconds: float) -> None:
        """Lets everybody run, then that much time pass, then everybody run."""
        await settled()
        self.now += seconds
        await settled()


class TestDeadline:
    """E05: the time that an episode stands at boundaries during checkpoints is not its own."""

    @pytest.fixture
    async def clock(self, monkeypatch: pytest.MonkeyPatch) -> Clock:
        clock = Clock()
        monkeypatch.setattr(asyncio.get_running_loop(), "time", clock)
        return clock

    @pytest.fixture
    def environment(self, rounds: Rounds, clock: Clock) -> EnvironmentParticipant:
        participant = EnvironmentParticipant("e", clock=clock)
        rounds.serve(participant)
        return participant

    async def test_an_episode_out_of_time_is_ended_and_its_caller_told(
        self, environment: EnvironmentParticipant, clock: Clock
    ) -> None:
        episode = Play(environment, "r", working, deadline=30.0)
        await clock.move(29.0)
        assert not episode.task.done()
        await clock.move(2.0)
        with pytest.raises(DeadlineExceeded, match="r took more than its 30 seconds"):
            await episode.task
        assert (len(environment.sessions), environment.blocker_count()) == (0, 0)

    async def test_the_deadline_stands_still_while_parked_and_goes_on_with_what_was_left(
        self, environment: EnvironmentParticipant, rounds: Rounds, clock: Clock
    ) -> None:
        async def script(run: Run) -> None:
            await episode.told()
            await run.boundary("verify", {})
            await asyncio.Event().wait()

        episode = Play(environment, "r", script, deadline=30.0)
        fence, preparing = rounds.closing(environment)
        await clock.move(20.0)
        episode.go()
        await preparing
        await clock.move(500.0)
        assert not episode.task.done()
        await rounds.resume(environment, fence)
        await clock.move(9.0)
        assert not episode.task.done()
        await clock.move(2.0)
        with pytest.raises(DeadlineExceeded):
            await episode.task

    async def test_the_deadline_stands_still_in_a_replay_step_during_a_checkpoint(
        self, environment: EnvironmentParticipant, rounds: Rounds, clock: Clock
    ) -> None:
        async def script(run: Run) -> None:
            async with run.step("replay"):
                await asyncio.Event().wait()

        episode = Play(environment, "r", script, deadline=30.0)
        await clock.move(20.0)
        fence, _ = await rounds.prepare(environment)
        await clock.move(500.0)
        assert not episode.task.done()
        await rounds.resume(environment, fence)
        await clock.move(11.0)
        with pytest.raises(DeadlineExceeded):
            await episode.task

    async def test_a_deadline_that_ran_out_does_not_disturb_the_cleanup_or_the_next_checkpoint(
        self, environment: EnvironmentParticipant, rounds: Rounds, clock: Clock
    ) -> None:
        """A gate that closes and opens after the time was over moves no finished timer."""

        async def script(run: Run) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                async with run.step("replay", "last words"):
                    await episode.told()
                async with run.finishing():
                    await episode.told()

        episode = Play(environment, "r", script, deadline=30.0)
        await clock.move(31.0)
        fence, _ = await rounds.prepare(environment)
        await rounds.resume(environment, fence)
        episode.go()
        await clock.move(1000.0)
        assert not episode.task.done()
        episode.go()
        await settled()
        with pytest.raises(DeadlineExceeded):
            await episode.task
