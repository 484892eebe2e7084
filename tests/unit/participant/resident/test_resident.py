"""Runs that live in one process alone: named in cuts, let go on by restores, cancelled by retires."""

from __future__ import annotations

import asyncio
from typing import ClassVar

import pytest

from gymckpt.core.gate import Gate
from gymckpt.core.ids import Episode
from gymckpt.core.kinds import Capture, Kind
from gymckpt.core.transitions import Abort, Activate, Confirm, Discard
from gymckpt.errors import RestoreAborted, StaleAttempt
from gymckpt.participant.resident import ResidentParticipant
from tests.unit.participant.rounds import PATIENCE, Rounds, settled, until


class Runner(ResidentParticipant):
    kind: ClassVar[Kind] = Kind.AGENT

    def runs(self) -> dict[str, str]:
        """Episodes by key."""
        return {session.key: str(session.episode) for session in self.sessions}


class Running:
    """A run in a task of its own; ends when it is told."""

    def __init__(self, runner: Runner, text: str, key: str) -> None:
        self.end = asyncio.Event()
        self.task = asyncio.create_task(self._run(runner, Episode.parse(text), key))

    async def _run(self, runner: Runner, episode: Episode, key: str) -> str:
        run = await runner.begin(episode, key)
        try:
            with runner.working(run):
                await self.end.wait()
        finally:
            runner.free(run)
        return "finished"

    async def result(self) -> str:
        async with asyncio.timeout(PATIENCE):
            return await self.task

    async def finish(self) -> str:
        self.end.set()
        return await self.result()


@pytest.fixture
def rounds() -> Rounds:
    return Rounds()


@pytest.fixture
def runner(rounds: Rounds) -> Runner:
    participant = Runner("simple_agent")
    rounds.serve(participant)
    return participant


async def started(runner: Runner, *texts: str) -> list[Running]:
    """A run of each episode; its key is `run-` and the episode."""
    runs = [Running(runner, text, f"run-{text}") for text in texts]
    await until(lambda: {f"run-{text}" for text in texts} <= runner.runs().keys())
    return runs


async def test_a_cut_names_what_runs_and_waits_for_nothing(rounds: Rounds, runner: Runner) -> None:
    """X13: without state; a run begins and ends while the gate is closed."""
    (a,) = await started(runner, "a")
    checkpoint = await rounds.checkpoint(runner, resume=False)
    assert {text: (r.session, r.state) for text, r in checkpoint.records.items()} == {"a": ("run-a", None)}
    assert runner.info.capture is Capture.RESIDENT
    (b,) = await started(runner, "b")
    assert (await a.finish(), await b.finish(), runner.runs()) == ("finished", "finished", {})


async def test_what_runs_becomes_the_target_when_it_is_activated_and_goes_on(rounds: Rounds, runner: Runner) -> None:
    """C09, X13: the next cut names it as the attempt that every other participant knows."""
    (a,) = await started(runner, "a")
    digest = (await rounds.checkpoint(runner)).digest
    fence, installed = await rounds.install(runner, digest, ("a", 1))
    assert (installed.sessions, installed.unloadable) == (1, ())
    await rounds.ask(runner, fence, Confirm())
    assert runner.runs() == {"run-a": "a"}, "until the restore is decided nothing has changed"
    await rounds.ask(runner, fence, Activate())
    await rounds.ask(runner, fence, Activate())
    assert runner.runs() == {"run-a": "a-a1"}
    second = await rounds.checkpoint(runner)
    assert list(second.records) == ["a-a1"]
    await rounds.restore(runner, second.digest, ("a-a1", 2))
    assert runner.runs() == {"run-a": "a-a2"}
    await rounds.restore(runner, digest, ("a", 3))
    assert runner.runs() == {"run-a": "a-a3"}, "the same run, whatever attempt it has become"
    assert await a.finish() == "finished"


async def test_what_has_ended_since_is_named_and_other_runs_of_its_rollout_are_stopped(
    rounds: Rounds, runner: Runner
) -> None:
    """X13, X29: the checkpoint's run is gone; the one that began later is not it."""
    a, b = await started(runner, "a", "b")
    digest = (await rounds.checkpoint(runner)).digest
    assert await a.finish() == "finished"
    (newer,) = await started(runner, "a-a1")
    _, installed = await rounds.install(runner, digest, ("a", 2), ("b", 1))
    assert [(str(entry.episode), entry.why) for entry in installed.unloadable] == [
        ("a-a2", "run-a has ended here since the checkpoint")
    ]
    assert (installed.sessions, runner.runs()) == (1, {"run-b": "b"})
    with pytest.raises(StaleAttempt, match="a-a1 was retired while it ran at agent/simple_agent"):
        await newer.result()
    assert await b.finish() == "finished"


async def test_only_what_this_very_process_held_goes_on(rounds: Rounds, runner: Runner) -> None:
    """X13: another process of the same participant had a run under the same key."""
    other = Runner("simple_agent", worker="1")
    rounds.serve(other)
    await started(other, "a")
    digest = (await rounds.checkpoint(other)).digest
    (mine,) = await started(runner, "a")
    _, installed = await rounds.install(runner, digest, ("a", 1))
    assert (installed.sessions, installed.unloadable, runner.runs()) == (0, (), {})
    with pytest.raises(StaleAttempt):
        await mine.result()
    assert other.runs() == {"run-a": "a"}


async def test_a_listed_discard_stops_what_would_have_gone_on(rounds: Rounds, runner: Runner) -> None:
    """X13: those episodes start over; the others go on."""
    a, b = await started(runner, "a", "b")
    digest = (await rounds.checkpoint(runner)).digest
    fence, _ = await rounds.install(runner, digest, ("a", 1), ("b", 1))
    await rounds.ask(runner, fence, Discard((Episode("a", 1),)))
    with pytest.raises(StaleAttempt):
        await a.result()
    await rounds.ask(runner, fence, Activate())
    assert runner.runs() == {"run-b": "b-a1"}
    assert await b.finish() == "finished"


async def test_a_restore_that_is_aborted_changes_no_run_and_its_retire_stops_it(rounds: Rounds, runner: Runner) -> None:
    """X28, X39: the attempt that was given out is retired, and what would have been it ends."""
    (a,) = await started(runner, "a")
    digest = (await rounds.checkpoint(runner)).digest
    fence, _ = await rounds.install(runner, digest, ("a", 1))
    await rounds.ask(runner, fence, Abort())
    with pytest.raises(RestoreAborted):
        await rounds.ask(runner, fence, Activate())
    assert runner.runs() == {"run-a": "a"}
    await rounds.retire(runner, "a-a1")
    assert runner.runs() == {}
    with pytest.raises(StaleAttempt):
        await a.result()


async def test_a_retire_ends_this_attempt_and_those_before_it(rounds: Rounds, runner: Runner) -> None:
    """R05, X28: a run that was given a later attempt is not meant."""
    a, b = await started(runner, "a", "b")
    await rounds.restore(runner, (await rounds.checkpoint(runner)).digest, ("a", 1))
    await rounds.retire(runner, "a", "b")
    with pytest.raises(StaleAttempt):
        await b.result()
    assert runner.runs() == {"run-a": "a-a1"}
    for text in ("a", "b"):
        with pytest.raises(StaleAttempt, match="refused"):
            await runner.begin(Episode.parse(text), "again")
    assert (await runner.begin(Episode("a"), "run-a")).episode == Episode("a", 1), "the run goes on under its key"
    await rounds.retire(runner, "a-a1")
    with pytest.raises(StaleAttempt):
        await a.result()


async def test_nothing_runs_before_the_process_is_a_member(rounds: Rounds, runner: Runner) -> None:
    """X27: it does not know yet what is refused."""
    runner.gate = Gate()
    a = Running(runner, "a", "run-a")
    await settled()
    assert runner.runs() == {}
    runner.floors.refuse(Episode("a"))
    runner.gate.start()
    runner.moved()
    with pytest.raises(StaleAttempt):
        await a.result()


async def test_a_session_without_work_is_retired_too(rounds: Rounds, runner: Runner) -> None:
    """X28: an agent session between two activations."""
    await runner.begin(Episode("a"), "session")
    await rounds.retire(runner, "a")
    assert runner.runs() == {}
