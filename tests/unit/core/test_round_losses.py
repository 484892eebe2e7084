"""How a checkpoint round ends when something goes wrong."""

from __future__ import annotations

import pytest

from gymckpt.core.kinds import Kind
from gymckpt.core.manifest import Decision
from gymckpt.core.round import Decide
from gymckpt.core.standing import Stage
from gymckpt.core.transitions import (
    Abort,
    Prepare,
    Snapshot,
    Transition,
    Upload,
)
from gymckpt.errors import (
    CheckpointAborted,
    CutVoid,
    GymckptError,
    ParticipantLost,
    StaleEpoch,
    StoreUnavailable,
)
from tests.unit.core.play import MANIFEST, Play

# Protocol section 4, losing a participant: how far it came, and whether the round goes on.
LOSSES = [
    (Prepare, True, ParticipantLost),
    (Prepare, False, ParticipantLost),
    (Snapshot, True, ParticipantLost),
    (Snapshot, False, ParticipantLost),
    (Upload, True, ParticipantLost),
]


@pytest.mark.parametrize(("step", "gone", "error"), LOSSES)
def test_a_loss_before_the_manifest_is_stored_aborts_everywhere(
    step: type[Transition], gone: bool, error: type[GymckptError]
) -> None:
    """X01, X24: the lost one is named; a dead one is not asked again, a silent one is told the end."""
    play = Play()
    if step is Upload:
        play.until_uploading()
    elif step is Snapshot:
        for _ in Kind:
            play.due()
            play.answer_all(Prepare)
    play.due()
    name = "environment/x"
    play.lose(name, step, gone=gone)
    assert isinstance(play.round.failure, error)
    assert play.round.failure.details["participant"] == name
    told = {order for order in play.due() if order.endswith("abort")}
    assert told == {f"{kind}/x abort" for kind in Kind if not (gone and kind is Kind.ENVIRONMENT)}


def test_a_loss_between_prepare_and_snapshot_voids_the_cut() -> None:
    """X01."""
    play = Play()
    play.due()
    play.answer("environment/x", Prepare)
    play.lose("environment/x", None, gone=True)
    assert play.round.wants is Decide.ABORT


def test_a_loss_after_the_manifest_is_stored_changes_nothing() -> None:
    """X01: the cut is older than the loss."""
    play = Play()
    play.until_uploaded()
    play.lose("agent/x", None, gone=True)
    assert play.round.wants is Decide.PUBLISH
    play.decide(Decision(MANIFEST))
    assert "agent/x decided" not in play.due()


def test_a_void_cut_is_told_as_the_member_told_it() -> None:
    """X01."""
    play = Play()
    for _ in Kind:
        play.due()
        play.answer_all(Prepare)
    play.due()
    play.refuse("agent/x", Snapshot, CutVoid("work was let in"))
    assert isinstance(play.round.failure, CutVoid)
    assert "agent/x" in play.round.failure.message


def test_an_upload_is_asked_again_while_the_store_is_away_and_not_for_ever() -> None:
    play = Play(export_lease=30.0)
    play.until_uploading()
    play.refuse("model/x", Upload, StoreUnavailable("away"))
    assert play.round.failure is None
    assert "model/x upload" not in play.due()
    play.now = 1.0
    assert "model/x upload" in play.due()
    play.now = 31.0
    play.refuse("model/x", Upload, StoreUnavailable("away"))
    assert isinstance(play.round.failure, StoreUnavailable)


def test_an_abort_tells_everyone_at_once_without_waiting_for_the_store() -> None:
    """X04."""
    play = Play()
    play.until_cut()
    play.due()
    play.round.fail(CheckpointAborted("asked"))
    assert play.round.wants is Decide.ABORT
    assert sorted(play.due()) == sorted(f"{kind}/x abort" for kind in Kind)


def test_an_abort_against_a_publish_on_its_way_waits_for_what_the_store_says() -> None:
    """X25."""
    play = Play()
    play.until_uploaded()
    play.round.publishing()
    play.round.fail(CheckpointAborted("asked"))
    assert play.round.wants is Decide.ABORT
    assert [order for order in play.due() if order.endswith("abort")] == []
    play.decide(Decision(MANIFEST))
    assert play.round.stage is Stage.PUBLISHED
    assert play.round.failure is None
    assert [order for order in play.due() if order.endswith("abort")] == []


def test_a_decision_made_by_somebody_else_is_obeyed() -> None:
    """X25."""
    play = Play()
    play.until_uploaded()
    play.decide(Decision(None, "a successor said so"))
    assert isinstance(play.round.failure, CheckpointAborted)
    assert sorted(o for o in play.due() if o.endswith("abort")) == sorted(f"{kind}/x abort" for kind in Kind)
    play.answer_all(Abort)
    assert play.round.ended


def test_one_that_is_succeeded_says_nothing_more() -> None:
    """X06."""
    play = Play()
    play.due()
    play.refuse("environment/x", Prepare, StaleEpoch("newer"))
    assert play.round.ended
    assert play.round.due(play.now) == []
    assert play.round.wants is None


def test_a_dead_member_does_not_delay_the_end() -> None:
    """X24."""
    play = Play()
    play.due()
    play.lose("environment/x", Prepare, gone=True)
    play.decide(Decision(None, "lost"))
    play.due()
    for kind in (Kind.MODEL, Kind.AGENT, Kind.RESOURCES):
        assert not play.round.ended
        play.answer(f"{kind}/x", Abort)
    assert play.round.ended
    assert play.round.unreached == {"environment/x (0)": "it was killed"}
