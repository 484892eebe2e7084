"""A whole run by the agent itself: seed, loop, verify."""

from __future__ import annotations

from gymckpt.errors import InvalidField
from gymckpt.participant import RESTART_HEADER, VERIFY_HEADER, Activation, Call, Episode
from servers.agent.seat import Seat
from servers.agent.state import LoopState
from servers.http.peers import Peer, call_headers
from servers.http.rows import Task
from servers.responses_api import JsonObject


class WholeRun:
    """`call` is the controller's; it may say that this attempt continues one that a restore brought back."""

    def __init__(self, seat: Seat, call: Call, episode: Episode, task: Task) -> None:
        if seat.resources is None:
            raise InvalidField("this agent was started without --resources and cannot seed a run", field="resources")
        self._seat = seat
        self._resources: Peer = seat.resources
        self._episode = episode
        self._task = task
        self._call = call

    async def play(self) -> JsonObject:
        """The graded rollout. Raises GymckptError, UnexpectedAnswer, TransportFailed."""
        participant, task = self._seat.participant, self._task
        async with participant.run_episode(self._episode, task.identity, continues=self._call.continues) as act:
            if act.reply is not None:
                return act.reply
            self._seat.log.record(self._call, "run", task.identity)
            state = await self._seed(act) if act.continuation is None else LoopState.from_json(act.continuation)
            loop = self._seat.loop(task.params, state, self._episode, self._resources)
            response = await loop.run(act)
            await act.boundary("verify", state.as_json, loop.touches)
            async with act.step(state.verify_mode):
                result = await self._verify(state, response)
            act.complete(result)
            return result

    async def _seed(self, act: Activation) -> LoopState:
        headers = call_headers(self._episode, continues=self._call.continues)
        body = {"responses_create_params": self._task.params, **self._task.data}
        async with act.step("replay"):
            seeded = await self._seat.outgoing.fetch(f"{self._resources.url}/seed_session", body, headers=headers)
        if seeded.headers.get(RESTART_HEADER) == "1":
            await act.mark_restart(f"{self._resources.id} cannot be captured")
        return LoopState(
            resources_cookies=seeded.cookies,
            revision=seeded.revision,
            verify_mode="replay" if seeded.headers.get(VERIFY_HEADER) == "replay" else "wait",
        )

    async def _verify(self, state: LoopState, response: JsonObject) -> JsonObject:
        graded = await self._seat.outgoing.fetch(
            f"{self._resources.url}/verify",
            self._task.verify_body(response),
            headers=call_headers(self._episode),
            cookies=state.resources_cookies,
        )
        result: JsonObject = graded.json()
        return result
