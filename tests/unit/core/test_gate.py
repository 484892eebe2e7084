"""The gate, move by move: what each state makes of each move, and that a refused move changes nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gymckpt.core.gate import Authority, Gate
from gymckpt.core.ids import Fence
from gymckpt.core.kinds import GateState
from gymckpt.errors import Conflict, CutVoid, GymckptError, InvalidPhase, StaleCheckpoint, StaleEpoch

FIVE, SIX = Fence(1, 5, "five"), Fence(1, 6, "six")
FIVE_UNDER_A_SUCCESSOR = Fence(2, 5, "five")
LEASE, NOW = 10.0, 100.0


def starting() -> Gate:
    return Gate()


def opened() -> Gate:
    gate = Gate()
    gate.start()
    return gate


def closing() -> Gate:
    gate = opened()
    gate.close(FIVE, LEASE, NOW)
    return gate


def closed() -> Gate:
    gate = closing()
    gate.settle()
    return gate


def ended() -> Gate:
    gate = closed()
    gate.open(FIVE)
    return gate


def of(gate: Gate) -> tuple[object, ...]:
    return (gate.state, gate.fence, gate.closing, gate.ended, gate.let_in, gate.lease.remaining(NOW))


MOVES: list[tuple[str, Callable[[], Gate], Callable[[Gate], object], GateState | type[GymckptError]]] = [
    ("starting: close", starting, lambda gate: gate.close(FIVE, LEASE, NOW), InvalidPhase),
    ("starting: settle", starting, lambda gate: gate.settle(), InvalidPhase),
    ("starting: open", starting, lambda gate: gate.open(FIVE), GateState.CLOSED),
    ("open: close", opened, lambda gate: gate.close(FIVE, LEASE, NOW), GateState.CLOSING),
    ("open: settle", opened, lambda gate: gate.settle(), InvalidPhase),
    ("open: confirm", opened, lambda gate: gate.confirm(FIVE, 1), InvalidPhase),
    ("open: open", opened, lambda gate: gate.open(FIVE), GateState.OPEN),
    ("closing: close", closing, lambda gate: gate.close(FIVE, LEASE, NOW), GateState.CLOSING),
    (
        "closing: close by a successor",
        closing,
        lambda gate: gate.close(FIVE_UNDER_A_SUCCESSOR, LEASE, NOW),
        GateState.CLOSING,
    ),
    ("closing: close by another round", closing, lambda gate: gate.close(SIX, LEASE, NOW), Conflict),
    ("closing: settle", closing, lambda gate: gate.settle(), GateState.CLOSED),
    ("closing: confirm", closing, lambda gate: gate.confirm(FIVE, 1), InvalidPhase),
    ("closing: open", closing, lambda gate: gate.open(FIVE), GateState.OPEN),
    ("closing: open by another round", closing, lambda gate: gate.open(SIX), GateState.CLOSING),
    ("closed: close", closed, lambda gate: gate.close(FIVE, LEASE, NOW), GateState.CLOSED),
    ("closed: close by another round", closed, lambda gate: gate.close(SIX, LEASE, NOW), Conflict),
    ("closed: settle", closed, lambda gate: gate.settle(), GateState.CLOSED),
    ("closed: confirm", closed, lambda gate: gate.confirm(FIVE, 1), GateState.CLOSED),
    ("closed: confirm another closing", closed, lambda gate: gate.confirm(FIVE, 2), CutVoid),
    ("closed: confirm by another round", closed, lambda gate: gate.confirm(SIX, 1), InvalidPhase),
    ("closed: open", closed, lambda gate: gate.open(FIVE), GateState.OPEN),
    ("closed: open by a successor", closed, lambda gate: gate.open(FIVE_UNDER_A_SUCCESSOR), GateState.OPEN),
    ("closed: open by another round", closed, lambda gate: gate.open(SIX), GateState.CLOSED),
    ("ended: close", ended, lambda gate: gate.close(FIVE, LEASE, NOW), StaleCheckpoint),
    ("ended: confirm", ended, lambda gate: gate.confirm(FIVE, 1), CutVoid),
    ("ended: close by a later round", ended, lambda gate: gate.close(SIX, LEASE, NOW), GateState.CLOSING),
]


@pytest.mark.parametrize(("begin", "move", "expected"), [row[1:] for row in MOVES], ids=[row[0] for row in MOVES])
def test_every_move_gives_its_state_or_its_refusal_and_a_refusal_changes_nothing(
    begin: Callable[[], Gate], move: Callable[[Gate], object], expected: GateState | type[GymckptError]
) -> None:
    """C01, C05, C12, X01"""
    gate = begin()
    before = of(gate)
    if isinstance(expected, GateState):
        move(gate)
        assert gate.state is expected
    else:
        with pytest.raises(expected):
            move(gate)
        assert of(gate) == before


def test_a_round_goes_on_closing_although_a_later_one_was_ended_meanwhile() -> None:
    """X33"""
    gate = closing()
    gate.open(SIX)
    gate.close(FIVE, LEASE, NOW)
    gate.settle()
    gate.confirm(FIVE, 1)


def test_a_reopened_and_closed_again_gate_does_not_confirm_the_earlier_closing() -> None:
    """X01"""
    gate = ended()
    gate.close(SIX, LEASE, NOW)
    gate.settle()
    gate.confirm(SIX, 2)
    with pytest.raises(CutVoid):
        gate.confirm(FIVE, 1)
    with pytest.raises(CutVoid):
        gate.confirm(SIX, 1)


def test_work_let_in_after_settling_voids_the_cut_and_work_let_in_before_does_not() -> None:
    """X01, X37"""
    gate = closing()
    gate.let_in += 1
    gate.settle()
    gate.confirm(FIVE, 1)
    gate.let_in += 1
    with pytest.raises(CutVoid, match="1 calls were let in"):
        gate.confirm(FIVE, 1)


def test_every_word_of_its_round_restarts_the_lease_and_opening_ends_it() -> None:
    """C19, C20"""
    gate = closing()
    assert not gate.lease.expired(NOW + LEASE - 0.1)
    assert gate.lease.expired(NOW + LEASE)
    gate.lease.renew(NOW + 5)
    assert gate.lease.remaining(NOW + 5) == LEASE
    gate.lease.renew(NOW + 5, 30.0)
    gate.lease.renew(NOW + 6)
    assert gate.lease.remaining(NOW + 6) == 30.0
    gate.open(FIVE)
    assert not gate.lease.expired(NOW + 1e9)
    gate.lease.renew(NOW)
    assert not gate.lease.expired(NOW + 1e9)


def test_a_conflict_names_the_holder_and_says_when_to_come_back() -> None:
    with pytest.raises(Conflict, match="'five' holds the gate") as refused:
        closing().close(SIX, LEASE, NOW + 4)
    assert refused.value.retry_after == LEASE - 4
    assert refused.value.details == {"holder": "five", "checkpoint_id": "six"}


def test_an_older_epoch_is_refused_for_ever() -> None:
    """X06"""
    authority = Authority()
    authority.observe(3)
    authority.observe(3)
    with pytest.raises(StaleEpoch, match="epoch 2 was succeeded by epoch 3"):
        authority.observe(2)
    assert authority.epoch == 3
