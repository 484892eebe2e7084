"""The names that decide, as one coordinator with one epoch reads and writes them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gymckpt.core.decisions import Attempts, floor_pages, latest
from gymckpt.core.ids import Digest
from gymckpt.core.manifest import (
    CheckpointManifest,
    Decision,
    Floor,
    Intent,
    MemberAddress,
    ParticipantManifest,
    RestoreIntent,
)
from gymckpt.errors import ArgumentConflict, CheckpointNotFound, NameNotFound, StaleEpoch
from gymckpt.rpc import codec
from gymckpt.store.interface import ArtifactStore

RESTORE = "restore-"
RETIRE = "retire-"


@dataclass(frozen=True, slots=True)
class MemberName:
    """A process that has begun to start; `name` is that of its record."""

    name: str
    reached: MemberAddress

    @property
    def boot_id(self) -> str:
        return self.name.rpartition("/")[2]

    @property
    def worker(self) -> str:
        """`kind/name/worker`, which the processes of one worker share."""
        return self.name.removeprefix("members/").rpartition("/")[0]

    @property
    def participant(self) -> str:
        """`kind/name`."""
        return self.worker.rpartition("/")[0]


class Records:
    """What the names hold, kept in memory too: only the owner of the epoch adds intents. A StaleEpoch ends the tenure for good."""

    def __init__(self, store: ArtifactStore, epoch: int) -> None:
        self.store = store
        self.epoch = epoch
        self.sequence = 0
        self.intents: dict[str, Intent] = {}
        self.restores: dict[str, RestoreIntent] = {}
        self.decisions: dict[str, Decision] = {}
        self.deleted: set[str] = set()
        self.unfinished: dict[str, str] = {}  # restores that may not have ended everywhere, and what they pin
        self.attempts = Attempts()
        self.superseded: StaleEpoch | None = None
        self._read: tuple[Digest, CheckpointManifest] | None = (
            None  # the manifest read last: its pages are asked for one by one
        )

    async def load(self) -> None:
        """Reads all intents, decisions and floors."""
        for round_id, value in await self._below("intents"):
            if round_id.startswith(RESTORE):
                self._learn_restore(round_id, codec.decode_restore_intent(value))
            else:
                self._learn_intent(round_id, codec.decode_intent(value))
        for round_id, value in await self._below("decisions"):
            self.decisions[round_id] = codec.decode_decision(value)
        for page, value in await self._below("floors"):
            operation = page.partition("/")[0]
            self.attempts.learn_floors(codec.decode_floors(value), retired=_is_retire(operation))
            if _is_retire(operation):
                self.sequence = max(self.sequence, int(operation.removeprefix(RETIRE)))
        for name, _ in await self._below("pins"):
            checkpoint_id, _, holder = name.partition("/")
            if holder.startswith(RESTORE):
                self.unfinished[holder] = checkpoint_id
        self.deleted = {name for name, _ in await self._below("deleted")}

    async def members(self) -> list[MemberName]:
        """Every process that has begun to start and is not known to be dead."""
        entries = await self.store.list_names("members")
        return [MemberName(entry.name, codec.decode_member(entry.value)) for entry in entries]

    async def forget_member(self, name: str) -> None:
        """Its process is known to be dead."""
        await self.store.delete_name(name, epoch=self.epoch)

    def next_sequence(self) -> int:
        """The place of a new round in the order of all."""
        self.sequence += 1
        return self.sequence

    def latest(self) -> str:
        """Raises CheckpointNotFound when none is published."""
        return latest(self.intents, self.decisions, self.deleted)

    def published(self, checkpoint_id: str) -> Digest:
        """The manifest of a published checkpoint. Raises CheckpointNotFound."""
        decision = self.decisions.get(checkpoint_id)
        if (
            decision is None
            or decision.manifest is None
            or checkpoint_id in self.deleted
            or checkpoint_id.startswith(RESTORE)
        ):
            state = "not known" if decision is None else "deleted" if decision.published else f"aborted: {decision.why}"
            raise CheckpointNotFound(
                f"checkpoint {checkpoint_id!r} is not published ({state}); list the published ones",
                details={"checkpoint_id": checkpoint_id},
            )
        return decision.manifest

    def check_not_deleted(self, checkpoint_id: str) -> None:
        """Raises ArgumentConflict for a checkpoint that was published and deleted: its id is not taken a second time."""
        if checkpoint_id in self.deleted:
            raise ArgumentConflict(
                f"{checkpoint_id!r} was used for a checkpoint that is deleted; take a new id",
                details={"id": checkpoint_id, "deleted": "1"},
            )

    async def open_checkpoint(self, checkpoint_id: str, intent: Intent) -> Intent:
        """Creates the intent; returns what the name holds, which is another's when it was created before."""
        value = await self._put(f"intents/{checkpoint_id}", codec.encode_intent(intent))
        self._learn_intent(checkpoint_id, codec.decode_intent(value))
        return self.intents[checkpoint_id]

    async def open_restore(self, round_id: str, intent: RestoreIntent) -> RestoreIntent:
        """Like open_checkpoint, of a restore."""
        value = await self._put(f"intents/{round_id}", codec.encode_restore_intent(intent))
        self._learn_restore(round_id, codec.decode_restore_intent(value))
        return self.restores[round_id]

    async def decide(self, round_id: str, decision: Decision) -> Decision:
        """Creates the decision; returns what was decided, which the loser obeys."""
        stamped = replace(decision, unix_millis=int(time.time() * 1000))
        value = await self._put(f"decisions/{round_id}", codec.encode_decision(stamped))
        self.decisions[round_id] = codec.decode_decision(value)
        return self.decisions[round_id]

    async def decision(self, round_id: str) -> Decision | None:
        """What was decided by whoever did; None while nothing was."""
        if round_id not in self.decisions:
            try:
                self.decisions[round_id] = codec.decode_decision(await self.store.get_name(f"decisions/{round_id}"))
            except NameNotFound:
                return None
        return self.decisions[round_id]

    async def raise_floors(self, operation: str, floors: Sequence[Floor], *, first_page: int = 0) -> None:
        """Writes which attempts are refused, for every process born later."""
        self.attempts.learn_floors(floors, retired=_is_retire(operation))
        for page, entries in enumerate(floor_pages(floors), first_page):
            await self._put(f"floors/{operation}/{page:08d}", codec.encode_floors(entries))

    async def pin(self, checkpoint_id: str, holder: str) -> None:
        """Keeps a checkpoint for whoever `holder` names. A restore's own pin stays until the restore has ended everywhere."""
        await self._put(f"pins/{checkpoint_id}/{holder}", b"")
        if holder.startswith(RESTORE):
            self.unfinished[holder] = checkpoint_id

    async def unpin(self, checkpoint_id: str, holder: str) -> None:
        try:
            await self.store.delete_name(f"pins/{checkpoint_id}/{holder}", epoch=self.epoch)
        except StaleEpoch as error:
            self.superseded = error
            raise
        self.unfinished.pop(holder, None)

    async def holders(self, checkpoint_id: str) -> list[str]:
        """Who pins the checkpoint, in order."""
        return sorted(holder for holder, _ in await self._below(f"pins/{checkpoint_id}"))

    async def delete_checkpoint(self, checkpoint_id: str) -> None:
        """Creates the name that takes a published checkpoint away; its id stays used."""
        await self._put(f"deleted/{checkpoint_id}", b"")
        self.deleted.add(checkpoint_id)

    async def write_manifest(self, manifest: CheckpointManifest) -> Digest:
        """Makes a checkpoint manifest durable; it counts for nothing until it is decided."""
        return (await self.store.write([codec.encode_checkpoint_manifest(manifest)]))[0]

    async def checkpoint_manifest(self, manifest: Digest) -> CheckpointManifest:
        """Raises BlobNotFound, DamagedBlob."""
        if self._read is None or self._read[0] != manifest:
            self._read = (manifest, codec.decode_checkpoint_manifest((await self.store.read([manifest]))[0]))
        return self._read[1]

    async def participant_manifests(self, digests: Sequence[Digest]) -> list[ParticipantManifest]:
        """Raises BlobNotFound, DamagedBlob."""
        blobs = await self.store.read(digests)
        return await asyncio.to_thread(lambda: [codec.decode_participant_manifest(data) for data in blobs])

    def _learn_intent(self, checkpoint_id: str, intent: Intent) -> None:
        self.intents[checkpoint_id] = intent
        self.sequence = max(self.sequence, intent.sequence)

    def _learn_restore(self, round_id: str, intent: RestoreIntent) -> None:
        self.restores[round_id] = intent
        self.attempts.learn_targets(intent.targets)
        self.sequence = max(self.sequence, intent.sequence)

    async def _put(self, name: str, value: bytes) -> bytes:
        if self.superseded is not None:
            raise self.superseded
        try:
            return await self.store.put_name(name, value, epoch=self.epoch)
        except StaleEpoch as error:
            self.superseded = error
            raise

    async def _below(self, prefix: str) -> list[tuple[str, bytes]]:
        entries = await self.store.list_names(prefix)
        return [(entry.name.removeprefix(f"{prefix}/"), entry.value) for entry in entries]


def _is_retire(operation: str) -> bool:
    """Whether floors of this operation are those of a retire; otherwise a restore has raised them."""
    return operation.startswith(RETIRE) and operation.removeprefix(RETIRE).isdigit()
