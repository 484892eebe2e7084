"""Who is obeyed: no order of a succeeded coordinator, and none that is meant for another process, changes anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import pytest

from gymckpt.core.ids import Episode, Fence
from gymckpt.core.results import Acknowledgement
from gymckpt.core.transitions import (
    Abort,
    Acknowledge,
    Activate,
    Confirm,
    Decided,
    Discard,
    Forget,
    Install,
    InstallTarget,
    Prepare,
    Renew,
    Request,
    Resume,
    Retire,
    Snapshot,
    Transition,
    Upload,
)
from gymckpt.errors import GymckptError, StaleBoot, StaleEpoch
from tests.unit.participant.base.bed import Clock, Counters
from tests.unit.participant.rounds import Checkpoint, Rounds

EPOCH = 3


def every_order(checkpoint: Checkpoint) -> list[Transition]:
    """One of each kind, as whoever knows all about the run would give it."""
    return [
        Prepare(1.0, 1.0),
        Snapshot(1, 1.0),
        Resume(),
        Upload(),
        Abort("by the old one"),
        Decided(published=True),
        Renew(1.0, 1.0),
        Install(checkpoint.digest, (InstallTarget(Episode("other"), 1),), 1.0),
        Confirm(),
        Activate(),
        Discard(),
        Retire((Episode("live"),), 1.0),
        Forget(("live",)),
        Acknowledge((Acknowledgement(Episode("live"), bytes(32)),), 1.0),
    ]


class Standing:
    """A participant under epoch 3 that holds `live` and something of round `held`; nothing of it may change."""

    def __init__(self, counters: Counters, clock: Clock, held: Fence, checkpoint: Checkpoint) -> None:
        self.counters = counters
        self.clock = clock
        self.held = held
        self.checkpoint = checkpoint

    def seen(self) -> tuple[object, ...]:
        p, now = self.counters.participant, self.clock()
        leases = (p.gate.lease.remaining(now), p.export.lease.remaining(now))
        refused = [p.floors.refuses(Episode(*episode)) for episode in (("live", 0), ("other", 0), ("other", 1))]
        sessions = [(session.key, session.pending, session.revision) for session in p.sessions]
        return (p.holdings(), leases, refused, sessions, dict(self.counters.values), p.gate.closing)


async def standing(rounds: Rounds, clock: Clock, what: str) -> Standing:
    """`cut`: a frozen cut behind a closed gate. `pending`: an installed restore. `idle`: nothing of any round."""
    source = Counters(rounds, clock=clock)
    source.seed("other", value=5)
    checkpoint = await rounds.checkpoint(source.participant)
    counters = Counters(rounds, clock=clock)
    counters.seed("live", value=7)
    held = rounds.fence("held")
    if what == "cut":
        prepared = await rounds.ask(counters.participant, held, Prepare(1.0, 50.0))
        await rounds.snapshot(counters.participant, held, prepared)
    if what == "pending":
        held, _ = await rounds.install(counters.participant, checkpoint.digest, ("other", 1))
    counters.participant.observe_epoch(EPOCH)
    clock.now += 10.0
    return Standing(counters, clock, held, checkpoint)


def older(there: Standing) -> tuple[Fence, str]:
    """The very round that is held, under the epoch before."""
    return Fence(EPOCH - 1, there.held.sequence, there.held.checkpoint_id), there.counters.participant.boot_id


def elsewhere(there: Standing) -> tuple[Fence, str]:
    """The very round that is held, under a newer epoch, for the process that was here before."""
    return Fence(EPOCH + 1, there.held.sequence, there.held.checkpoint_id), "0" * 32


@pytest.mark.parametrize("what", ["cut", "pending", "idle"])
@pytest.mark.parametrize(("order", "refusal"), [(older, StaleEpoch), (elsewhere, StaleBoot)])
async def test_no_order_of_an_older_epoch_or_for_another_boot_changes_anything(
    rounds: Rounds,
    clock: Clock,
    what: str,
    order: Callable[[Standing], tuple[Fence, str]],
    refusal: type[GymckptError],
) -> None:
    """X06, X26: of every kind of order, whatever the process holds of a round."""
    there = await standing(rounds, clock, what)
    before = there.seen()
    fence, boot_id = order(there)
    for number, transition in enumerate(every_order(there.checkpoint), 1):
        with pytest.raises(refusal):
            await there.counters.participant.apply(Request(fence, number, boot_id, transition))
        assert there.seen() == before, transition


async def test_no_kind_of_order_is_left_out(rounds: Rounds, clock: Clock) -> None:
    """X06."""
    there = await standing(rounds, clock, "idle")
    assert {type(order) for order in every_order(there.checkpoint)} == set(get_args(Transition))
