"""A participant, in whatever language, whose answers are not those of the protocol: it is named at once, and nobody waits for it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from gymckpt.coordinator import CheckpointArguments
from gymckpt.coordinator.members.client import ControlStream, ParticipantClient
from gymckpt.core.ids import Fence
from gymckpt.core.kinds import GateState, Kind
from gymckpt.core.report import Blocker
from gymckpt.core.transitions import Answer, Request, Resume
from gymckpt.errors import ParticipantLost, TransportFailed
from gymckpt.store import MemoryStore
from gymckpt.v1 import participant_pb2 as pb
from gymckpt.v1 import types_pb2
from tests.contract.coordinator.fake import FakeParticipant
from tests.contract.coordinator.fleet import Fleet, Following

AT_ONCE = 10.0  # seconds, where the deadline would be a minute
PATIENT = CheckpointArguments("c1", prepare_timeout=60.0)
NAMELESS = types_pb2.Episode(rollout_id="")


class Wrong(FakeParticipant):
    """Changes its answers on the wire; lists what it was given."""

    change: Callable[[pb.TransitionResponse], object] | None = None
    results = pb.ParticipantServiceListResultsResponse()
    episodes = pb.ListEpisodesResponse()

    def answer(self, answer: Answer) -> pb.TransitionResponse:
        message = super().answer(answer)
        if self.change is not None:
            self.change(message)
        return message

    async def ListResults(
        self, request: pb.ParticipantServiceListResultsRequest, context: Any
    ) -> pb.ParticipantServiceListResultsResponse:
        return self.results

    async def ListEpisodes(self, request: pb.ListEpisodesRequest, context: Any) -> pb.ListEpisodesResponse:
        return self.episodes


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    """One participant of each kind, all of which may be wrong."""
    async with AsyncExitStack() as stack:
        fleet = Fleet(stack, MemoryStore())
        for kind in Kind:
            participant = await Wrong(kind, "x", fleet.store, fleet.told).start()
            stack.push_async_callback(participant.die)
            fleet.participants[kind] = participant
        await fleet.coordinate()
        await fleet.register()
        yield fleet


def wrong(fleet: Fleet, kind: Kind) -> Wrong:
    participant = fleet[kind]
    assert isinstance(participant, Wrong)
    return participant


def blame_nobody(answer: pb.TransitionResponse) -> None:
    if answer.HasField("prepared"):
        answer.prepared.report.blockers.add(type="seed", subject="x", episode=NAMELESS)


def close_too_often(answer: pb.TransitionResponse) -> None:
    if answer.HasField("prepared"):
        answer.prepared.closing = 2**63


def say_nothing(answer: pb.TransitionResponse) -> None:
    if answer.HasField("prepared"):
        answer.ClearField("prepared")


def answer_another(answer: pb.TransitionResponse) -> None:
    if answer.HasField("snapshot_taken"):
        answer.renewed.SetInParent()


def name_no_manifest(answer: pb.TransitionResponse) -> None:
    if answer.HasField("uploaded"):
        answer.uploaded.manifest.blake3 = b"short"


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize(
    ("change", "field"),
    [
        (blame_nobody, "rollout_id"),
        (close_too_often, "closing"),
        (say_nothing, "result"),
        (answer_another, "snapshot, got renewed"),
        (name_no_manifest, "blake3"),
    ],
)
async def test_a_wrong_answer_ends_the_checkpoint_at_once(
    fleet: Fleet, change: Callable[[pb.TransitionResponse], object], field: str, streaming: bool
) -> None:
    """X20: and the error names who answered, and the field."""
    participant = wrong(fleet, Kind.MODEL)
    participant.change, participant.streaming = change, streaming
    async with asyncio.timeout(AT_ONCE):
        with pytest.raises(ParticipantLost, match=rf"model/x.*not allow.*{field}"):
            await fleet.checkpoint(PATIENT)
    await fleet.until(lambda: fleet.gates() == {GateState.OPEN})
    participant.change = None
    assert (await fleet.checkpoint("c2")).manifest is not None


async def test_a_wrong_report_ends_the_checkpoint_at_once(fleet: Fleet) -> None:
    """X20: nothing else would come over that stream, and the answer was awaited there."""
    participant = wrong(fleet, Kind.RESOURCES)
    participant.block(Blocker("tool_call", None, "slow", 0.0))
    following = Following(fleet.client.create_checkpoint(PATIENT))
    await following.until(lambda progress: bool(progress.waiting_for))
    participant.push(types_pb2.Report(blockers=[types_pb2.Blocker(type="seed", episode=NAMELESS)]))
    async with asyncio.timeout(AT_ONCE):
        error = await following.end()
    assert isinstance(error, ParticipantLost)
    assert "resources/x" in error.message
    assert "rollout_id" in error.message
    await fleet.until(lambda: fleet.gates() == {GateState.OPEN})


@pytest.mark.parametrize(
    ("results", "why"),
    [
        ([types_pb2.Result(episode=types_pb2.Episode(rollout_id="r"), receipt=b"short")], "results.0"),
        ([], "page"),
    ],
)
async def test_a_wrong_list_of_results_is_told_as_the_participants_fault(
    fleet: Fleet, results: list[types_pb2.Result], why: str
) -> None:
    """X20, X17: the caller asked for nothing that is not allowed."""
    wrong(fleet, Kind.AGENT).results = pb.ParticipantServiceListResultsResponse(results=results, next_page_token="more")
    async with asyncio.timeout(AT_ONCE):
        with pytest.raises(ParticipantLost, match=rf"agent/x.*{why}"):
            await fleet.client.results()


async def test_a_list_of_episodes_without_an_end_ends(fleet: Fleet) -> None:
    """X20: the same page again and again."""
    wrong(fleet, Kind.AGENT).episodes = pb.ListEpisodesResponse(
        episodes=[types_pb2.Episode(rollout_id="r")], next_page_token="more"
    )
    async with asyncio.timeout(AT_ONCE):
        recovery = await fleet.client.explain_recovery()
    assert [str(participant) for participant in recovery.silent] == ["agent/x"]


class BreaksWhileWriting:
    """A stream that ends while the first request is on its way: the write fails as well."""

    def __init__(self) -> None:
        self.writing, self.read = asyncio.Event(), asyncio.Event()

    async def write(self, request: pb.ControlRequest) -> None:
        self.writing.set()
        await self.read.wait()
        raise asyncio.InvalidStateError

    async def __aiter__(self) -> AsyncIterator[pb.ControlResponse]:
        await self.writing.wait()
        nothing: list[pb.ControlResponse] = []
        for response in nothing:
            yield response
        asyncio.get_running_loop().call_soon(self.read.set)

    def cancel(self) -> None: ...


async def test_a_stream_that_breaks_during_a_write_is_told_once() -> None:
    """X20: asyncio has nothing to report that nobody saw."""
    unseen: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: unseen.append(context))
    stream = ControlStream(ParticipantClient("127.0.0.1:1"), BreaksWhileWriting(), lambda report: None)
    with pytest.raises(TransportFailed, match="has ended"):
        await stream.ask(Request(Fence(1, 1, "c1"), 1, "boot", Resume()))
    await stream.close()
    del stream
    gc.collect()
    assert unseen == []
