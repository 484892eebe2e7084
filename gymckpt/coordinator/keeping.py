"""Which published checkpoints are kept: pins hold one for whoever needs it, deleting takes its name away. Blobs are not touched here."""

from __future__ import annotations

from gymckpt.coordinator.catalog import resolve
from gymckpt.coordinator.records import RESTORE, Records
from gymckpt.core.ids import check_id
from gymckpt.errors import Conflict, InvalidField


async def pin(records: Records, checkpoint_id: str, holder: str, *, release: bool) -> str:
    """Keeps a published checkpoint for `holder`, or no longer; returns its id. Raises InvalidField, CheckpointNotFound."""
    if check_id(holder, "holder").startswith(RESTORE):
        raise InvalidField(f"holder must not begin with {RESTORE!r}: restores pin for themselves", field="holder")
    checkpoint_id = resolve(records, checkpoint_id)
    records.published(checkpoint_id)
    if release:
        await records.unpin(checkpoint_id, holder)
        return checkpoint_id
    await records.pin(checkpoint_id, holder)
    if checkpoint_id in records.deleted:  # a delete began meanwhile, and may not have seen the pin
        await records.unpin(checkpoint_id, holder)
        records.published(checkpoint_id)
    return checkpoint_id


async def delete(records: Records, checkpoint_id: str) -> None:
    """Takes the name of a published checkpoint away for good; repeated, it succeeds. Raises CheckpointNotFound; Conflict naming who pins it.

    From before the pins are read nobody finds the checkpoint: a pin that comes later is told that it is gone, one that came first is seen here.
    """
    if checkpoint_id in records.deleted:
        return
    records.published(checkpoint_id)
    records.deleted.add(checkpoint_id)
    try:
        holders = await records.holders(checkpoint_id)
        if holders:
            raise Conflict(
                f"checkpoint {checkpoint_id!r} is pinned by {', '.join(holders)}; "
                "a restore lets go when it has ended everywhere, every other holder with PinCheckpoint",
                details={"checkpoint_id": checkpoint_id, "holders": ",".join(holders)},
            )
        await records.delete_checkpoint(checkpoint_id)
    except BaseException:
        records.deleted.discard(checkpoint_id)
        raise
