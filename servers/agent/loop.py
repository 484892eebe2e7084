"""The loop: ask the model, make the tool calls that it wants, until it wants none."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from gymckpt.participant import Episode, Touch
from servers.agent.state import LoopState
from servers.http.client import Answer, Outgoing, UnexpectedAnswer
from servers.http.peers import Peer, call_headers
from servers.responses_api import JsonObject, input_items

T = TypeVar("T")


class Activation(Protocol):
    """Where the loop says that it is at a safe point."""

    async def boundary(
        self, name: str, snapshot: Callable[[], JsonObject], touches: Callable[[], Sequence[Touch]]
    ) -> None: ...

    async def awaiting_model(self, awaitable: Awaitable[T]) -> T: ...


class Unrecorded:
    """The activation of a call that no agent session stands behind: every point is as safe as any other."""

    async def boundary(
        self, name: str, snapshot: Callable[[], JsonObject], touches: Callable[[], Sequence[Touch]]
    ) -> None:
        return

    async def awaiting_model(self, awaitable: Awaitable[T]) -> T:
        return await awaitable


class Loop:
    """Plays one request to its end. Boundaries lie before every model call and before every pending tool call."""

    def __init__(
        self,
        params: JsonObject,
        state: LoopState,
        *,
        episode: Episode | None,
        model: Peer,
        resources: Peer | None,
        outgoing: Outgoing,
        max_steps: int,
    ) -> None:
        self.state = state
        self._params = params
        self._episode = episode
        self._model = model
        self._resources = resources
        self._outgoing = outgoing
        self._max_steps = max_steps

    async def run(self, activation: Activation) -> JsonObject:
        """The finished response. Raises GymckptError when a server refuses: a refusal is never shown to the model."""
        while not self.state.finished:
            if self.state.pending:
                await activation.boundary("tool", self.state.as_json, self.touches)
                await self._make_call(self.state.pending[0])
            else:
                await activation.boundary("model", self.state.as_json, self.touches)
                answer = await activation.awaiting_model(self._ask_model())
                self.state.take_response(answer.json(), answer.cookies, self._max_steps)
        return self.state.reply()

    def touches(self) -> list[Touch]:
        """The resources session, at the revision that the loop has seen."""
        return [] if self._resources is None else [Touch(self._resources.id, revision=self.state.revision)]

    async def _ask_model(self) -> Answer:
        items = [*input_items(self._params["input"]), *self.state.items]
        return await self._outgoing.fetch(
            f"{self._model.for_episode(self._episode)}/v1/responses",
            {**self._params, "input": items},
            headers=call_headers(self._episode),
            cookies=self.state.model_cookies,
        )

    async def _make_call(self, call: JsonObject) -> None:
        try:
            arguments = json.loads(call["arguments"])
        except ValueError as error:
            self.state.take_output(f"The arguments are no JSON: {error}", {}, 0)
            return
        if self._resources is None:
            raise ValueError(f"the model calls {call['name']!r}, but this run has no resources server")
        url = f"{self._resources.url}/{call['name']}"
        headers = call_headers(self._episode, request_id=call["call_id"])
        answer = await self._outgoing.post(url, arguments, headers=headers, cookies=self.state.resources_cookies)
        if not (answer.ok or self._is_fault_of_model(call["name"], answer)):
            raise UnexpectedAnswer(url, answer)
        self.state.take_output(answer.text, answer.cookies, answer.revision)

    def _is_fault_of_model(self, tool: str, answer: Answer) -> bool:
        """Whether the model should be told: arguments that do not fit, or a tool that nobody offered."""
        offered = {known.get("name") for known in self._params.get("tools") or ()}
        return answer.status == 422 or (answer.status == 404 and tool not in offered)
