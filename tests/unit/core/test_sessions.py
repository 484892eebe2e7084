"""The session table, and what makes a revision."""

from __future__ import annotations

import pytest

from gymckpt.core.ids import Episode
from gymckpt.core.sessions import Session, SessionTable, check_owner
from gymckpt.errors import Conflict, StaleAttempt


def test_a_session_is_found_by_key_by_attempt_and_by_rollout() -> None:
    table = SessionTable()
    first, second = table.open(Episode("r"), "a"), table.open(Episode("r"), "b")
    other = table.open(Episode("s"), "c")
    assert table.get("a") is first
    assert table.of(Episode("r")) == [first, second]
    assert table.of(Episode("r", 1)) == []
    assert table.of_rollout("s") == [other]
    assert len(table) == 3


def test_opening_again_gives_the_same_session_to_the_same_attempt_only() -> None:
    """V03"""
    table = SessionTable()
    session = table.open(Episode("r", 1), "a")
    assert table.open(Episode("r", 1), "a") is session
    for caller, refusal in ((Episode("r"), StaleAttempt), (Episode("r", 2), StaleAttempt), (Episode("s"), Conflict)):
        with pytest.raises(refusal):
            table.open(caller, "a")
        with pytest.raises(refusal):
            check_owner(session, caller)
    assert len(table) == 1


def test_a_taken_key_is_not_given_to_a_restored_session() -> None:
    table = SessionTable()
    live = table.open(Episode("r"), "a")
    with pytest.raises(Conflict, match="taken by r"):
        table.add(Session(Episode("s", 1), "a", pending=True))
    assert table.get("a") is live


def test_a_removed_session_leaves_nothing_and_removing_again_is_fine() -> None:
    table = SessionTable()
    session = table.open(Episode("r"), "a")
    assert table.remove("a") is session
    assert table.remove("a") is None
    assert (len(table), table.of_rollout("r")) == (0, [])


def test_sessions_may_come_and_go_while_one_walks_over_them() -> None:
    table = SessionTable()
    for key in "abc":
        table.open(Episode(key), key)
    for session in table:
        table.remove(session.key)
        table.open(Episode(session.key), session.key + "2")
    assert sorted(session.key for session in table) == ["a2", "b2", "c2"]


@pytest.mark.parametrize(
    ("calls", "revision", "unreceipted"),
    [([], 0, 0), ([True], 1, 0), ([False], 1, 1), ([False, True, True], 3, 1), ([True, False, True], 3, 2)],
)
def test_every_touch_is_a_revision_and_the_last_without_receipt_is_remembered(
    calls: list[bool], revision: int, unreceipted: int
) -> None:
    """X32, X16"""
    session = Session(Episode("r"), "a")
    for number, receipted in enumerate(calls, 1):
        assert session.touched(receipted=receipted) == number
    assert (session.revision, session.unreceipted_revision) == (revision, unreceipted)
