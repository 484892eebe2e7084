"""Where an agent's loop stops for a checkpoint, and what the checkpoint takes."""

from __future__ import annotations

import asyncio

import pytest

from gymckpt.core.ids import Episode
from gymckpt.core.manifest import Touch
from gymckpt.errors import CutVoid
from gymckpt.participant.activation import Activation
from gymckpt.participant.agent import AgentParticipant
from gymckpt.participant.state import decode_json
from tests.unit.participant.agent.conftest import REQUEST, RESOURCES, Loop, Played, new_agent, opened
from tests.unit.participant.rounds import Rounds, blocked, settled, until


async def test_a_loop_parks_at_its_boundary_and_goes_on_in_place(agent: AgentParticipant, rounds: Rounds) -> None:
    """A01: a tool in flight is waited for; after resume nothing is done twice."""
    await opened(agent)
    loop = Loop()
    played = Played(agent, "r", loop)
    loop.answer()
    await until(lambda: loop.at == "in tool 0")
    fence, preparing = rounds.closing(agent)
    await settled()
    assert blocked(agent.report()) == [("activation", "r")]
    loop.tool_done()
    prepared = await preparing
    assert (loop.at, loop.model_calls) == ("at model 1", 1)
    record = (await rounds.publish(agent, fence, await rounds.snapshot(agent, fence, prepared))).records["r"]
    assert (record.boundary, record.touches) == ("model", (Touch(RESOURCES, "cookie", 1),))
    await rounds.resume(agent, fence)
    loop.answer()
    loop.tool_done()
    assert await played.result() == "finished"
    assert (loop.model_calls, loop.tool_calls) == (2, [0, 1])


async def test_a_session_waiting_for_the_model_counts_as_at_the_boundary_before(
    agent: AgentParticipant, rounds: Rounds
) -> None:
    """A02: the checkpoint does not wait for the model."""
    await opened(agent)
    loop = Loop()
    played = Played(agent, "r", loop)
    await until(lambda: loop.model_calls == 1)
    checkpoint = await rounds.checkpoint(agent)
    assert checkpoint.records["r"].boundary == "model"
    assert not played.task.done()


async def test_a_reply_that_arrives_during_a_checkpoint_is_kept_and_no_second_call_made(
    agent: AgentParticipant, rounds: Rounds
) -> None:
    """A03: the session stays at the boundary before the call, whenever the reply came."""
    await opened(agent)
    loop = Loop(turns=1)
    played = Played(agent, "r", loop)
    await until(lambda: loop.model_calls == 1)
    fence, prepared = await rounds.prepare(agent)
    loop.answer()
    await settled()
    assert (loop.at, agent.blocker_count()) == ("after model 0", 0)
    checkpoint = await rounds.publish(agent, fence, await rounds.snapshot(agent, fence, prepared))
    assert checkpoint.records["r"].boundary == "model"
    await rounds.resume(agent, fence)
    await until(lambda: loop.at == "in tool 0")
    loop.tool_done()
    assert await played.result() == "finished"
    assert loop.model_calls == 1


async def test_a_model_call_that_fails_during_a_checkpoint_fails_after_it(
    agent: AgentParticipant, rounds: Rounds
) -> None:
    """A03: a failure is kept like a reply; the boundary before the call stays good."""

    async def script(act: Activation) -> None:
        await act.boundary("model", lambda: {"turn": 0})
        with pytest.raises(ConnectionError):
            await act.awaiting_model(failing())
        after.set()

    async def failing() -> None:
        waiting.set()
        await failed.wait()
        raise ConnectionError("the model is gone")

    waiting, failed, after = asyncio.Event(), asyncio.Event(), asyncio.Event()
    await opened(agent)
    played = Played(agent, "r", script)
    await waiting.wait()
    fence, prepared = await rounds.prepare(agent)
    failed.set()
    await settled()
    assert not after.is_set()
    checkpoint = await rounds.publish(agent, fence, await rounds.snapshot(agent, fence, prepared))
    assert checkpoint.records["r"].boundary == "model"
    await rounds.resume(agent, fence)
    await played.result()


async def test_a_snapshot_is_evaluated_only_when_a_checkpoint_takes_it_and_tells_of_its_boundary(
    agent: AgentParticipant, rounds: Rounds
) -> None:
    """A05, V07: a rollout without checkpoints never pays, an unchanged one pays once; what runs on later does not show."""
    await opened(agent)
    loop = Loop(turns=3)
    played = Played(agent, "r", loop)
    loop.answer()
    loop.tool_done()
    await until(lambda: loop.model_calls == 2)
    assert loop.snapshots == 0
    first = await rounds.checkpoint(agent)
    fence, prepared = await rounds.prepare(agent)
    taken = await rounds.snapshot(agent, fence, prepared, base=first.manifest.checkpoint_id)
    await rounds.resume(agent, fence)
    assert (loop.snapshots, taken.changed) == (1, 0)
    loop.answer()
    loop.tool_done()
    await until(lambda: loop.model_calls == 3)
    second = await rounds.publish(agent, fence, taken)
    assert second.states == first.states
    state = decode_json(await rounds.parts(second.records["r"]))
    assert (state["loop.turn"], state["loop.output"]) == (1, [{"turn": 0, "tool": "call 0"}])
    assert played.continuation is None


async def test_state_held_still_at_the_cut_is_what_is_uploaded(agent: AgentParticipant, rounds: Rounds) -> None:
    """X02: even when the loop hands out its own lists, and goes on before the upload."""
    live: list[int] = [1, 2]

    async def script(act: Activation) -> None:
        await act.boundary("model", lambda: {"live": live})
        await act.awaiting_model(asyncio.Event().wait())

    await opened(agent)
    Played(agent, "r", script)
    await settled()
    fence, prepared = await rounds.prepare(agent)
    taken = await rounds.snapshot(agent, fence, prepared)
    await rounds.resume(agent, fence)
    live.append(3)
    state = decode_json(await rounds.parts((await rounds.publish(agent, fence, taken)).records["r"]))
    assert state["loop.live"] == [1, 2]


async def test_a_session_whose_state_is_not_plain_data_is_named_and_the_others_are_kept(
    agent: AgentParticipant, rounds: Rounds
) -> None:
    """C44, A11: it is that episode which cannot be restored, nobody else."""

    async def script(act: Activation) -> None:
        await act.boundary("model", lambda: {"handle": object(), "big": 2**70})
        await act.awaiting_model(asyncio.Event().wait())

    await opened(agent)
    await agent.open_session(Episode("other"), "other", {})
    Played(agent, "r", script)
    await settled()
    checkpoint = await rounds.checkpoint(agent)
    assert list(checkpoint.records) == ["other"]
    assert [(str(lost.episode), "session 's'" in lost.why) for lost in checkpoint.uploaded.failed] == [("r", True)]


async def test_large_integers_key_order_and_infinities_survive(agent: AgentParticipant, rounds: Rounds) -> None:
    """C44, C29."""
    state = {"z": {"b": 1, "a": 2**70}, "inf": float("inf"), "none": None, "turns": [{"n": n} for n in range(40)]}

    async def script(act: Activation) -> None:
        await act.boundary("model", lambda: state)
        await act.awaiting_model(asyncio.Event().wait())

    await opened(agent)
    Played(agent, "r", script)
    await settled()
    checkpoint = await rounds.checkpoint(agent)
    successor = new_agent(rounds)
    await rounds.restore(successor, checkpoint.digest, ("r", 1))
    played = Played(successor, "r-a1", Loop())
    await played.began.wait()
    assert played.continuation == state
    assert list(played.continuation["z"]) == ["b", "a"]


async def test_an_activation_that_begins_during_a_checkpoint_stops_before_anything_runs(
    agent: AgentParticipant, rounds: Rounds
) -> None:
    """A07: neither the prepare nor the cut is disturbed; the session is exported as it stood."""
    await opened(agent)
    fence, prepared = await rounds.prepare(agent)
    loop = Loop()
    played = Played(agent, "r", loop)
    await settled()
    assert (played.began.is_set(), agent.blocker_count()) == (False, 0)
    checkpoint = await rounds.publish(agent, fence, await rounds.snapshot(agent, fence, prepared))
    assert checkpoint.records["r"].boundary == "idle"
    await rounds.resume(agent, fence)
    await until(lambda: loop.model_calls == 1)


async def test_an_agent_used_as_a_tool_runs_through_a_closing_gate(agent: AgentParticipant, rounds: Rounds) -> None:
    """X37: the tool call that needs it is waited for, so it must not park; begun after the cut was prepared it makes the cut void."""
    await opened(agent)
    loop = Loop(turns=1)
    played = Played(agent, "r", loop, within="r")
    await until(lambda: loop.model_calls == 1)
    fence, preparing = rounds.closing(agent)
    await settled()
    assert blocked(agent.report()) == [("within", "r")]
    loop.answer()
    loop.tool_done()
    assert await played.result() == "finished"
    prepared = await preparing
    late = Played(agent, "r", Loop(turns=0), index=1, within="r")
    await late.result()
    with pytest.raises(CutVoid, match="let in"):
        await rounds.snapshot(agent, fence, prepared)


async def test_a_restored_session_calls_the_model_again_and_repeats_no_tool(
    agent: AgentParticipant, rounds: Rounds
) -> None:
    """A04, P01: from the boundary before the call, with the conversation as it was."""
    await opened(agent)
    loop = Loop(turns=2)
    Played(agent, "r", loop)
    loop.answer()
    loop.tool_done()
    await until(lambda: loop.model_calls == 2)
    checkpoint = await rounds.checkpoint(agent)
    successor = new_agent(rounds)
    await rounds.restore(successor, checkpoint.digest, ("r", 1))
    again = Loop(turns=2)
    played = Played(successor, "r-a1", again)
    again.answer()
    again.tool_done()
    assert await played.result() == "finished"
    assert played.continuation == {"turn": 1, "pending": None, "output": [{"turn": 0, "tool": "call 0"}]}
    assert (again.model_calls, again.tool_calls) == (1, [1])


async def test_a_restored_session_at_a_tool_does_not_ask_the_model_again(
    agent: AgentParticipant, rounds: Rounds
) -> None:
    """A04: the reply that led to the tool is in the boundary."""
    replied = asyncio.Event()

    async def script(act: Activation) -> None:
        await replied.wait()
        await act.boundary("tool", lambda: {"turn": 0, "output": [], "pending": "call 0"})

    await opened(agent)
    await Played(agent, "r", script).began.wait()
    fence, preparing = rounds.closing(agent)
    await settled()
    replied.set()
    prepared = await preparing
    checkpoint = await rounds.publish(agent, fence, await rounds.snapshot(agent, fence, prepared))
    successor = new_agent(rounds)
    await rounds.restore(successor, checkpoint.digest, ("r", 1))
    loop = Loop(turns=1)
    played = Played(successor, "r-a1", loop)
    loop.tool_done()
    assert await played.result() == "finished"
    assert (loop.model_calls, loop.tool_calls) == (0, [0])


async def test_the_request_comes_back_as_it_was_opened_with(agent: AgentParticipant, rounds: Rounds) -> None:
    request = dict(REQUEST)
    await agent.open_session(Episode("r"), "s", request)
    request["input"] = []
    checkpoint = await rounds.checkpoint(agent)
    successor = new_agent(rounds)
    await rounds.restore(successor, checkpoint.digest, ("r", 1))
    async with successor.activation(Episode("r", 1), "s", 0) as act:
        assert act.request == REQUEST
