"""SIGKILL of the command that waits for a round: the round does not notice."""

from __future__ import annotations

import asyncio

import pytest

from gymckpt.coordinator import CheckpointArguments, RestoreArguments, Stage
from gymckpt.participant import Episode
from tests.e2e.cli.processes import command
from tests.e2e.fleets import COORDINATOR
from tests.e2e.trouble.run import STEPS, Run, assert_rewarded

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def killed_at(run: Run, point: str, *words: str) -> None:
    """Runs `gymckpt <words>`, kills it while the coordinator is at `point`, and lets that go on."""
    run.watch.hold_at(point)
    waiting = await asyncio.create_subprocess_exec(
        *command("--coordinator", run.fleet.address(COORDINATOR), *words), stderr=asyncio.subprocess.DEVNULL
    )
    await run.watch.reached()
    waiting.kill()
    assert await waiting.wait() == -9
    run.watch.go_on()


@pytest.mark.parametrize("point", ["checkpoint.preparing", "checkpoint.uploading", "checkpoint.publish"])
async def test_a_checkpoint_goes_on_without_whoever_asked_for_it(run: Run, point: str) -> None:
    """X33, C41: it is published, and asking again with the same arguments tells so."""
    rollout = await run.playing(point)
    await killed_at(run, point, "checkpoint", "create", point)
    stages = [progress.checkpoint.stage async for progress in run.client.watch_checkpoint(point)]
    assert stages[-1] is Stage.PUBLISHED
    assert (await run.client.checkpoint(CheckpointArguments(point))).stage is Stage.PUBLISHED
    await run.assert_accepting()
    await assert_rewarded(rollout)
    assert run.increments(point) == STEPS


@pytest.mark.parametrize("point", ["restore.intended", "restore.installed", "restore.decided"])
async def test_a_restore_goes_on_without_whoever_asked_for_it(run: Run, point: str) -> None:
    """X33, X28, X29: asking again with the same arguments joins it, and tells the same attempt."""
    name = f"at-{point}"
    await run.playing(name)
    await run.checkpoint(name)
    words = ("checkpoint", "restore", name, "--restore-id", name, "--episodes", name)
    await killed_at(run, point, *words)
    (target,) = await run.client.restore(RestoreArguments(name, name, (Episode(name),)))
    assert target.attempt == 1
    await run.assert_goes_on(name, 1)
    await run.assert_accepting()
