"""Whom a coordinator that takes over asks, and what callers hear while it waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gymckpt.coordinator import CheckpointArguments, CoordinatorClient, Faults, RestoreArguments, serve
from gymckpt.core.ids import ParticipantId
from gymckpt.core.kinds import Kind
from gymckpt.errors import CoordinatorStarting
from gymckpt.store import MemoryStore
from gymckpt.supervisor import Config, Event, Program, Supervisor, supervisor
from tests.contract.coordinator.fake import FakeParticipant, Told
from tests.contract.coordinator.fleet import SETTINGS, Fleet, KillAt
from tests.contract.coordinator.test_takeover import R1, assembled


@asynccontextmanager
async def starting(fleet: Fleet, directory: Path, faults: Faults | None = None) -> AsyncIterator[CoordinatorClient]:
    """A client of a coordinator that takes over, at an address that is known before it serves."""
    listen = f"unix:{directory}/coordinator"
    serving = asyncio.create_task(serve(fleet.store, listen, settings=SETTINGS, faults=faults))
    async with CoordinatorClient(listen) as client:
        try:
            yield client
            if faults is None:
                await (await serving).stop()
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)


Ask = Callable[[CoordinatorClient], Coroutine[Any, Any, object]]
ASKED: dict[str, Ask] = {
    "a question": lambda client: client.participants(),
    "a checkpoint": lambda client: client.checkpoint(CheckpointArguments("c2")),
    "a restore": lambda client: client.restore(RestoreArguments("one", "c1")),
    "a retire": lambda client: client.retire_episodes([R1]),
}


@pytest.mark.parametrize("asked", list(ASKED))
async def test_whoever_asks_while_a_silent_member_is_waited_for_is_told_its_name_and_when_to_ask_again(
    bare: Fleet, tmp_path: Path, asked: str
) -> None:
    """X24, X07: nothing is done meanwhile, and the same request succeeds once the member answers."""
    fleet = await assembled(bare)
    await fleet.checkpoint("c1")
    await fleet.server.stop()
    agent = fleet[Kind.AGENT]
    agent.answering.clear()
    async with starting(fleet, tmp_path) as client:
        await fleet.until(lambda: fleet[Kind.MODEL].epoch == 2)
        names = await fleet.names("")
        async with asyncio.timeout(5):
            with pytest.raises(CoordinatorStarting) as told:
                await ASKED[asked](client)
        assert told.value.details == {"participants": "agent/x"}
        assert f"agent/x at {agent.info.address}" in told.value.message
        assert told.value.retry_after == SETTINGS.retry_after
        assert await fleet.names("") == names
        with pytest.raises(CoordinatorStarting):
            await client.register(agent.info, agent.holds)
        agent.answering.set()
        async with asyncio.timeout(20):
            while True:
                try:
                    await ASKED[asked](client)
                    break
                except CoordinatorStarting as again:
                    await asyncio.sleep(again.retry_after or 0.0)


async def test_whoever_asks_while_a_take_over_is_short_just_waits(bare: Fleet, tmp_path: Path) -> None:
    """X07: a caller sees nothing of a coordinator that was started again."""
    fleet = await assembled(bare)
    await fleet.server.stop()
    fleet[Kind.AGENT].answering.clear()
    async with starting(fleet, tmp_path) as client:
        asking = asyncio.create_task(client.participants())
        await fleet.until(lambda: fleet[Kind.MODEL].epoch == 2)
        fleet[Kind.AGENT].answering.set()
        assert (await asking).epoch == 2


async def test_a_take_over_that_waits_for_no_member_says_what_it_does(bare: Fleet, tmp_path: Path) -> None:
    """X07."""
    fleet = await assembled(bare)
    await fleet.server.stop()
    faults = KillAt("takeover.decided")
    async with starting(fleet, tmp_path, faults) as client:
        await asyncio.wait_for(faults.reached.wait(), 5)
        with pytest.raises(CoordinatorStarting, match="ends what the one before left open") as told:
            await client.participants()
        assert told.value.details == {"participants": ""}


async def test_a_supervisor_tells_whom_the_coordinator_waits_for(
    bare: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X24: it cannot know itself who is missing."""
    monkeypatch.setattr(supervisor, "TOLD_EVERY", 0.1)
    fleet = await assembled(bare)
    await fleet.server.stop()
    fleet[Kind.AGENT].answering.clear()
    events: asyncio.Queue[Event] = asyncio.Queue()
    stop = asyncio.Event()
    async with starting(fleet, tmp_path):
        idle = Program("model", ("sleep", "60"), ParticipantId(Kind.MODEL, "x"))
        config = Config(f"unix:{tmp_path}/coordinator", (idle,))
        running = asyncio.create_task(Supervisor(config, events.put_nowait).run(stop))
        async with asyncio.timeout(10):
            while (event := await events.get()).kind != "trouble":
                pass
        assert isinstance(event.error, CoordinatorStarting)
        assert event.error.details == {"participants": "agent/x"}
        stop.set()
        await running
        fleet[Kind.AGENT].answering.set()


async def test_a_process_of_another_run_that_took_the_port_of_a_dead_member_is_left_alone(bare: Fleet) -> None:
    """X26, X31: it neither obeys this run from then on nor counts as a member of it."""
    fleet = await assembled(bare)
    await fleet.server.stop()
    address = fleet[Kind.RESOURCES].info.address
    await fleet[Kind.RESOURCES].die()
    theirs = await FakeParticipant(Kind.RESOURCES, "theirs", MemoryStore(), Told()).start(address)
    fleet.stack.push_async_callback(theirs.die)
    client = await fleet.coordinate()
    assert (theirs.epoch, theirs.fences) == (0, [])
    assert sorted(member.participant.id.kind for member in (await client.participants()).members) == [
        Kind.ENVIRONMENT,
        Kind.MODEL,
        Kind.AGENT,
    ]
    assert len(await fleet.names("members")) == 3
