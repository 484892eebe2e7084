"""One activation of an agent's loop, as the loop sees it."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from gymckpt.core.manifest import Touch
from gymckpt.participant.agent_state import AgentSession, JsonObject, Loop, check_plain
from gymckpt.participant.stepping import Mode, Stepping

R = TypeVar("R")


class Activation:
    """All methods belong to the task that entered `activation` or `run_episode`. When `reply` is set nothing is to be run: it was completed before."""

    def __init__(self, stepping: Stepping[Loop], held: AgentSession, *, reply: JsonObject | None = None) -> None:
        self._stepping = stepping
        self._held = held
        self._result: JsonObject | None = None
        self.reply = reply
        self.continuation = check_plain(held.loop.snapshot(), "continuation") if held.loop is not None else None
        """Loop state of the boundary to go on from; None: begin with the request."""

    @property
    def request(self) -> JsonObject:
        """The session's request, as it was opened with."""
        return self._held.request

    async def boundary(
        self,
        name: str,
        snapshot: Callable[[], JsonObject],
        touches: Callable[[], Sequence[Touch]] = tuple,
    ) -> None:
        """Declares a safe point; waits there while a checkpoint is open. Both functions are called only when a checkpoint takes it, which may be later: they
        must tell how things stood now, in plain data.

        Raises StaleAttempt.
        """
        await self._stepping.boundary(self._held.key, Loop(name, snapshot, touches))

    async def awaiting_model(self, call: Awaitable[R]) -> R:
        """Awaits a call of the policy made right after a boundary: a checkpoint takes that boundary and does not wait. A reply that arrives during a checkpoint
        is kept, and returned once the gate is open; what the call raises is kept in the same way."""
        key = self._held.key
        try:
            async with self._stepping.step(key, "model", "replay", keeps_boundary=True):
                reply = await call
        except Exception:
            await self._stepping.pause(key)
            raise
        await self._stepping.pause(key)
        return reply

    def step(self, mode: Mode, name: str = "") -> contextlib.AbstractAsyncContextManager[None]:
        """One step of a whole `/run`: a checkpoint waits for the end of a `wait` step; it does not wait for a `replay` step, which may run again."""
        return self._stepping.step(self._held.key, name or mode, mode)

    def keep(self, **facts: Any) -> None:
        """Facts for whoever closes the session, in plain data; they stay with it. Raises InvalidField."""
        self._held.facts |= check_plain(facts, "facts")
        self._stepping.changed(self._held.key)

    def complete(self, reply: JsonObject) -> None:
        """The activation has its result; it counts when the context is left. Raises InvalidField for what is not plain data."""
        self._result = check_plain(reply, "reply")

    async def mark_restart(self, why: str) -> None:
        """Something that the episode touches cannot be captured: it is not exported, and restarts after a crash. During a checkpoint that holds after it."""
        self._stepping.mark_restart(self._held.key, why)

    def settle(self, left_at: Loop | None) -> None:
        """It has ended, its loop at `left_at`: the session moves on, or stays there for the next activation."""
        held = self._held
        if left_at is not None:
            held.touches = left_at.touches
        if self._result is None:
            held.loop = left_at
        else:
            held.loop, held.reply, held.activations = None, self._result, held.activations + 1
        self._stepping.changed(self._held.key)
