"""Servers whose handlers call other servers, over HTTP, while all gates close: what a checkpoint waits for is let through everywhere."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from gymckpt.core.ids import Fence
from gymckpt.core.kinds import Capture, GateState
from gymckpt.core.transitions import Prepare, Prepared
from gymckpt.errors import CutVoid
from gymckpt.participant import (
    EPISODE_HEADER,
    WITHIN_HEADER,
    AdmissionMiddleware,
    AgentParticipant,
    Call,
    ModelParticipant,
    Participant,
    ResourcesParticipant,
    SqliteLedger,
    current_call,
)
from tests.unit.participant.rounds import PATIENCE, Rounds, settled, until


def served() -> Call:
    call = current_call()
    assert call is not None
    return call


class Server:
    """One participant behind its middleware, and a client that calls it."""

    def __init__(self, participant: Participant) -> None:
        self.participant = participant
        self.app = FastAPI()
        self.app.add_middleware(AdmissionMiddleware, participant=participant)
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url="http://here")

    async def post(self, route: str, **headers: str) -> Any:
        """What the server answers; whatever is no answer fails the test."""
        answer = await self.http.post(route, headers={name: text for name, text in headers.items() if text})
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def inside(self, route: str) -> Any:
        """A call that is part of the step which is being served."""
        call = served()
        step = str(call.within or call.episode)
        return await self.post(route, **{EPISODE_HEADER: str(call.episode), WITHIN_HEADER: step})


class Fleet:
    """A model that answers when it is told, an agent, an agent that uses that one, and tools that use each of them. Whoever asks the model asks it twice, the
    second time when it may `go_on`; one tool asks it once, and then the agent."""

    def __init__(self, rounds: Rounds) -> None:
        self.rounds = rounds
        self.ledger = SqliteLedger(":memory:")
        self.asked = 0
        self.answers: asyncio.Queue[str] = asyncio.Queue()
        self.go_on = asyncio.Event()
        self.model = self._model()
        self.inner = self._agent("inner", self.model, "/v1/responses")
        self.outer = self._agent("outer", self.inner, "/run")
        self.tools = self._tools()
        for server in self.servers:
            rounds.serve(server.participant)
            server.participant.enabled = True

    @property
    def servers(self) -> Sequence[Server]:
        return (self.model, self.inner, self.outer, self.tools)

    def _model(self) -> Server:
        participant = ModelParticipant("policy", self.ledger)
        server = Server(participant)

        @server.app.post("/v1/responses")
        async def responses() -> dict[str, str]:
            async with participant.call(served().episode) as call:
                self.asked += 1
                answer = await self.answers.get()
                await call.finished({"text": answer})
                return {"text": answer}

        return server

    def _agent(self, name: str, callee: Server, route: str) -> Server:
        """Its loop calls `callee` in each turn: the inner one at a model, the outer one an agent."""
        participant = AgentParticipant(name)
        server = Server(participant)

        @server.app.post("/run")
        async def run() -> Any:
            episode = served().episode
            assert episode is not None
            async with participant.run_episode(episode, {}) as act:
                await act.boundary("first", dict)
                said = [await callee.inside(route)]
                await self.go_on.wait()
                await act.boundary("second", dict)
                said.append(await callee.inside(route) if callee is self.model else "that was all")
                act.complete({"said": said})
                return {"said": said}

        return server

    def _tools(self) -> Server:
        participant = ResourcesParticipant("tools", capture=Capture.STATELESS)
        server = Server(participant)

        @server.app.post("/seed_session")
        async def seed() -> None:
            return

        @server.app.post("/think")
        async def think() -> list[Any]:
            first = await self.model.inside("/v1/responses")
            await self.go_on.wait()
            return [first, await self.model.inside("/v1/responses")]

        @server.app.post("/think_and_delegate")
        async def think_and_delegate() -> list[Any]:
            first = await self.model.inside("/v1/responses")
            await self.go_on.wait()
            return [first, await self.inner.inside("/run")]

        @server.app.post("/delegate")
        async def delegate() -> Any:
            return await self.inner.inside("/run")

        return server

    # --- a round, in the order of a coordinator ---

    async def prepared(self) -> dict[Server, tuple[Fence, Prepared]]:
        """Every server's answer: the model's first, then the agents', then the tools'."""
        answers: dict[Server, tuple[Fence, Prepared]] = {}
        for kind in ((self.model,), (self.inner, self.outer), (self.tools,)):
            fences = [self.rounds.fence() for _ in kind]
            asked = (
                self.rounds.ask(server.participant, fence, Prepare(PATIENCE, 600.0))
                for server, fence in zip(kind, fences, strict=True)
            )
            answers.update(zip(kind, zip(fences, await asyncio.gather(*asked), strict=True), strict=True))
        return answers

    async def resumed(self, servers: dict[Server, tuple[Fence, Prepared]]) -> None:
        for server, (fence, _) in servers.items():
            await self.rounds.resume(server.participant, fence)

    def gates(self, servers: Iterable[Server]) -> set[GateState]:
        return {server.participant.gate.state for server in servers}


TWICE = [{"text": "1"}, {"text": "2"}]
LATE = [{"text": "1"}, {"said": [{"text": "2"}, {"text": "3"}]}]


@pytest.mark.parametrize(
    ("who", "route", "answer"),
    [
        pytest.param("tools", "/think", TWICE, id="a tool calls the policy model"),
        pytest.param("tools", "/delegate", {"said": TWICE}, id="a tool runs an agent"),
        pytest.param("tools", "/think_and_delegate", LATE, id="a tool begins to run an agent"),
        pytest.param("outer", "/run", {"said": [{"said": TWICE}, "that was all"]}, id="an agent uses an agent"),
    ],
)
async def test_prepare_finishes_although_a_step_needs_servers_whose_gates_are_closed(
    rounds: Rounds, who: str, route: str, answer: Any
) -> None:
    """X37, X17: the model is asked again after it was ready, so that this cut is void; the next one is not, and holds a result of whoever was called alone."""
    fleet = Fleet(rounds)
    called: Server = getattr(fleet, who)
    await fleet.tools.post("/seed_session", **{EPISODE_HEADER: "r"})
    calling = asyncio.create_task(called.post(route, **{EPISODE_HEADER: "r"}))
    await until(lambda: fleet.asked == 1)
    preparing = asyncio.create_task(fleet.prepared())
    await settled()
    assert fleet.gates([fleet.model]) == {GateState.CLOSING}
    fleet.answers.put_nowait("1")
    await until(lambda: GateState.OPEN not in fleet.gates([fleet.model, fleet.inner, fleet.outer]))
    assert fleet.gates([fleet.model]) == {GateState.CLOSED}
    fleet.go_on.set()
    await until(lambda: fleet.asked == 2)
    assert not preparing.done()
    for text in ("2", "3"):
        fleet.answers.put_nowait(text)
    servers = await preparing
    assert all(prepared.report.ready for _, prepared in servers.values())
    assert fleet.gates(fleet.servers) == {GateState.CLOSED}
    with pytest.raises(CutVoid, match="calls were let in"):
        await rounds.snapshot(fleet.model.participant, *servers[fleet.model])
    await fleet.resumed(servers)
    assert await calling == answer

    servers = await fleet.prepared()
    taken = [await rounds.snapshot(server.participant, *servers[server]) for server in fleet.servers]
    assert [cut.sessions for cut in taken] == [0, 0, int(called is fleet.outer), 1]
    await fleet.ledger.close()


@pytest.fixture
def rounds() -> Rounds:
    return Rounds()
