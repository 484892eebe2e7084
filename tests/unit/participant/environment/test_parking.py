"""When an episode stops for a checkpoint, and which boundary the checkpoint takes."""

from __future__ import annotations

import pytest

from gymckpt.core.ids import ParticipantId
from gymckpt.core.kinds import Kind
from gymckpt.core.manifest import Touch
from gymckpt.errors import AdmissionClosed, InvalidField, RestartInScope
from gymckpt.participant.environment import EnvironmentParticipant, Run
from tests.unit.participant.environment.conftest import Play
from tests.unit.participant.rounds import Rounds, blocked, settled, until

AGENT = ParticipantId(Kind.AGENT, "simple_agent")


class Boundaries:
    """A script that works until told, then declares each of its boundaries in turn."""

    def __init__(self, *stages: str) -> None:
        self.stages = stages
        self.passed: list[str] = []
        self.play: Play

    async def __call__(self, run: Run) -> str:
        for stage in self.stages:
            await self.play.told()
            await run.boundary(stage, {"after": list(self.passed)}, [Touch(AGENT, "s", len(self.passed))])
            self.passed.append(stage)
        await self.play.told()
        return "finished"


def play(environment: EnvironmentParticipant, text: str, *stages: str) -> Boundaries:
    script = Boundaries(*stages)
    script.play = Play(environment, text, script)
    return script


async def test_an_episode_parks_at_its_boundary_and_goes_on_in_place(
    environment: EnvironmentParticipant, rounds: Rounds
) -> None:
    """E04, C01: the prepare waits for the boundary; the boundary returns after resume; nothing runs twice."""
    script = play(environment, "r", "verify")
    await script.play.began.wait()
    fence, preparing = rounds.closing(environment)
    await settled()
    assert not preparing.done()
    script.play.go()
    prepared = await preparing
    assert prepared.report.ready
    assert script.passed == []
    taken = await rounds.snapshot(environment, fence, prepared)
    await rounds.resume(environment, fence)
    await until(lambda: script.passed == ["verify"])
    checkpoint = await rounds.publish(environment, fence, taken)
    record = checkpoint.records["r"]
    assert (record.boundary, record.session, record.touches) == ("verify", "r", (Touch(AGENT, "s", 0),))
    script.play.go()
    assert await script.play.result() == "finished"


async def test_what_an_episode_held_at_the_cut_is_what_is_uploaded(
    environment: EnvironmentParticipant, rounds: Rounds
) -> None:
    """X02: although it goes on with the lists that it handed over, to another boundary and to its end, before the upload."""
    live: dict[str, list[int]] = {"observations": [1, 2]}

    async def script(run: Run) -> str:
        await episode.told()
        await run.boundary("verify", live, [Touch(AGENT, "s", 1)])
        live["observations"].append(3)
        await run.boundary("return", {"result": 1.0})
        return "finished"

    episode = Play(environment, "r", script)
    await episode.began.wait()
    fence, preparing = rounds.closing(environment)
    episode.go()
    taken = await rounds.snapshot(environment, fence, await preparing)
    await rounds.resume(environment, fence)
    assert await episode.result() == "finished"
    record = (await rounds.publish(environment, fence, taken)).records["r"]
    assert (record.boundary, record.touches) == ("verify", (Touch(AGENT, "s", 1),))
    restored = EnvironmentParticipant("single_agent_turn")
    assert restored.state is not None
    assert restored.state.load(await rounds.parts(record)).boundary.continuation == {
        "stage": "verify",
        "observations": [1, 2],
    }


async def test_an_episode_reaching_its_boundary_before_the_gate_closes_is_not_ready_until_the_next(
    environment: EnvironmentParticipant, rounds: Rounds
) -> None:
    """A boundary that was passed is not a place to stop: the episode runs on, and is waited for."""
    script = play(environment, "r", "verify", "return")
    script.play.go()
    await until(lambda: script.passed == ["verify"])
    _, prepared = await rounds.prepare(environment, timeout=0.01)
    assert blocked(prepared.report) == [("step", "r")]


async def test_a_wait_step_delays_prepare_and_the_boundary_after_it_is_exported(
    environment: EnvironmentParticipant, rounds: Rounds
) -> None:
    """E06."""

    async def script(run: Run) -> None:
        await run.boundary("close_agent", {})
        async with run.step("wait", "close"):
            await episode.told()
        await run.boundary("verify", {"facts": 1})

    episode = Play(environment, "r", script)
    await episode.began.wait()
    fence, preparing = rounds.closing(environment)
    await settled()
    assert [blocker.subject for blocker in environment.report().blockers] == ["r: close"]
    episode.go()
    prepared = await preparing
    taken = await rounds.snapshot(environment, fence, prepared)
    checkpoint = await rounds.publish(environment, fence, taken)
    assert checkpoint.records["r"].boundary == "verify"


async def test_a_replay_step_does_not_delay_prepare_and_the_boundary_before_it_is_exported(
    environment: EnvironmentParticipant, rounds: Rounds
) -> None:
    """E07, C35: also when the step ends between prepare and snapshot."""

    async def script(run: Run) -> None:
        await run.boundary("invoke_agent", {"session": "s"})
        async with run.step("replay", "invoke"):
            await episode.told()
        episode.seen.append("step ended")
        await run.boundary("close_agent", {"reply": "later"})
        episode.seen.append("went on")

    episode = Play(environment, "r", script)
    await episode.began.wait()
    fence, prepared = await rounds.prepare(environment)
    episode.go()
    await until(lambda: episode.seen[1:] == ["step ended"])
    checkpoint = await rounds.publish(environment, fence, await rounds.snapshot(environment, fence, prepared))
    await settled()
    assert episode.seen[1:] == ["step ended"]
    assert checkpoint.records["r"].boundary == "close_agent"
    await rounds.resume(environment, fence)
    await episode.result()


async def test_a_replay_step_that_ended_is_counted_at_the_boundary_before_it(
    environment: EnvironmentParticipant, rounds: Rounds
) -> None:
    """C35: between the end of the step and the next boundary the exported boundary does not change, and nothing blocks."""

    async def script(run: Run) -> None:
        await run.boundary("invoke_agent", {})
        async with run.step("replay"):
            await episode.told()
        episode.seen.append("step ended")
        await episode.told()

    episode = Play(environment, "r", script)
    await episode.began.wait()
    fence, prepared = await rounds.prepare(environment)
    episode.go()
    await until(lambda: episode.seen[1:] == ["step ended"])
    assert environment.blocker_count() == 0
    checkpoint = await rounds.publish(environment, fence, await rounds.snapshot(environment, fence, prepared))
    assert checkpoint.records["r"].boundary == "invoke_agent"


async def test_a_replay_step_that_fails_during_a_checkpoint_gives_its_boundary_up(
    environment: EnvironmentParticipant, rounds: Rounds
) -> None:
    """C61: the episode starts over from its input after a crash, and its cleanup waits for the gate."""

    async def script(run: Run) -> None:
        await run.boundary("invoke_agent", {})
        try:
            async with run.step("replay"):
                await episode.told()
                raise ConnectionError("the agent is gone")
        finally:
            async with run.finishing():
                episode.seen.append("cleaned up")

    episode = Play(environment, "r", script)
    await episode.began.wait()
    fence, prepared = await rounds.prepare(environment)
    episode.go()
    await settled()
    checkpoint = await rounds.publish(environment, fence, await rounds.snapshot(environment, fence, prepared))
    record = checkpoint.records["r"]
    assert (record.boundary, record.touches, list(await rounds.parts(record))) == ("", (), ["task"])
    assert episode.seen == [None]
    await rounds.resume(environment, fence)
    with pytest.raises(ConnectionError):
        await episode.result()
    assert episode.seen == [None, "cleaned up"]


async def test_an_episode_that_ends_during_a_checkpoint_leaves_after_it(
    environment: EnvironmentParticipant, rounds: Rounds
) -> None:
    """C36, P08: it is in the cut although its last replay step has ended."""

    async def script(run: Run) -> str:
        async with run.step("replay"):
            await episode.told()
        return "finished"

    episode = Play(environment, "r", script)
    await episode.began.wait()
    fence, prepared = await rounds.prepare(environment)
    episode.go()
    await settled()
    assert not episode.task.done()
    checkpoint = await rounds.publish(environment, fence, await rounds.snapshot(environment, fence, prepared))
    assert list(checkpoint.records) == ["r"]
    await rounds.resume(environment, fence)
    assert await episode.result() == "finished"


async def test_an_episode_overtaken_by_a_second_checkpoint_stays_parked_for_it(
    environment: EnvironmentParticipant, rounds: Rounds
) -> None:
    """C27: resume and the next prepare come before it could run."""
    script = play(environment, "r", "verify")
    await script.play.began.wait()
    fence, preparing = rounds.closing(environment)
    script.play.go()
    await preparing
    resumed = rounds.resume(environment, fence)
    again = rounds.prepare(environment)
    await resumed
    second, prepared = await again
    assert prepared.report.ready
    await settled()
    assert script.passed == []
    assert list(
        (await rounds.publish(environment, second, await rounds.snapshot(environment, second, prepared))).records
    ) == ["r"]


async def test_a_new_episode_is_refused_while_the_gate_is_closed(
    environment: EnvironmentParticipant, rounds: Rounds
) -> None:
    """E02: the refusal says when to come again, and leaves nothing behind."""
    fence, _ = await rounds.prepare(environment)
    with pytest.raises(AdmissionClosed, match=fence.checkpoint_id) as refused:
        await play(environment, "r", "verify").play.result()
    assert refused.value.retry_after == 1.0
    assert (environment.blocker_count(), len(environment.sessions)) == (0, 0)
    await rounds.resume(environment, fence)
    script = play(environment, "r")
    script.play.go()
    assert await script.play.result() == "finished"


async def test_an_episode_without_a_boundary_is_exported_without_one(
    environment: EnvironmentParticipant, rounds: Rounds
) -> None:
    """C36: it starts over from its input after the restore, as the next attempt."""

    async def script(run: Run) -> None:
        async with run.step("replay", "seed"):
            await episode.told()

    episode = Play(environment, "r", script)
    await episode.began.wait()
    record = (await rounds.checkpoint(environment)).records["r"]
    assert record.boundary == ""
    assert record.state is not None


async def test_a_restart_runs_on_is_named_and_never_exported(
    environment: EnvironmentParticipant, rounds: Rounds
) -> None:
    """C53, C55: marked during a checkpoint it is one only after it, so that the checkpoint still holds it."""

    async def script(run: Run) -> None:
        async with run.step("replay"):
            await episode.told()
            await run.mark_restart("the browser cannot be captured")
        await run.boundary("verify", {})
        episode.seen.append("past the boundary")
        await episode.told()

    episode = Play(environment, "r", script)
    await episode.began.wait()
    fence, prepared = await rounds.prepare(environment)
    episode.go()
    await settled()
    assert environment.report().restarts == ()
    first = await rounds.publish(environment, fence, await rounds.snapshot(environment, fence, prepared))
    await rounds.resume(environment, fence)
    await until(lambda: "past the boundary" in episode.seen)
    fence, prepared = await rounds.prepare(environment)
    assert [(str(restart.episode), restart.why) for restart in prepared.report.restarts] == [
        ("r", "the browser cannot be captured")
    ]
    with pytest.raises(RestartInScope, match="the browser cannot be captured"):
        await rounds.snapshot(environment, fence, prepared, scope=[prepared.report.restarts[0].episode])
    second = await rounds.publish(environment, fence, await rounds.snapshot(environment, fence, prepared))
    assert (list(first.records), list(second.records)) == (["r"], [])


@pytest.mark.parametrize(
    ("stage", "payload", "message"),
    [
        ("", {}, "name of its stage"),
        ("verify", {"stage": "x"}, "must not have a key 'stage'"),
        ("verify", {"when": object()}, "not plain data"),
        ("verify", {7: "x"}, "keys must be text"),
    ],
)
async def test_a_boundary_that_cannot_be_kept_is_refused_and_the_one_before_stays(
    environment: EnvironmentParticipant, rounds: Rounds, stage: str, payload: dict[str, object], message: str
) -> None:
    """C44: foreign objects are refused where they are handed over, not at the export."""

    async def script(run: Run) -> None:
        await run.boundary("first", {"big": 2**70, "none": None})
        with pytest.raises(InvalidField, match=message):
            await run.boundary(stage, payload)
        async with run.step("replay"):
            await episode.told()

    episode = Play(environment, "r", script)
    await episode.began.wait()
    await settled()
    assert (await rounds.checkpoint(environment)).records["r"].boundary == "first"
