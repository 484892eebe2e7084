"""Finds damage at rest before a restore does, and says who is hit."""

from __future__ import annotations

import abc
from collections.abc import AsyncIterator

from gymckpt.core.ids import Digest
from gymckpt.core.names import DECISIONS, DELETED, publishes
from gymckpt.rpc import codec
from gymckpt.store.closure import closure_of
from gymckpt.store.interface import ArtifactStore, Damage, ScrubProgress

MAX_ROLLOUTS = 1000
REPORT_BYTES = 256 * 2**20  # progress is told at least so often


class Scrubbed(ArtifactStore):
    """A store whose every blob can be listed and checked."""

    @abc.abstractmethod
    def list_blobs(self) -> AsyncIterator[list[Digest]]:
        """Every blob that is here, some at a time."""

    @abc.abstractmethod
    async def check_blob(self, digest: Digest) -> str:
        """Reads the blob: how it is damaged, "" when it is not. A damaged one is quarantined."""


async def scrub(store: Scrubbed) -> AsyncIterator[ScrubProgress]:
    """Checks every blob, then follows every published checkpoint to those that are damaged or missing."""
    damaged: dict[Digest, str] = {}
    blobs = total = told = 0
    async for some in store.list_blobs():
        for digest in some:
            why = await store.check_blob(digest)
            if why:
                damaged[digest] = why
            blobs, total = blobs + 1, total + digest.size
            if total - told >= REPORT_BYTES:
                told = total
                yield ScrubProgress(blobs, total)
        yield ScrubProgress(blobs, total)
    yield ScrubProgress(blobs, total, await _named(store, damaged), done=True)


async def _named(store: ArtifactStore, damaged: dict[Digest, str]) -> tuple[Damage, ...]:
    """Damage and lack with the checkpoints and rollouts that they hit, by digest."""
    why = {digest: f"damaged: {how}" for digest, how in damaged.items()}
    checkpoints: dict[Digest, set[str]] = {}
    rollouts: dict[Digest, set[str]] = {}
    for checkpoint_id, manifest in await _published(store):
        closure = await closure_of(store, manifest)
        for digest, how in closure.lacking.items():
            why.setdefault(digest, how)
            checkpoints.setdefault(digest, set()).add(checkpoint_id)
            rollouts.setdefault(digest, set()).update(closure.needs[digest])
    return tuple(
        Damage(
            digest,
            why[digest][:256],
            tuple(sorted(checkpoints.get(digest, ()))),
            tuple(sorted(rollouts.get(digest, ()))[:MAX_ROLLOUTS]),
        )
        for digest in sorted(why)
    )


async def _published(store: ArtifactStore) -> list[tuple[str, Digest]]:
    """Checkpoints that exist, with their manifests. Raises DamagedBlob when a decision cannot be read."""
    deleted = {entry.name.partition("/")[2] for entry in await store.list_names(DELETED)}
    found = []
    for entry in await store.list_names(DECISIONS):
        checkpoint_id = entry.name.partition("/")[2]
        if not publishes(entry.name) or checkpoint_id in deleted:
            continue
        decision = codec.decode_decision(entry.value)
        if decision.manifest is not None:
            found.append((checkpoint_id, decision.manifest))
    return found
