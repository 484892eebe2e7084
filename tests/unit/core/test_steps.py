"""EpisodeSteps: which episodes a checkpoint waits for, and which boundary it takes."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from gymckpt.core.ids import Episode
from gymckpt.core.report import Report
from gymckpt.core.steps import Doing, EpisodeSteps
from gymckpt.errors import DuplicateEpisode, StaleAttempt

E = Episode("r")
Act = Callable[[EpisodeSteps[str]], object]

OPEN: Act = lambda steps: steps.open(0.0)  # noqa: E731
CLOSE: Act = lambda steps: steps.close(0.0)  # noqa: E731
BOUNDARY: Act = lambda steps: steps.boundary("r", "later", 0.0)  # noqa: E731
PAUSE: Act = lambda steps: steps.pause("r", 0.0)  # noqa: E731
WAKE: Act = lambda steps: steps.wake("r", 0.0)  # noqa: E731
INTERRUPT: Act = lambda steps: steps.interrupt("r", 0.0)  # noqa: E731
WAIT: Act = lambda steps: steps.enter("r", "verify", "wait", 0.0)  # noqa: E731
REPLAY: Act = lambda steps: steps.enter("r", "seed", "replay", 0.0)  # noqa: E731
LEAVE: Act = lambda steps: steps.leave("r", 0.0)  # noqa: E731
FAIL: Act = lambda steps: steps.leave("r", 0.0, failed=True)  # noqa: E731
RESTART: Act = lambda steps: steps.mark_restart("r", "its tools cannot be captured")  # noqa: E731
RETIRE: Act = lambda steps: steps.retire("r", 0.0)  # noqa: E731


def begun(*acts: Act) -> EpisodeSteps[str]:
    """One episode that began at boundary "first" and then did `acts`."""
    steps = EpisodeSteps[str]()
    steps.begin("r", E, 0.0, boundary="first")
    for act in acts:
        act(steps)
    return steps


@pytest.mark.parametrize(
    ("acts", "doing", "blocks", "boundary"),
    [
        pytest.param([], Doing.RUNNING, True, "first", id="between steps it blocks"),
        pytest.param([BOUNDARY], Doing.RUNNING, True, "later", id="an open gate parks nobody"),
        pytest.param([CLOSE], Doing.RUNNING, True, "first", id="closing parks nobody at once"),
        pytest.param([CLOSE, BOUNDARY], Doing.PARKED, False, "later", id="E04 C01 a boundary parks"),
        pytest.param([CLOSE, BOUNDARY, OPEN], Doing.PARKED, False, "later", id="C27 opening alone wakes nobody"),
        pytest.param([CLOSE, BOUNDARY, OPEN, WAKE], Doing.RUNNING, True, "later", id="E04 it resumes"),
        pytest.param([CLOSE, BOUNDARY, OPEN, CLOSE, WAKE], Doing.PARKED, False, "later", id="C27 closed again first"),
        pytest.param([WAIT, CLOSE], Doing.WAIT, True, "first", id="E06 a wait step delays"),
        pytest.param([WAIT, CLOSE, LEAVE], Doing.RUNNING, True, "first", id="E06 so does what follows it"),
        pytest.param([WAIT, CLOSE, LEAVE, BOUNDARY], Doing.PARKED, False, "later", id="E06 boundary after it"),
        pytest.param([WAIT, CLOSE, FAIL], Doing.RUNNING, True, "first", id="a failed wait step keeps blocking"),
        pytest.param([CLOSE, WAIT], Doing.WAIT, True, "first", id="a running episode may enter a wait step"),
        pytest.param([REPLAY], Doing.REPLAY, False, "first", id="E07 a replay step does not delay"),
        pytest.param([REPLAY, CLOSE], Doing.REPLAY, False, "first", id="E07 nor when the gate closes"),
        pytest.param([REPLAY, LEAVE], Doing.RUNNING, True, "first", id="after it the episode blocks again"),
        pytest.param([REPLAY, FAIL], Doing.RUNNING, True, "first", id="failed with an open gate: as before"),
        pytest.param([REPLAY, CLOSE, LEAVE], Doing.REPLAYED, False, "first", id="C35 ended during a checkpoint"),
        pytest.param([REPLAY, CLOSE, LEAVE, PAUSE], Doing.PARKED, False, "first", id="it may stop there"),
        pytest.param([REPLAY, CLOSE, LEAVE, BOUNDARY], Doing.PARKED, False, "later", id="C35 until the next one"),
        pytest.param([REPLAY, CLOSE, LEAVE, OPEN], Doing.RUNNING, True, "first", id="opening ends the exception"),
        pytest.param([REPLAY, CLOSE, LEAVE, REPLAY], Doing.REPLAY, False, "first", id="replay after replay"),
        pytest.param([REPLAY, CLOSE, LEAVE, WAIT], Doing.PARKED, False, "first", id="wait after replay parks first"),
        pytest.param([REPLAY, CLOSE, FAIL], Doing.REPLAYED, False, None, id="C61 raised: its boundary is none"),
        pytest.param([CLOSE, REPLAY, FAIL], Doing.REPLAYED, False, None, id="C61 begun after closing"),
        pytest.param([CLOSE, BOUNDARY, INTERRUPT], Doing.REPLAYED, False, "later", id="cancelled while parked"),
        pytest.param([CLOSE, BOUNDARY, OPEN, INTERRUPT], Doing.RUNNING, True, "later", id="cancelled while waking"),
        pytest.param([PAUSE], Doing.RUNNING, True, "first", id="an open gate stops nobody"),
        pytest.param([CLOSE, PAUSE], Doing.RUNNING, True, "first", id="running work stops at boundaries only"),
        pytest.param([RESTART, WAIT, CLOSE], Doing.WAIT, False, "first", id="C53 a restart never blocks"),
        pytest.param([RESTART, CLOSE, BOUNDARY], Doing.RUNNING, False, "later", id="C53 a restart never parks"),
        pytest.param([RESTART, CLOSE, REPLAY, LEAVE, WAIT], Doing.WAIT, False, "first", id="C53 nor inside steps"),
        pytest.param([CLOSE, RESTART], Doing.RUNNING, True, "first", id="C55 not during a checkpoint"),
        pytest.param([CLOSE, RESTART, OPEN], Doing.RUNNING, False, "first", id="C55 but after it"),
        pytest.param([CLOSE, RESTART, BOUNDARY], Doing.PARKED, False, "later", id="C55 until then it parks"),
        pytest.param([RESTART, RETIRE], Doing.RUNNING, True, "first", id="C54 a retired restart blocks"),
        pytest.param([CLOSE, BOUNDARY, OPEN, RETIRE, CLOSE], Doing.PARKED, True, "later", id="C34 retired and parked"),
        pytest.param([REPLAY, CLOSE, LEAVE, RETIRE], Doing.RUNNING, True, "first", id="retired while replayed"),
    ],
)
def test_where_an_episode_stands(acts: list[Act], doing: Doing, blocks: bool, boundary: str | None) -> None:
    steps = begun(*acts)
    entry = steps["r"]
    assert (entry.doing, entry.blocks, entry.boundary) == (doing, blocks, boundary)
    assert steps.blocking == len(list(steps.blockers(0.0))) == int(blocks)


@pytest.mark.parametrize(
    ("acts", "exported"),
    [
        ([CLOSE, BOUNDARY], True),
        ([REPLAY], True),
        ([REPLAY, CLOSE, LEAVE], True),
        ([CLOSE], False),
        ([WAIT], False),
        ([RESTART, CLOSE, REPLAY], False),
        ([CLOSE, BOUNDARY, RESTART], True),
        ([CLOSE, BOUNDARY, OPEN, RETIRE, CLOSE], False),
    ],
)
def test_only_live_episodes_that_stand_at_a_boundary_are_exported(acts: list[Act], exported: bool) -> None:
    """C34, C36, C53."""
    assert begun(*acts)["r"].at_boundary is exported


@pytest.mark.parametrize(
    "acts",
    [
        [WAIT, WAIT],
        [REPLAY, WAIT],
        [WAIT, BOUNDARY],
        [LEAVE],
        [WAKE],
        [CLOSE, BOUNDARY, BOUNDARY],
    ],
)
def test_an_illegal_move_is_refused_and_changes_nothing(acts: list[Act]) -> None:
    steps = begun(*acts[:-1])
    before = (steps["r"].doing, steps["r"].boundary, steps["r"].step, steps["r"].restart, steps.blocking)
    with pytest.raises(RuntimeError, match="cannot"):
        acts[-1](steps)
    after = (steps["r"].doing, steps["r"].boundary, steps["r"].step, steps["r"].restart, steps.blocking)
    assert after == before


def test_a_second_start_is_refused_while_the_first_is_tracked() -> None:
    """E12, C33: also while the first is being retired."""
    steps = begun(RETIRE)
    with pytest.raises(DuplicateEpisode, match="r-a1 cannot start: r runs here"):
        steps.begin("r", Episode("r", 1), 0.0)
    assert steps["r"].episode == E
    steps.end("r")
    steps.begin("r", Episode("r", 1), 0.0)
    assert (str(steps["r"].episode), steps.blocking) == ("r-a1", 1)


def test_a_retired_episode_is_cancelled_once_and_declares_nothing_more() -> None:
    """E08."""
    steps = begun()
    assert [steps.retire("r", 0.0), steps.retire("r", 0.0)] == [True, False]
    with pytest.raises(StaleAttempt, match="r was retired"):
        steps.boundary("r", "later", 0.0)
    assert steps["r"].boundary == "first"


def test_a_finishing_episode_is_never_cancelled() -> None:
    """E08."""
    steps = begun(lambda steps: steps.mark_finishing("r"))
    assert steps.retire("r", 0.0) is False
    assert steps.blocking == 1


def test_work_within_a_step_that_the_checkpoint_waits_for_blocks_and_never_parks() -> None:
    """X37."""
    steps = EpisodeSteps[str]()
    steps.close(0.0)
    steps.begin("r", E, 0.0, within=True)
    assert steps.boundary("r", "later", 0.0) is False
    assert steps.enter("r", "model", "replay", 0.0)
    assert (steps["r"].blocks, steps["r"].at_boundary, steps.blocking) == (True, False, 1)
    assert [blocker.type for blocker in steps.blockers(0.0)] == ["within"]


def test_a_restart_is_reported_until_it_is_retired_or_ends() -> None:
    """C53, C54."""
    steps = begun(RESTART)
    assert steps.restarts() == {E: "its tools cannot be captured"}
    assert begun(CLOSE, RESTART).restarts() == {}
    RETIRE(steps)
    assert steps.restarts() == {}
    steps.end("r")
    assert (steps.restarts(), steps.blocking) == ({}, 0)


def test_a_blocker_names_the_episode_the_step_and_its_age() -> None:
    steps = EpisodeSteps[str]()
    steps.begin("key", E, 1.0)
    steps.enter("key", "verify", "wait", 3.0)
    (blocker,) = steps.blockers(10.0)
    assert (blocker.type, blocker.episode, blocker.subject, blocker.age) == ("step", E, "key: verify", 7.0)
    steps.retire("key", 4.0)
    steps.leave("key", 5.0)
    (blocker,) = steps.blockers(10.0)
    assert (blocker.type, blocker.subject, blocker.age) == ("retiring", "key: running", 6.0)


def test_five_thousand_blockers_are_counted_without_a_scan_and_listed_up_to_one_hundred() -> None:
    """C25, C37."""
    steps = EpisodeSteps[str]()
    for number in range(5_000):
        steps.begin(f"r{number:04}", Episode(f"r{number:04}"), 0.0)
    report = Report.of(steps.blockers(1.0), steps.blocking, steps.restarts(), {})
    assert (report.blocker_count, len(report.blockers), report.blockers[0].subject) == (5_000, 100, "r0000: running")


def ends_at(steps: EpisodeSteps[str]) -> float | None:
    return steps["r"].ends_at


class TestDeadline:
    """E05: the time that an episode stands at a boundary during a checkpoint is not its own."""

    def test_it_runs_while_the_gate_is_open(self) -> None:
        steps = EpisodeSteps[str]()
        steps.begin("r", E, 100.0, allowance=30.0)
        steps.enter("r", "seed", "replay", 110.0)
        assert steps["r"].ends_at == 130.0

    def test_it_stops_while_parked_and_goes_on_with_what_was_left(self) -> None:
        steps = EpisodeSteps[str]()
        steps.begin("r", E, 100.0, allowance=30.0)
        steps.close(105.0)
        assert ends_at(steps) == 130.0
        steps.boundary("r", "later", 110.0)
        assert ends_at(steps) is None
        steps.open(500.0)
        assert ends_at(steps) == 520.0
        steps.wake("r", 501.0)
        assert ends_at(steps) == 520.0

    def test_it_stops_inside_a_replay_step_when_the_gate_closes(self) -> None:
        steps = EpisodeSteps[str]()
        steps.begin("r", E, 100.0, allowance=30.0)
        steps.enter("r", "seed", "replay", 101.0)
        steps.close(110.0)
        steps.leave("r", 200.0)
        assert ends_at(steps) is None
        steps.open(500.0)
        assert ends_at(steps) == 520.0

    def test_it_runs_inside_a_wait_step_during_a_checkpoint(self) -> None:
        steps = EpisodeSteps[str]()
        steps.begin("r", E, 100.0, allowance=30.0)
        steps.close(101.0)
        steps.enter("r", "verify", "wait", 102.0)
        assert steps["r"].ends_at == 130.0

    def test_it_does_not_count_in_the_final_cleanup(self) -> None:
        steps = EpisodeSteps[str]()
        steps.begin("r", E, 100.0, allowance=30.0)
        steps.mark_finishing("r")
        steps.close(101.0)
        steps.open(102.0)
        assert steps["r"].ends_at is None

    def test_what_was_left_is_never_below_zero(self) -> None:
        steps = EpisodeSteps[str]()
        steps.begin("r", E, 0.0, allowance=5.0)
        steps.close(1.0)
        steps.boundary("r", "later", 9.0)
        steps.open(20.0)
        assert steps["r"].ends_at == 20.0


ACTS = [OPEN, CLOSE, BOUNDARY, PAUSE, WAKE, INTERRUPT, WAIT, REPLAY, LEAVE, FAIL, RESTART, RETIRE]


@pytest.mark.parametrize("seed", range(40))
def test_the_count_of_blockers_equals_a_fresh_recount_after_any_sequence(seed: int) -> None:
    """S03."""
    source = random.Random(seed)
    steps = EpisodeSteps[str]()
    for _ in range(200):
        if "r" not in steps:
            steps.begin("r", E, 0.0)
        elif source.random() < 0.05:
            steps.end("r")
        else:
            try:
                source.choice(ACTS)(steps)
            except (RuntimeError, StaleAttempt):
                assert "r" in steps
        assert steps.blocking == len(list(steps.blockers(0.0)))
