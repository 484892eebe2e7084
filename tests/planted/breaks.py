"""Small breaks that the comparisons must notice. Each changes this very process, before its server starts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from gymckpt.core.floors import Floors
from gymckpt.core.ids import Fence
from gymckpt.core.transitions import Prepare, Prepared, Snapshot, SnapshotTaken
from gymckpt.participant import agent, model, resources
from gymckpt.participant.cut import Checkpointing
from gymckpt.tables import cells
from servers.resources.workplace_assistant.state import TablesState
from servers.resources.workplace_assistant.synthetic import synthetic_tables
from servers.resources.workplace_assistant.tables import Tables


def forget_restored_state() -> None:
    """Restored sessions of the workplace start with fresh tables."""

    def load(_state: TablesState, _parts: Mapping[str, bytes]) -> Tables:
        return synthetic_tables()

    _replace(TablesState, "load", load)


def forget_none() -> None:
    """The codec writes NaN where a cell holds None: checkpoints before and after are the same, the restored cells are not those from before."""
    packers: dict[type, Callable[[Any], Any]] = {**cells._PACKERS, type(None): lambda _: cells.pack(math.nan)}
    _replace(cells, "_PACKERS", packers)
    _replace(cells, "_AS_THEY_ARE", cells._AS_THEY_ARE - {type(None)})


def accept_old_attempts() -> None:
    """Nobody asks which attempt a call is of."""

    def nothing(*_arguments: object) -> None:
        return

    _replace(Floors, "check", nothing)
    _replace(Floors, "check_start", nothing)
    for module in (agent, model, resources):
        _replace(module, "check_owner", nothing)


def reopen_before_the_cut() -> None:
    """The gate opens again as soon as this participant has said that it is ready."""
    prepare_as_it_is = Checkpointing.prepare

    async def prepare(checkpointing: Checkpointing, fence: Fence, asked: Prepare) -> Prepared:
        prepared = await prepare_as_it_is(checkpointing, fence, asked)
        checkpointing.open_gate(fence)
        return prepared

    _replace(Checkpointing, "prepare", prepare)


def reopen_after_the_cut() -> None:
    """The gate opens as soon as state is frozen, although nobody said resume."""
    snapshot_as_it_is = Checkpointing.snapshot

    async def snapshot(checkpointing: Checkpointing, fence: Fence, asked: Snapshot) -> SnapshotTaken:
        taken = await snapshot_as_it_is(checkpointing, fence, asked)
        checkpointing.open_gate(fence)
        return taken

    _replace(Checkpointing, "snapshot", snapshot)


def _replace(holder: object, name: str, value: object) -> None:
    """Raises AttributeError when there is nothing of that name: a break that breaks nothing would make its test pass for no reason."""
    getattr(holder, name)
    setattr(holder, name, value)


BREAKS: Mapping[str, Callable[[], None]] = {
    found.__name__: found
    for found in (
        forget_restored_state,
        forget_none,
        accept_old_attempts,
        reopen_before_the_cut,
        reopen_after_the_cut,
    )
}
