"""Whole `/run` episodes that an agent owns."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gymckpt.core.admission import Running
from gymckpt.core.ids import Episode
from gymckpt.core.manifest import Floor
from gymckpt.errors import AdmissionClosed, AlreadyRestored, CutVoid, NotRestored, StaleAttempt
from gymckpt.participant.activation import Activation
from gymckpt.participant.agent import AgentParticipant
from gymckpt.participant.call import Call, set_current_call
from tests.unit.participant.agent.conftest import REQUEST, Loop, Script, new_agent
from tests.unit.participant.rounds import PATIENCE, Rounds, blocked, settled, until


class Ran:
    """One `/run` in a task of its own; `within` is the step of which it is a part."""

    def __init__(
        self, agent: AgentParticipant, text: str, script: Script, *, within: str | None = None, **options: Any
    ) -> None:
        self.reply: Any = None
        self.continuation: Any = None
        self.task: asyncio.Task[Any] = asyncio.create_task(self._run(agent, text, script, within, options))

    async def _run(
        self, agent: AgentParticipant, text: str, script: Script, within: str | None, options: dict[str, Any]
    ) -> Any:
        if within is not None:
            set_current_call(Call("POST", "/run", within=Episode.parse(within)))
        async with agent.run_episode(Episode.parse(text), dict(REQUEST), **options) as act:
            self.reply, self.continuation = act.reply, act.continuation
            return "repeated" if act.reply is not None else await script(act)

    async def result(self) -> Any:
        async with asyncio.timeout(PATIENCE):
            return await self.task


async def test_a_run_is_a_session_keyed_by_its_rollout_and_gone_when_it_ends(agent: AgentParticipant) -> None:
    """A16: repeated for a while, it gives the same reply."""
    loop = Loop(turns=1)
    runs = [Ran(agent, "r", loop), Ran(agent, "r", loop)]
    await settled()
    assert [session.key for session in agent.sessions] == ["run:r"]
    loop.answer()
    loop.tool_done()
    assert [await run.result() for run in runs] == ["finished", "repeated"]
    again = Ran(agent, "r", loop)
    assert await again.result() == "repeated"
    assert again.reply == runs[1].reply == {"output": [{"turn": 0, "tool": "call 0"}]}
    assert (len(agent.sessions), agent.blocker_count(), loop.model_calls) == (0, 0, 1)


async def test_a_run_continues_from_its_boundary(agent: AgentParticipant, rounds: Rounds) -> None:
    """A16, P02, X30: only when it says so, and only once."""
    loop = Loop(turns=2)
    Ran(agent, "r", loop)
    loop.answer()
    loop.tool_done()
    await until(lambda: loop.model_calls == 2)
    checkpoint = await rounds.checkpoint(agent)
    successor = new_agent(rounds)
    await rounds.restore(successor, checkpoint.digest, ("r", 1))
    with pytest.raises(AlreadyRestored):
        await Ran(successor, "r-a1", loop).result()
    with pytest.raises(NotRestored):
        await Ran(successor, "other", loop, continues=True).result()
    again = Loop(turns=2)
    run = Ran(successor, "r-a1", again, continues=True)
    again.answer()
    again.tool_done()
    assert await run.result() == "finished"
    assert (run.continuation["turn"], again.model_calls, again.tool_calls) == (1, 1, [1])


async def test_a_new_run_is_refused_at_the_front_and_held_behind_it(agent: AgentParticipant, rounds: Rounds) -> None:
    """E02: the controller can come again, an environment that relays cannot."""
    fence, _ = await rounds.prepare(agent)
    with pytest.raises(AdmissionClosed) as refused:
        await Ran(agent, "r", Loop(turns=0)).result()
    assert refused.value.retry_after == 1.0
    held = Ran(agent, "r", Loop(turns=0), front=False)
    await settled()
    assert (len(agent.sessions), agent.blocker_count()) == (0, 0)
    await rounds.resume(agent, fence)
    assert await held.result() == "finished"


async def test_a_run_within_a_step_that_a_checkpoint_waits_for_is_let_through(
    agent: AgentParticipant, rounds: Rounds
) -> None:
    """X37: a tool that plays an agent while the gate is closing, and would be waited for in vain if it were refused."""
    fence, preparing = rounds.closing(agent)
    waiting_for_it = agent.in_flight.enter(Running("seed", Episode("r"), "s", 0.0, blocks=True))
    loop = Loop(turns=1)
    played = Ran(agent, "r", loop, within="r")
    loop.answer()
    loop.tool_done()
    assert await played.result() == "finished"
    assert not preparing.done()
    agent.in_flight.leave(waiting_for_it)
    agent.notify()
    assert (await preparing).report.ready
    assert await Ran(agent, "late", Loop(turns=0), within="r").result() == "finished"
    with pytest.raises(CutVoid, match="let in"):
        await rounds.snapshot(agent, fence, await preparing)


@pytest.mark.parametrize("text", ["r", "r-a1"])
async def test_a_process_born_after_a_restore_starts_only_later_attempts(agent: AgentParticipant, text: str) -> None:
    """X27: nothing of the restored attempt is here, neither for a whole run nor for a session that is opened."""
    agent.floors.learn([Floor("r", refused=0, target=1)])
    with pytest.raises(StaleAttempt):
        await Ran(agent, text, Loop(turns=0)).result()
    for continues in (False, True):
        with pytest.raises(StaleAttempt):
            await agent.open_session(Episode.parse(text), "s", {}, continues=continues)
    assert len(agent.sessions) == 0
    assert await Ran(agent, "r-a2", Loop(turns=0)).result() == "finished"


@pytest.mark.parametrize(("mode", "ready"), [("wait", False), ("replay", True)])
async def test_the_steps_of_a_run_delay_a_checkpoint_or_do_not(
    agent: AgentParticipant, rounds: Rounds, mode: Any, ready: bool
) -> None:
    """E06, E07 for a run: seeding and verifying are steps."""

    async def script(act: Activation) -> None:
        await act.boundary("verify", dict)
        async with act.step(mode, "verify"):
            await asyncio.Event().wait()

    Ran(agent, "r", script)
    await settled()
    _, prepared = await rounds.prepare(agent, timeout=0.01)
    assert blocked(prepared.report) == ([] if ready else [("activation", "r")])


async def test_a_run_that_is_a_restart_neither_blocks_nor_is_exported(agent: AgentParticipant, rounds: Rounds) -> None:
    """A18."""

    async def script(act: Activation) -> None:
        await act.mark_restart("its tools cannot be captured")
        await act.boundary("model", dict)
        await asyncio.Event().wait()

    run = Ran(agent, "r", script)
    await settled()
    checkpoint = await rounds.checkpoint(agent)
    assert checkpoint.records == {}
    assert [(str(restart.episode), restart.why) for restart in agent.report().restarts] == [
        ("r", "its tools cannot be captured")
    ]
    await rounds.retire(agent, "r")
    with pytest.raises(StaleAttempt):
        await run.result()
    assert agent.report().restarts == ()


async def test_a_run_that_fails_leaves_no_session(agent: AgentParticipant) -> None:
    """A16: and may be started again."""

    async def failing(act: Activation) -> None:
        raise ConnectionError("the model is gone")

    with pytest.raises(ConnectionError):
        await Ran(agent, "r", failing).result()
    assert len(agent.sessions) == 0
    assert await Ran(agent, "r", Loop(turns=0)).result() == "finished"
