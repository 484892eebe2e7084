"""What is kept of a whole `/run` that has finished."""

from __future__ import annotations

import asyncio

import pytest

from gymckpt.core.chunks import digest_of
from gymckpt.core.ids import Episode
from gymckpt.core.results import Acknowledgement, FinishedResult
from gymckpt.core.transitions import Acknowledge, Activate
from gymckpt.errors import AlreadyRestored, NotRestored, StaleAttempt, TaskMismatch
from gymckpt.participant.activation import Activation
from gymckpt.participant.agent import AgentParticipant
from tests.unit.participant.agent.conftest import Loop, new_agent
from tests.unit.participant.agent.test_runs import Ran
from tests.unit.participant.rounds import Rounds, settled

REPLY = {"z": [1, 2**70], "a": "ä"}
BODY = '{"z":[1,1180591620717411303424],"a":"ä"}'.encode()


@pytest.fixture
def agent(rounds: Rounds) -> AgentParticipant:
    return enabled(rounds)


def enabled(rounds: Rounds) -> AgentParticipant:
    """A process in which checkpointing is on."""
    agent = new_agent(rounds)
    agent.enabled = True
    return agent


async def finishing(act: Activation) -> str:
    act.complete(REPLY)
    return "finished"


async def never(_act: Activation) -> str:
    raise AssertionError("it was played again")


async def listed(agent: AgentParticipant) -> list[FinishedResult]:
    page, _ = await agent.results.page(10, None)
    return page


def counted(agent: AgentParticipant) -> tuple[int, int, int]:
    counts = agent.counts()
    return counts["sessions"], counts["activations"], counts["results"]


async def test_a_finished_run_is_kept_and_repeated_until_it_is_acknowledged(
    agent: AgentParticipant, rounds: Rounds
) -> None:
    """X17, V02: at a closed gate as well; and as soon as it is acknowledged no checkpoint holds it."""
    assert await Ran(agent, "r", finishing).result() == "finished"
    fence, _ = await rounds.prepare(agent)
    again = Ran(agent, "r", never)
    assert (await again.result(), again.reply) == ("repeated", REPLY)
    await rounds.resume(agent, fence)
    with pytest.raises(TaskMismatch):
        async with agent.run_episode(Episode("r"), {"input": "another"}):
            pass
    assert await listed(agent) == [FinishedResult(Episode("r"), digest_of(BODY), durable=False)]
    assert await rounds.store.read([digest_of(BODY)]) == [BODY]
    assert (counted(agent), agent.holdings().episodes) == ((0, 0, 1), 1)
    asked = Acknowledge((Acknowledgement(Episode("r"), digest_of(BODY).blake3),), 1.0)
    assert (await rounds.ask(agent, rounds.fence("acknowledge"), asked)).unknown == ()
    assert (counted(agent), (await rounds.checkpoint(agent)).records) == ((0, 0, 0), {})


async def test_a_finished_run_is_exported_restored_and_answered_as_the_next_attempt(
    agent: AgentParticipant, rounds: Rounds
) -> None:
    """X17, X30: with the receipt that it had; it touches nothing any more."""
    loop = Loop(turns=1)
    run = Ran(agent, "r", loop)
    loop.answer()
    loop.tool_done()
    await run.result()
    [before] = await listed(agent)
    first = await rounds.checkpoint(agent)
    record = first.records["r"]
    assert (record.boundary, record.touches, record.session) == ("finished", (), "run:r")
    assert (await listed(agent))[0].durable
    assert (await rounds.checkpoint(agent, base=first.manifest.checkpoint_id)).taken.changed == 0
    successor = enabled(rounds)
    await rounds.restore(successor, first.digest, ("r", 1))
    with pytest.raises(AlreadyRestored):
        await Ran(successor, "r-a1", never).result()
    for _ in range(2):
        assert await Ran(successor, "r-a1", never, continues=True).result() == "repeated"
    assert await listed(successor) == [FinishedResult(Episode("r", 1), before.body, durable=True)]
    assert (await rounds.checkpoint(successor)).states == first.states


async def test_a_run_that_completes_while_a_prepare_waits_is_in_the_cut_with_its_result(
    agent: AgentParticipant, rounds: Rounds
) -> None:
    """P08."""
    go = asyncio.Event()

    async def script(act: Activation) -> str:
        async with act.step("wait", "verify"):
            await go.wait()
        return await finishing(act)

    run = Ran(agent, "r", script)
    await settled()
    fence, preparing = rounds.closing(agent)
    await settled()
    assert not preparing.done()
    go.set()
    prepared = await preparing
    checkpoint = await rounds.publish(agent, fence, await rounds.snapshot(agent, fence, prepared))
    assert (await run.result(), checkpoint.records["r"].boundary) == ("finished", "finished")
    successor = enabled(rounds)
    await rounds.restore(successor, checkpoint.digest, ("r", 1))
    again = Ran(successor, "r-a1", never, continues=True)
    assert (await again.result(), again.reply) == ("repeated", REPLY)


async def test_retiring_a_run_and_starting_a_later_attempt_free_the_result(
    agent: AgentParticipant, rounds: Rounds
) -> None:
    """X30: a start that is refused frees nothing."""
    for text in ("r", "s", "t-a1"):
        await Ran(agent, text, finishing).result()
    with pytest.raises(NotRestored):
        await Ran(agent, "s-a1", finishing, continues=True).result()
    assert [str(entry.episode) for entry in await listed(agent)] == ["r", "s", "t-a1"]
    await rounds.retire(agent, "r")
    with pytest.raises(StaleAttempt):
        await Ran(agent, "r", never).result()
    with pytest.raises(StaleAttempt):
        await Ran(agent, "t", finishing).result()
    assert await Ran(agent, "s-a1", finishing).result() == "finished"
    assert [str(entry.episode) for entry in await listed(agent)] == ["s-a1", "t-a1"]


async def test_sessions_that_an_environment_opens_are_no_results(agent: AgentParticipant, rounds: Rounds) -> None:
    """They belong to an episode whose result the environment keeps."""
    await agent.open_session(Episode("r"), "s", {})
    async with agent.activation(Episode("r"), "s", 0) as act:
        act.complete(REPLY)
    assert (await listed(agent), counted(agent)) == ([], (1, 0, 0))
    checkpoint = await rounds.checkpoint(agent)
    assert checkpoint.records["r"].boundary == "idle"
    successor = enabled(rounds)
    await rounds.restore(successor, checkpoint.digest, ("r", 1))
    assert (await listed(successor), counted(successor)) == ([], (1, 0, 0))


async def test_a_continue_that_comes_before_the_restore_is_decided_leaves_the_result_as_it_was(
    agent: AgentParticipant, rounds: Rounds
) -> None:
    """X17, X30: the checkpoint holds it still, and a start from input is still none of a restored result."""
    await Ran(agent, "r", finishing).result()
    first = await rounds.checkpoint(agent)
    successor = enabled(rounds)
    fence, _ = await rounds.install(successor, first.digest, ("r", 1))
    early = Ran(successor, "r-a1", never, continues=True)
    await settled()
    await rounds.ask(successor, fence, Activate())
    assert (await early.result(), early.reply) == ("repeated", REPLY)
    assert await listed(successor) == [FinishedResult(Episode("r", 1), digest_of(BODY), durable=True)]
    with pytest.raises(AlreadyRestored):
        await Ran(successor, "r-a1", never).result()
