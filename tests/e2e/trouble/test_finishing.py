"""Rollouts that come to their end while a checkpoint closes the gates, and a crash of everything right after it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio

from gymckpt.coordinator import (
    Checkpoint,
    CheckpointArguments,
    Fate,
    RestoreArguments,
    RestoreTarget,
    ResumePolicy,
    Stage,
)
from gymckpt.core.ids import Episode
from gymckpt.testing import TcpProxy
from servers.execution_log import read_log
from tests.e2e.fleets import AGENT, ENVIRONMENT, until
from tests.e2e.trouble.run import COUNTER, MEMBERS, STEPS, Run, assert_rewarded, started_as

pytestmark = pytest.mark.asyncio(loop_scope="module")

DELAY_SECONDS = 2.0
"""How long each word between the environment and the tools is on its way; a checkpoint takes far less."""


class SlowEnd(Run):
    """The environment seeds, verifies and closes over `cable`."""

    cable: TcpProxy

    async def reach(self, caller: str, callee: str) -> str:
        address = await super().reach(caller, callee)
        if (caller, callee) != (ENVIRONMENT, COUNTER):
            return address
        self.cable = await self.stack.enter_async_context(TcpProxy(address.removeprefix("http://")))
        return f"http://{self.cable.address}"

    def done(self, rollout_id: str, what: str) -> int:
        """How often the tools have carried this out for the rollout, in all its attempts."""
        return self._logged().count((COUNTER, rollout_id, what))

    async def grading(self, rollout_id: str, rollout: asyncio.Task[httpx.Response]) -> None:
        """Returns when the environment, which plays nothing else, waits for the verification."""
        closing = (AGENT, rollout_id, "close_session")
        await until(lambda: closing in self._logged(), f"the end of the agent's part of {rollout_id}")
        while (await self.statuses())[ENVIRONMENT].report.blockers:
            assert not rollout.done()
            await asyncio.sleep(0.02)

    def _logged(self) -> list[tuple[str, str, str]]:
        log = read_log(self.directory / "executions.jsonl")
        return [(line["server"], line["rollout"], line["what"]) for line in log]

    async def taken(self, checkpoint_id: str, resume: ResumePolicy) -> Checkpoint:
        """A checkpoint that lacks nothing."""
        taken = await self.client.checkpoint(CheckpointArguments(checkpoint_id, resume=resume))
        assert (taken.stage, taken.lost, taken.restarts) == (Stage.PUBLISHED, 0, 0)
        return taken

    async def killed_and_restored(self, checkpoint_id: str) -> list[RestoreTarget]:
        """Every process dies, and a new one of each takes all that the checkpoint holds."""
        dead = [info.boot_id for info in self.members.values()]
        await self.fleet.kill()
        await self.coordinate()
        await self.start(*MEMBERS)
        await self.complete(without=dead)
        return list(await self.client.restore(RestoreArguments(checkpoint_id, checkpoint_id)))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def run(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SlowEnd]:
    async with started_as(SlowEnd, tmp_path_factory.mktemp("run")) as run_:
        yield run_


async def test_one_that_ends_while_the_gates_close_has_its_result_and_is_never_played_again(run: SlowEnd) -> None:
    """P08, X17: the checkpoint waits for its last step; whoever played it has the result, and has it again after the crash, until it is acknowledged."""
    ending = await run.playing("ending")
    run.cable.delay(DELAY_SECONDS)
    await until(lambda: run.done("ending", "verify") > 0, "its verification")
    run.play("goes-on")  # is being seeded when the other one ends
    await until(
        lambda: run.done("ending", "close_session") > 0, "its last call, of which the environment has not heard yet"
    )
    assert (await run.taken("ending", ResumePolicy.AFTER_SNAPSHOT)).waited_for >= 1
    run.cable.heal()
    await assert_rewarded(ending)
    both = ("ending", "goes-on")
    assert await run.killed_and_restored("ending") == [RestoreTarget(Episode(key), 1, Fate.RESTORED) for key in both]
    for rollout_id in both:
        await run.assert_goes_on(rollout_id, 1)
    assert [run.done("ending", what) for what in ("seed_session", "verify", "close_session")] == [1, 1, 1]
    assert run.increments("ending") == STEPS
    await run.client.acknowledge_results(await run.client.results())
    await run.assert_accepting()


async def test_one_that_is_graded_while_the_gates_are_closed_has_its_result_after_the_crash(run: SlowEnd) -> None:
    """P08: nobody has heard of its result when everything dies; the next attempt has it, and repeats no call of the agent."""
    rollout = await run.playing("graded")
    run.cable.delay(DELAY_SECONDS)
    await run.grading("graded", rollout)
    await run.taken("graded", ResumePolicy.BY_CALLER)
    await until(lambda: run.done("graded", "verify") > 0, "its verification")
    run.cable.heal()
    assert run.done("graded", "close_session") == 0
    assert await run.killed_and_restored("graded") == [RestoreTarget(Episode("graded"), 1, Fate.RESTORED)]
    await run.assert_goes_on("graded", 1)
    assert [run.done("graded", what) for what in ("seed_session", "close_session")] == [1, 1]
    assert run.increments("graded") == STEPS
    await run.assert_accepting()
