"""Which episodes the manifests of all participants can continue together."""

from __future__ import annotations

import pytest

from gymckpt.core.ids import Digest, Episode, ParticipantId
from gymckpt.core.kinds import Fate, Kind
from gymckpt.core.manifest import EpisodeRecord, ParticipantManifest, RestoreTarget, Touch, join, used_copies

AGENT, OTHER_AGENT = ParticipantId(Kind.AGENT, "agent"), ParticipantId(Kind.AGENT, "other")
TOOLS, MODEL = ParticipantId(Kind.RESOURCES, "tools"), ParticipantId(Kind.MODEL, "policy")
R1, R2 = Episode("r1"), Episode("r2", 3)
STATE = Digest(bytes(32), 0)


def record(episode: Episode, session: str, *touches: Touch, revision: int = 0, unreceipted: int = 0) -> EpisodeRecord:
    return EpisodeRecord(episode, session, STATE, revision, unreceipted, "turn", touches)


def manifest(participant: ParticipantId, *records: EpisodeRecord, boot: str = "0" * 32) -> ParticipantManifest:
    return ParticipantManifest("c1", participant, boot, records)


def test_an_episode_whose_every_touched_session_was_exported_continues() -> None:
    """X13."""
    manifests = [
        manifest(AGENT, record(R1, "a", Touch(TOOLS, "s", 4), Touch(MODEL))),
        manifest(TOOLS, record(R1, "s", revision=4)),
        manifest(MODEL, record(R1, "m")),
    ]
    assert join(manifests, {}) == ((R1,), (), ())


def test_an_episode_that_touches_nothing_continues() -> None:
    """X13."""
    assert join([manifest(AGENT, record(R1, "a"))], {}) == ((R1,), (), ())


@pytest.mark.parametrize(
    ("touch", "exported", "why"),
    [
        (Touch(TOOLS, "s", 4), [], "did not export session 's'"),
        (Touch(TOOLS, "s", 4), [record(R1, "other", revision=9)], "did not export session 's'"),
        (Touch(TOOLS), [], "did not export session 'of the episode'"),
        (Touch(TOOLS, "s", 4), [record(Episode("r1", 1), "s", revision=9)], "did not export session 's'"),
        (Touch(TOOLS, "s", 4), [record(R1, "s", revision=3)], "at revision 3, its caller had seen 4"),
        (Touch(TOOLS, "s", 4), [record(R1, "s", revision=6, unreceipted=5)], "changed at revision 5"),
        (Touch(TOOLS, "", 4), [record(R1, "s", revision=9), record(R1, "t", revision=3)], "session 't' at revision 3"),
    ],
)
def test_a_gap_makes_the_episode_lost_and_says_which(touch: Touch, exported: list[EpisodeRecord], why: str) -> None:
    """X13: named as lost, never stored half."""
    good = [manifest(AGENT, record(R1, "a", touch), record(R2, "b", Touch(TOOLS, "t2"))), manifest(TOOLS, *exported)]
    good.append(manifest(TOOLS, record(R2, "t2"), boot="1" * 32))
    continuable, lost, unknown = join(good, {})
    assert R2 in continuable
    assert R1 not in continuable
    assert [entry.episode for entry in lost] == [R1]
    assert why in lost[0].why
    assert unknown == ()


@pytest.mark.parametrize("unreceipted", [0, 3, 4])
def test_calls_beyond_what_was_seen_are_no_gap_when_they_have_receipts(unreceipted: int) -> None:
    """X16: the caller repeats them and is answered from the receipts."""
    manifests = [
        manifest(AGENT, record(R1, "a", Touch(TOOLS, "s", 4))),
        manifest(TOOLS, record(R1, "s", revision=9, unreceipted=unreceipted)),
    ]
    assert join(manifests, {})[0] == (R1,)


def test_what_one_caller_missed_another_may_have_seen() -> None:
    """X16."""
    manifests = [
        manifest(AGENT, record(R1, "a", Touch(TOOLS, "s", 2))),
        manifest(OTHER_AGENT, record(R1, "b", Touch(TOOLS, "s", 5))),
        manifest(TOOLS, record(R1, "s", revision=5, unreceipted=5)),
    ]
    assert join(manifests, {})[0] == (R1,)


def test_processes_of_one_participant_export_together() -> None:
    manifests = [
        manifest(AGENT, record(R1, "a", Touch(TOOLS, "s1"), Touch(TOOLS, "s2"))),
        manifest(TOOLS, record(R1, "s1"), boot="1" * 32),
        manifest(TOOLS, record(R1, "s2"), boot="2" * 32),
    ]
    assert join(manifests, {})[0] == (R1,)


def test_an_episode_that_could_not_be_encoded_is_lost_with_that_reason() -> None:
    """X13."""
    manifests = [manifest(AGENT, record(R1, "a"), record(R2, "b"))]
    continuable, lost, _ = join(manifests, {R1: "cannot be encoded", Episode("r9"): "neither"})
    assert continuable == (R2,)
    assert [(str(entry.episode), entry.why) for entry in lost] == [("r1", "cannot be encoded"), ("r9", "neither")]


def test_a_touched_participant_that_is_no_member_is_named() -> None:
    """X31."""
    _, lost, unknown = join([manifest(AGENT, record(R1, "a", Touch(TOOLS), Touch(MODEL)))], {})
    assert unknown == (MODEL, TOOLS)
    assert [entry.episode for entry in lost] == [R1]


def test_every_episode_is_told_once_and_in_order() -> None:
    """X13: conservation."""
    episodes = [Episode(f"r{number}", number % 3) for number in (5, 3, 9, 1)]
    touches = [Touch(TOOLS, "s")] if len(episodes) % 2 else []
    manifests = [manifest(AGENT, *(record(episode, "a", *touches) for episode in episodes))]
    manifests.append(manifest(MODEL, *(record(episode, "m", Touch(TOOLS, "s")) for episode in episodes[:2])))
    continuable, lost, _ = join(manifests, {})
    assert list(continuable) == sorted(episodes[2:])
    assert [entry.episode for entry in lost] == sorted(episodes[:2])


def test_of_several_copies_of_a_session_the_used_one_counts() -> None:
    """W07: every process of a participant got a copy from a restore; the calls reached one of them."""
    touched = record(R1, "a", Touch(TOOLS, "s", 5))
    copies = [EpisodeRecord(R1, "s", None, revision) for revision in (3, 5, 3)]
    manifests = [manifest(AGENT, touched), *(manifest(TOOLS, copy) for copy in copies)]
    assert join(manifests, {}) == ((R1,), (), ())
    assert used_copies(copies) == [copies[1]]
    other = EpisodeRecord(R1, "s", STATE, 5)
    _, lost, _ = join([*manifests, manifest(TOOLS, other)], {})
    assert [entry.why for entry in lost] == ["two processes of resources/tools hold session 's' in different states"]


def test_an_episode_that_only_a_model_remembers_has_finished() -> None:
    """X13, C36: nobody could continue it."""
    manifests = [manifest(AGENT, record(R1, "a")), manifest(MODEL, record(R1, "r1"), record(R2, "r2"))]
    assert join(manifests, {}) == ((R1,), (), ())


def test_a_target_is_the_source_under_its_new_attempt() -> None:
    assert RestoreTarget(R2, 7, Fate.RESTORED).target == Episode("r2", 7)


RESIDENT = [manifest(AGENT, record(R1, "run-1"), record(R2, "run-2"))]


@pytest.mark.parametrize(
    ("others", "continuable"),
    [
        ([], ()),
        ([manifest(MODEL, record(R1, "m"))], ()),
        ([manifest(TOOLS, record(R1, "s"))], (R1,)),
        ([manifest(TOOLS, record(R1, "s")), manifest(OTHER_AGENT, record(R2, "b", Touch(AGENT)))], (R1, R2)),
    ],
)
def test_what_only_residents_know_is_nothing_to_restore(
    others: list[ParticipantManifest], continuable: tuple[Episode, ...]
) -> None:
    """X13: neither continued nor lost. Whoever touched a resident finds its episode there."""
    assert join([*RESIDENT, *others], {}, {AGENT}) == (continuable, (), ())
