"""The machine of a checkpoint round, answer by answer."""

from __future__ import annotations

import pytest

from gymckpt.core.arguments import OnNotReady, ResumePolicy
from gymckpt.core.ids import Episode
from gymckpt.core.kinds import GateState, Kind
from gymckpt.core.manifest import Decision
from gymckpt.core.report import Blocker, Report, Restart
from gymckpt.core.round import Decide
from gymckpt.core.standing import Stage
from gymckpt.core.transitions import (
    Decided,
    Prepare,
    Renew,
    Resume,
    Snapshot,
    Upload,
)
from gymckpt.errors import (
    CutVoid,
    InvalidPhase,
    NotReady,
    RestartInScope,
)
from tests.unit.core.play import MANIFEST, PATIENCE, Play, info


def test_prepare_goes_kind_after_kind_and_all_of_one_kind_at_once() -> None:
    """O01."""
    play = Play(
        [info(Kind.RESOURCES), info(Kind.AGENT, "a"), info(Kind.AGENT, "b"), info(Kind.MODEL), info(Kind.ENVIRONMENT)]
    )
    assert play.due() == ["environment/x prepare"]
    assert play.due() == []
    play.answer("environment/x", Prepare)
    assert play.due() == ["model/x prepare"]
    play.answer("model/x", Prepare)
    assert play.due() == ["agent/a prepare", "agent/b prepare"]
    play.answer("agent/a", Prepare)
    assert play.due() == []
    play.answer("agent/b", Prepare)
    assert play.due() == ["resources/x prepare"]


def test_a_kind_that_is_absent_is_passed_over() -> None:
    """O01."""
    play = Play([info(Kind.MODEL), info(Kind.RESOURCES)])
    assert play.due() == ["model/x prepare"]
    play.answer("model/x", Prepare)
    assert play.due() == ["resources/x prepare"]


def test_the_timeout_told_to_later_kinds_is_what_is_left_of_it() -> None:
    play = Play(prepare_timeout=30.0)
    play.due()
    play.now = 12.0
    play.answer("environment/x", Prepare)
    play.due()
    order = play.take("model/x", Prepare)
    assert order.transition == Prepare(timeout=18.0, gate_lease=60.0)
    assert order.deadline == 30.0 + PATIENCE


def test_everyone_is_snapshotted_at_once_with_its_own_closing() -> None:
    """X01: the closing of the prepare answer comes back."""
    play = Play(episodes=(Episode("r1"),))
    for _ in Kind:
        play.due()
        play.answer_all(Prepare)
    assert play.due() == [f"{kind}/x snapshot" for kind in Kind]
    assert all(o.transition == Snapshot(7, 600.0, "", (Episode("r1"),)) for o in play.orders)


def test_one_that_is_not_ready_stops_the_round_and_later_kinds_stay_untouched() -> None:
    """O02, C02: blockers are named; O03: the abort also reaches those that were never prepared."""
    play = Play()
    play.due()
    play.answer("environment/x", Prepare)
    play.due()
    blocker = Blocker("stream", Episode("r1"), "responses", 3.0)
    play.answer("model/x", Prepare, GateState.CLOSING, Report((blocker,), 1))
    assert isinstance(play.round.failure, NotReady)
    assert "model/x stream r1 responses" in play.round.failure.details["blockers"]
    assert play.round.wants is Decide.ABORT
    assert sorted(play.due()) == sorted(f"{kind}/x abort" for kind in Kind)


def test_held_gates_wait_for_the_caller_and_the_wait_goes_on_for_as_long_again() -> None:
    """C02."""
    play = Play(on_not_ready=OnNotReady.HOLD, prepare_timeout=30.0)
    play.due()
    play.now = 30.0
    play.answer("environment/x", Prepare, GateState.CLOSING, Report((Blocker("step", None, "seed", 1.0),), 1))
    assert play.stage() is Stage.HELD
    assert play.due() == []
    play.now = 40.0
    play.round.go_on(play.now)
    assert play.stage() is Stage.PREPARING
    assert play.due() == ["environment/x prepare", "environment/x renew"]
    assert play.take("environment/x", Prepare).transition == Prepare(30.0, 60.0)


def test_an_answer_that_was_on_its_way_when_the_wait_was_prolonged_is_asked_again() -> None:
    play = Play([info(Kind.MODEL, "a"), info(Kind.MODEL, "b")], on_not_ready=OnNotReady.HOLD)
    play.due()
    play.now = 30.0
    play.answer("model/a", Prepare, GateState.CLOSING)
    play.round.go_on(play.now)
    play.answer("model/b", Prepare, GateState.CLOSING)
    assert play.stage() is Stage.PREPARING
    assert "model/b prepare" in play.due()


def test_a_forgotten_held_round_ends_with_its_gate_lease() -> None:
    play = Play(on_not_ready=OnNotReady.HOLD, gate_lease=9.0)
    play.due()
    play.answer("environment/x", Prepare, GateState.CLOSING)
    assert play.round.wake_at() == 9.0
    play.now = 8.9
    play.round.tick(play.now)
    assert play.round.failure is None
    play.now = 9.0
    play.round.tick(play.now)
    assert isinstance(play.round.failure, NotReady)


def test_renewing_a_held_round_keeps_it_longer() -> None:
    """O08: the renew reaches all that hold something."""
    play = Play(on_not_ready=OnNotReady.HOLD, gate_lease=9.0)
    play.due()
    play.answer("environment/x", Prepare, GateState.CLOSING)
    play.now = 5.0
    renewed = play.round.renew(20.0, 0.0, play.now)
    assert [play.name(order.boot_id) for order in renewed] == ["environment/x"]
    assert renewed[0].transition == Renew(20.0, 0.0)
    assert play.round.wake_at() == 25.0


def test_renewing_reaches_the_gates_that_a_caller_holds_after_the_decision_too() -> None:
    """O08, R01: only opening ends the lease of a gate."""
    play = Play(resume=ResumePolicy.BY_CALLER, gate_lease=9.0)
    play.until_uploaded()
    play.decide(Decision(MANIFEST))
    play.due()
    play.answer_all(Decided)
    assert [order.transition for order in play.round.renew(20.0, 0.0, play.now)] == [Renew(20.0, 0.0)] * len(Kind)
    play.round.resume()
    play.due()
    play.answer("resources/x", Resume)
    left = {play.name(order.boot_id) for order in play.round.renew(20.0, 0.0, play.now)}
    assert left == {"environment/x", "model/x", "agent/x"}


def test_a_gate_that_opened_before_it_was_ready_makes_the_cut_void() -> None:
    """X01, C04: another resume or a lease end came between."""
    play = Play()
    play.due()
    play.answer("environment/x", Prepare, GateState.OPEN)
    assert isinstance(play.round.failure, CutVoid)


def test_a_restart_in_the_scope_is_refused_before_any_snapshot() -> None:
    """C56."""
    play = Play(episodes=(Episode("r1"),))
    play.due()
    play.answer("environment/x", Prepare, report=Report(restarts=(Restart(Episode("r1"), "restart only"),)))
    assert isinstance(play.round.failure, RestartInScope)
    assert play.round.failure.details["episodes"] == "r1"


def test_restarts_outside_the_scope_are_collected_from_all() -> None:
    """O11."""
    play = Play()
    play.due()
    play.answer("environment/x", Prepare, report=Report(restarts=(Restart(Episode("r2"), "why"),)))
    play.due()
    play.answer("model/x", Prepare, report=Report(restarts=(Restart(Episode("r1"), "other"),)))
    assert play.round.failure is None
    assert play.round.restarts == {Episode("r1"): "model/x: other", Episode("r2"): "environment/x: why"}


def test_gates_reopen_backwards_before_anyone_uploads() -> None:
    """X02, X03, X33, O04: the order of resume; a resume waits for no upload, and no encoding slows it down."""
    play = Play()
    play.until_cut()
    assert play.due() == ["resources/x resume"]
    for now, then in (("resources", "agent"), ("agent", "model"), ("model", "environment")):
        play.answer(f"{now}/x", Resume)
        assert play.due() == [f"{then}/x resume"]
    play.now = 2.0
    play.answer("environment/x", Resume)
    assert play.round.gates_open
    assert play.round.times.reopened == 2.0
    assert sorted(play.due()) == sorted(f"{kind}/x upload" for kind in Kind)
    assert play.round.wants is None
    play.answer_all(Upload)
    assert play.round.wants is Decide.PUBLISH


@pytest.mark.parametrize("policy", [ResumePolicy.AFTER_PUBLISH, ResumePolicy.BY_CALLER])
def test_gates_that_stay_closed_hold_up_no_upload(policy: ResumePolicy) -> None:
    """X33."""
    play = Play(resume=policy)
    play.until_cut()
    assert sorted(play.due()) == sorted(f"{kind}/x upload" for kind in Kind)


def test_a_member_whose_gate_cannot_be_reached_holds_up_no_upload() -> None:
    """X24."""
    play = Play()
    play.until_cut()
    play.due()
    play.refuse("resources/x", Resume, InvalidPhase("no"))
    for kind in ("agent", "model", "environment"):
        play.due()
        play.answer(f"{kind}/x", Resume)
    assert "agent/x upload" in play.due()


@pytest.mark.parametrize("gone", [True, False])
def test_a_resume_that_fails_does_not_stop_the_others_and_is_named(gone: bool) -> None:
    """O04: everyone else is reopened; the loss of one that stored its manifest changes nothing."""
    play = Play(resume=ResumePolicy.AFTER_PUBLISH)
    play.until_uploaded()
    play.decide(Decision(MANIFEST))
    assert "resources/x resume" in play.due()
    play.lose("resources/x", Resume, gone=gone)
    assert play.due() == ["agent/x resume"]
    play.refuse("agent/x", Resume, InvalidPhase("no"))
    assert play.due() == ["model/x resume"]
    play.answer("model/x", Resume)
    play.due()
    play.answer("environment/x", Resume)
    play.answer_all(Decided)
    assert play.round.ended
    assert play.round.stage is Stage.PUBLISHED
    assert set(play.round.unreached) == {"resources/x (0)", "agent/x (0)"}


def test_after_publish_opens_only_once_it_is_decided() -> None:
    play = Play(resume=ResumePolicy.AFTER_PUBLISH)
    play.until_uploaded()
    assert play.due() == []
    play.decide(Decision(MANIFEST))
    assert "resources/x resume" in play.due()


def test_by_caller_keeps_the_gates_until_the_caller_says_so() -> None:
    """X33."""
    play = Play(resume=ResumePolicy.BY_CALLER)
    play.until_uploaded()
    play.decide(Decision(MANIFEST))
    assert sorted(play.due()) == sorted(f"{kind}/x decided" for kind in Kind)
    play.answer_all(Decided)
    assert play.round.settled
    assert not play.round.ended
    play.round.resume()
    assert play.due() == ["resources/x resume"]


def test_a_forgotten_caller_loses_its_gates_with_the_lease_and_nothing_renews_them() -> None:
    play = Play(resume=ResumePolicy.BY_CALLER, gate_lease=9.0)
    play.until_cut()
    play.due()
    for at in (3.0, 6.0, 8.9):
        play.now = at
        assert play.due() == []
    play.now = 9.0
    play.round.tick(play.now)
    assert play.due()[:1] == ["resources/x resume"]


def test_a_slow_upload_is_renewed_well_before_its_lease_ends() -> None:
    """The lease restarts with whatever is heard of the round, and an upload may be longer than it."""
    play = Play(gate_lease=60.0, export_lease=30.0)
    play.until_cut()
    play.due()
    for _ in Kind:
        play.answer_all(Resume)
        play.due()
    for _ in range(5):
        wake = play.round.wake_at()
        assert wake is not None
        assert wake - play.now <= 10.0
        play.now = wake
        assert play.due() == [f"{kind}/x renew" for kind in Kind]
        play.answer_all(Renew)


def test_resume_before_the_cut_is_refused_and_changes_nothing() -> None:
    play = Play()
    play.due()
    with pytest.raises(InvalidPhase, match="PREPARING"):
        play.round.resume()
    assert play.round.failure is None
