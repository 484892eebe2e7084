"""Lists as long as they may be."""

from __future__ import annotations

import pytest

from gymckpt.coordinator import RestoreArguments, Settings
from gymckpt.core.arguments import MAX_EPISODES
from gymckpt.core.ids import Episode
from gymckpt.core.kinds import Fate, Kind
from gymckpt.core.manifest import StoredSession
from gymckpt.rpc import codec
from tests.contract.coordinator.fleet import Fleet


@pytest.mark.slow
async def test_100_000_episodes_are_checkpointed_listed_restored_and_retired(bare: Fleet) -> None:
    """X13: every list is paged, and none is cut."""
    await bare.add(Kind.MODEL)
    agent = await bare.add(Kind.AGENT)
    (state,) = await bare.store.write([codec.encode_session(StoredSession("fake/1", ()))])
    episodes = tuple(Episode(f"rollout-{number:06d}") for number in range(MAX_EPISODES))
    agent.host(*episodes, state=state)
    agent.stored = set(episodes)
    await bare.coordinate(settings=Settings(patience=60.0))
    await bare.register()
    assert (await bare.checkpoint("c1")).episodes == MAX_EPISODES
    listed: list[Episode] = []
    token = ""
    while True:
        page = await bare.client.get_checkpoint("c1", page_size=10_000, page_token=token)
        listed.extend(page.episodes)
        token = page.next_page_token
        if not token:
            break
    assert tuple(listed) == episodes
    outcome = await bare.client.restore(RestoreArguments("one", "c1"))
    assert [target.source for target in outcome] == listed
    assert {(target.attempt, target.fate) for target in outcome} == {(1, Fate.RESTORED)}
    assert len(agent.live) == MAX_EPISODES
    assert len(await bare.names("floors/restore-one")) == 10
    await bare.client.retire_episodes(target.target for target in outcome)
    assert agent.live == set()
