"""Which attempts are refused, and for how long."""

from __future__ import annotations

import pytest

from gymckpt.core.floors import Floors
from gymckpt.core.ids import Episode
from gymckpt.core.manifest import Floor
from gymckpt.errors import StaleAttempt


@pytest.mark.parametrize(
    ("attempt", "refused"), [(0, True), (1, True), (2, True), (3, False), (4, False)], ids=lambda value: str(value)
)
def test_a_retired_attempt_and_all_before_it_are_refused(attempt: int, refused: bool) -> None:
    """C13"""
    floors = Floors()
    floors.refuse(Episode("r", 2))
    floors.refuse(Episode("r", 1))  # never lowers
    assert floors.refuses(Episode("r", attempt)) is refused
    if refused:
        with pytest.raises(StaleAttempt, match=f"attempt {attempt} of 'r' is refused: attempts up to 2") as refusal:
            floors.check(Episode("r", attempt))
        assert "another run over the same store has used its id" in refusal.value.message
    else:
        floors.check(Episode("r", attempt))


def test_other_rollouts_are_not_touched() -> None:
    """C13"""
    floors = Floors()
    floors.refuse(Episode("r", 2))
    floors.check_start(Episode("other"))
    assert not floors.refuses(Episode("r2"))


def test_a_process_born_after_a_restore_refuses_to_start_its_target_but_not_to_serve_it() -> None:
    """X27"""
    floors = Floors()
    floors.learn([Floor("r", refused=1, target=2)])
    with pytest.raises(StaleAttempt):
        floors.check(Episode("r", 1))
    floors.check(Episode("r", 2))
    with pytest.raises(StaleAttempt, match="born after a restore gave out attempt 2"):
        floors.check_start(Episode("r", 2))
    floors.check_start(Episode("r", 3))


def test_of_several_floors_the_highest_counts_whatever_their_order() -> None:
    """C13, X27"""
    floors = Floors()
    floors.learn([Floor("r", refused=3, target=4), Floor("r", refused=-1, target=2), Floor("r", refused=0)])
    assert floors.refuses(Episode("r", 3))
    with pytest.raises(StaleAttempt):
        floors.check_start(Episode("r", 4))
    assert len(floors) == 1


def test_forgetting_drops_both_floors_and_unknown_ones_are_fine() -> None:
    """C13, C14"""
    floors = Floors()
    floors.learn([Floor("r", refused=1, target=2)])
    floors.forget(["r", "never seen"])
    floors.check_start(Episode("r"))
    assert len(floors) == 0
