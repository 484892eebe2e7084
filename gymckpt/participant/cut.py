"""A participant's share of one checkpoint: closing the gate, freezing, and what follows. Gate and export never touch each other."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gymckpt.core.ids import Digest, Episode, Fence
from gymckpt.core.kinds import Capture, GateState
from gymckpt.core.manifest import EpisodeRecord, Receipt, Touch
from gymckpt.core.sessions import Exported, Session
from gymckpt.core.transitions import (
    Abort,
    AbortDone,
    Decided,
    DecisionSeen,
    Prepare,
    Prepared,
    Renew,
    Renewed,
    Resume,
    Resumed,
    Snapshot,
    SnapshotTaken,
    Upload,
    Uploaded,
)
from gymckpt.errors import CheckpointAborted, CutVoid, InvalidPhase, ParticipantLost, RestartInScope
from gymckpt.participant.upload import store_cut

if TYPE_CHECKING:
    from gymckpt.participant.base import Participant


@dataclass(frozen=True, slots=True)
class FrozenSession:
    """One session as it was at the cut: frozen state, or the digest of what was published before when nothing changed since.

    `session` is the live one, told by identity: one that took its key later is another.
    """

    session: Session
    episode: Episode
    key: str
    revision: int
    unreceipted_revision: int
    boundary: str
    touches: tuple[Touch, ...]
    receipts: tuple[Receipt, ...]
    stateful: bool
    frozen: Any
    reused: Digest | None


@dataclass(slots=True)
class Cut:
    """The one export of a checkpoint. `records` is filled by the upload."""

    checkpoint_id: str
    base_checkpoint_id: str
    sessions: list[FrozenSession]
    failed: dict[Episode, str]
    taken: SnapshotTaken
    upload: asyncio.Task[Uploaded] | None = None
    records: list[EpisodeRecord] = field(default_factory=list)


class Checkpointing:
    """The transitions of a checkpoint, one method each."""

    def __init__(self, participant: Participant) -> None:
        self._p = participant
        self._prepared: Prepared | None = None  # the answer of the present closing, once it has settled
        self._waited_for = 0  # blockers at its beginning

    def moves(self) -> dict[type, Callable[..., Any]]:
        return {
            Prepare: self.prepare,
            Snapshot: self.snapshot,
            Resume: self.resume,
            Upload: self.upload,
            Abort: self.abort,
            Decided: self.decided,
            Renew: self.renew,
        }

    async def prepare(self, fence: Fence, prepare: Prepare) -> Prepared:
        p, began = self._p, self._p.clock()
        p.export.check_free(fence, began)
        p.restoring.check_free(fence)
        was_open = p.gate.state is GateState.OPEN
        p.gate.close(fence, prepare.gate_lease, began)
        if was_open:
            self._closing(fence)
            self._waited_for = p.blocking()
        while fence.same_round(p.gate.fence):
            if self._prepared is None and p.blocking() == 0:
                p.gate.settle()
                self._prepared = Prepared(p.report(), p.gate.closing, self._waited_for)
            if self._prepared is not None:
                return self._prepared
            left = began + prepare.timeout - p.clock()
            if left <= 0:
                break
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await p.readiness_changed()
        return Prepared(p.report(), 0, self._waited_for)

    def _closing(self, fence: Fence) -> None:
        """Tells the kind; a kind that fails to close leaves the gate open."""
        try:
            self._p.gate_closing()
        except BaseException:
            self.open_gate(fence)
            raise

    async def snapshot(self, fence: Fence, snapshot: Snapshot) -> SnapshotTaken:
        p = self._p
        if fence.same_round(p.export.fence) and p.export.content is not None:
            return p.export.content.taken
        p.export.check_free(fence, p.clock())
        p.gate.confirm(fence, snapshot.closing)
        if p.blocking():
            first = ", ".join(f"{b.type} {b.episode or ''} {b.subject}" for b in p.report().blockers[:3])
            raise CutVoid(f"{p.id} is no longer ready, {p.blocking()} blockers: {first}")
        cut = take_cut(p, fence, snapshot)
        p.export.take(fence, cut, snapshot.export_lease, p.clock())
        p.gate.lease.renew(p.clock())
        return cut.taken

    async def resume(self, fence: Fence, resume: Resume) -> Resumed:
        return Resumed(already=not self.open_gate(fence))

    async def upload(self, fence: Fence, upload: Upload) -> Uploaded:
        p = self._p
        cut = p.export.of(fence)
        p.export.lease.renew(p.clock())
        if cut.upload is None or (cut.upload.done() and (cut.upload.cancelled() or cut.upload.exception() is not None)):
            cut.upload = p.spawn(store_cut(p, cut), f"upload of {cut.checkpoint_id}")
        await asyncio.wait({cut.upload})
        if cut.upload.cancelled() and p.leaving:
            raise ParticipantLost(
                f"{p.id} stops, and its export of {cut.checkpoint_id!r} was not stored in time; start it again, then take a new checkpoint",
                details={"participant": str(p.id), "boot_id": p.boot_id},
            )
        if cut.upload.cancelled():
            raise CheckpointAborted(f"the export of {cut.checkpoint_id!r} at {p.id} was dropped while it was uploaded")
        uploaded = cut.upload.result()
        p.export.store(fence)
        return uploaded

    async def abort(self, fence: Fence, abort: Abort) -> AbortDone:
        held = self.drop_export(fence)
        held = self._p.restoring.drop(fence) or held
        held = self.open_gate(fence) or held
        return AbortDone(already=not held)

    async def decided(self, fence: Fence, decided: Decided) -> DecisionSeen:
        p = self._p
        if fence.same_round(p.export.fence) and p.export.content is not None and decided.published:
            remember(p, p.export.content)
        self.drop_export(fence)
        return DecisionSeen()

    async def renew(self, fence: Fence, renew: Renew) -> Renewed:
        p, now = self._p, self._p.clock()
        restoring = p.restoring.renew(fence)
        if not (restoring or fence.same_round(p.gate.fence) or fence.same_round(p.export.fence)):
            raise InvalidPhase(f"{p.id} holds nothing of {fence.checkpoint_id!r}; its lease cannot be renewed")
        if fence.same_round(p.gate.fence):
            p.gate.lease.renew(now, renew.gate_lease)
        if fence.same_round(p.export.fence):
            p.export.lease.renew(now, renew.export_lease)
        return Renewed()

    def open_gate(self, fence: Fence) -> bool:
        """Ends this round's hold on the gate; returns whether it had one. Whoever is held goes on, also when the kind fails."""
        opened = self._p.gate.open(fence)
        if opened:
            self._prepared = None
            try:
                self._p.gate_opened()
            finally:
                self._p.moved()
        return opened

    def drop_export(self, fence: Fence) -> bool:
        """Ends this round's export and its upload; returns whether there was one."""
        export = self._p.export
        if fence.same_round(export.fence) and export.content is not None and export.content.upload is not None:
            export.content.upload.cancel()
        ended = export.end(fence)
        self._p.notify()
        return ended


def take_cut(p: Participant, fence: Fence, snapshot: Snapshot) -> Cut:
    """Freezes the scope, without an await: nothing can run between the first session and the last. Raises RestartInScope."""
    began = p.clock()
    restarts = p.restarts()
    scope = None if snapshot.scope is None else set(snapshot.scope)
    refused = sorted(restarts.keys() & (scope or set()))
    if refused:
        raise RestartInScope(
            f"{refused[0]} cannot be captured by {p.id} ({restarts[refused[0]]}); leave {len(refused)} episodes out of the scope",
            details={"episodes": ",".join(map(str, refused))},
        )
    frozen: list[FrozenSession] = []
    failed: dict[Episode, str] = {}
    for session in p.sessions:
        if (
            session.episode in restarts
            or (scope is not None and session.episode not in scope)
            or p.floors.refuses(session.episode)
            or not p.exportable(session)
        ):
            continue
        try:
            frozen.append(_freeze(p, session, snapshot.base_checkpoint_id))
        except Exception as error:  # noqa: BLE001 - an author's freeze may raise anything; its episode alone is named as lost
            failed[session.episode] = f"{p.id} could not freeze session {session.key!r}: {error!r}"[:256]
    changed = sum(entry.reused is None for entry in frozen)
    taken = SnapshotTaken(len(frozen), changed, p.clock() - began)
    return Cut(fence.checkpoint_id, snapshot.base_checkpoint_id, frozen, failed, taken)


def _freeze(p: Participant, session: Session, base: str) -> FrozenSession:
    boundary, touches = p.describe(session)
    exported = session.exported
    unchanged = (
        exported is not None
        and base != ""
        and exported.checkpoint_id == base
        and exported.revision == session.revision
        and p.reusable(session)
    )
    state = p.state if p.capture is Capture.EXPORTED else None
    return FrozenSession(
        session,
        session.episode,
        session.key,
        session.revision,
        session.unreceipted_revision,
        boundary,
        touches,
        tuple(session.receipts.values()),
        state is not None,
        state.freeze(session.key) if state is not None and not unchanged else None,
        exported.state if exported is not None and unchanged else None,
    )


def remember(p: Participant, cut: Cut) -> None:
    """The cut is published: sessions that have not changed since need not be sent again with a checkpoint that builds on it."""
    stored = {record.session: record for record in cut.records}
    for entry in cut.sessions:
        record = stored.get(entry.key)
        if record is not None and record.state is not None:
            entry.session.exported = Exported(cut.checkpoint_id, record.revision, record.state)
