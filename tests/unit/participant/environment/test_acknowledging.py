"""How finished results are listed, and freed by exact receipt."""

from __future__ import annotations

import asyncio

import pytest

from gymckpt.core.chunks import digest_of
from gymckpt.core.ids import Episode
from gymckpt.core.results import Acknowledgement
from gymckpt.core.transitions import Acknowledge, Acknowledged
from gymckpt.errors import DeadlineExceeded, ReceiptMismatch
from gymckpt.participant.environment import EnvironmentParticipant
from tests.unit.participant.environment.results import (
    OTHER,
    RECEIPT,
    RESULT,
    acknowledge,
    again,
    counted,
    finished,
    fresh,
    listed,
)
from tests.unit.participant.rounds import Rounds, settled


@pytest.fixture
def environment(rounds: Rounds) -> EnvironmentParticipant:
    return fresh(rounds)


async def test_a_batch_is_acknowledged_whole_or_not_at_all(environment: EnvironmentParticipant, rounds: Rounds) -> None:
    """X17, V02: a wrong receipt changes nothing and is told with the right one; what was never finished is no error."""
    for text in ("r", "s", "t"):
        await finished(environment, text)
    with pytest.raises(ReceiptMismatch) as refused:
        await acknowledge(environment, rounds, ("r", RECEIPT), ("s", OTHER), ("never", OTHER))
    assert refused.value.details == {"episode": "s", "receipt": OTHER.hex(), "kept": RECEIPT.hex()}
    assert list(await listed(environment)) == ["r", "s", "t"]
    assert await acknowledge(environment, rounds, ("s", RECEIPT), ("never", OTHER), ("r", RECEIPT)) == ["never"]
    assert list(await listed(environment)) == ["t"]
    assert await acknowledge(environment, rounds, ("s", RECEIPT), ("t-a1", OTHER)) == ["s", "t-a1"]
    assert (counted(environment), await again(environment, "t")) == ((0, 0, 1), RESULT)
    assert list((await rounds.checkpoint(environment)).records) == ["t"]


async def test_the_same_acknowledgement_sent_again_gets_the_same_answer(
    environment: EnvironmentParticipant, rounds: Rounds
) -> None:
    """X19: its answer was lost on the way. While gates are closed too: it is done."""
    await finished(environment)
    fence = rounds.fence("acknowledge")
    asked = Acknowledge((Acknowledgement(Episode("r"), RECEIPT), Acknowledgement(Episode("s"), RECEIPT)), 0.01)
    first = await rounds.ask(environment, fence, asked)
    await rounds.prepare(environment)
    assert await rounds.ask(environment, fence, asked) == first == Acknowledged((Episode("s"),))


async def test_an_acknowledgement_waits_while_the_gate_is_closed(
    environment: EnvironmentParticipant, rounds: Rounds
) -> None:
    """X17: a cut under way holds the result or does not, whatever is acknowledged meanwhile."""
    await finished(environment)
    fence, prepared = await rounds.prepare(environment)
    with pytest.raises(DeadlineExceeded, match="nothing was acknowledged"):
        await acknowledge(environment, rounds, ("r", RECEIPT), timeout=0.01)
    waiting = asyncio.create_task(acknowledge(environment, rounds, ("r", RECEIPT)))
    await settled()
    taken = await rounds.snapshot(environment, fence, prepared)
    assert not waiting.done()
    await rounds.resume(environment, fence)
    assert await waiting == []
    assert await listed(environment) == {}
    checkpoint = await rounds.publish(environment, fence, taken)
    assert checkpoint.records["r"].boundary == "finished"


@pytest.mark.parametrize("acknowledging", [True, False])
async def test_results_are_listed_in_order_a_page_at_a_time_and_their_bodies_can_be_read(
    environment: EnvironmentParticipant, rounds: Rounds, acknowledging: bool
) -> None:
    """X17: acknowledging what a page named leaves out nothing of the next."""
    texts = ["a-a1", "b", "c", "d", "e"]
    for text in reversed(texts):
        await finished(environment, text, {"of": text})
    seen: list[str] = []
    after, more = None, True
    while more:
        page, more = await environment.results.page(2, after)
        for entry in page:
            [body] = await rounds.store.read([entry.body])
            assert (body, entry.receipt) == (f'{{"of":"{entry.episode}"}}'.encode(), digest_of(body).blake3)
        seen += [str(entry.episode) for entry in page]
        after = page[-1].episode
        if acknowledging:
            await acknowledge(environment, rounds, *((str(entry.episode), entry.receipt) for entry in page))
    assert seen == texts


async def test_only_the_results_of_some_episodes_may_be_asked_for(environment: EnvironmentParticipant) -> None:
    for text in ("a", "b-a1", "c"):
        await finished(environment, text)
    page, more = await environment.results.page(10, None, [Episode("c"), Episode("b"), Episode("a"), Episode("x")])
    assert ([str(entry.episode) for entry in page], more) == (["a", "c"], False)
