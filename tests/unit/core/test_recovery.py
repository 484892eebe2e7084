"""What a crash would cost, from what a checkpoint holds and what members list."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gymckpt.core.ids import Digest, Episode, ParticipantId
from gymckpt.core.kinds import Capture, Fate, Kind
from gymckpt.core.manifest import EpisodeRecord, ParticipantInfo, ParticipantManifest, RestoreTarget
from gymckpt.core.recovery import Holding, Present, Recovery, explain, holdings

E, A, M, R = (ParticipantId(kind, "x") for kind in (Kind.ENVIRONMENT, Kind.AGENT, Kind.MODEL, Kind.RESOURCES))
ONE, TWO = Episode("r1"), Episode("r2")
FIRST, SECOND = "first", "second"  # boots of a participant


def boot_of(participant: ParticipantId, which: str) -> str:
    return f"{which} of {participant}"


def info(participant: ParticipantId, boot: str = FIRST, capture: Capture = Capture.EXPORTED) -> ParticipantInfo:
    return ParticipantInfo(participant, "0", boot_of(participant, boot), "h:1", capture)


def present(participant: ParticipantId, *episodes: Episode, boot: str = FIRST) -> Present:
    return Present(info(participant, boot), frozenset(episodes), {}, {})


def held(*participants: ParticipantId, episode: Episode = ONE, source: Episode = ONE) -> dict[Episode, Holding]:
    return {source: Holding(episode, {p: frozenset({boot_of(p, FIRST)}) for p in participants})}


def told(found: Recovery) -> list[tuple[str, str | None, str | None]]:
    return [
        (str(t.episode), str(t.participant) if t.participant else None, str(t.restore) if t.restore else None)
        for t in found.troubles
    ]


WHOLE = [present(E, ONE), present(A, ONE), present(R, ONE)]


def test_a_rollout_that_the_checkpoint_holds_and_nobody_lost_is_recoverable() -> None:
    """Share of live rollouts recoverable."""
    found = explain("c", held(E, A, R), WHOLE, {}, {})
    assert (found.rollouts, found.recoverable, told(found)) == (1, 1, [])


@pytest.mark.parametrize(("checkpoint_id", "why"), [("", "create one"), ("c", "the next one will")])
def test_a_rollout_that_began_after_it_is_not(checkpoint_id: str, why: str) -> None:
    found = explain(checkpoint_id, {}, WHOLE, {}, {})
    assert (found.rollouts, found.recoverable, told(found)) == (1, 0, [("r1", None, None)])
    assert why in found.troubles[0].why


@pytest.mark.parametrize("dead", [E, A, R])
def test_the_death_of_one_server_names_what_it_held(dead: ParticipantId) -> None:
    """X13: one process dies, the others still list it."""
    members = [present(dead, boot=SECOND) if each.info.id == dead else each for each in [*WHOLE, present(M, ONE)]]
    found = explain("c", held(E, A, R, M), members, {}, {})
    assert told(found) == [("r1", f"{dead}", "r1")]
    assert (found.rollouts, found.recoverable) == (1, 1)


@pytest.mark.parametrize(
    ("attempt", "dead", "goes_on"), [(0, (M,), True), (1, (M,), False), (0, (M, R), False), (0, (R,), False)]
)
def test_only_what_no_restore_gave_out_may_go_on_after_the_death_of_its_model_server(
    attempt: int, dead: tuple[ParticipantId, ...], goes_on: bool
) -> None:
    """X38: a model server holds the calls of what a restore gave out before it was born. Whatever goes on by itself may be restored as well."""
    episode = Episode("r1", attempt)
    members = [present(p, boot=SECOND) if p in dead else present(p, episode) for p in (E, A, R, M)]
    [trouble] = explain("c", held(E, A, R, M, episode=episode), members, {}, {}).troubles
    assert trouble.restore == ONE
    assert ("its next call goes on" in trouble.why) is goes_on
    assert "restore r1 from the checkpoint" in trouble.why


def test_a_server_that_is_dead_and_not_back_yet_has_lost_it_too() -> None:
    """The one that follows it need not be there to know."""
    assert told(explain("c", held(E, A, R), WHOLE[:2], {}, {})) == [("r1", "resources/x", "r1")]


def test_a_server_whose_successor_lists_it_has_lost_nothing() -> None:
    """A model server reads its ledger again."""
    members = [*WHOLE, present(M, ONE, boot=SECOND)]
    assert told(explain("c", held(E, A, R, M), members, {}, {})) == []


@pytest.mark.parametrize("participants", [(E, A, R), (A, R)])
def test_what_ended_since_is_not_restored(participants: tuple[ParticipantId, ...]) -> None:
    """Its caller lives and has no more of it; the resources server died after that."""
    members = [present(each) for each in participants[:-1]] + [present(R, boot=SECOND)]
    found = explain("c", held(*participants), members, {}, {})
    assert (found.rollouts, told(found)) == (0, [])


def test_what_may_have_ended_with_its_dead_caller_is_restored() -> None:
    """P08: nobody can say whether its result came through."""
    members = [present(E, boot=SECOND), present(A), present(R)]
    assert told(explain("c", held(E, A, R), members, {}, {})) == [("r1", "environment/x", "r1")]


def test_what_was_retired_is_not_restored() -> None:
    """X29: a retired attempt is refused for good."""
    members = [present(E, boot=SECOND)]
    assert told(explain("c", held(E, A, R), members, {"r1": 0}, {"r1": 0})) == []


@pytest.mark.parametrize("stopped_as", [ONE, Episode("r1", 1)])
def test_what_a_restore_that_failed_has_stopped_is_named_as_the_attempt_that_it_gave_out(stopped_as: Episode) -> None:
    """X14, X39: whether it was aborted or its activation failed, whoever died in it; the next restore brings it back."""
    members = [present(E), present(A, boot=SECOND), present(R)]
    found = explain("c", held(E, A, R, episode=stopped_as), members, {"r1": 1}, {})
    assert told(found) == [("r1-a1", None, "r1")]
    assert (found.rollouts, found.recoverable) == (1, 1)


@pytest.mark.parametrize("over", [0, 1])
def test_what_was_retired_or_continued_otherwise_after_a_restore_that_failed_is_not_named(over: int) -> None:
    """X29: nobody goes on with it."""
    assert told(explain("c", held(E, A, R), [present(E), present(A), present(R)], {"r1": 1}, {"r1": over})) == []


def test_what_has_started_over_after_a_restore_that_failed_is_in_no_checkpoint_yet() -> None:
    """X14: the attempt that runs is not in the checkpoint."""
    later = Episode("r1", 2)
    members = [present(E, later), present(A, later), present(R, later)]
    found = explain("c", held(E, A, R), members, {"r1": 1}, {})
    assert (told(found), found.recoverable) == ([("r1-a2", None, None)], 0)


def test_a_silent_member_is_named_and_has_lost_nothing() -> None:
    """X24."""
    silent = Present(info(R), None, {}, {})
    found = explain("c", held(E, A, R), [*WHOLE[:2], silent], {}, {})
    assert (told(found), found.silent) == ([], (R,))


def test_the_weakest_server_is_named() -> None:
    """An episode is as recoverable as its weakest server."""
    restart_only = replace(present(R, ONE), restarts={ONE: "cannot capture"})
    missing = replace(present(R), lost={TWO: "does not hold session 's'"})
    members = [present(E, ONE, TWO), restart_only, missing]
    found = explain("c", held(E, R, episode=TWO, source=TWO), members, {}, {})
    assert told(found) == [("r1", "resources/x", None), ("r2", "resources/x", None)]
    assert (found.rollouts, found.recoverable) == (2, 0)


def test_only_the_newest_attempt_counts_and_what_models_remember_does_not() -> None:
    members = [present(E, ONE), present(A, Episode("r1", 1)), present(M, TWO)]
    assert told(explain("", {}, members, {}, {})) == [("r1-a1", None, None)]


# Who holds what since the checkpoint.


def manifest(participant: ParticipantId, *episodes: Episode, boot: str = FIRST) -> ParticipantManifest:
    records = tuple(EpisodeRecord(episode, "s", Digest(bytes(32), 0)) for episode in episodes)
    return ParticipantManifest("c", participant, boot_of(participant, boot), records)


def test_a_restore_gives_an_episode_to_every_process_that_took_part() -> None:
    """X14: a second death after a restore."""
    exports = [(info(R), manifest(R, ONE, TWO)), (info(E), manifest(E, ONE, TWO))]
    members = [info(R, SECOND), replace(info(R, "third"), worker="1"), info(E)]
    restores = [(members, [RestoreTarget(ONE, 1, Fate.RESTORED), RestoreTarget(TWO, 1, Fate.RESTARTED)])]
    found = holdings([ONE, TWO], exports, restores)
    boots = {
        R: frozenset({boot_of(R, SECOND), boot_of(R, "third")}),
        E: frozenset({boot_of(E, FIRST)}),
    }
    assert found == {ONE: Holding(Episode("r1", 1), boots)}


def test_servers_without_state_lose_none_and_other_checkpoints_episodes_are_not_asked_for() -> None:
    exports = [(info(R, capture=Capture.STATELESS), manifest(R, ONE)), (info(A), manifest(A, ONE, TWO))]
    assert holdings([ONE], exports, []) == {ONE: Holding(ONE, {A: frozenset({boot_of(A, FIRST)})})}


def test_what_lives_in_one_process_alone_is_not_recoverable_and_dies_with_it() -> None:
    """X13: it goes on through the death of others, and is named with the checkpoint's name once its own process is gone."""
    resident = Present(info(A, capture=Capture.RESIDENT), frozenset({ONE}), {}, {})
    found = explain("c", held(A, R), [resident, present(R, ONE)], {}, {})
    assert (found.rollouts, found.recoverable, told(found)) == (1, 0, [("r1", "agent/x", None)])
    assert told(explain("c", held(A, R), [resident, present(R, boot=SECOND)], {}, {})) == [("r1", "resources/x", "r1")]
    successor = Present(info(A, SECOND, Capture.RESIDENT), frozenset(), {}, {})
    assert told(explain("c", held(A, R), [successor, present(R, ONE)], {}, {})) == [("r1", "agent/x", "r1")]


def test_no_restore_gives_to_another_process_what_a_resident_held() -> None:
    """X13: of several processes of one agent, the one that held it goes on, or nobody."""
    record = EpisodeRecord(ONE, "run-1", None)
    exports = [
        (info(A, capture=Capture.RESIDENT), ParticipantManifest("c", A, boot_of(A, FIRST), (record,))),
        (info(R), ParticipantManifest("c", R, boot_of(R, FIRST), (record,))),
    ]
    members = [info(A, capture=Capture.RESIDENT), info(A, SECOND, Capture.RESIDENT), info(R, SECOND)]
    given = holdings([ONE], exports, [(members, [RestoreTarget(ONE, 1, Fate.RESTORED)])])
    boots = {A: frozenset({boot_of(A, FIRST)}), R: frozenset({boot_of(R, SECOND)})}
    assert given == {ONE: Holding(Episode("r1", 1), boots)}
