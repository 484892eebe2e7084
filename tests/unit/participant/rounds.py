"""Drives one participant through whole rounds, by the function that both of its doors use, over a store in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count
from typing import Any

from gymckpt.core.ids import Digest, Episode, Fence
from gymckpt.core.manifest import CheckpointManifest, Decision, EpisodeRecord, ParticipantEntry, ParticipantManifest
from gymckpt.core.report import Report
from gymckpt.core.transitions import (
    Activate,
    Confirm,
    Decided,
    Discard,
    Install,
    Installed,
    InstallTarget,
    Prepare,
    Prepared,
    Request,
    Resume,
    Retire,
    Snapshot,
    SnapshotTaken,
    Transition,
    Upload,
    Uploaded,
)
from gymckpt.participant.base import Participant
from gymckpt.rpc.codec import (
    decode_participant_manifest,
    decode_session,
    encode_checkpoint_manifest,
    encode_decision,
)
from gymckpt.store.memory import MemoryStore

PATIENCE = 5.0  # seconds that anything here may take


async def until(holds: Callable[[], object]) -> None:
    """Lets others run until the condition holds."""
    async with asyncio.timeout(PATIENCE):
        while not holds():
            await settled()


async def settled() -> None:
    """Lets everybody run as far as they get without time passing."""
    for _ in range(20):
        await asyncio.sleep(0)


@dataclass(frozen=True)
class Checkpoint:
    """What a whole round left in the store."""

    digest: Digest
    manifest: ParticipantManifest
    taken: SnapshotTaken
    uploaded: Uploaded

    @property
    def records(self) -> dict[str, EpisodeRecord]:
        """By the text of the episode."""
        return {str(record.episode): record for record in self.manifest.records}

    @property
    def states(self) -> dict[tuple[str, str], Digest | None]:
        """Session blobs by rollout and session."""
        return {(record.episode.rollout_id, record.session): record.state for record in self.manifest.records}


class Rounds:
    """One store, one epoch; every round has its own sequence."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self._sequence = count(1)

    def serve(self, participant: Participant) -> None:
        """Gives it the store, as serving does."""
        participant.store = self.store

    def fence(self, name: str = "checkpoint") -> Fence:
        number = next(self._sequence)
        return Fence(1, number, f"{name}-{number}")

    async def ask(self, participant: Participant, fence: Fence, transition: Transition) -> Any:
        answer = await participant.apply(Request(fence, 1, participant.boot_id, transition))
        return answer.result

    async def prepare(self, participant: Participant, *, timeout: float = PATIENCE) -> tuple[Fence, Prepared]:
        """Closes the gate; `timeout` in seconds."""
        fence = self.fence()
        return fence, await self.ask(participant, fence, Prepare(timeout, 600.0))

    def closing(self, participant: Participant) -> tuple[Fence, asyncio.Task[Prepared]]:
        """A prepare that waits beside the test."""
        fence = self.fence()
        return fence, asyncio.create_task(self.ask(participant, fence, Prepare(PATIENCE, 600.0)))

    async def resume(self, participant: Participant, fence: Fence) -> None:
        await self.ask(participant, fence, Resume())

    async def snapshot(
        self,
        participant: Participant,
        fence: Fence,
        prepared: Prepared,
        *,
        base: str = "",
        scope: Iterable[Episode] | None = None,
    ) -> SnapshotTaken:
        assert prepared.report.ready, prepared.report
        listed = None if scope is None else tuple(scope)
        taken: SnapshotTaken = await self.ask(participant, fence, Snapshot(prepared.closing, 600.0, base, listed))
        return taken

    async def publish(self, participant: Participant, fence: Fence, taken: SnapshotTaken) -> Checkpoint:
        """Uploads the export and publishes a checkpoint of this participant alone."""
        uploaded: Uploaded = await self.ask(participant, fence, Upload())
        entry = ParticipantEntry(participant.info, uploaded.manifest)
        [data] = await self.store.read([uploaded.manifest])
        manifest = decode_participant_manifest(data)
        episodes = tuple(dict.fromkeys(record.episode for record in manifest.records))
        checkpoint = CheckpointManifest(
            fence.checkpoint_id, 1, fence.sequence, 0, participants=(entry,), episodes=episodes
        )
        [digest] = await self.store.write([encode_checkpoint_manifest(checkpoint)])
        await self.store.put_name(f"decisions/{fence.checkpoint_id}", encode_decision(Decision(digest)))
        await self.ask(participant, fence, Decided(published=True))
        return Checkpoint(digest, manifest, taken, uploaded)

    async def checkpoint(
        self, participant: Participant, *, base: str = "", scope: Iterable[Episode] | None = None, resume: bool = True
    ) -> Checkpoint:
        """A whole round; the participant must be ready by itself."""
        fence, prepared = await self.prepare(participant)
        taken = await self.snapshot(participant, fence, prepared, base=base, scope=scope)
        published = await self.publish(participant, fence, taken)
        if resume:
            await self.resume(participant, fence)
        return published

    async def install(
        self, participant: Participant, digest: Digest, *targets: tuple[str, int]
    ) -> tuple[Fence, Installed]:
        """Holds episodes as pending: `targets` are the episode's text at the cut and its next attempt."""
        self.serve(participant)
        fence = self.fence("restore-of")
        listed = tuple(InstallTarget(Episode.parse(source), attempt) for source, attempt in targets)
        return fence, await self.ask(participant, fence, Install(digest, listed, 600.0))

    async def restore(self, participant: Participant, digest: Digest, *targets: tuple[str, int]) -> Installed:
        """Installs, confirms and activates."""
        fence, installed = await self.install(participant, digest, *targets)
        await self.ask(participant, fence, Confirm())
        await self.ask(participant, fence, Activate())
        return installed

    async def discard(self, participant: Participant, fence: Fence) -> None:
        await self.ask(participant, fence, Discard())

    async def retire(self, participant: Participant, *episodes: str, timeout: float = PATIENCE) -> None:
        listed = tuple(Episode.parse(text) for text in episodes)
        await self.ask(participant, self.fence("retire"), Retire(listed, timeout))

    async def parts(self, record: EpisodeRecord) -> dict[str, bytes]:
        """Named parts of a record's session."""
        assert record.state is not None
        [data] = await self.store.read([record.state])
        parts = decode_session(data).parts
        return dict(
            zip((part.name for part in parts), await self.store.read([part.digest for part in parts]), strict=True)
        )


def blocked(report: Report) -> list[tuple[str, str]]:
    """Type and episode of what blocks."""
    return [(blocker.type, str(blocker.episode)) for blocker in report.blockers]
