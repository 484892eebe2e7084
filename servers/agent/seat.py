"""Where the loop runs: the servers it calls, and the participant that its boundaries go to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gymckpt.errors import InvalidField
from gymckpt.participant import AgentParticipant, Call, Episode, Kind
from servers.agent.loop import Loop
from servers.agent.state import LoopState
from servers.execution_log import ExecutionLog
from servers.http.client import Outgoing
from servers.http.peers import Peer, activation_index
from servers.responses_api import JsonObject


@dataclass(frozen=True)
class Seat:
    """`resources` is where runs and calls without an agent session find their tools. It also gives the address of the
    server of this name that an agent session brings along: that may have moved since the session was saved."""

    participant: AgentParticipant
    model: Peer
    resources: Peer | None
    outgoing: Outgoing
    log: ExecutionLog
    max_steps: int

    def session_request(self, tool_accesses: Sequence[JsonObject]) -> JsonObject:
        """What an agent session keeps of its tools. Raises InvalidField for a required access of another kind than
        direct_http, and for more than one of that kind."""
        direct = [access for access in tool_accesses if access.get("kind") == "direct_http"]
        foreign = [access.get("name") for access in tool_accesses if access not in direct and access.get("required")]
        if foreign or len(direct) > 1:
            raise InvalidField(
                f"one tool access of kind direct_http can be served, got {len(direct)} and the required {foreign}",
                field="tool_accesses",
            )
        if not direct:
            return {"resources": None, "cookies": {}}
        name = str(direct[0]["name"]).removesuffix(".direct_http")
        return {"resources": [name, str(direct[0]["base_url"])], "cookies": direct[0].get("cookies") or {}}

    def loop(self, params: JsonObject, state: LoopState, episode: Episode | None, resources: Peer | None) -> Loop:
        """A loop over this seat's servers."""
        return Loop(
            params,
            state,
            episode=episode,
            model=self.model,
            resources=resources,
            outgoing=self.outgoing,
            max_steps=self.max_steps,
        )

    async def activate(self, call: Call, episode: Episode, key: str, params: JsonObject) -> JsonObject:
        """The finished response of one activation of the agent session `key`. One that was finished before is not run,
        nor recorded, again. Raises what `AgentParticipant.activation` and `Loop.run` raise."""
        async with self.participant.activation(episode, key, activation_index(call.request_id)) as act:
            if act.reply is not None:
                return act.reply
            self.log.record(call, call.route, params)
            if act.continuation is None:
                state = LoopState(resources_cookies=dict(act.request["cookies"]))
            else:
                state = LoopState.from_json(act.continuation)
            reply = await self.loop(params, state, episode, self._resources_of(act.request)).run(act)
            act.keep(resources_cookies=state.resources_cookies, resources_revision=state.revision)
            act.complete(reply)
            return reply

    def _resources_of(self, request: dict[str, Any]) -> Peer | None:
        if request["resources"] is None:
            return None
        name, url = request["resources"]
        if self.resources is not None and self.resources.name == name:
            return self.resources
        return Peer(Kind.RESOURCES, name, url.rstrip("/"))
