"""An agent whose loop does what the test says."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gymckpt.core.ids import Episode, ParticipantId
from gymckpt.core.kinds import Kind
from gymckpt.core.manifest import Touch
from gymckpt.participant.activation import Activation
from gymckpt.participant.agent import AgentParticipant
from gymckpt.participant.call import Call, set_current_call
from tests.unit.participant.rounds import PATIENCE, Rounds

REQUEST = {"input": [{"role": "user", "content": "book a room"}], "tools": [{"name": f"tool_{n}"} for n in range(27)]}
RESOURCES = ParticipantId(Kind.RESOURCES, "workplace_assistant")
Script = Callable[[Activation], Awaitable[Any]]


@pytest.fixture
def rounds() -> Rounds:
    return Rounds()


@pytest.fixture
def agent(rounds: Rounds) -> AgentParticipant:
    return new_agent(rounds)


def new_agent(rounds: Rounds) -> AgentParticipant:
    participant = AgentParticipant("simple_agent")
    rounds.serve(participant)
    return participant


class Loop:
    """A turn loop over a conversation: boundary, model, one tool, boundary ... Each model and tool call ends when it is told."""

    def __init__(self, turns: int = 2) -> None:
        self.turns = turns
        self.model_calls = 0
        self.tool_calls: list[int] = []
        self.snapshots = 0
        self.at: str = ""
        self._model: asyncio.Event = asyncio.Event()
        self._tool: asyncio.Event = asyncio.Event()

    def answer(self) -> None:
        """The model answers."""
        self._model.set()

    def tool_done(self) -> None:
        self._tool.set()

    async def __call__(self, act: Activation) -> str:
        state = act.continuation or {"turn": 0, "output": [], "pending": None}
        turn, output, pending = state["turn"], state["output"], state["pending"]
        while turn < self.turns:
            if pending is None:
                await self._boundary(act, "model", turn, output, None)
                pending = await act.awaiting_model(self._ask(turn))
            await self._boundary(act, "tool", turn, output, pending)
            await self._use_tool(turn)
            output.append({"turn": turn, "tool": pending})
            turn, pending = turn + 1, None
        act.complete({"output": output})
        return "finished"

    async def _boundary(self, act: Activation, name: str, turn: int, output: list[Any], pending: str | None) -> None:
        done, state = len(output), {"turn": turn, "pending": pending}

        def snapshot() -> dict[str, Any]:
            self.snapshots += 1
            return {**state, "output": output[:done]}

        self.at = f"at {name} {turn}"
        await act.boundary(name, snapshot, lambda: [Touch(RESOURCES, "cookie", done)])
        self.at = f"after {name} {turn}"

    async def _ask(self, turn: int) -> str:
        self.model_calls += 1
        await self._model.wait()
        self._model.clear()
        return f"call {turn}"

    async def _use_tool(self, turn: int) -> None:
        self.at = f"in tool {turn}"
        await self._tool.wait()
        self._tool.clear()
        self.tool_calls.append(turn)


class Played:
    """One activation in a task of its own."""

    def __init__(
        self, agent: AgentParticipant, text: str, script: Script, *, index: int | None = 0, within: str | None = None
    ) -> None:
        self.began = asyncio.Event()
        self.reply: Any = None
        self.continuation: Any = None
        self.task: asyncio.Task[Any] = asyncio.create_task(self._run(agent, text, script, index, within))

    async def _run(
        self, agent: AgentParticipant, text: str, script: Script, index: int | None, within: str | None
    ) -> Any:
        if within is not None:
            set_current_call(Call("POST", "/v1/responses", within=Episode.parse(within)))
        async with agent.activation(Episode.parse(text), "s", index) as act:
            self.reply, self.continuation = act.reply, copy.deepcopy(act.continuation)
            self.began.set()
            return "repeated" if act.reply is not None else await script(act)

    async def result(self) -> Any:
        async with asyncio.timeout(PATIENCE):
            return await self.task


async def opened(agent: AgentParticipant, text: str = "r", *, continues: bool = False) -> None:
    """Session `s` of the episode."""
    await agent.open_session(Episode.parse(text), "s", dict(REQUEST), continues=continues)
