"""An environment whose episodes are played step by step."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gymckpt.core.ids import Episode
from gymckpt.participant.environment import EnvironmentParticipant, Run
from tests.unit.participant.rounds import PATIENCE, Rounds

TASK = {"id": 7, "text": "book a room"}
Script = Callable[[Run], Awaitable[Any]]


@pytest.fixture
def rounds() -> Rounds:
    return Rounds()


@pytest.fixture
def environment(rounds: Rounds) -> EnvironmentParticipant:
    participant = EnvironmentParticipant("single_agent_turn")
    rounds.serve(participant)
    return participant


class Play:
    """One episode in a task of its own. It does what it is told; `go` lets it take the next of its waits."""

    def __init__(
        self, environment: EnvironmentParticipant, text: str, script: Script, *, continues: bool = False, **options: Any
    ) -> None:
        self.began = asyncio.Event()
        self._go = asyncio.Event()
        self.seen: list[Any] = []
        task = options.pop("task", TASK)
        self.task: asyncio.Task[Any] = asyncio.create_task(
            self._run(environment, text, script, task, continues, options)
        )

    async def _run(
        self,
        environment: EnvironmentParticipant,
        text: str,
        script: Script,
        task: Any,
        continues: bool,
        options: dict[str, Any],
    ) -> Any:
        async with environment.episode(Episode.parse(text), task=task, continues=continues, **options) as run:
            self.seen.append(run.continuation)
            self.began.set()
            return await script(run)

    async def told(self) -> None:
        """Inside a script: waits for `go`."""
        await self._go.wait()
        self._go.clear()

    def go(self) -> None:
        self._go.set()

    async def result(self) -> Any:
        async with asyncio.timeout(PATIENCE):
            return await self.task
