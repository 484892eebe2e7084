"""What follows from the records of rounds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gymckpt.core.arguments import (
    CheckpointArguments,
    OnNotReady,
    OnUnloadable,
    RestoreArguments,
    ResumePolicy,
    check_same,
)
from gymckpt.core.decisions import (
    Attempts,
    Cut,
    assemble,
    floor_pages,
    gone_with,
    latest,
    outcome,
    restore_floors,
    restore_targets,
    retired_floors,
    undecided,
    unloadable_targets,
)
from gymckpt.core.ids import MAX_ATTEMPT, Digest, Episode, ParticipantId
from gymckpt.core.kinds import Capture, Fate, Kind
from gymckpt.core.manifest import (
    CheckpointManifest,
    Decision,
    EpisodeRecord,
    Floor,
    Intent,
    ParticipantEntry,
    ParticipantInfo,
    ParticipantManifest,
    RestoreIntent,
    RestoreTarget,
    Touch,
)
from gymckpt.core.report import LostEpisode, Restart
from gymckpt.errors import ArgumentConflict, CheckpointNotFound, InvalidField, MemberMissing

ENVIRONMENT = ParticipantId(Kind.ENVIRONMENT, "e")
AGENT = ParticipantId(Kind.AGENT, "a")
RESOURCES = ParticipantId(Kind.RESOURCES, "r")
STATE = Digest(b"s" * 32, 5)
MANIFEST = Digest(b"m" * 32, 5)
R1, R2, R3, R4 = (Episode(f"r{n}") for n in range(1, 5))
ARGUMENTS = CheckpointArguments("c1", (R1, R2), labels={"a": "1", "b": "2"})


def manifest_of(participant: ParticipantId, *records: EpisodeRecord) -> ParticipantManifest:
    return ParticipantManifest("c1", participant, "0" * 32, records)


def record(episode: Episode, *touches: Touch, state: Digest | None = STATE) -> EpisodeRecord:
    return EpisodeRecord(episode, "s", state, touches=touches)


def cut(arguments: CheckpointArguments, restarts: dict[Episode, str] | None = None) -> Cut:
    return Cut(arguments, Intent(3, 9, (), "base", b""), 1234, (), restarts or {}, {})


@pytest.mark.parametrize(
    "changed",
    [
        replace(ARGUMENTS, episodes=(R1,)),
        replace(ARGUMENTS, prepare_timeout=31.0),
        replace(ARGUMENTS, gate_lease=61.0),
        replace(ARGUMENTS, export_lease=601.0),
        replace(ARGUMENTS, on_not_ready=OnNotReady.HOLD),
        replace(ARGUMENTS, resume=ResumePolicy.BY_CALLER),
        replace(ARGUMENTS, full=True),
        replace(ARGUMENTS, labels={"a": "1"}),
        replace(ARGUMENTS, controller_state=b"x"),
    ],
)
def test_a_retry_with_any_other_argument_is_refused(changed: CheckpointArguments) -> None:
    """C60."""
    with pytest.raises(ArgumentConflict, match="c1"):
        check_same("c1", ARGUMENTS.digest, changed.digest)


def test_the_order_of_episodes_and_labels_makes_no_other_request() -> None:
    """C60: scope order is irrelevant."""
    other = CheckpointArguments("c1", (R2, R1, R2), labels={"b": "2", "a": "1"})
    check_same("c1", ARGUMENTS.digest, other.digest)
    assert RestoreArguments("x", "c1", (R2, R1)).digest == RestoreArguments("x", "c1", (R1, R2)).digest
    with pytest.raises(ArgumentConflict):
        check_same(
            "x",
            RestoreArguments("x", "c1").digest,
            RestoreArguments("x", "c1", on_unloadable=OnUnloadable.RESTART).digest,
        )


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"checkpoint_id": ""}, "checkpoint_id"),
        ({"checkpoint_id": "latest"}, "checkpoint_id"),
        ({"checkpoint_id": "restore-1"}, "checkpoint_id"),
        ({"checkpoint_id": "retire-1"}, "checkpoint_id"),
        ({"checkpoint_id": "forget-1"}, "checkpoint_id"),
        ({"checkpoint_id": "a/b"}, "checkpoint_id"),
        ({"checkpoint_id": "x" * 129}, "checkpoint_id"),
        ({"prepare_timeout": 3601.0}, "prepare_timeout"),
        ({"gate_lease": 0.0}, "gate_lease"),
        ({"export_lease": 86401.0}, "export_lease"),
        ({"labels": {str(n): "" for n in range(65)}}, "labels"),
        ({"labels": {"a b": ""}}, "labels['a b']"),
        ({"labels": {"a": "x" * 257}}, "labels['a']"),
        ({"controller_state": bytes(2**20 + 1)}, "controller_state"),
    ],
)
def test_a_malformed_request_is_refused_and_names_its_field(fields: dict[str, object], field: str) -> None:
    """X20."""
    with pytest.raises(InvalidField) as refused:
        CheckpointArguments(**{"checkpoint_id": "c1", **fields})  # type: ignore[arg-type]
    assert refused.value.field == field


def test_two_attempts_of_one_rollout_cannot_both_be_asked_for() -> None:
    """X29."""
    with pytest.raises(InvalidField, match="r1 and r1-a2"):
        RestoreArguments("x", "c1", (Episode("r1", 2), R1))


def test_latest_is_the_highest_epoch_and_sequence_whenever_it_was_published() -> None:
    """X34."""
    intents = {
        "old": Intent(1, 1, (), "", b""),
        "new": Intent(2, 2, (), "", b""),
        "newer-aborted": Intent(2, 3, (), "", b""),
        "newest-open": Intent(2, 4, (), "", b""),
    }
    decisions = {
        "new": Decision(MANIFEST, unix_millis=1),
        "old": Decision(MANIFEST, unix_millis=2),
        "newer-aborted": Decision(None, "why"),
    }
    assert latest(intents, decisions) == "new"
    assert latest(intents, decisions, deleted={"new"}) == "old"
    with pytest.raises(CheckpointNotFound):
        latest(intents, {"newer-aborted": decisions["newer-aborted"]})


def test_only_rounds_without_a_decision_are_left_to_a_successor() -> None:
    """X07."""
    assert undecided(["c1", "c2", "restore-x"], {"c1"}) == ["c2", "restore-x"]


def test_the_manifest_holds_what_can_continue_and_names_what_cannot() -> None:
    """X13."""
    touch = Touch(RESOURCES, "s", 1)
    manifests = [
        manifest_of(ENVIRONMENT, record(R1), record(R2, touch), record(R3)),
        manifest_of(RESOURCES, record(R3)),
    ]
    made = assemble(cut(CheckpointArguments("c1"), {R3: "restart only"}), manifests)
    assert (made.epoch, made.sequence, made.base_checkpoint_id, made.unix_millis) == (3, 9, "base", 1234)
    assert made.episodes == (R1,)
    assert made.restarts == (Restart(R3, "restart only"),)
    assert [entry.episode for entry in made.lost] == [R2]


def test_a_scope_leaves_others_out_and_names_what_nobody_exported() -> None:
    """O05, X13."""
    made = assemble(cut(CheckpointArguments("c1", (R1, R4))), [manifest_of(ENVIRONMENT, record(R1), record(R2))])
    assert made.episodes == (R1,)
    assert made.lost == (LostEpisode(R4, "no participant exported it"),)


def test_a_boundary_that_names_a_server_which_is_no_member_is_refused_by_name() -> None:
    """X31."""
    with pytest.raises(MemberMissing, match="resources/r"):
        assemble(cut(CheckpointArguments("c1")), [manifest_of(ENVIRONMENT, record(R1, Touch(RESOURCES)))])


def checkpoint(*episodes: Episode) -> CheckpointManifest:
    return CheckpointManifest(
        "c1", 1, 1, 0, episodes=episodes, restarts=(Restart(R3, "restart only"),), lost=(LostEpisode(R4, "gone"),)
    )


def test_every_asked_episode_gets_one_fate_and_the_next_attempt() -> None:
    """X13: asked = restored + restarted + lost; C09: attempt + 1."""
    targets = restore_targets((), checkpoint(R1, Episode("r2", 3)), Attempts(), {})
    assert targets == (
        RestoreTarget(R1, 1, Fate.RESTORED),
        RestoreTarget(Episode("r2", 3), 4, Fate.RESTORED),
        RestoreTarget(R3, 1, Fate.RESTARTED, "restart only"),
        RestoreTarget(R4, 1, Fate.LOST, "gone"),
    )
    assert restore_targets((R4,), checkpoint(R1), Attempts(), {}) == (RestoreTarget(R4, 1, Fate.LOST, "gone"),)


def test_an_episode_that_the_checkpoint_does_not_name_is_refused() -> None:
    """X13."""
    with pytest.raises(InvalidField, match="r9"):
        restore_targets((Episode("r9"),), checkpoint(R1), Attempts(), {})


def test_of_two_attempts_of_one_rollout_the_newer_continues() -> None:
    """X13, X29."""
    targets = restore_targets((), checkpoint(R1, Episode("r1", 1)), Attempts(), {})[:2]
    assert [(t.fate, t.attempt) for t in targets] == [(Fate.LOST, 2), (Fate.RESTORED, 2)]


def resident(name: str, boot: str, *episodes: Episode) -> ParticipantManifest:
    records = tuple(record(episode, state=None) for episode in episodes)
    return ParticipantManifest("c1", ParticipantId(Kind.AGENT, name), boot * 32, records)


def process(boot: str, capture: Capture = Capture.RESIDENT) -> ParticipantInfo:
    return ParticipantInfo(AGENT, "0", boot * 32, "h:1", capture)


GONE = f"agent/a held it in a process that is gone (boot {'1' * 32})"


@pytest.mark.parametrize(
    ("held", "here", "gone"),
    [
        ([resident("a", "1", R1, R2)], "12", {}),
        ([resident("a", "1", R1, R2)], "2", {R1: GONE, R2: GONE}),
        ([resident("a", "1", R1), resident("b", "2", R2)], "2", {R1: GONE}),
        ([resident("b", "2", R1), resident("a", "1", R1)], "2", {R1: GONE}),
        ([resident("a", "1", R1), resident("b", "2", R1)], "2", {R1: GONE}),
        ([resident("a", "1")], "", {}),
        ([], "", {}),
    ],
)
def test_what_a_process_kept_to_itself_is_gone_with_it(
    held: list[ParticipantManifest], here: str, gone: dict[Episode, str]
) -> None:
    """X13: of several that held it, one that is gone is enough."""
    assert gone_with(held, [process(boot) for boot in here]) == gone


def test_episodes_of_a_process_that_is_gone_start_over_with_the_next_attempt() -> None:
    """X13, X29: one fate each; what was captured nowhere or is lost stays so."""
    gone = {R1: GONE, R3: GONE, R4: GONE}
    assert restore_targets((), checkpoint(R1, R2), Attempts(), gone) == (
        RestoreTarget(R1, 1, Fate.RESTARTED, GONE),
        RestoreTarget(R2, 1, Fate.RESTORED),
        RestoreTarget(R3, 1, Fate.RESTARTED, "restart only"),
        RestoreTarget(R4, 1, Fate.LOST, "gone"),
    )
    older = restore_targets((), checkpoint(R1, Episode("r1", 1)), Attempts(), {Episode("r1", 1): GONE})[:2]
    assert [(target.fate, target.attempt) for target in older] == [(Fate.LOST, 2), (Fate.RESTARTED, 2)]


def test_a_checkpoint_tells_residents_by_how_they_are_captured() -> None:
    """X13."""
    manifests = [resident("a", "1", R1, R2), manifest_of(RESOURCES, record(R1))]
    for capture, episodes in ((Capture.RESIDENT, (R1,)), (Capture.EXPORTED, (R1, R2))):
        entries = (ParticipantEntry(process("1", capture), MANIFEST),)
        assert assemble(replace(cut(CheckpointArguments("c1")), entries=entries), manifests).episodes == episodes
    scoped = replace(cut(CheckpointArguments("c1", (R2,))), entries=(ParticipantEntry(process("1"), MANIFEST),))
    assert assemble(scoped, manifests).lost == (LostEpisode(R2, "no participant exported it"),)


def test_an_attempt_is_never_given_twice_whatever_gave_or_refused_it() -> None:
    """X29."""
    attempts = Attempts()
    assert attempts.after(R1) == 1
    attempts.learn_targets([RestoreTarget(R1, 1, Fate.RESTORED)])
    assert attempts.after(R1) == 2
    attempts.learn_floors([Floor("r1", 6)], retired=True)
    assert attempts.after(R1) == 7
    attempts.learn_floors([Floor("r1", -1, 8), Floor("r1", 2)], retired=False)
    assert attempts.after(R1) == 9
    assert attempts.after(Episode("r1", 20)) == 21
    assert attempts.after(R2) == 1
    with pytest.raises(InvalidField, match="r1"):
        attempts.after(Episode("r1", MAX_ATTEMPT))


def test_floors_bind_only_state_that_was_given_out() -> None:
    """X27: a restarted rollout may start anywhere."""
    targets = (
        RestoreTarget(R1, 2, Fate.RESTORED),
        RestoreTarget(R3, 1, Fate.RESTARTED),
        RestoreTarget(R4, 1, Fate.LOST),
    )
    assert restore_floors(targets) == [Floor("r1", 1, 2), Floor("r3", 0, 0), Floor("r4", 0, 0)]
    assert retired_floors([Episode("r1", 2)]) == [Floor("r1", 2, 0)]


def test_floors_of_100_000_rollouts_are_cut_into_pages() -> None:
    pages = list(floor_pages(retired_floors(Episode(f"r{n}") for n in range(100_000))))
    assert [len(page) for page in pages] == [10_000] * 10


@pytest.mark.parametrize("named", [R1, Episode("r1", 1)])
def test_what_cannot_be_loaded_starts_over_with_the_attempt_of_the_intent(named: Episode) -> None:
    """X13, X29."""
    targets = (
        RestoreTarget(R1, 1, Fate.RESTORED),
        RestoreTarget(R2, 1, Fate.RESTORED),
        RestoreTarget(R4, 1, Fate.LOST, "gone"),
    )
    intent = RestoreIntent(1, 1, "c1", MANIFEST, targets, (), b"")
    restarted = unloadable_targets(intent, {named: "schema", R4: "schema"})
    assert restarted == (RestoreTarget(R1, 1, Fate.RESTARTED, "schema"),)
    assert outcome(intent, Decision(MANIFEST, restarted=restarted)) == (restarted[0], targets[1], targets[2])
