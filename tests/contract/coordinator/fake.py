"""A participant that does what it is told: a real ParticipantService over gRPC, with state that a test sets and answers that a test may script."""

from __future__ import annotations

import asyncio
import secrets
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc

from gymckpt.core import transitions as steps
from gymckpt.core.ids import Digest, Episode, Fence, ParticipantId
from gymckpt.core.kinds import Capture, ExportState, GateState, Kind
from gymckpt.core.manifest import EpisodeRecord, MemberAddress, ParticipantInfo, ParticipantManifest
from gymckpt.core.report import Blocker, LostEpisode, Report
from gymckpt.core.transitions import (
    Abort,
    AbortDone,
    Activate,
    Activated,
    Answer,
    Confirm,
    Confirmed,
    Decided,
    DecisionSeen,
    Discard,
    Discarded,
    Holdings,
    Install,
    Installed,
    Prepare,
    Prepared,
    Renew,
    Renewed,
    Request,
    Result,
    Resume,
    Resumed,
    Retire,
    Retired,
    Snapshot,
    SnapshotTaken,
    Upload,
    Uploaded,
)
from gymckpt.errors import (
    CutVoid,
    GymckptError,
    InvalidPhase,
    RestoreAborted,
    StaleBoot,
    StaleCheckpoint,
    StaleEpoch,
)
from gymckpt.rpc import codec
from gymckpt.rpc.codec.transitions import answer_to_proto, request_from_proto
from gymckpt.rpc.server import RpcServer, start_server
from gymckpt.rpc.status import to_proto_status
from gymckpt.store import ArtifactStore
from gymckpt.v1 import participant_pb2 as pb
from gymckpt.v1 import types_pb2
from gymckpt.v1.participant_pb2_grpc import ParticipantServiceServicer, add_ParticipantServiceServicer_to_server

Play = GymckptError | asyncio.Event


class Told:
    """What was told to whom, in order; `until` waits for what a test expects of it."""

    def __init__(self) -> None:
        self.told: list[tuple[str, steps.Transition]] = []
        self._news = asyncio.Event()

    def pulse(self) -> None:
        """Something changed."""
        self._news.set()
        self._news = asyncio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Raises TimeoutError after 5 seconds."""
        async with asyncio.timeout(5):
            while not condition():
                await self._news.wait()


class FakeParticipant(ParticipantServiceServicer):
    """`script[Kind of transition]` is raised, or waited for, before the transition is carried out. `told` is every transition that came, in order."""

    service_name = "gymckpt.v1.ParticipantService"

    def __init__(self, kind: Kind, name: str, store: ArtifactStore, log: Told) -> None:
        self.id = ParticipantId(kind, name)
        self.boot_id = secrets.token_hex(16)
        self.capture = Capture.EXPORTED
        self.store = store
        self.log = log
        self.script: dict[type, Play] = {}
        self.fences: list[Fence] = []
        self.streaming = True
        self.answering = asyncio.Event()
        self.answering.set()
        self.epoch = 0
        self.gate: GateState = GateState.OPEN
        self.gate_fence: Fence | None = None
        self.closing = 0
        self.export: ExportState = ExportState.NONE
        self.export_fence: Fence | None = None
        self.blockers: tuple[Blocker, ...] = ()
        self.report = Report()
        self.unblocked = asyncio.Event()
        self.sessions: dict[tuple[Episode, str], EpisodeRecord] = {}
        self.lost: tuple[LostEpisode, ...] = ()
        self.unloadable: dict[Episode, str] = {}
        self.schemas: tuple[str, ...] = ()
        self.stored: set[Episode] = set()  # what a checkpoint holds of this participant
        self.pending: set[Episode] = set()
        self.live: set[Episode] = set()
        self.retired: dict[str, int] = defaultdict(lambda: -1)
        self.restore_fence: Fence | None = None
        self.ended = 0
        self.episodes_page = 0  # fewer on a page than were asked for
        self.tried = 0  # sequence of a round that somebody drove by hand
        self.server: RpcServer | None = None
        self.reached: MemberAddress | None = None  # where something stands before it
        self._streams: list[asyncio.Queue[pb.ControlResponse]] = []
        self._running: set[asyncio.Task[Any]] = set()

    async def ListEpisodes(self, request: pb.ListEpisodesRequest, context: Any) -> pb.ListEpisodesResponse:
        episodes = sorted({episode for episode, _ in self.sessions} | self.live)
        start = int(request.page_token or 0)
        size = request.page_size if self.episodes_page == 0 else self.episodes_page
        token = str(start + size) if start + size < len(episodes) else ""
        page = codec.episodes_to_proto(episodes[start : start + size])
        return pb.ListEpisodesResponse(episodes=page, next_page_token=token)

    async def ListResults(
        self, request: pb.ParticipantServiceListResultsRequest, context: Any
    ) -> pb.ParticipantServiceListResultsResponse:
        await self.answering.wait()
        return pb.ParticipantServiceListResultsResponse()

    def __repr__(self) -> str:
        return f"{self.id} gate {self.gate.name} export {self.export.name}"

    def add_to(self, server: grpc.aio.Server) -> None:
        add_ParticipantServiceServicer_to_server(self, server)

    @property
    def info(self) -> ParticipantInfo:
        at = self.reached or MemberAddress(self.server.address if self.server else "")
        return ParticipantInfo(
            self.id, "0", self.boot_id, at.address, self.capture, state_schemas=self.schemas, relayed=at.relayed
        )

    @property
    def told(self) -> list[steps.Transition]:
        return [transition for name, transition in self.log.told if name == str(self.id)]

    @property
    def holds(self) -> Holdings:
        return Holdings(
            self.gate,
            self.export,
            self.gate_fence,
            self.export_fence,
            self.restore_fence,
            self.epoch,
            len(self.sessions),
            max(self.ended, self.tried),
        )

    async def start(self, listen: str = "127.0.0.1:0") -> FakeParticipant:
        """Serves, and creates its member name first, as every participant does."""
        self.server = await start_server([self], listen)
        name = f"members/{self.id}/0/{self.boot_id}"
        await self.store.put_name(name, codec.encode_member(self.reached or MemberAddress(self.server.address)))
        return self

    async def die(self) -> None:
        """As kill -9: nothing listens any more, and every connection breaks."""
        if self.server is not None:
            self.answering.set()
            await self.server.stop(0)

    def host(self, *episodes: Episode, session: str = "s", state: Digest | None = None) -> None:
        """Holds a session of each episode."""
        for episode in episodes:
            self.sessions[episode, session] = EpisodeRecord(episode, session, state, boundary="turn")

    def block(self, *blockers: Blocker) -> None:
        self.blockers = blockers
        self.unblocked = asyncio.Event()

    def unblock(self) -> None:
        self.blockers = ()
        self.unblocked.set()

    # --- the wire ---

    async def Describe(self, request: pb.DescribeRequest, context: Any) -> pb.DescribeResponse:
        return pb.DescribeResponse(participant=codec.participant_to_proto(self.info))

    async def GetStatus(self, request: pb.GetStatusRequest, context: Any) -> pb.GetStatusResponse:
        await self.answering.wait()
        self._check_boot(request.boot_id or self.boot_id)
        self._observe(request.epoch or self.epoch)
        return pb.GetStatusResponse(
            participant=codec.participant_to_proto(self.info),
            holds=codec.holdings_to_proto(self.holds),
            report=codec.report_to_proto(self._report()),
            lost=[codec.lost_to_proto(entry) for entry in self.lost],
        )

    async def Transition(self, request: pb.TransitionRequest, context: Any) -> pb.TransitionResponse:
        return self.answer(await asyncio.shield(asyncio.create_task(self.apply(request_from_proto(request)))))

    def answer(self, answer: Answer) -> pb.TransitionResponse:
        """As it goes on the wire."""
        return answer_to_proto(answer)

    def push(self, report: types_pb2.Report) -> None:
        """Sends it over every stream."""
        for stream in self._streams:
            stream.put_nowait(pb.ControlResponse(report=report))

    async def Control(self, request_iterator: Any, context: Any) -> AsyncIterator[pb.ControlResponse]:
        if not self.streaming:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "no streams here")
        answers: asyncio.Queue[pb.ControlResponse] = asyncio.Queue()
        self._streams.append(answers)

        async def answer(request: Request) -> None:
            try:
                done = await self.apply(request)
                answers.put_nowait(pb.ControlResponse(answer=self.answer(done)))
            except GymckptError as error:
                failure = pb.Failure(number=request.number, status=to_proto_status(error))
                answers.put_nowait(pb.ControlResponse(failure=failure))

        async def read() -> None:
            async for message in request_iterator:
                task = asyncio.create_task(answer(request_from_proto(message.transition)))
                self._running.add(task)
                task.add_done_callback(self._running.discard)

        reader = asyncio.create_task(read())
        try:
            while True:
                yield await answers.get()
        finally:
            reader.cancel()

    def _check_boot(self, boot_id: str) -> None:
        if boot_id != self.boot_id:
            raise StaleBoot(f"boot {boot_id} was replaced by boot {self.boot_id}")

    async def apply(self, request: Request) -> Answer:
        """One transition; refused before anything changes."""
        await self.answering.wait()
        self._check_boot(request.boot_id)
        self._observe(request.fence.epoch)
        self.fences.append(request.fence)
        self.log.told.append((str(self.id), request.transition))
        self.log.pulse()
        scripted = self.script.get(type(request.transition))
        if isinstance(scripted, asyncio.Event):
            await scripted.wait()
        elif scripted is not None:
            raise scripted
        result = await self._carry_out(request.fence, request.transition)
        self.log.pulse()
        return Answer(request.number, self.boot_id, self.gate, self.export, result)

    def _observe(self, epoch: int) -> None:
        if epoch < self.epoch:
            raise StaleEpoch(f"epoch {epoch} is below {self.epoch}")
        self.epoch = epoch
        self.log.pulse()

    def _report(self) -> Report:
        return Report.of(
            self.blockers,
            len(self.blockers),
            {r.episode: r.why for r in self.report.restarts},
            {"sessions": len(self.sessions)},
        )

    async def _carry_out(self, fence: Fence, step: steps.Transition) -> Result:  # noqa: C901 - a table of small steps
        match step:
            case Prepare():
                return await self._prepare(fence, step)
            case Snapshot():
                return self._snapshot(fence, step)
            case Upload():
                return await self._upload(fence)
            case Resume() | Abort():
                already = self._end(fence, export=isinstance(step, Abort))
                return AbortDone(already) if isinstance(step, Abort) else Resumed(already)
            case Decided():
                self.export, self.export_fence = ExportState.NONE, None
                return DecisionSeen()
            case Renew():
                return Renewed()
            case Install():
                return self._install(fence, step)
            case Confirm() | Activate():
                return self._keep(fence, step)
            case Discard():
                self.pending -= set(step.episodes or self.pending)
                return Discarded()
            case Retire():
                self._retire(step.episodes)
                return Retired()
            case _:
                raise InvalidPhase(f"{type(step).__name__} is not played here")

    async def _prepare(self, fence: Fence, step: Prepare) -> Prepared:
        if fence.sequence <= self.ended:
            raise StaleCheckpoint(f"{fence.checkpoint_id} has ended here")
        if self.gate_fence is None:
            self.gate, self.gate_fence, self.closing = GateState.CLOSING, fence, self.closing + 1
        waited_for = len(self.blockers)
        if self.blockers:
            self.push(codec.report_to_proto(self._report(), restarts=()))
            try:
                await asyncio.wait_for(self.unblocked.wait(), step.timeout)
            except TimeoutError:
                return Prepared(self._report(), 0)
        if not self._held_by(fence):
            return Prepared(self._report(), 0)
        self.gate = GateState.CLOSED
        return Prepared(self._report(), self.closing, waited_for)

    def _held_by(self, fence: Fence) -> bool:
        return self.gate_fence == fence

    def _snapshot(self, fence: Fence, step: Snapshot) -> SnapshotTaken:
        if self.gate is not GateState.CLOSED or step.closing != self.closing:
            raise CutVoid("the gate was not closed all the time")
        self.export, self.export_fence = ExportState.FROZEN, fence
        scope = None if step.scope is None else set(step.scope)
        self._frozen = [record for (e, _), record in sorted(self.sessions.items()) if scope is None or e in scope]
        return SnapshotTaken(len(self._frozen), len(self._frozen), 0.0)

    async def _upload(self, fence: Fence) -> Uploaded:
        if self.export_fence is None or self.export_fence.checkpoint_id != fence.checkpoint_id:
            raise InvalidPhase(f"no export of {fence.checkpoint_id} is held")
        manifest = ParticipantManifest(fence.checkpoint_id, self.id, self.boot_id, tuple(self._frozen))
        (digest,) = await self.store.write([codec.encode_participant_manifest(manifest)])
        self.export = ExportState.UPLOADED
        return Uploaded(digest, 1, digest.size, len(self._frozen))

    def _end(self, fence: Fence, *, export: bool) -> bool:
        already = self.gate is GateState.OPEN
        self.ended = max(self.ended, fence.sequence)
        self.gate, self.gate_fence = GateState.OPEN, None
        self.unblocked.set()
        if export:
            self.export, self.export_fence = ExportState.NONE, None
        return already

    def _install(self, fence: Fence, step: Install) -> Installed:
        known = {episode for episode, _ in self.sessions} | self.stored
        loaded = [t for t in step.targets if t.source in known and t.source not in self.unloadable]
        if any(self._is_retired(t.target) for t in loaded):
            raise InvalidPhase("a target is retired already")
        self.pending = {target.target for target in loaded}
        self.restore_fence = fence
        lost = tuple(
            LostEpisode(t.source, self.unloadable[t.source]) for t in step.targets if t.source in self.unloadable
        )
        return Installed(len(self.pending), lost)

    def _keep(self, fence: Fence, step: Confirm | Activate) -> Confirmed | Activated:
        if self.restore_fence is None and not self.live:
            raise RestoreAborted("nothing of it is held")
        if isinstance(step, Confirm):
            return Confirmed(len(self.pending))
        self.live |= self.pending
        self.pending, self.restore_fence = set(), None
        return Activated(len(self.live))

    def _retire(self, episodes: tuple[Episode, ...]) -> None:
        for episode in episodes:
            self.retired[episode.rollout_id] = max(self.retired[episode.rollout_id], episode.attempt)
        self.pending = {episode for episode in self.pending if not self._is_retired(episode)}
        self.live = {episode for episode in self.live if not self._is_retired(episode)}
        self.sessions = {key: record for key, record in self.sessions.items() if not self._is_retired(key[0])}
        if not self.pending:
            self.restore_fence = None

    def _is_retired(self, episode: Episode) -> bool:
        return episode.attempt <= self.retired.get(episode.rollout_id, -1)
