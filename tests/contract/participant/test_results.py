"""Finished results over the wire: listed by question, freed through both doors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from gymckpt.core.chunks import digest_of
from gymckpt.core.ids import Episode, Fence
from gymckpt.core.results import Acknowledgement
from gymckpt.core.transitions import Acknowledge, Acknowledged, Prepare, Request, Transition
from gymckpt.errors import DeadlineExceeded, ReceiptMismatch, StaleBoot, StaleEpoch
from gymckpt.participant import EnvironmentParticipant
from gymckpt.participant.servicer import ParticipantServicer
from gymckpt.rpc.channel import open_channel
from gymckpt.rpc.codec.transitions import answer_from_proto, request_to_proto
from gymckpt.rpc.server import start_server
from gymckpt.v1 import participant_pb2 as pb
from gymckpt.v1 import participant_pb2_grpc as pb_grpc
from tests.contract.participant.conftest import Door, StreamDoor, Stub, UnaryDoor
from tests.unit.participant.rounds import Rounds

TEXTS = ("a", "b-a1", "c")


def acknowledge(*texts: str, receipt: bytes = b"", timeout: float = 5.0) -> Acknowledge:
    """The right receipts, unless another is given."""
    return Acknowledge(
        tuple(
            Acknowledgement(Episode.parse(text), receipt or digest_of(f'"{text}"'.encode()).blake3) for text in texts
        ),
        timeout,
    )


@pytest.fixture
async def environment(rounds: Rounds) -> EnvironmentParticipant:
    """It keeps a result of each of TEXTS."""
    environment = EnvironmentParticipant("e")
    rounds.serve(environment)
    environment.enabled = True
    for text in TEXTS:
        async with environment.episode(Episode.parse(text), task=1) as run:
            run.complete(text)
    return environment


@pytest.fixture
async def stub(environment: EnvironmentParticipant) -> AsyncIterator[Stub]:
    async with (
        await start_server([ParticipantServicer(environment)]) as server,
        open_channel(server.address) as channel,
    ):
        yield pb_grpc.ParticipantServiceStub(channel)


@pytest.fixture(params=[UnaryDoor, StreamDoor], ids=["transition", "control"])
async def door(request: pytest.FixtureRequest, stub: Stub) -> AsyncIterator[Door]:
    door = request.param(stub)
    yield door
    await door.close()


async def listed(stub: Stub, **fields: Any) -> tuple[list[str], str]:
    page = await stub.ListResults(pb.ParticipantServiceListResultsRequest(**fields))
    return [str(Episode(each.episode.rollout_id, each.episode.attempt)) for each in page.results], page.next_page_token


async def test_results_are_listed_a_page_at_a_time(rounds: Rounds, stub: Stub) -> None:
    """X17: what is listed can be read from the store."""
    assert await listed(stub, page_size=2) == (["a", "b-a1"], "b-a1")
    assert await listed(stub, page_size=2, page_token="b-a1") == (["c"], "")
    assert await listed(stub, episodes=[{"rollout_id": "c"}, {"rollout_id": "b"}]) == (["c"], "")
    page = await stub.ListResults(pb.ParticipantServiceListResultsRequest())
    for each in page.results:
        body = digest_of(f'"{Episode(each.episode.rollout_id, each.episode.attempt)}"'.encode())
        assert (each.receipt, each.body.blake3, each.body.size) == (body.blake3, body.blake3, body.size)
        assert await rounds.store.find_missing([body]) == []


async def test_results_are_acknowledged_through_both_doors(
    environment: EnvironmentParticipant, stub: Stub, door: Door
) -> None:
    """X06, X17, V02: fenced like every transition; a refusal says the same through both, and changes nothing."""

    async def ask(number: int, transition: Transition, *, boot_id: str = "", epoch: int = 2) -> Any:
        fence = Fence(epoch, number, f"round-{number}")
        request = Request(fence, number, boot_id or environment.boot_id, transition)
        return answer_from_proto(await door.send(request_to_proto(request))).result

    with pytest.raises(ReceiptMismatch) as refused:
        await ask(1, acknowledge("a", "c", receipt=bytes(32)))
    assert refused.value.details["receipt"] == bytes(32).hex()
    with pytest.raises(StaleBoot):
        await ask(2, acknowledge(*TEXTS), boot_id="0" * 32)
    with pytest.raises(StaleEpoch):
        await ask(3, acknowledge(*TEXTS), epoch=1)
    assert await listed(stub) == (list(TEXTS), "")
    assert await ask(4, acknowledge("a", "never", "b-a1")) == Acknowledged((Episode("never"),))
    assert await ask(5, acknowledge("a", "never", "b-a1")) == Acknowledged(
        (Episode("a"), Episode("b", 1), Episode("never"))
    )
    await ask(6, Prepare(5.0, 60.0))
    with pytest.raises(DeadlineExceeded, match="held by round-6"):
        await ask(7, acknowledge("c", timeout=0.01))
    assert await listed(stub) == (["c"], "")
