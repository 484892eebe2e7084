"""`checkpoint create --then-stop` and `--keep`: what is asked of the coordinator, and what is told."""

from __future__ import annotations

import json

import click
import pytest

from gymckpt.cli.exits import Exit, next_step
from gymckpt.coordinator import Checkpoint, ResumePolicy, Stage
from gymckpt.core.ids import Episode
from gymckpt.core.report import LostEpisode
from gymckpt.errors import InvalidPhase, ParticipantLost
from tests.unit.cli.fakes import FakeCoordinator, command, published

Capsys = pytest.CaptureFixture[str]
STOP = ("checkpoint", "create", "step-1", "--then-stop")


def closed(**given: object) -> Checkpoint:
    """Published, and no gate has opened."""
    return published(pause_seconds=0.0, **given)


def test_then_stop_keeps_the_gates_for_a_whole_lease_and_says_what_to_do_in_it(capsys: Capsys) -> None:
    """R01, L09: the last thing that is asked restarts the lease."""
    fake = FakeCoordinator(closed())
    assert command(fake, *STOP, "--gate-lease", "90s") == Exit.OK
    assert [asked.resume for asked in fake.asked] == [ResumePolicy.BY_CALLER]
    assert fake.renewed == [("step-1", 90.0)]
    said = capsys.readouterr().out
    assert "  every gate is closed, at most 90 s from now: stop every server now" in said
    assert "`gymckpt checkpoint restore step-1`" in said


@pytest.mark.parametrize("opened", [InvalidPhase("it has ended"), ParticipantLost("agent/x holds nothing")])
def test_a_gate_that_has_opened_is_no_success(opened: InvalidPhase | ParticipantLost, capsys: Capsys) -> None:
    """X01: 0 would mean that nothing ran after the cut."""
    fake = FakeCoordinator(closed(), opened=opened)
    with pytest.raises(InvalidPhase, match=f"'step-1' is published, but .*{opened.message}") as refused:
        command(fake, *STOP)
    assert capsys.readouterr().out == ""
    assert "longer --gate-lease" in next_step(refused.value)


def test_without_then_stop_no_lease_is_touched() -> None:
    """R01: whoever resumes by itself relies on it."""
    fake = FakeCoordinator(closed())
    assert command(fake, "checkpoint", "create", "step-1", "--resume", "by-caller") == Exit.OK
    assert fake.renewed == []


def test_then_stop_contradicts_gates_that_open_by_themselves() -> None:
    """X20."""
    for resume in ("after-snapshot", "after-publish"):
        fake = FakeCoordinator()
        with pytest.raises(click.UsageError, match="leave --resume out"):
            command(fake, *STOP, "--resume", resume)
        assert fake.asked == []
    assert command(FakeCoordinator(closed()), *STOP, "--resume", "by-caller") == Exit.OK


def test_a_held_round_is_not_taken_for_a_checkpoint(capsys: Capsys) -> None:
    """C02: nothing is deleted, and nothing is said of stopping."""
    fake = FakeCoordinator(Checkpoint("step-1", Stage.HELD), older=(Checkpoint("step-0", Stage.PUBLISHED),))
    assert command(fake, *STOP, "--keep", "1", "--on-not-ready", "hold") == Exit.HELD
    assert (fake.deleted, "stop every server" in capsys.readouterr().out) == ([], False)


def older() -> tuple[Checkpoint, ...]:
    return (
        Checkpoint("step-0", Stage.PUBLISHED),
        Checkpoint("failed", Stage.ABORTED),
        Checkpoint("old", Stage.PUBLISHED),
        Checkpoint("oldest", Stage.PUBLISHED),
    )


@pytest.mark.parametrize(("keep", "deleted"), [(1, ["step-0", "old", "oldest"]), (2, ["old", "oldest"]), (9, [])])
def test_keep_counts_published_checkpoints_and_this_one_first(keep: int, deleted: list[str], capsys: Capsys) -> None:
    """L10."""
    fake = FakeCoordinator(older=older())
    assert command(fake, "checkpoint", "create", "step-1", "--keep", str(keep), "--json") == Exit.OK
    assert fake.deleted == deleted
    said = capsys.readouterr()
    assert (json.loads(said.out)["deleted"], said.err) == (deleted, "")


def test_a_pinned_one_stays_and_is_told_and_the_others_go(capsys: Capsys) -> None:
    """L10."""
    fake = FakeCoordinator(older=older(), pinned=("old",))
    assert command(fake, "checkpoint", "create", "step-1", "--keep", "1") == Exit.OK
    said = capsys.readouterr()
    assert fake.deleted == ["step-0", "oldest"]
    assert "  deleted step-0, oldest\n" in said.out
    assert said.err == "warning: 1 older checkpoint not deleted: checkpoint 'old' is pinned by me\n"


def test_one_that_cannot_be_read_is_not_one_of_those_to_keep_and_is_left_to_a_person(capsys: Capsys) -> None:
    """L10, X08: what is whole and can be gone back to is not deleted for it."""
    damaged = Checkpoint("damaged", Stage.PUBLISHED, why_unreadable="there is no blob 00:7")
    fake = FakeCoordinator(older=(damaged, *older()))
    assert command(fake, "checkpoint", "create", "step-1", "--keep", "2") == Exit.OK
    assert fake.deleted == ["old", "oldest"]
    why = "the manifest of checkpoint 'damaged' cannot be read: there is no blob 00:7"
    assert capsys.readouterr().err == f"warning: 1 older checkpoint not deleted: {why}\n"


def test_one_that_alone_holds_what_was_lost_since_stays_until_that_is_restored_or_retired(capsys: Capsys) -> None:
    """L10, X13: whoever deletes it loses the rollouts for good."""
    lost = (LostEpisode(Episode("r1"), "gone", "old"), LostEpisode(Episode("r2"), "never exported"))
    fake = FakeCoordinator(published(lost=2), older=older(), lost=lost)
    assert command(fake, "checkpoint", "create", "step-1", "--keep", "1") == Exit.OK
    assert fake.deleted == ["step-0", "oldest"]
    why = "checkpoint 'old' holds r1, lost since: restore or retire what it holds"
    assert f"warning: 1 older checkpoint not deleted: {why}\n" in capsys.readouterr().err


def test_without_keep_nothing_is_deleted() -> None:
    fake = FakeCoordinator(older=older())
    command(fake, "checkpoint", "create", "step-1")
    assert fake.deleted == []


def test_to_keep_none_is_refused() -> None:
    """X20."""
    with pytest.raises(click.BadParameter, match="0 is not in the range x>=1"):
        command(FakeCoordinator(), "checkpoint", "create", "step-1", "--keep", "0")


def test_delete_says_what_it_did(capsys: Capsys) -> None:
    fake = FakeCoordinator()
    command(fake, "checkpoint", "delete", "step-0", "--json")
    assert (fake.deleted, json.loads(capsys.readouterr().out)) == (["step-0"], {"deleted": "step-0"})
