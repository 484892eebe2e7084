"""Who may start or continue an episode here."""

from __future__ import annotations

import asyncio

import pytest

from gymckpt.core.ids import Episode
from gymckpt.core.manifest import Floor
from gymckpt.core.transitions import Activate, Discard
from gymckpt.errors import AlreadyRestored, DuplicateEpisode, GymckptError, NotRestored, StaleAttempt
from tests.unit.participant.base.bed import Counters
from tests.unit.participant.rounds import Rounds, settled


@pytest.fixture
async def restored(rounds: Rounds) -> Counters:
    """Holds `a-a1` as restored, and `live` as an ordinary session."""
    source, target = Counters(rounds), Counters(rounds)
    source.seed("a")
    published = await rounds.checkpoint(source.participant)
    await rounds.restore(target.participant, published.digest, ("a", 1))
    target.seed("live")
    return target


@pytest.mark.parametrize(
    ("text", "continues", "refusal"),
    [
        ("a-a1", False, AlreadyRestored),
        ("a", True, StaleAttempt),
        ("a", False, StaleAttempt),
        ("a-a2", True, NotRestored),
        ("new", True, NotRestored),
        ("live", True, DuplicateEpisode),
    ],
)
async def test_a_continue_without_restored_state_and_a_start_onto_it_are_refused(
    restored: Counters, text: str, continues: bool, refusal: type[GymckptError]
) -> None:
    """X30, V03"""
    episode = Episode.parse(text)
    with pytest.raises(refusal):
        await restored.participant.claim(episode, episode.rollout_id, continues=continues)


async def test_restored_state_is_handed_out_once(restored: Counters) -> None:
    """X30, E03"""
    session = await restored.participant.claim(Episode("a", 1), "a", continues=True)
    assert session is restored.participant.sessions.get("a")
    with pytest.raises(DuplicateEpisode):
        await restored.participant.claim(Episode("a", 1), "a", continues=True)


async def test_a_start_from_input_finds_nothing(restored: Counters) -> None:
    assert await restored.participant.claim(Episode("new"), "new", continues=False) is None
    assert await restored.participant.claim(Episode("a", 2), "a", continues=False) is None


async def test_a_process_born_after_a_restore_starts_only_later_attempts(rounds: Rounds) -> None:
    """X27"""
    p = Counters(rounds).participant
    p.floors.learn([Floor("a", refused=0, target=1)])
    for attempt in (0, 1):
        with pytest.raises(StaleAttempt):
            await p.claim(Episode("a", attempt), "a", continues=False)
        with pytest.raises(StaleAttempt):
            p.enter_now(Counters(rounds).call(str(Episode("a", attempt)), "/seed_session"))
    assert await p.claim(Episode("a", 2), "a", continues=False) is None


@pytest.mark.parametrize("activated", [True, False])
async def test_a_claim_of_pending_state_waits_until_it_is_live_or_gone(rounds: Rounds, activated: bool) -> None:
    """X30, X28"""
    source, target = Counters(rounds), Counters(rounds)
    source.seed("a")
    published = await rounds.checkpoint(source.participant)
    fence, _ = await rounds.install(target.participant, published.digest, ("a", 1))
    claim = asyncio.create_task(target.participant.claim(Episode("a", 1), "a", continues=True))
    await settled()
    assert not claim.done()
    await rounds.ask(target.participant, fence, Activate() if activated else Discard())
    if activated:
        assert await claim is not None
    else:
        with pytest.raises(NotRestored):
            await claim
