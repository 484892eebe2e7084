"""Which of the published checkpoints a caller lets go of once it has a newer one."""

from __future__ import annotations

from gymckpt.coordinator.client import CoordinatorClient
from gymckpt.core.standing import Stage
from gymckpt.errors import Conflict

NAMED = 5  # episodes for which a checkpoint is kept, in a warning


async def delete_older(client: CoordinatorClient, keep: int) -> tuple[list[str], list[tuple[str, str]]]:
    """Deletes all published checkpoints but the newest `keep`. Those that are pinned stay, and those that the newest one names because they hold what it has
    lost; so does one that cannot be read, which is nothing to go back to and is not counted: what becomes of it is for a person to say."""
    whole: list[str] = []
    deleted: list[str] = []
    kept: list[tuple[str, str]] = []
    token = ""
    while True:
        page, token = await client.list_checkpoints(page_size=1000, page_token=token)
        for checkpoint in (checkpoint for checkpoint in page if checkpoint.stage is Stage.PUBLISHED):
            name, why = checkpoint.checkpoint_id, checkpoint.why_unreadable
            if why:
                kept.append((name, f"the manifest of checkpoint {name!r} cannot be read: {why}"))
            else:
                whole.append(name)
        if not token:
            break
    lost = (await client.get_checkpoint(whole[0], page_size=1)).lost if whole[keep:] else ()
    for checkpoint_id in whole[keep:]:
        holds = [str(entry.episode) for entry in lost if entry.checkpoint_id == checkpoint_id]
        if holds:
            named = ", ".join(holds[:NAMED]) + (" ..." if len(holds) > NAMED else "")
            why = f"checkpoint {checkpoint_id!r} holds {named}, lost since: restore or retire what it holds"
            kept.append((checkpoint_id, why))
            continue
        try:
            await client.delete_checkpoint(checkpoint_id)
            deleted.append(checkpoint_id)
        except Conflict as pinned:
            kept.append((checkpoint_id, pinned.message))
    return deleted, kept
