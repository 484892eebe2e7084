"""A participant's share of one restore: read and load all, hold it as pending, then make it live or drop it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gymckpt.core.ids import Episode, Fence
from gymckpt.core.manifest import Decision
from gymckpt.core.sessions import Session
from gymckpt.core.transitions import (
    Activate,
    Activated,
    Confirm,
    Confirmed,
    Discard,
    Discarded,
    Install,
    Installed,
)
from gymckpt.errors import (
    ArgumentConflict,
    Conflict,
    InvalidPhase,
    NameNotFound,
    RestoreAborted,
    StaleCheckpoint,
    StoreFull,
    StoreUnavailable,
    TransportFailed,
)
from gymckpt.participant.loading import Loaded, load_targets
from gymckpt.rpc.codec import decode_decision, encode_decision

if TYPE_CHECKING:
    from gymckpt.participant.base import Participant

log = logging.getLogger("gymckpt.participant")


@dataclass(slots=True)
class Shelf:
    """What one restore holds here. `live` after its activation; `gone` after its discard."""

    fence: Fence
    request: Install
    lease_end: float
    sessions: list[Session] = field(default_factory=list)
    live: bool = False
    gone: bool = False
    install: asyncio.Task[Installed] | None = None


class Restoring:
    """The transitions of a restore. Pending state is inert: whatever happens to the coordinator, it becomes live only by the decision in the store."""

    def __init__(self, participant: Participant) -> None:
        self._p = participant
        self._shelf: Shelf | None = None
        self._ended = 0  # highest sequence of a restore that was dropped here
        self._lookup: asyncio.Task[None] | None = None

    def moves(self) -> dict[type, Callable[..., Any]]:
        return {Install: self.install, Confirm: self.confirm, Activate: self.activate, Discard: self.discard}

    @property
    def _pending(self) -> Shelf | None:
        shelf = self._shelf
        return shelf if shelf is not None and not shelf.live and not shelf.gone else None

    @property
    def pending_fence(self) -> Fence | None:
        """The restore whose state is held as pending."""
        return self._pending.fence if self._pending is not None else None

    def check_free(self, fence: Fence) -> None:
        """Raises Conflict while state of another round is pending."""
        pending = self.pending_fence
        if pending is not None and not fence.same_round(pending):
            raise Conflict(
                f"restore {pending.checkpoint_id!r} is under way at {self._p.id}; {fence.checkpoint_id!r} must wait until it is decided",
                details={"holder": pending.checkpoint_id, "checkpoint_id": fence.checkpoint_id},
                retry_after=1.0,
            )

    async def install(self, fence: Fence, install: Install) -> Installed:
        p = self._p
        shelf = self._shelf
        if shelf is None or shelf.gone or not fence.same_round(shelf.fence):
            self._check_can_begin(fence)
            self._check_unused(install)
            for target in install.targets:
                p.floors.refuse(Episode(target.source.rollout_id, target.attempt - 1))
            p.drop_lost()
            p.moved()
            shelf = self._shelf = Shelf(fence, install, p.clock() + install.lease)
            shelf.install = p.spawn(self._install(shelf), f"install of {fence.checkpoint_id}")
        elif (install.manifest, install.targets) != (shelf.request.manifest, shelf.request.targets):
            raise ArgumentConflict(
                f"restore {fence.checkpoint_id!r} installs {len(shelf.request.targets)} targets of {shelf.request.manifest} at {p.id} already, "
                f"not {len(install.targets)} of {install.manifest}; use a new id"
            )
        assert shelf.install is not None
        await asyncio.wait({shelf.install})  # a caller that goes away stops waiting only
        if shelf.install.cancelled():
            raise RestoreAborted(f"restore {fence.checkpoint_id!r} was dropped at {p.id} while it was installed")
        return shelf.install.result()

    def _check_can_begin(self, fence: Fence) -> None:
        p = self._p
        if fence.sequence <= self._ended:
            raise StaleCheckpoint(f"restore {fence.checkpoint_id!r} was dropped at {p.id}; use a new id")
        self.check_free(fence)
        holder = p.gate.fence or p.export.fence
        if holder is not None:
            raise Conflict(
                f"checkpoint {holder.checkpoint_id!r} is under way at {p.id}; restore after it has ended",
                details={"holder": holder.checkpoint_id, "checkpoint_id": fence.checkpoint_id},
                retry_after=1.0,
            )

    def _check_unused(self, install: Install) -> None:
        p = self._p
        for target in install.targets:
            rollout_id = target.source.rollout_id
            used = p.sessions.of_rollout(rollout_id) or p.in_flight.of_rollout(rollout_id)
            if used:
                raise InvalidPhase(
                    f"{p.id} holds live state or work of {used[0].episode}; retire it before restoring {target.target}"
                )

    async def _install(self, shelf: Shelf) -> Installed:
        """All or nothing: between the last check and the last session nothing else can run."""
        p = self._p
        try:
            installed = await self._fill(shelf)
        except BaseException:
            self._end(shelf)
            raise
        shelf.lease_end = p.clock() + shelf.request.lease
        return installed

    async def _fill(self, shelf: Shelf) -> Installed:
        """Puts on the shelf what the checkpoint holds of the targets."""
        p = self._p
        loaded, unloadable = await load_targets(p, p.require_store(), shelf.request)
        self._check_unused(shelf.request)
        for entry in loaded:
            self._shelve(shelf, entry)
        return Installed(len(loaded), unloadable)

    def _shelve(self, shelf: Shelf, entry: Loaded) -> None:
        """Holds one loaded session as pending."""
        p, record = self._p, entry.record
        receipts = {receipt.request_id: receipt for receipt in entry.receipts}
        session = Session(
            entry.target, record.session, record.revision, record.unreceipted_revision, receipts, pending=True
        )
        p.sessions.add(session)
        shelf.sessions.append(session)
        if p.state is not None and entry.stateful:
            p.state.install(session.key, entry.value)
        p.restored(session, record.boundary, record.touches)

    async def confirm(self, fence: Fence, confirm: Confirm) -> Confirmed:
        return Confirmed(len(self._held(fence).sessions))

    async def activate(self, fence: Fence, activate: Activate) -> Activated:
        shelf = self._held(fence)
        self._activate(shelf)
        return Activated(len(shelf.sessions))

    async def discard(self, fence: Fence, discard: Discard) -> Discarded:
        shelf = self._shelf
        if shelf is None or not fence.same_round(shelf.fence):
            self._ended = max(self._ended, fence.sequence)
            return Discarded()
        if shelf.live:
            raise InvalidPhase(f"restore {fence.checkpoint_id!r} is live at {self._p.id}; retire its attempts instead")
        if not discard.episodes:
            self.drop(fence)
        elif not shelf.gone:
            dropped = set(discard.episodes)
            self._held(fence)
            self._free([session for session in shelf.sessions if session.episode in dropped])
            shelf.sessions = [session for session in shelf.sessions if session.episode not in dropped]
        return Discarded()

    def drop(self, fence: Fence) -> bool:
        """Drops this restore's pending state for good; returns whether there was any. Live state stays."""
        self._ended = max(self._ended, fence.sequence)
        shelf = self._pending
        if shelf is None or not fence.same_round(shelf.fence):
            return False
        self._end(shelf)
        return True

    def drop_refused(self) -> None:
        """Drops a pending restore of which a target was retired: it cannot be whole any more."""
        shelf = self._pending
        if shelf is not None and any(self._p.floors.refuses(target.target) for target in shelf.request.targets):
            self.drop(shelf.fence)

    def renew(self, fence: Fence) -> bool:
        """Something was heard of this restore; returns whether it is pending here."""
        shelf = self._pending
        if shelf is None or not fence.same_round(shelf.fence):
            return False
        shelf.lease_end = self._p.clock() + shelf.request.lease
        return True

    def _held(self, fence: Fence) -> Shelf:
        shelf = self._shelf
        if shelf is None or shelf.gone or not fence.same_round(shelf.fence):
            raise RestoreAborted(
                f"{self._p.id} does not hold the state of restore {fence.checkpoint_id!r}; retire its targets everywhere"
            )
        if shelf.install is None or not shelf.install.done():
            raise InvalidPhase(
                f"restore {fence.checkpoint_id!r} is still being installed at {self._p.id}; wait for its answer"
            )
        self.renew(fence)
        return shelf

    def _activate(self, shelf: Shelf) -> None:
        """All become live in one step; each is told to the kind, and whoever is held goes on, also when the kind fails."""
        if shelf.live:
            return
        shelf.live = True
        with contextlib.ExitStack() as after:
            after.callback(self._p.moved)
            for session in reversed(shelf.sessions):
                session.pending, session.restored = False, True
                after.callback(self._p.activated, session)

    def _end(self, shelf: Shelf) -> None:
        if shelf.gone:
            return
        shelf.gone = True
        if shelf.install is not None and shelf.install is not asyncio.current_task():
            shelf.install.cancel()
        with contextlib.ExitStack() as after:
            after.callback(self._p.moved)
            self._free(shelf.sessions)

    def _free(self, sessions: list[Session]) -> None:
        """Frees each, also when one fails."""
        with contextlib.ExitStack() as every:
            for session in sessions:
                every.callback(self._p.free, session)

    # When nothing is heard of the restore, the decision in the store tells what it became.

    def tick(self, now: float) -> None:
        """Begins the look-up when the lease is over."""
        shelf = self._pending
        if shelf is None or now < shelf.lease_end or (self._lookup is not None and not self._lookup.done()):
            return
        shelf.lease_end = now + shelf.request.lease
        self._lookup = self._p.spawn(self._obey_decision(shelf), f"decision of {shelf.fence.checkpoint_id}")

    async def _obey_decision(self, shelf: Shelf) -> None:
        """Without an answer of the store the state stays as it is, inert, and the next lease end asks again."""
        try:
            decision = await self._decision(shelf.fence)
        except (StoreUnavailable, StoreFull, TransportFailed) as error:
            log.warning("%s keeps restore %s pending: %s", self._p.id, shelf.fence.checkpoint_id, error.message)
            return
        if shelf is not self._pending:
            return
        log.warning(
            "%s heard nothing of restore %s: it was %s",
            self._p.id,
            shelf.fence.checkpoint_id,
            "installed" if decision.published else f"aborted ({decision.why})",
        )
        if not decision.published:
            self.drop(shelf.fence)
        elif shelf.install is not None and shelf.install.done():
            self._activate(shelf)

    async def _decision(self, fence: Fence) -> Decision:
        """What was decided; where nothing was, `aborted` is, so that nobody can decide otherwise over state that is dropped here."""
        store, name = self._p.require_store(), f"decisions/{fence.checkpoint_id}"
        try:
            return decode_decision(await store.get_name(name))
        except NameNotFound:
            aborted = Decision(None, f"{self._p.id} heard nothing of the restore until its lease ended")
            return decode_decision(await store.put_name(name, encode_decision(aborted)))
