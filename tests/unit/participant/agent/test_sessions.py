"""Opening, activating, closing and retiring an agent's sessions."""

from __future__ import annotations

import asyncio

import pytest

from gymckpt.core.ids import Episode
from gymckpt.errors import (
    ActivationOutOfOrder,
    AlreadyRestored,
    Conflict,
    EpisodeNotFound,
    InvalidField,
    InvalidPhase,
    NotRestored,
    StaleAttempt,
    UnloadableState,
)
from gymckpt.participant.activation import Activation
from gymckpt.participant.agent import AgentParticipant
from tests.unit.participant.agent.conftest import REQUEST, Loop, Played, new_agent, opened
from tests.unit.participant.rounds import Rounds, blocked, settled, until

R = Episode("r")


async def completing(act: Activation) -> str:
    act.complete({"output": "done"})
    return "finished"


async def waiting(act: Activation) -> None:
    await asyncio.Event().wait()


async def test_one_activation_at_a_time(agent: AgentParticipant) -> None:
    """A06: another one is refused and told which runs; the running one is not disturbed."""
    await opened(agent)
    first = Played(agent, "r", waiting, index=0)
    await first.began.wait()
    for index in (None, 1):
        with pytest.raises(Conflict, match="activation 0 of session 's' of r is running"):
            await Played(agent, "r", completing, index=index).result()
    assert not first.task.done()


async def test_a_repeated_activation_waits_for_the_first_and_gives_its_reply(agent: AgentParticipant) -> None:
    """A15, A06: a caller that lost the answer makes nothing run twice."""
    await opened(agent)
    loop = Loop(turns=1)
    first = Played(agent, "r", loop, index=0)
    second = Played(agent, "r", loop, index=0)
    loop.answer()
    loop.tool_done()
    assert await first.result() == "finished"
    assert await second.result() == "repeated"
    assert second.reply == {"output": [{"turn": 0, "tool": "call 0"}]}
    third = Played(agent, "r", loop, index=0)
    assert (await third.result(), third.reply) == ("repeated", second.reply)
    assert loop.model_calls == 1


@pytest.mark.parametrize("index", [0, 3, -1])
async def test_an_index_that_is_neither_the_last_nor_the_next_is_out_of_order(
    agent: AgentParticipant, index: int
) -> None:
    """A15."""
    await opened(agent)
    for number in range(2):
        await Played(agent, "r", completing, index=number).result()
    with pytest.raises(ActivationOutOfOrder, match=f"has completed 2 activations; index {index} "):
        await Played(agent, "r", completing, index=index).result()
    assert await Played(agent, "r", completing, index=None).result() == "finished"


async def test_the_reply_of_a_completed_activation_survives_a_restore(agent: AgentParticipant, rounds: Rounds) -> None:
    """A15, A14: the activation claims the session, so that it is seeded again like any other; and the next one runs."""
    await opened(agent)
    await Played(agent, "r", completing).result()
    checkpoint = await rounds.checkpoint(agent)
    successor = new_agent(rounds)
    await rounds.restore(successor, checkpoint.digest, ("r", 1))
    again = Played(successor, "r-a1", completing, index=0)
    assert (await again.result(), again.reply) == ("repeated", {"output": "done"})
    await opened(successor, "r-a1")
    assert await Played(successor, "r-a1", completing, index=1).result() == "finished"


async def test_an_activation_without_boundaries_changes_its_session(agent: AgentParticipant, rounds: Rounds) -> None:
    """X12, X36: what it completed is in the next checkpoint, whatever that builds on."""
    await opened(agent)
    first = await rounds.checkpoint(agent)
    await Played(agent, "r", completing).result()
    second = await rounds.checkpoint(agent, base=first.manifest.checkpoint_id)
    assert (second.taken.changed, second.states == first.states) == (1, False)


async def test_an_activation_that_broke_off_goes_on_at_its_last_boundary(
    agent: AgentParticipant, rounds: Rounds
) -> None:
    """Its turns are not done again; a checkpoint in between takes that boundary too."""
    await opened(agent)
    loop = Loop(turns=2)
    broken = Played(agent, "r", loop)
    loop.answer()
    loop.tool_done()
    await until(lambda: loop.model_calls == 2)
    broken.task.cancel()
    await settled()
    assert (await rounds.checkpoint(agent)).records["r"].boundary == "model"
    played = Played(agent, "r", loop)
    loop.answer()
    loop.tool_done()
    assert await played.result() == "finished"
    assert (played.continuation["turn"], loop.tool_calls) == (1, [0, 1])


async def test_a_seed_waits_while_the_gate_is_closed(agent: AgentParticipant, rounds: Rounds) -> None:
    """A08."""
    fence, _ = await rounds.prepare(agent)
    opening = asyncio.create_task(opened(agent))
    await settled()
    assert (len(agent.sessions), agent.blocker_count()) == (0, 0)
    await rounds.resume(agent, fence)
    await opening
    assert [session.key for session in agent.sessions] == ["s"]


async def test_seeds_under_way_block_each_by_itself_and_are_exported(agent: AgentParticipant, rounds: Rounds) -> None:
    """A08: overlapping seeds of one session are counted one by one; the session opens although the gate is closing."""
    building = [asyncio.Event(), asyncio.Event()]

    async def seed(built: asyncio.Event) -> None:
        async with agent.seeding(R, "s"):
            await built.wait()
            await opened(agent)

    seeds = [asyncio.create_task(seed(built)) for built in building]
    await settled()
    fence, preparing = rounds.closing(agent)
    await settled()
    assert blocked(agent.report()) == [("seed", "r"), ("seed", "r")]
    building[0].set()
    await settled()
    assert (blocked(agent.report()), preparing.done()) == ([("seed", "r")], False)
    building[1].set()
    prepared = await preparing
    await asyncio.gather(*seeds)
    checkpoint = await rounds.publish(agent, fence, await rounds.snapshot(agent, fence, prepared))
    assert (list(checkpoint.records), checkpoint.records["r"].boundary) == (["r"], "idle")


@pytest.mark.parametrize("again", [False, True])
async def test_a_retire_waits_for_seeds_and_the_refused_seed_opens_nothing(
    agent: AgentParticipant, rounds: Rounds, again: bool
) -> None:
    """A08, A10: also when it seeds a session again that is there."""
    built = asyncio.Event()
    if again:
        await opened(agent)

    async def seed() -> None:
        async with agent.seeding(R, "s"):
            await built.wait()
            await opened(agent)

    seeding = asyncio.create_task(seed())
    await settled()
    retiring = asyncio.create_task(rounds.retire(agent, "r"))
    await settled()
    assert not retiring.done()
    built.set()
    with pytest.raises(StaleAttempt):
        await seeding
    await retiring
    assert (len(agent.sessions), len(agent.in_flight)) == (0, 0)


async def test_closing_cancels_the_activation_once_and_gives_the_facts(agent: AgentParticipant, rounds: Rounds) -> None:
    """A09: it blocks until the loop has stopped; asked again it gives the same facts, and nothing else is left."""
    cancelled: list[str] = []
    cleaned = asyncio.Event()

    async def script(act: Activation) -> None:
        act.keep(observations=[1], cookies={"a": "b"})
        act.keep(observations=[1, 2])
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append("once")
            await cleaned.wait()
            raise

    await opened(agent)
    played = Played(agent, "r", script)
    await played.began.wait()
    closing = [asyncio.create_task(agent.close_session(R, "s")) for _ in range(2)]
    await settled()
    fence, prepared = await rounds.prepare(agent, timeout=0.01)
    assert ("close", "r") in blocked(prepared.report)
    await rounds.resume(agent, fence)
    with pytest.raises(InvalidPhase, match="is being closed"):
        await Played(agent, "r", completing, index=1).result()
    cleaned.set()
    facts = {"observations": [1, 2], "cookies": {"a": "b"}}
    assert await asyncio.gather(*closing) == [facts, facts]
    assert cancelled == ["once"]
    with pytest.raises(InvalidPhase, match="was closed while its activation ran"):
        await played.result()
    assert (await agent.close_session(R, "s"), len(agent.sessions), agent.blocker_count()) == (facts, 0, 0)


async def test_a_close_waits_for_the_gate(agent: AgentParticipant, rounds: Rounds) -> None:
    """A09, E14: a session that was there at the prepare is there at the cut."""
    await opened(agent)
    fence, prepared = await rounds.prepare(agent)
    closing = asyncio.create_task(agent.close_session(R, "s"))
    await settled()
    checkpoint = await rounds.publish(agent, fence, await rounds.snapshot(agent, fence, prepared))
    assert list(checkpoint.records) == ["r"]
    await rounds.resume(agent, fence)
    assert await closing == {}


async def test_facts_survive_a_restore_and_closing_what_is_not_here_gives_nothing(
    agent: AgentParticipant, rounds: Rounds
) -> None:
    """A09: cookies and observations come back as they were."""

    async def script(act: Activation) -> None:
        act.keep(cookies={"name": "value=="})
        act.complete({})

    await opened(agent)
    await Played(agent, "r", script).result()
    checkpoint = await rounds.checkpoint(agent)
    successor = new_agent(rounds)
    await rounds.restore(successor, checkpoint.digest, ("r", 1))
    assert await successor.close_session(R, "s") is None
    assert await successor.close_session(Episode("r", 1), "s") == {"cookies": {"name": "value=="}}


async def test_a_close_during_a_retire_does_not_cancel_twice(agent: AgentParticipant, rounds: Rounds) -> None:
    """A09, A10: both wait for the same end; closing a retired attempt is not refused."""
    cancelled: list[str] = []
    cleaned = asyncio.Event()

    async def script(act: Activation) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append("once")
            await cleaned.wait()
            raise

    await opened(agent)
    played = Played(agent, "r", script)
    await played.began.wait()
    retiring = asyncio.create_task(rounds.retire(agent, "r"))
    await settled()
    closing = asyncio.create_task(agent.close_session(R, "s"))
    await settled()
    assert [retiring.done(), closing.done()] == [False, False]
    cleaned.set()
    await asyncio.gather(retiring, closing)
    with pytest.raises(StaleAttempt, match="r was retired while its activation ran"):
        await played.result()
    assert (cancelled, len(agent.sessions)) == (["once"], 0)


async def test_seeding_again_binds_the_same_attempt_and_refuses_others(agent: AgentParticipant) -> None:
    """A14: what the session holds stays."""
    await opened(agent)
    await Played(agent, "r", completing).result()
    session = await agent.open_session(R, "s", {"other": 1})
    assert (session.request, session.activations) == (REQUEST, 1)
    with pytest.raises(StaleAttempt, match="belongs to attempt 0"):
        await opened(agent, "r-a1")
    with pytest.raises(Conflict, match="belongs to r"):
        await opened(agent, "other")
    for request in ({"handle": object()}, {"pair": (1, 2)}, {"by_number": {1: "x"}}):
        with pytest.raises(InvalidField, match="request is not plain data"):
            await agent.open_session(R, "new", request)
    assert [session.key for session in agent.sessions] == ["s"]


async def test_continuing_and_starting_must_match_what_is_here(agent: AgentParticipant, rounds: Rounds) -> None:
    """X30, E03: a refused start costs nothing; the rightful continue binds, also twice."""
    await opened(agent)
    checkpoint = await rounds.checkpoint(agent)
    successor = new_agent(rounds)
    await rounds.restore(successor, checkpoint.digest, ("r", 1))
    with pytest.raises(AlreadyRestored):
        await opened(successor, "r-a1")
    with pytest.raises(NotRestored):
        async with successor.run_episode(Episode("other"), {}, continues=True):
            pass
    await opened(successor, "r-a1", continues=True)
    await opened(successor, "r-a1", continues=True)
    assert len(successor.sessions) == 1


async def test_a_seed_that_is_made_again_takes_the_place_of_the_one_that_the_cut_interrupted(
    agent: AgentParticipant, rounds: Rounds
) -> None:
    """X30, A13: under a new key; nothing is left of the old one. A start from input is refused while it is there."""
    await opened(agent)
    checkpoint = await rounds.checkpoint(agent)
    successor = new_agent(rounds)
    await rounds.restore(successor, checkpoint.digest, ("r", 1))
    with pytest.raises(AlreadyRestored):
        await successor.open_session(Episode("r", 1), "new", {})
    assert [session.key for session in successor.sessions] == ["s"]
    await successor.open_session(Episode("r", 1), "new", {}, continues=True)
    assert [session.key for session in successor.sessions] == ["new"]
    await successor.open_session(Episode("other"), "t", {}, continues=True)
    assert len(successor.sessions) == 2


async def test_an_activation_waits_until_its_session_is_live(agent: AgentParticipant, rounds: Rounds) -> None:
    """X28, A12."""
    await opened(agent)
    checkpoint = await rounds.checkpoint(agent)
    successor = new_agent(rounds)
    fence, _ = await rounds.install(successor, checkpoint.digest, ("r", 1))
    played = Played(successor, "r-a1", completing)
    await settled()
    assert not played.began.is_set()
    await rounds.discard(successor, fence)
    await rounds.restore(successor, checkpoint.digest, ("r", 2))
    assert await Played(successor, "r-a2", completing).result() == "finished"
    await rounds.retire(successor, "r-a1")
    with pytest.raises(StaleAttempt):
        await played.result()


async def test_unclaimed_sessions_are_in_the_next_checkpoint_as_they_were(
    agent: AgentParticipant, rounds: Rounds
) -> None:
    """A13, P13, X15: at their boundary, with equal blobs; out of scope they are left out and kept."""
    await opened(agent)
    loop = Loop()
    Played(agent, "r", loop)
    loop.answer()
    loop.tool_done()
    await until(lambda: loop.model_calls == 2)
    first = await rounds.checkpoint(agent)
    successor = new_agent(rounds)
    await rounds.restore(successor, first.digest, ("r", 1))
    assert (await rounds.checkpoint(successor, scope=[Episode("else")])).records == {}
    second = await rounds.checkpoint(successor)
    before, after = first.records["r"], second.records["r-a1"]
    assert (after.state, after.boundary, after.touches, after.revision) == (
        before.state,
        before.boundary,
        before.touches,
        before.revision,
    )


async def test_a_call_for_a_session_of_a_replaced_process_is_held_and_its_episode_named(rounds: Rounds) -> None:
    """X38: an error could be taken for an answer."""
    replaced = new_agent(rounds)
    played = Played(replaced, "r", completing)
    await settled()
    assert not played.began.is_set()
    assert {str(episode): why for episode, why in replaced.lost.items()} == {
        "r": "agent/simple_agent does not hold session 's'"
    }
    await rounds.retire(replaced, "r")
    with pytest.raises(StaleAttempt):
        await played.result()
    off = AgentParticipant("simple_agent")
    with pytest.raises(EpisodeNotFound, match="open it first"):
        await Played(off, "r", completing).result()


@pytest.mark.parametrize("damage", ["layout", "value/0001", "value/0004"])
async def test_parts_that_are_not_a_session_are_refused(agent: AgentParticipant, rounds: Rounds, damage: str) -> None:
    """C46, A12."""
    await opened(agent)
    parts = await rounds.parts((await rounds.checkpoint(agent)).records["r"])
    assert agent.state is not None
    agent.state.load(parts)
    with pytest.raises(UnloadableState):
        agent.state.load({name: data for name, data in parts.items() if name != damage})
    with pytest.raises(UnloadableState):
        agent.state.load(parts | {"layout": parts["layout"].replace(b'"request"', b'"other"')})
