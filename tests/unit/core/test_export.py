"""The export, move by move."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gymckpt.core.export import Export
from gymckpt.core.ids import Fence
from gymckpt.core.kinds import ExportState
from gymckpt.errors import Conflict, GymckptError, InvalidPhase, StaleCheckpoint

FIVE, SIX = Fence(1, 5, "five"), Fence(1, 6, "six")
FIVE_UNDER_A_SUCCESSOR = Fence(2, 5, "five")
LEASE, NOW = 10.0, 100.0


def none() -> Export[str]:
    return Export()


def frozen() -> Export[str]:
    export = none()
    export.take(FIVE, "cut", LEASE, NOW)
    return export


def uploaded() -> Export[str]:
    export = frozen()
    export.store(FIVE)
    return export


def ended() -> Export[str]:
    export = uploaded()
    export.end(FIVE)
    return export


MOVES: list[
    tuple[str, Callable[[], Export[str]], Callable[[Export[str]], object], ExportState | type[GymckptError]]
] = [
    ("none: take", none, lambda export: export.take(FIVE, "cut", LEASE, NOW), ExportState.FROZEN),
    ("none: store", none, lambda export: export.store(FIVE), InvalidPhase),
    ("none: end", none, lambda export: export.end(FIVE), ExportState.NONE),
    ("frozen: take again", frozen, lambda export: export.take(FIVE, "other", LEASE, NOW), InvalidPhase),
    ("frozen: take another", frozen, lambda export: export.take(SIX, "other", LEASE, NOW), Conflict),
    ("frozen: is it free for its own round", frozen, lambda export: export.check_free(FIVE, NOW), ExportState.FROZEN),
    ("frozen: is it free for another", frozen, lambda export: export.check_free(SIX, NOW), Conflict),
    ("frozen: store", frozen, lambda export: export.store(FIVE), ExportState.UPLOADED),
    ("frozen: store by a successor", frozen, lambda export: export.store(FIVE_UNDER_A_SUCCESSOR), ExportState.UPLOADED),
    ("frozen: store another", frozen, lambda export: export.store(SIX), InvalidPhase),
    ("frozen: end", frozen, lambda export: export.end(FIVE), ExportState.NONE),
    ("frozen: end another", frozen, lambda export: export.end(SIX), ExportState.FROZEN),
    ("uploaded: store again", uploaded, lambda export: export.store(FIVE), ExportState.UPLOADED),
    ("uploaded: end", uploaded, lambda export: export.end(FIVE), ExportState.NONE),
    ("ended: take", ended, lambda export: export.take(FIVE, "cut", LEASE, NOW), StaleCheckpoint),
    ("ended: store", ended, lambda export: export.store(FIVE), StaleCheckpoint),
    ("ended: end again", ended, lambda export: export.end(FIVE), ExportState.NONE),
    ("ended: take a later one", ended, lambda export: export.take(SIX, "cut", LEASE, NOW), ExportState.FROZEN),
]


@pytest.mark.parametrize(("begin", "move", "expected"), [row[1:] for row in MOVES], ids=[row[0] for row in MOVES])
def test_every_move_gives_its_state_or_its_refusal_and_a_refusal_changes_nothing(
    begin: Callable[[], Export[str]],
    move: Callable[[Export[str]], object],
    expected: ExportState | type[GymckptError],
) -> None:
    """C07, C41, X02"""
    export = begin()
    before = (export.state, export.fence, export.content, export.ended)
    if isinstance(expected, ExportState):
        move(export)
        assert export.state is expected
    else:
        with pytest.raises(expected):
            move(export)
        assert (export.state, export.fence, export.content, export.ended) == before


def test_the_cut_that_is_held_is_the_one_that_was_taken() -> None:
    """C41"""
    assert uploaded().of(FIVE_UNDER_A_SUCCESSOR) == "cut"


def test_its_lease_ends_unless_something_is_heard_of_its_round() -> None:
    """C19."""
    export = frozen()
    assert not export.lease.expired(NOW + LEASE - 0.1)
    assert export.lease.expired(NOW + LEASE)
    export.lease.renew(NOW + LEASE)
    assert not export.lease.expired(NOW + LEASE)
    export.lease.renew(NOW + LEASE, 100.0)
    assert not export.lease.expired(NOW + LEASE + 99)
    export.end(FIVE)
    assert not export.lease.expired(NOW + 1e9)
