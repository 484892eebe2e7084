"""A participant's share of one restore: read and load all, hold it as pending, then make it live or drop it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gymckpt.core.ids import Episode, Fence
from gymckpt.core.kinds import ExportState
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
from gymckpt.errors import Conflict, InvalidPhase, NameNotFound, RestoreAborted, StaleCheckpoint, StoreUnavailable
from gymckpt.participant.loading import Loaded, load_targets
from gymckpt.rpc.codec import decode_decision, encode_decision

if TYPE_CHECKING:
    from gymckpt.participant.base import Participant

log = logging.getLogger("gymckpt.participant")


@dataclass(slots=True)
class Shelf:
    """What one restore holds here. `live` after its activation; `gone` after its discard."""

    fence: Fence
    lease: float
    lease_end: float
    keys: list[str] = field(default_factory=list)
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
    def pending_fence(self) -> Fence | None:
        """The restore whose state is held as pending."""
        return self._shelf.fence if self._shelf is not None and not self._shelf.live and not self._shelf.gone else None

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
        if shelf is not None and fence.same_round(shelf.fence) and not shelf.gone and shelf.install is not None:
            return await self._wait(shelf)
        if fence.sequence <= self._ended:
            raise StaleCheckpoint(f"restore {fence.checkpoint_id!r} was dropped at {p.id}; use a new id")
        self.check_free(fence)
        if p.gate.fence is not None or p.export.state is not ExportState.NONE:
            holder = p.gate.fence or p.export.fence
            raise Conflict(
                f"checkpoint {holder.checkpoint_id if holder else ''!r} is under way at {p.id}; restore after it has ended",
                retry_after=1.0,
            )
        self._check_unused(install)
        for target in install.targets:
            if target.attempt > 0:
                p.floors.refuse(Episode(target.source.rollout_id, target.attempt - 1))
        shelf = self._shelf = Shelf(fence, install.lease, p.clock() + install.lease)
        shelf.install = asyncio.create_task(self._install(shelf, install), name=f"install {fence.checkpoint_id}")
        return await self._wait(shelf)

    def _check_unused(self, install: Install) -> None:
        for target in install.targets:
            live = self._p.sessions.of_rollout(target.source.rollout_id)
            if live:
                raise InvalidPhase(
                    f"{self._p.id} holds live state of {live[0].episode}; retire it before restoring {target.target}"
                )

    async def _wait(self, shelf: Shelf) -> Installed:
        """A cancelled or timed-out caller stops waiting only."""
        assert shelf.install is not None
        await asyncio.wait({shelf.install})
        if shelf.install.cancelled():
            raise RestoreAborted(
                f"restore {shelf.fence.checkpoint_id!r} was dropped at {self._p.id} while it was installed"
            )
        return shelf.install.result()

    async def _install(self, shelf: Shelf, install: Install) -> Installed:
        p = self._p
        try:
            loaded, unloadable = await load_targets(p, p.require_store(), install)
        except BaseException:
            self._end(shelf)
            raise
        for entry in loaded:
            self._shelve(shelf, entry)
        shelf.lease_end = p.clock() + shelf.lease
        return Installed(len(loaded), unloadable)

    def _shelve(self, shelf: Shelf, entry: Loaded) -> None:
        """Holds one loaded session as pending; may not fail."""
        p, record = self._p, entry.record
        receipts = {receipt.request_id: receipt for receipt in entry.receipts}
        session = Session(
            entry.target, record.session, record.revision, record.unreceipted_revision, receipts, pending=True
        )
        p.sessions.add(session)
        shelf.keys.append(session.key)
        p.lost = {episode: why for episode, why in p.lost.items() if episode.rollout_id != entry.target.rollout_id}
        if p.state is not None and entry.value is not None:
            p.state.install(session.key, entry.value)
        p.restored(session, record.boundary, record.touches)

    async def confirm(self, fence: Fence, confirm: Confirm) -> Confirmed:
        return Confirmed(len(self._held(fence).keys))

    async def activate(self, fence: Fence, activate: Activate) -> Activated:
        shelf = self._held(fence)
        self._activate(shelf)
        return Activated(len(shelf.keys))

    async def discard(self, fence: Fence, discard: Discard) -> Discarded:
        shelf = self._shelf
        if shelf is None or not fence.same_round(shelf.fence):
            self._ended = max(self._ended, fence.sequence)
            return Discarded()
        if shelf.live:
            raise InvalidPhase(f"restore {fence.checkpoint_id!r} is live at {self._p.id}; retire its attempts instead")
        if not discard.episodes:
            self.drop(fence)
            return Discarded()
        dropped = set(discard.episodes)
        for session in [
            session for key in shelf.keys if (session := self._p.sessions.get(key)) and session.episode in dropped
        ]:
            self._free(session.key)
            shelf.keys.remove(session.key)
        return Discarded()

    def drop(self, fence: Fence) -> bool:
        """Drops this restore's pending state; returns whether there was any. Live state stays."""
        self._ended = max(self._ended, fence.sequence)
        shelf = self._shelf
        if shelf is None or not fence.same_round(shelf.fence) or shelf.live or shelf.gone:
            return False
        self._end(shelf)
        return True

    def _held(self, fence: Fence) -> Shelf:
        shelf = self._shelf
        if shelf is None or shelf.gone or not fence.same_round(shelf.fence):
            raise RestoreAborted(
                f"{self._p.id} does not hold the state of restore {fence.checkpoint_id!r}; retire its targets everywhere"
            )
        if shelf.install is not None and not shelf.install.done():
            raise InvalidPhase(
                f"restore {fence.checkpoint_id!r} is still being installed at {self._p.id}; wait for its answer"
            )
        shelf.lease_end = self._p.clock() + shelf.lease
        return shelf

    def _activate(self, shelf: Shelf) -> None:
        if shelf.live:
            return
        shelf.live = True
        for key in shelf.keys:
            session = self._p.sessions.get(key)
            if session is not None:
                session.pending, session.restored = False, True
                self._p.activated(session)
        self._p.moved()

    def _end(self, shelf: Shelf) -> None:
        if shelf.install is not None and not shelf.install.done() and shelf.install is not asyncio.current_task():
            shelf.install.cancel()
        for key in shelf.keys:
            self._free(key)
        shelf.keys.clear()
        shelf.gone = True
        self._ended = max(self._ended, shelf.fence.sequence)
        self._p.moved()

    def _free(self, key: str) -> None:
        self._p.sessions.remove(key)
        if self._p.state is not None:
            self._p.state.discard(key)

    # When nothing is heard of the restore, the decision in the store tells what it became.

    def tick(self, now: float) -> None:
        """Begins the look-up when the lease is over."""
        shelf = self._shelf
        if (
            shelf is None
            or self.pending_fence is None
            or now < shelf.lease_end
            or (self._lookup is not None and not self._lookup.done())
        ):
            return
        shelf.lease_end = now + shelf.lease
        self._lookup = asyncio.create_task(self._obey_decision(shelf), name=f"decision of {shelf.fence.checkpoint_id}")

    async def _obey_decision(self, shelf: Shelf) -> None:
        try:
            decision = await self._decision(shelf.fence)
        except StoreUnavailable as error:
            log.warning("%s keeps restore %s pending: %s", self._p.id, shelf.fence.checkpoint_id, error.message)
            return
        if decision.published and self.pending_fence is not None and shelf.install is not None and shelf.install.done():
            self._activate(shelf)
        elif not decision.published:
            self.drop(shelf.fence)

    async def _decision(self, fence: Fence) -> Decision:
        """What was decided; where nothing was, `aborted` is, so that nobody can decide otherwise over state that is dropped here."""
        store, name = self._p.require_store(), f"decisions/{fence.checkpoint_id}"
        try:
            return decode_decision(await store.get_name(name))
        except NameNotFound:
            aborted = Decision(None, f"{self._p.id} heard nothing of the restore until its lease ended")
            return decode_decision(await store.put_name(name, encode_decision(aborted)))
