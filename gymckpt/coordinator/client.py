"""What a controller calls: values in, values out, errors as the coordinator raised them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
from types import TracebackType
from typing import Any, TypeVar

import grpc

from gymckpt.coordinator import values
from gymckpt.core.arguments import CheckpointArguments, RestoreArguments
from gymckpt.core.ids import Episode
from gymckpt.core.kinds import Fate
from gymckpt.core.manifest import ParticipantInfo, RestoreTarget
from gymckpt.core.recovery import Recovery, Trouble
from gymckpt.core.report import LostEpisode
from gymckpt.core.results import Acknowledgement, FinishedResult
from gymckpt.core.standing import Stage
from gymckpt.core.transitions import Holdings
from gymckpt.rpc import codec
from gymckpt.rpc.channel import open_channel
from gymckpt.rpc.status import from_rpc_error
from gymckpt.v1 import coordinator_pb2 as pb
from gymckpt.v1.coordinator_pb2_grpc import CoordinatorServiceStub

T = TypeVar("T")

EXPLAINED_PAGE = 10_000
RESULTS_PAGE = 1_000


class CoordinatorClient:
    """One coordinator at `host:port` or `unix:<path>`. Methods raise what coordinator.proto says, or TransportFailed."""

    def __init__(self, address: str) -> None:
        self._channel = open_channel(address)
        self._stub = CoordinatorServiceStub(self._channel)

    async def close(self) -> None:
        await self._channel.close()

    async def __aenter__(self) -> CoordinatorClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def register(
        self, info: ParticipantInfo, holds: Holdings, lost: Iterable[LostEpisode] = ()
    ) -> values.Registration:
        """Announces a process."""
        request = pb.RegisterRequest(
            participant=codec.participant_to_proto(info),
            holds=codec.holdings_to_proto(holds),
            lost=[codec.lost_to_proto(entry) for entry in lost],
        )
        answer = await _call(self._stub.Register(request))
        return values.Registration(answer.epoch, answer.admitted, codec.duration(answer, "interval", longest=codec.DAY))

    async def participants(self) -> values.Membership:
        """Everyone who is here, and who is missing."""
        members: list[values.MemberStatus] = []
        request = pb.ListParticipantsRequest()
        while True:
            page = await _call(self._stub.ListParticipants(request))
            members.extend(_member_status(member) for member in page.members)
            if not page.next_page_token:
                missing = codec.each(codec.participant_id_from_proto, page.missing, "missing")
                return values.Membership(page.epoch, tuple(members), missing)
            request.page_token = page.next_page_token

    async def explain_blockers(self) -> tuple[values.MemberReport, ...]:
        """What would block a cut now."""
        answer = await _call(self._stub.ExplainBlockers(pb.ExplainBlockersRequest()))
        return tuple(_member_report(entry) for entry in answer.members)

    async def explain_recovery(self) -> Recovery:
        """What would go on if every process died now, and what some deaths have cost. Raises DamagedBlob, BlobNotFound."""
        troubles: list[Trouble] = []
        request = pb.ExplainRecoveryRequest(page_size=EXPLAINED_PAGE)
        while True:
            page = await _call(self._stub.ExplainRecovery(request))
            troubles.extend(_trouble(entry) for entry in page.troubles)
            if not page.next_page_token:
                silent = codec.each(codec.participant_id_from_proto, page.silent, "silent")
                return Recovery(page.checkpoint_id, page.rollouts, page.recoverable, tuple(troubles), silent)
            request.page_token = page.next_page_token

    async def create_checkpoint(self, arguments: CheckpointArguments) -> AsyncIterator[values.CheckpointProgress]:
        """Takes a checkpoint; the last progress is PUBLISHED or HELD. Leaving the iteration stops the waiting only."""
        request = pb.CreateCheckpointRequest(
            checkpoint_id=arguments.checkpoint_id,
            episodes=codec.episodes_to_proto(arguments.episodes),
            prepare_timeout=codec.duration_to_proto(arguments.prepare_timeout),
            gate_lease=codec.duration_to_proto(arguments.gate_lease),
            export_lease=codec.duration_to_proto(arguments.export_lease),
            on_not_ready=pb.OnNotReady.ValueType(arguments.on_not_ready),
            resume=pb.ResumePolicy.ValueType(arguments.resume),
            full=arguments.full,
            labels=dict(arguments.labels),
            controller_state=arguments.controller_state,
        )
        async for message in _stream(self._stub.CreateCheckpoint(request)):
            yield _progress(message.progress)

    async def checkpoint(self, arguments: CheckpointArguments) -> values.Checkpoint:
        """Takes a checkpoint and returns how it ended: PUBLISHED or HELD."""
        checkpoint: values.Checkpoint | None = None
        async for progress in self.create_checkpoint(arguments):
            checkpoint = progress.checkpoint
        if checkpoint is None:
            raise RuntimeError("the stream ended without a message")
        return checkpoint

    async def get_checkpoint(
        self, checkpoint_id: str, *, page_size: int = 0, page_token: str = ""
    ) -> values.CheckpointPage:
        """A checkpoint with one page of its episodes."""
        request = pb.GetCheckpointRequest(checkpoint_id=checkpoint_id, page_size=page_size, page_token=page_token)
        page = await _call(self._stub.GetCheckpoint(request))
        return values.CheckpointPage(
            _checkpoint(page.checkpoint),
            codec.episodes_from_proto(page.episodes),
            codec.each(codec.restart_from_proto, page.restarts, "restarts"),
            codec.lost_list_from_proto(page.lost),
            page.controller_state,
            page.next_page_token,
        )

    async def list_checkpoints(
        self, *, page_size: int = 0, page_token: str = ""
    ) -> tuple[tuple[values.Checkpoint, ...], str]:
        """A page of checkpoints, newest first, and the token of the next ("" at the end)."""
        request = pb.ListCheckpointsRequest(page_size=page_size, page_token=page_token)
        page = await _call(self._stub.ListCheckpoints(request))
        return tuple(_checkpoint(checkpoint) for checkpoint in page.checkpoints), page.next_page_token

    async def watch_checkpoint(self, checkpoint_id: str) -> AsyncIterator[values.CheckpointProgress]:
        """Progress of a checkpoint to its end."""
        request = pb.WatchCheckpointRequest(checkpoint_id=checkpoint_id)
        async for message in _stream(self._stub.WatchCheckpoint(request)):
            yield _progress(message.progress)

    async def resume_checkpoint(self, checkpoint_id: str) -> values.Checkpoint:
        """Opens the gates."""
        request = pb.ResumeCheckpointRequest(checkpoint_id=checkpoint_id)
        return _checkpoint((await _call(self._stub.ResumeCheckpoint(request))).checkpoint)

    async def abort_checkpoint(self, checkpoint_id: str, why: str = "") -> values.Checkpoint:
        """Ends a checkpoint; returns what was decided."""
        request = pb.AbortCheckpointRequest(checkpoint_id=checkpoint_id, why=why)
        return _checkpoint((await _call(self._stub.AbortCheckpoint(request))).checkpoint)

    async def renew_checkpoint(self, checkpoint_id: str, gate_lease: float = 0.0, export_lease: float = 0.0) -> None:
        """Restarts leases (seconds; zero keeps a length)."""
        request = pb.RenewCheckpointRequest(
            checkpoint_id=checkpoint_id,
            gate_lease=codec.duration_to_proto(gate_lease),
            export_lease=codec.duration_to_proto(export_lease),
        )
        await _call(self._stub.RenewCheckpoint(request))

    async def pin_checkpoint(self, checkpoint_id: str, holder: str, *, release: bool = False) -> str:
        """Pins or releases; returns the id that `latest` stood for."""
        request = pb.PinCheckpointRequest(checkpoint_id=checkpoint_id, holder=holder, release=release)
        return (await _call(self._stub.PinCheckpoint(request))).checkpoint_id

    async def delete_checkpoint(self, checkpoint_id: str) -> None:
        """Takes a published checkpoint away for good. Its blobs stay."""
        await _call(self._stub.DeleteCheckpoint(pb.DeleteCheckpointRequest(checkpoint_id=checkpoint_id)))

    async def restore_checkpoint(self, arguments: RestoreArguments) -> AsyncIterator[values.RestoreProgress]:
        """Restores; the last progress is RESTORED with the whole outcome. Leaving the iteration stops the waiting only."""
        request = pb.RestoreCheckpointRequest(
            restore_id=arguments.restore_id,
            checkpoint_id=arguments.checkpoint_id,
            episodes=codec.episodes_to_proto(arguments.episodes),
            on_unloadable=pb.OnUnloadable.ValueType(arguments.on_unloadable),
        )
        targets: list[RestoreTarget] = []
        async for message in _stream(self._stub.RestoreCheckpoint(request)):
            targets.extend(_targets(message))
            stage = values.RestoreStage(message.stage)
            if stage is not values.RestoreStage.RESTORED or message.done:
                yield values.RestoreProgress(
                    stage, message.checkpoint_id, message.finished, message.participants, tuple(targets)
                )

    async def restore(self, arguments: RestoreArguments) -> tuple[RestoreTarget, ...]:
        """Restores, and returns what became of every asked episode."""
        outcome: tuple[RestoreTarget, ...] = ()
        async for progress in self.restore_checkpoint(arguments):
            outcome = progress.outcome
        return outcome

    async def retire_episodes(self, episodes: Iterable[Episode], timeout: float = 0.0) -> None:
        """Stops attempts everywhere; zero seconds means the default."""
        request = pb.RetireEpisodesRequest(
            episodes=codec.episodes_to_proto(episodes), timeout=codec.duration_to_proto(timeout)
        )
        await _call(self._stub.RetireEpisodes(request))

    async def results(self) -> tuple[FinishedResult, ...]:
        """Every finished result that was not acknowledged; the artifact store has the bodies."""
        found: list[FinishedResult] = []
        request = pb.ListResultsRequest(page_size=RESULTS_PAGE)
        while True:
            page = await _call(self._stub.ListResults(request))
            found.extend(codec.each(codec.result_from_proto, page.results, "results"))
            if not page.next_page_token:
                return tuple(found)
            request.page_token = page.next_page_token

    async def acknowledge_results(
        self, acknowledgements: Iterable[Acknowledgement | FinishedResult], timeout: float = 0.0
    ) -> tuple[Episode, ...]:
        """Frees up to 1,000 results by exact receipt, all or none; returns the episodes of which nothing is kept. Zero seconds means the default."""
        request = pb.AcknowledgeResultsRequest(
            acknowledgements=codec.acknowledgements_to_proto(acknowledgements),
            timeout=codec.duration_to_proto(timeout),
        )
        answer = await _call(self._stub.AcknowledgeResults(request))
        return codec.episodes_from_proto(answer.unknown, "unknown")


class SyncCoordinatorClient:
    """The same for code without an event loop: a thread of its own runs one. Use it as a context manager."""

    def __init__(self, address: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="gymckpt-client", daemon=True)
        self._thread.start()
        self._client = self.run(_made(address))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Waits for a call on the client, e.g. `sync.run(sync.client.participants())`."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    @property
    def client(self) -> CoordinatorClient:
        return self._client

    def checkpoint(self, arguments: CheckpointArguments) -> values.Checkpoint:
        return self.run(self._client.checkpoint(arguments))

    def resume_checkpoint(self, checkpoint_id: str) -> values.Checkpoint:
        return self.run(self._client.resume_checkpoint(checkpoint_id))

    def abort_checkpoint(self, checkpoint_id: str, why: str = "") -> values.Checkpoint:
        return self.run(self._client.abort_checkpoint(checkpoint_id, why))

    def restore(self, arguments: RestoreArguments) -> tuple[RestoreTarget, ...]:
        return self.run(self._client.restore(arguments))

    def retire_episodes(self, episodes: Iterable[Episode], timeout: float = 0.0) -> None:
        self.run(self._client.retire_episodes(episodes, timeout))

    def follow(self, make: Callable[[CoordinatorClient], AsyncIterator[T]]) -> Iterator[T]:
        """A streaming call, item by item: `sync.follow(lambda client: client.watch_checkpoint("c1"))`."""
        items = make(self._client)
        while True:
            try:
                yield self.run(_next(items))
            except StopAsyncIteration:
                return

    def close(self) -> None:
        self.run(self._client.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> SyncCoordinatorClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


async def _made(address: str) -> CoordinatorClient:
    """On the loop that will use it."""
    return CoordinatorClient(address)


async def _next(items: AsyncIterator[T]) -> T:
    return await anext(items)


async def _call(call: Awaitable[T]) -> T:
    try:
        return await call
    except grpc.RpcError as error:
        raise from_rpc_error(error) from error


async def _stream(call: Any) -> AsyncIterator[Any]:
    try:
        async for message in call:
            yield message
    except grpc.RpcError as error:
        raise from_rpc_error(error) from error
    finally:
        call.cancel()


def _member_status(message: pb.MemberStatus) -> values.MemberStatus:
    return values.MemberStatus(
        codec.participant_from_proto(message.participant),
        codec.holdings_from_proto(message.holds),
        message.silent_seconds,
        codec.lost_list_from_proto(message.lost),
    )


def _member_report(message: pb.MemberReport) -> values.MemberReport:
    report = codec.report_from_proto(message.report) if message.HasField("report") else None
    holds = codec.holdings_from_proto(message.holds) if message.HasField("holds") else None
    lost = codec.lost_list_from_proto(message.lost)
    return values.MemberReport(codec.participant_from_proto(message.participant), report, message.error, holds, lost)


def _progress(message: pb.CheckpointProgress) -> values.CheckpointProgress:
    waiting = tuple(_member_report(entry) for entry in message.waiting_for)
    return values.CheckpointProgress(_checkpoint(message.checkpoint), waiting, message.uploaded, message.participants)


def _trouble(message: pb.RolloutTrouble) -> Trouble:
    return Trouble(
        codec.episode_from_proto(message.episode),
        codec.participant_id_from_proto(message.participant) if message.HasField("participant") else None,
        message.why,
        codec.episode_from_proto(message.restore) if message.HasField("restore") else None,
    )


def _checkpoint(message: pb.Checkpoint) -> values.Checkpoint:
    return values.Checkpoint(
        message.checkpoint_id,
        Stage(message.stage),
        message.epoch,
        message.sequence,
        message.unix_millis,
        message.base_checkpoint_id,
        dict(message.labels),
        codec.each(codec.participant_id_from_proto, message.participants, "participants"),
        message.episodes,
        message.restarts,
        message.lost,
        codec.digest_from_proto(message.manifest) if message.HasField("manifest") else None,
        message.why_aborted,
        message.prepare_seconds,
        message.pause_seconds,
        message.upload_seconds,
        message.blobs_sent,
        message.bytes_sent,
        message.waited_for,
        message.why_unreadable,
    )


def _targets(message: pb.RestoreCheckpointResponse) -> Iterator[RestoreTarget]:
    for done in message.restored:
        target = codec.episode_from_proto(done.target)
        yield RestoreTarget(codec.episode_from_proto(done.source), target.attempt, Fate.RESTORED)
    for entries, fate in ((message.restarted, Fate.RESTARTED), (message.lost, Fate.LOST)):
        for entry in entries:
            source, target = codec.episode_from_proto(entry.source), codec.episode_from_proto(entry.target)
            yield RestoreTarget(source, target.attempt, fate, entry.why)
