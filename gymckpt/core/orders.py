"""Which transitions of a checkpoint round are due to which members. Making an order marks the member as being asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gymckpt.core.ids import Episode
from gymckpt.core.kinds import PREPARE_ORDER, RESUME_ORDER
from gymckpt.core.standing import Export, Gate, News, Standing, of_kinds
from gymckpt.core.transitions import Abort, Decided, Prepare, Renew, Resume, Snapshot, Transition, Upload


@dataclass(frozen=True, slots=True)
class Order:
    """A transition that is due; a member that has not answered by `deadline` is lost (None: it may take its time)."""

    boot_id: str
    transition: Transition
    deadline: float | None


def prepares(standings: Sequence[Standing], prepare: Prepare, until: float, patience: float) -> Iterator[Order]:
    """Kind after kind: the next one only when all before are closed."""
    for kinds in PREPARE_ORDER:
        group = of_kinds(standings, kinds)
        for standing in group:
            if standing.gate is Gate.UNTOUCHED:
                standing.gate, standing.asked_until = Gate.CLOSING, until
                yield Order(standing.info.boot_id, prepare, until + patience)
        if any(standing.gate is not Gate.CLOSED for standing in group):
            return


def snapshots(
    standings: Sequence[Standing], lease: float, base: str, scope: tuple[Episode, ...] | None, deadline: float
) -> Iterator[Order]:
    """Everyone at once."""
    for standing in standings:
        if standing.export is Export.NONE:
            standing.export = Export.FREEZING
            yield Order(standing.info.boot_id, Snapshot(standing.closing, lease, base, scope), deadline)


def uploads(standings: Sequence[Standing], now: float) -> Iterator[Order]:
    for standing in standings:
        if standing.export is Export.FROZEN and standing.retry_at <= now and not standing.lost:
            standing.export = Export.UPLOADING
            yield Order(standing.info.boot_id, Upload(), None)


def resumes(standings: Sequence[Standing], deadline: float) -> Iterator[Order]:
    """Kind after kind: no server reopens before those that it calls. One that cannot be reached holds nobody up."""
    for kinds in RESUME_ORDER:
        group = of_kinds(standings, kinds)
        for standing in group:
            if standing.gate is Gate.CLOSED and not standing.lost:
                standing.gate = Gate.OPENING
                yield Order(standing.info.boot_id, Resume(), deadline)
        if not all(standing.reopened for standing in group):
            return


def news(standings: Sequence[Standing], transition: Abort | Decided, deadline: float) -> Iterator[Order]:
    """The end of the round, to everyone, also to those that were never prepared."""
    for standing in standings:
        if standing.news is News.UNTOLD and not standing.lost:
            standing.news = News.TELLING
            yield Order(standing.info.boot_id, transition, deadline)


def renewals(standings: Sequence[Standing], deadline: float) -> Iterator[Order]:
    for standing in standings:
        if standing.holds and not standing.renewing:
            standing.renewing = True
            yield Order(standing.info.boot_id, Renew(), deadline)
