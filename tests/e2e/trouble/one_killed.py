"""Rollouts on both lanes whose servers are killed, and what must have become of them at the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gymckpt.errors import StaleAttempt
from gymckpt.participant import Episode
from servers.chaos.controller import Controller
from servers.chaos.outcome import Continuation, repeated
from servers.demo.compare import tool_calls
from servers.demo.rollouts import Rollout, play
from tests.e2e.fleets import until
from tests.e2e.trouble.lanes import HURT, SPARED, Lanes

END_SECONDS = 60.0
REFUSED_SECONDS = 10.0


class Played:
    """Two long rollouts on the lane that is hurt and one on the other. A controller plays them to their results, whatever it is told."""

    def __init__(self, lanes: Lanes, name: str, feeds: bool) -> None:
        self.lanes = lanes
        self.name = name
        self.hurt = [lanes.rollout(HURT, f"{name}-{number}") for number in range(2)]
        self.spared = lanes.rollout(SPARED, f"{name}-2")
        self.continuations: list[Continuation] = []
        self._urls = [lanes.fleet.address(lane.environment) for lane in lanes.layout.each_lane()]
        self._controller = Controller(lanes.outgoing, lanes.coordinator, self._urls, concurrency=3)
        self._feeds = feeds
        self._fed: list[str] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Returns when all are mid-turn."""
        await self._controller.hear({"event": "whole"})
        rollouts = [*self.hurt, self.spared]
        self._tasks.append(asyncio.create_task(self._play(rollouts)))
        if self._feeds:
            self._tasks.append(asyncio.create_task(self._feed()))
        for rollout in rollouts:
            await self.makes_calls(rollout, 0, 2)

    async def _play(self, rollouts: Sequence[Rollout]) -> None:
        await self._controller.play(rollouts)
        await self._controller.clear()

    async def _feed(self) -> None:
        """Short rollouts on the other lane, one after the other: it always has something to do. None of them may notice anything."""
        while not self._tasks[0].done():
            rollout = self.lanes.rollout(SPARED, f"{self.name}-short-{len(self._fed)}", short=True)
            result = await play(self.lanes.outgoing, self._urls[SPARED.number], rollout)
            assert result.reward == 1.0
            self._fed.append(rollout.rollout_id)

    async def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def makes_calls(self, rollout: Rollout, attempt: int, count: int = 1) -> None:
        """Returns when the attempt has made so many more tool calls."""
        episode = Episode(rollout.rollout_id, attempt)
        wanted = self.lanes.calls(episode) + count
        await self._until(lambda: self.lanes.calls(episode) >= wanted, f"{count} more tool calls of {episode}")

    async def hurt_have_ended(self) -> None:
        """Returns when the results of the lane that is hurt are here."""
        results = self._controller.ledger.results
        await self._until(lambda: all(rollout.rollout_id in results for rollout in self.hurt), "their results")

    async def the_rest_goes_on(self) -> None:
        """Returns when the lane that is spared has made one more tool call."""
        before = self.lanes.calls_of(SPARED)
        await self._until(lambda: self.lanes.calls_of(SPARED) > before, f"a tool call on {SPARED.workplace}")

    async def _until(self, condition: Callable[[], bool], what: str) -> None:
        def holds() -> bool:
            for task in self._tasks:
                if task.done():
                    task.result()
            return condition()

        await until(holds, what)

    async def named(self) -> set[Episode]:
        """The episodes that `gymckpt explain` says have lost state, as the latest checkpoint names them."""
        return {trouble.restore for trouble in (await self.lanes.recovery()).troubles if trouble.restore is not None}

    def episodes(self, attempt: int = 0) -> set[Episode]:
        """Of the rollouts on the lane that is hurt."""
        return {Episode(rollout.rollout_id, attempt) for rollout in self.hurt}

    def everyone(self, attempt: int = 0) -> set[Episode]:
        """Of all long rollouts."""
        return {*self.episodes(attempt), Episode(self.spared.rollout_id, attempt)}

    async def heard(self, restored: Any) -> None:
        """Tells the controller of a restore that `gymckpt checkpoint restore --json` reported. Fails unless all was restored."""
        assert (restored["stage"], restored["restarted"], restored["lost"]) == ("RESTORED", [], [])
        if restored["restored"]:
            answered = await self.lanes.answered(restored["checkpoint_id"])
            for target in restored["restored"]:
                continued = Episode.parse(target["target"])
                calls = answered[Episode.parse(target["source"])]
                assert calls, "a rollout without a tool's answer in the checkpoint shows nothing"
                self.continuations.append(Continuation(continued.rollout_id, continued.attempt, calls))
        await self._controller.hear({"event": "restored", "restore": restored})

    async def assert_ended(self, hurt: int | None = None, spared: int | None = 0) -> None:
        """Every rollout has its full reward, those of each lane as this attempt (None: any). Nothing that a checkpoint held ran again, and nothing is left."""
        lanes, ledger = self.lanes, self._controller.ledger
        async with asyncio.timeout(END_SECONDS):
            await asyncio.gather(*self._tasks)
        assert {name: result.reward for name, result in ledger.results.items()} == {
            rollout.rollout_id: 1.0 for rollout in (*self.hurt, self.spared)
        }
        assert ledger.restarted == 0
        calls = tool_calls(lanes.log())
        last = {**dict.fromkeys((r.rollout_id for r in self.hurt), hurt), self.spared.rollout_id: spared}
        last |= dict.fromkeys(self._fed, 0)
        for name, attempt in last.items():
            assert attempt in (None, max(line["attempt"] for line in calls if line["rollout"] == name)), name
        assert repeated(lanes.log(), self.continuations) == 0
        await self._assert_replaced_are_refused()
        assert await lanes.sessions() == {}
        await lanes.assert_accepting()

    async def _assert_replaced_are_refused(self) -> None:
        """Also by a process that was born later."""
        rollouts = {rollout.rollout_id: rollout for rollout in (*self.hurt, self.spared)}
        for each in self.continuations:
            for attempt in range(each.attempt):
                await self._assert_refused(rollouts[each.rollout_id], attempt)

    async def assert_given_in_vain(self, attempt: int) -> None:
        """Nobody runs the attempt that a restore gave to the lane that is hurt."""
        for rollout in self.hurt:
            await self._assert_refused(rollout, attempt)

    async def _assert_refused(self, rollout: Rollout, attempt: int) -> None:
        """Whoever tries the attempt is told that it is stale."""
        url = self._urls[rollout.number]
        async with asyncio.timeout(REFUSED_SECONDS):
            with pytest.raises(StaleAttempt):
                await play(self.lanes.outgoing, url, rollout, attempt, continues=attempt > 0)


@asynccontextmanager
async def played(lanes: Lanes, name: str, *, feed: bool = True) -> AsyncIterator[Played]:
    """Rollouts that are mid-turn, with a published checkpoint of them behind them that bears the same name. Without `feed` the lane that is spared ends with
    its one long rollout."""
    rollouts = Played(lanes, name, feed)
    try:
        await rollouts.start()
        await lanes.checkpoint(name)
        yield rollouts
    finally:
        await rollouts.cancel()
        await lanes.revive()


async def restored(lanes: Lanes, *words: str) -> Any:
    """What `gymckpt checkpoint restore --lost-state` did. Fails unless it succeeded."""
    status, told = await lanes.command("checkpoint", "restore", "--lost-state", *words)
    assert status == 0, told
    return told
