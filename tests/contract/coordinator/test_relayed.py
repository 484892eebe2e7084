"""Members that something stands before: a refused connection there does not say that the process is dead."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from gymckpt.coordinator import Stage
from gymckpt.core.kinds import Kind
from gymckpt.core.manifest import MemberAddress
from gymckpt.errors import MemberMissing
from gymckpt.testing import TcpProxy
from tests.contract.coordinator.fake import FakeParticipant
from tests.contract.coordinator.fleet import Fleet


async def cut_off(fleet: Fleet, directory: Path, *, relayed: bool) -> TcpProxy:
    """A complete fleet whose agent is reached through the proxy, and says so or not."""
    for kind in (Kind.ENVIRONMENT, Kind.MODEL, Kind.RESOURCES):
        await fleet.add(kind)
    listen = f"unix:{directory / 'agent'}"
    proxy = await fleet.stack.enter_async_context(TcpProxy(listen))
    agent = FakeParticipant(Kind.AGENT, "x", fleet.store, fleet.told)
    agent.reached = MemberAddress(proxy.address, relayed)
    fleet.participants[Kind.AGENT] = await agent.start(listen)
    fleet.stack.push_async_callback(agent.die)
    return proxy


async def waits_for_the_agent(starting: asyncio.Task[Any], caplog: pytest.LogCaptureFixture) -> None:
    last = time.monotonic() + 10.0
    while "waiting for agent/x" not in caplog.text:
        assert not starting.done()
        assert time.monotonic() < last
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("relayed", [True, False])
async def test_a_member_that_was_refused_takes_part_again_as_soon_as_it_is_heard(
    bare: Fleet, tmp_path: Path, relayed: bool
) -> None:
    """X24, X31: also one that was taken for dead, since nothing was said to stand before it."""
    proxy = await cut_off(bare, tmp_path, relayed=relayed)
    await bare.coordinate()
    await bare.register()
    proxy.drop()
    with pytest.raises(MemberMissing, match="agent/x"):
        await bare.checkpoint("refused")
    proxy.heal()
    await bare.register()
    assert (await bare.checkpoint("healed")).stage is Stage.PUBLISHED


async def test_a_successor_waits_for_a_member_that_may_live_behind_what_refuses(
    bare: Fleet, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """X35, X06: it could still obey the older one."""
    proxy = await cut_off(bare, tmp_path, relayed=True)
    proxy.drop()
    starting = asyncio.create_task(bare.coordinate())
    await waits_for_the_agent(starting, caplog)
    assert bare[Kind.AGENT].epoch == 0
    proxy.heal()
    await starting
    assert bare[Kind.AGENT].epoch == 1


async def test_a_successor_forgets_a_process_that_another_has_replaced_there(
    bare: Fleet, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """X26: the death of a relayed process is known once another one answers for it."""
    proxy = await cut_off(bare, tmp_path, relayed=True)
    dead = bare[Kind.AGENT]
    await dead.die()
    starting = asyncio.create_task(bare.coordinate())
    await waits_for_the_agent(starting, caplog)
    agent = FakeParticipant(Kind.AGENT, "x", bare.store, bare.told)
    agent.reached = MemberAddress(proxy.address, relayed=True)
    bare.participants[Kind.AGENT] = await agent.start(proxy.target)
    bare.stack.push_async_callback(agent.die)
    await starting
    assert [name for name in await bare.names("members") if dead.boot_id in name] == []
