"""Finished results as a controller sees them, over two environment servers that really keep them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gymckpt.coordinator import Acknowledgement, CheckpointArguments, FinishedResult, RestoreArguments, ResumePolicy
from gymckpt.core.chunks import digest_of
from gymckpt.core.ids import Episode
from gymckpt.core.kinds import GateState, Kind
from gymckpt.errors import (
    BlobNotFound,
    Conflict,
    DeadlineExceeded,
    ParticipantLost,
    ReceiptMismatch,
    StaleAttempt,
    StoreFull,
)
from gymckpt.participant import EnvironmentParticipant
from gymckpt.rpc.channel import open_channel
from gymckpt.store import MemoryStore
from gymckpt.v1 import coordinator_pb2 as pb
from gymckpt.v1.coordinator_pb2_grpc import CoordinatorServiceStub
from tests.contract.coordinator.fleet import Fleet

Environments = tuple[EnvironmentParticipant, EnvironmentParticipant]
WRONG = digest_of(b"wrong").blake3


@pytest.fixture
async def environments(bare: Fleet) -> Environments:
    """Two of them, and a model and an agent that play along, all members."""
    for kind in (Kind.MODEL, Kind.AGENT):
        await bare.add(kind)
    await bare.coordinate()
    await bare.register()
    served = EnvironmentParticipant("first"), EnvironmentParticipant("second")
    for environment in served:
        await bare.stack.enter_async_context(environment.serving(coordinator=bare.server.address, grace=0.0))
        await environment.open_gate()
    return served


async def finish(environment: EnvironmentParticipant, *texts: str, result: Any = None, continues: bool = False) -> None:
    """Plays episodes to their results, by default their own names."""
    for text in texts:
        async with environment.episode(Episode.parse(text), task=1, continues=continues) as run:
            if run.reply is None:
                run.complete(result or text)


def receipt(text: str) -> bytes:
    return digest_of(f'"{text}"'.encode()).blake3


def acknowledged(*texts: str) -> list[Acknowledgement]:
    return [Acknowledgement(Episode.parse(text), receipt(text)) for text in texts]


async def listed(fleet: Fleet) -> dict[str, FinishedResult]:
    return {str(result.episode): result for result in await fleet.client.results()}


async def test_results_of_all_members_are_listed_in_order_and_can_be_read(
    bare: Fleet, environments: Environments
) -> None:
    """X17: before any checkpoint, which makes them durable."""
    await finish(environments[0], "r-a1", "t")
    await finish(environments[1], "a", "s")
    results = await bare.client.results()
    assert [str(result.episode) for result in results] == ["a", "r-a1", "s", "t"]
    for result in results:
        [body] = await bare.store.read([result.body])
        assert (body.decode(), result.receipt) == (f'"{result.episode}"', receipt(str(result.episode)))
    assert not any(result.durable for result in results)
    await bare.checkpoint("c1")
    await finish(environments[0], "u")
    assert [result.durable for result in await bare.client.results()] == [True, True, True, True, False]


async def test_results_are_paged_and_those_of_one_episode_stay_together(
    bare: Fleet, environments: Environments
) -> None:
    """X17: acknowledging a page between two of them leaves out nothing; a result that two servers have is one."""
    await finish(environments[0], "a", "c", "e", "f")
    await finish(environments[1], "b", "c", "d")
    await finish(environments[1], "f", result="another")
    pages, token = [], ""
    async with open_channel(bare.server.address) as channel:
        stub: Any = CoordinatorServiceStub(channel)
        while True:
            page = await stub.ListResults(pb.ListResultsRequest(page_size=2, page_token=token))
            pages.append([result.episode.rollout_id for result in page.results])
            asked = [Acknowledgement(Episode(result.episode.rollout_id), result.receipt) for result in page.results]
            assert await bare.client.acknowledge_results(asked) == ()
            token = page.next_page_token
            if not token:
                break
    assert pages == [["a", "b"], ["c", "d"], ["e", "f", "f"]]
    assert await listed(bare) == {}
    assert [environment.counts()["results"] for environment in environments] == [0, 0]


async def test_a_wrong_receipt_changes_nothing_anywhere(bare: Fleet, environments: Environments) -> None:
    """X17, V02: whichever member would have noticed it last."""
    await finish(environments[0], "r", "s")
    await finish(environments[1], "t")
    before = await bare.client.results()
    for wrong in ("r", "t"):
        batch = [*acknowledged("s", "never"), Acknowledgement(Episode(wrong), WRONG), *acknowledged("r", "t")]
        with pytest.raises(ReceiptMismatch) as refused:
            await bare.client.acknowledge_results(batch)
        assert refused.value.details == {"episode": wrong, "receipt": WRONG.hex(), "kept": receipt(wrong).hex()}
        assert await bare.client.results() == before
    assert await bare.client.acknowledge_results(acknowledged("r", "never", "t")) == (Episode("never"),)
    assert list(await listed(bare)) == ["s"]
    assert await bare.client.acknowledge_results(acknowledged("r", "t")) == (Episode("r"), Episode("t"))
    assert await bare.client.acknowledge_results(acknowledged("s")) == ()


async def test_what_has_arrived_can_be_acknowledged_although_the_store_is_full(
    bare: Fleet, environments: Environments, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X17: comparing receipts writes no body: it would be written only to be freed, and a full store would keep results for ever."""

    async def full(*_: Any) -> int:
        raise StoreFull("no space is left")

    await finish(environments[0], "r")
    await finish(environments[1], "s")
    monkeypatch.setattr(bare.store, "write_batch", full)
    with pytest.raises(StoreFull, match="no space is left"):
        await bare.client.results()
    with pytest.raises(ReceiptMismatch):
        await bare.client.acknowledge_results([*acknowledged("r"), Acknowledgement(Episode("s"), WRONG)])
    assert await bare.client.acknowledge_results(acknowledged("r", "s")) == ()
    assert await listed(bare) == {}


async def test_an_acknowledgement_waits_while_gates_are_closed(bare: Fleet, environments: Environments) -> None:
    """X17: it may be asked for beside a checkpoint, and does not disturb it."""
    await finish(environments[0], "r")
    await finish(environments[1], "s")
    await bare.checkpoint(CheckpointArguments("c1", resume=ResumePolicy.BY_CALLER))
    with pytest.raises(DeadlineExceeded, match="nothing was acknowledged here"):
        await bare.client.acknowledge_results(acknowledged("r"), timeout=0.05)
    asking = asyncio.create_task(bare.client.acknowledge_results(acknowledged("r", "s")))
    assert list(await listed(bare)) == ["r", "s"]
    assert not asking.done()
    await bare.client.resume_checkpoint("c1")
    assert await asking == ()
    assert await listed(bare) == {}
    assert (await bare.checkpoint("c2")).episodes == 0


async def test_a_restored_result_is_listed_with_its_receipt_as_the_next_attempt(
    bare: Fleet, environments: Environments
) -> None:
    """X17, X30: and survives the next checkpoint and restore, too, until it is acknowledged."""
    await finish(environments[0], "r")
    for attempt in (1, 2):
        await bare.checkpoint(f"c{attempt}")
        await bare.client.restore(RestoreArguments(f"again-{attempt}", "latest"))
        [result] = await bare.client.results()
        assert (result.episode, result.receipt, result.durable) == (Episode("r", attempt), receipt("r"), True)
        async with environments[0].episode(result.episode, task=1, continues=True) as run:
            assert run.reply == "r"
        with pytest.raises(StaleAttempt):
            await finish(environments[0], "r")
    assert await bare.client.acknowledge_results(await bare.client.results()) == ()
    await bare.checkpoint("c3")
    assert await bare.client.restore(RestoreArguments("again-3", "latest")) == ()


async def test_a_member_that_does_not_answer_is_named_and_nothing_changes(
    bare: Fleet, environments: Environments
) -> None:
    """X24: a list that is not whole would be taken for one that is."""
    await finish(environments[0], "r")
    await bare[Kind.AGENT].die()
    for asked in (bare.client.results(), bare.client.acknowledge_results(acknowledged("r"))):
        with pytest.raises(ParticipantLost, match="agent/x") as lost:
            await asked
        assert lost.value.details["participant"] == "agent/x"
    await bare.register(await bare.add(Kind.AGENT))
    assert list(await listed(bare)) == ["r"]


async def test_an_episode_of_which_only_its_result_is_kept_has_lost_nothing(
    bare: Fleet, environments: Environments
) -> None:
    """X17: the death of a server that it has left restores nothing over its result."""
    playing, go = asyncio.Event(), asyncio.Event()

    async def play() -> None:
        async with environments[0].episode(Episode("r"), task=1) as run:
            async with run.step("replay"):
                playing.set()
                await go.wait()
            run.complete("r")

    task = asyncio.create_task(play())
    await playing.wait()
    agent = bare[Kind.AGENT]
    agent.host(Episode("r"))
    assert (await bare.checkpoint("c1")).episodes == 1
    go.set()
    await task
    agent.sessions.clear()
    await agent.die()
    await bare.register(await bare.add(Kind.AGENT))
    recovery = await bare.client.explain_recovery()
    assert (recovery.rollouts, recovery.troubles) == (0, ())


async def test_a_checkpoint_that_cannot_be_read_costs_no_result(bare: Fleet, environments: Environments) -> None:
    """X17, X14: a restore frees what it replaces; where nothing else is left, a result alone is worth reading the checkpoint before."""
    await finish(environments[0], "r")
    await bare.checkpoint("c1")
    [result] = await bare.client.results()
    assert isinstance(bare.store, MemoryStore)
    del bare.store._blobs[result.body]
    for environment in environments:
        await bare.client.register(environment.info, environment.holdings())
    with pytest.raises(BlobNotFound):
        await bare.client.restore(RestoreArguments("one", "c1"))
    assert await bare.client.results() == (result,)


async def test_a_coordinator_that_stops_acknowledges_nothing_more(bare: Fleet, environments: Environments) -> None:
    await finish(environments[0], "r")
    await bare.server.coordinator.finish(0.1)
    with pytest.raises(Conflict, match="asked to stop"):
        await bare.client.acknowledge_results(acknowledged("r"))
    assert (list(await listed(bare)), environments[0].gate.state) == (["r"], GateState.OPEN)
