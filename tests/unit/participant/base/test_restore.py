"""Holding restored state as pending, making it live, and dropping it: all of it or nothing."""

from __future__ import annotations

import asyncio

import pytest

from gymckpt.core.chunks import digest_of
from gymckpt.core.ids import Digest, Episode
from gymckpt.core.kinds import Capture, GateState
from gymckpt.core.manifest import CheckpointManifest, ParticipantEntry, ParticipantManifest
from gymckpt.core.transitions import Activate, Confirm, Install, InstallTarget, Prepare
from gymckpt.errors import (
    ArgumentConflict,
    BlobNotFound,
    Conflict,
    DamagedBlob,
    GymckptError,
    InvalidPhase,
    StaleAttempt,
    StoreUnavailable,
)
from gymckpt.participant import MappingState, ResourcesParticipant
from gymckpt.rpc.codec import encode_checkpoint_manifest, encode_participant_manifest
from tests.unit.participant.base.bed import Counters, StoppableStore
from tests.unit.participant.rounds import Checkpoint, Rounds, settled

ABC = (("a", 1), ("b", 1), ("c", 1))


@pytest.fixture
async def checkpoint(rounds: Rounds) -> Checkpoint:
    source = Counters(rounds)
    for number, text in enumerate("abc"):
        source.seed(text, key=f"cookie-{text}", value=number)
    return await rounds.checkpoint(source.participant)


def nothing_held(counters: Counters) -> bool:
    p = counters.participant
    return (counters.keys, counters.values, p.restoring.pending_fence, counters.gate()) == (
        [],
        {},
        None,
        GateState.OPEN,
    )


async def test_a_restore_brings_each_session_back_under_its_key_bound_to_the_next_attempt(
    rounds: Rounds, counters: Counters, checkpoint: Checkpoint
) -> None:
    """C09, R08, M07"""
    fence, installed = await rounds.install(counters.participant, checkpoint.digest, *ABC)
    assert (installed.sessions, installed.unloadable) == (3, ())
    assert all(session.pending for session in counters.participant.sessions)
    assert (await rounds.ask(counters.participant, fence, Confirm())).sessions == 3
    assert (await rounds.ask(counters.participant, fence, Activate())).sessions == 3
    assert (await rounds.ask(counters.participant, fence, Activate())).sessions == 3
    assert counters.values == {"cookie-a": 0, "cookie-b": 1, "cookie-c": 2}
    assert [str(session.episode) for session in counters.participant.sessions] == ["a-a1", "b-a1", "c-a1"]
    assert not any(session.pending for session in counters.participant.sessions)
    assert counters.gate() is GateState.OPEN


async def test_only_what_is_in_scope_is_read_and_installed_and_unknown_episodes_only_raise_the_floor(
    rounds: Rounds, counters: Counters, checkpoint: Checkpoint
) -> None:
    """C21, C22, C52"""
    await rounds.restore(counters.participant, checkpoint.digest, ("b", 4), ("not-here", 2))
    assert counters.keys == ["cookie-b"]
    floors = counters.participant.floors
    assert [floors.refuses(Episode(*episode)) for episode in (("b", 3), ("b", 4), ("not-here", 1), ("a", 0))] == [
        True,
        False,
        True,
        False,
    ]


async def test_calls_for_pending_state_are_held_until_it_is_live_and_the_source_attempt_is_refused(
    rounds: Rounds, counters: Counters, checkpoint: Checkpoint
) -> None:
    """V03, X28, R14"""
    p = counters.participant
    fence, _ = await rounds.install(p, checkpoint.digest, *ABC)
    held = asyncio.create_task(p.enter(counters.call("a-a1")))
    again = asyncio.create_task(p.enter(counters.call("b-a1", "/seed_session", continues=True)))
    await settled()
    assert not held.done()
    assert not again.done()
    with pytest.raises(StaleAttempt):
        p.enter_now(counters.call("a", session="cookie-a"))
    await rounds.ask(p, fence, Activate())
    ticket = await held
    assert ticket is not None
    assert ticket.session is not None
    assert str(ticket.session.episode) == "a-a1"
    assert (await again) is not None


async def test_what_is_held_of_an_old_attempt_is_refused_once_its_successor_is_installed(
    rounds: Rounds, counters: Counters, checkpoint: Checkpoint
) -> None:
    """X38, V03"""
    p = counters.participant
    held = asyncio.create_task(p.enter(counters.call("a", session="cookie-a")))
    await settled()
    assert list(p.lost) == [Episode("a")]
    await rounds.install(p, checkpoint.digest, *ABC)
    with pytest.raises(StaleAttempt):
        await held
    assert p.lost == {}


@pytest.mark.parametrize("refused", ["cookie-a", "cookie-b", "cookie-c"])
async def test_an_install_that_fails_half_way_leaves_nothing_and_may_be_tried_again(
    rounds: Rounds, counters: Counters, checkpoint: Checkpoint, refused: str
) -> None:
    """C11, C45, R08"""
    counters.state.refuse_install = refused
    with pytest.raises(RuntimeError, match="cannot be installed"):
        await rounds.install(counters.participant, checkpoint.digest, *ABC)
    assert nothing_held(counters)
    counters.state.refuse_install = ""
    assert (await rounds.restore(counters.participant, checkpoint.digest, *ABC)).sessions == 3


async def damage(store: StoppableStore, digest: Digest) -> None:
    store._blobs[digest] = b"damaged"


async def lose(store: StoppableStore, digest: Digest) -> None:
    del store._blobs[digest]


@pytest.mark.parametrize("what", ["checkpoint", "participant", "session", "part"])
@pytest.mark.parametrize(("harm", "error"), [(damage, DamagedBlob), (lose, BlobNotFound)])
async def test_a_checkpoint_that_cannot_be_read_whole_is_refused_and_nothing_is_installed(
    rounds: Rounds,
    counters: Counters,
    store: StoppableStore,
    checkpoint: Checkpoint,
    what: str,
    harm: object,
    error: type[GymckptError],
) -> None:
    """C10, C45"""
    session = checkpoint.states["b", "cookie-b"]
    assert session is not None
    digest = {
        "checkpoint": checkpoint.digest,
        "participant": checkpoint.uploaded.manifest,
        "session": session,
        "part": digest_of(b"1"),
    }[what]
    await (damage if harm is damage else lose)(store, digest)
    with pytest.raises(error, match=str(digest)) as refused:
        await rounds.install(counters.participant, checkpoint.digest, *ABC)
    assert nothing_held(counters)
    if what in ("session", "part"):
        assert "b" in refused.value.details["rollouts"].split(",")


async def test_state_of_another_schema_or_that_the_author_cannot_load_is_named_and_not_held(
    rounds: Rounds, counters: Counters, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C46, C11"""
    other = ResourcesParticipant("tools", state=MappingState[int]({}, schema="counter/2"))
    _, installed = await rounds.install(other, checkpoint.digest, *ABC)
    assert [str(lost.episode) for lost in installed.unloadable] == ["a-a1", "b-a1", "c-a1"]
    assert "loads 'counter/2', the checkpoint holds 'counter/1'" in installed.unloadable[0].why

    load = counters.state.load

    def picky(parts: dict[str, bytes]) -> int:
        if parts["value"] == b"1":
            raise IndexError("no such row")
        return load(parts)

    monkeypatch.setattr(counters.state, "load", picky)
    fence, installed = await rounds.install(counters.participant, checkpoint.digest, *ABC)
    assert [(str(lost.episode), lost.why) for lost in installed.unloadable] == [
        ("b-a1", "session 'cookie-b' is not 'counter/1': IndexError('no such row')")
    ]
    assert counters.keys == ["cookie-a", "cookie-c"]
    assert (await rounds.ask(counters.participant, fence, Confirm())).sessions == 2


@pytest.mark.parametrize("capture", [Capture.STATELESS, Capture.RESTART_ONLY])
async def test_a_server_that_keeps_no_state_does_not_take_any(
    rounds: Rounds, checkpoint: Checkpoint, capture: Capture
) -> None:
    """R10"""
    tools = Counters(rounds, capture=capture)
    installed = await rounds.restore(tools.participant, checkpoint.digest, *ABC)
    assert (installed.sessions, len(installed.unloadable), tools.keys) == (0, 3, [])


async def test_one_session_claimed_by_two_processes_is_given_to_none(rounds: Rounds, counters: Counters) -> None:
    """W08"""
    entries = []
    for value in (1, 2):
        source = Counters(rounds)
        source.seed("a", key="same", value=value)
        source.seed(f"own-{value}")
        published = await rounds.checkpoint(source.participant)
        entries.append(ParticipantEntry(source.participant.info, published.uploaded.manifest))
    both = CheckpointManifest("both", 1, 9, 0, participants=tuple(entries))
    [digest] = await rounds.store.write([encode_checkpoint_manifest(both)])
    targets = (("a", 1), ("own-1", 1), ("own-2", 1))
    installed = await rounds.restore(counters.participant, digest, *targets)
    assert [str(lost.episode) for lost in installed.unloadable] == ["a-a1"]
    assert counters.keys == ["own-1", "own-2"]


async def test_live_state_or_work_of_a_rollout_must_be_retired_before_it_is_restored(
    rounds: Rounds, counters: Counters, checkpoint: Checkpoint
) -> None:
    """R08, E11"""
    p = counters.participant
    counters.seed("a")
    with pytest.raises(InvalidPhase, match="retire it before restoring a-a1"):
        await rounds.install(p, checkpoint.digest, *ABC)
    assert not p.floors.refuses(Episode("b"))
    await rounds.retire(p, "a")
    seeding = counters.enter("b", "/seed_session")
    with pytest.raises(InvalidPhase, match="live state or work of b"):
        await rounds.install(p, checkpoint.digest, *ABC)
    counters.leave(seeding, succeeded=False)
    await rounds.restore(p, checkpoint.digest, *ABC)


async def test_a_session_that_begins_while_the_checkpoint_is_read_refuses_the_install_whole(
    rounds: Rounds, counters: Counters, store: StoppableStore, checkpoint: Checkpoint
) -> None:
    """C11, C45"""
    p = counters.participant
    store.stop()
    installing = asyncio.create_task(rounds.install(p, checkpoint.digest, *ABC))
    await store.reached.wait()
    counters.seed("other", key="cookie-c", value=42)
    store.running.set()
    with pytest.raises(Conflict, match="'cookie-c'"):
        await installing
    assert (counters.keys, counters.values["cookie-c"]) == (["cookie-c"], 42)
    assert p.restoring.pending_fence is None


async def test_a_target_that_starts_from_input_while_the_checkpoint_is_read_refuses_the_install_whole(
    rounds: Rounds, counters: Counters, store: StoppableStore, checkpoint: Checkpoint
) -> None:
    """X28, X30: under a key of its own; else two sessions would be the same attempt."""
    p = counters.participant
    store.stop()
    installing = asyncio.create_task(rounds.install(p, checkpoint.digest, *ABC))
    await store.reached.wait()
    counters.seed("b-a1", key="its own", value=42)
    store.running.set()
    with pytest.raises(InvalidPhase, match="retire it before restoring b-a1"):
        await installing
    assert (counters.keys, counters.values, p.restoring.pending_fence) == (["its own"], {"its own": 42}, None)


async def test_a_restore_and_a_checkpoint_exclude_each_other(
    rounds: Rounds, counters: Counters, checkpoint: Checkpoint
) -> None:
    p = counters.participant
    fence, _ = await rounds.prepare(p)
    with pytest.raises(Conflict, match="is under way"):
        await rounds.install(p, checkpoint.digest, *ABC)
    await rounds.resume(p, fence)
    restore, _ = await rounds.install(p, checkpoint.digest, *ABC)
    with pytest.raises(Conflict, match=f"restore '{restore.checkpoint_id}' is under way"):
        await rounds.prepare(p)
    with pytest.raises(Conflict):
        await rounds.install(p, checkpoint.digest, *ABC)
    await rounds.ask(p, restore, Activate())
    assert (await rounds.checkpoint(p)).taken.sessions == 3


async def test_the_same_install_again_answers_the_same_and_other_targets_are_refused(
    rounds: Rounds, counters: Counters, store: StoppableStore, checkpoint: Checkpoint
) -> None:
    """C60, C57"""
    p, fence = counters.participant, rounds.fence("restore-x")
    install = Install(checkpoint.digest, (InstallTarget(Episode("a"), 1),), 60.0)
    store.stop()
    caller = asyncio.create_task(rounds.ask(p, fence, install))
    await store.reached.wait()
    with pytest.raises(InvalidPhase, match="still being installed"):
        await rounds.ask(p, fence, Confirm())
    caller.cancel()
    await asyncio.wait({caller})
    again = asyncio.create_task(rounds.ask(p, fence, install))
    store.running.set()
    first = await again
    assert await rounds.ask(p, fence, install) is first
    other = Install(checkpoint.digest, (InstallTarget(Episode("b"), 1),), 60.0)
    with pytest.raises(ArgumentConflict):
        await rounds.ask(p, fence, other)
    assert counters.keys == ["cookie-a"]


async def test_a_store_that_fails_during_an_install_leaves_nothing_and_the_same_install_may_be_tried_again(
    rounds: Rounds, counters: Counters, store: StoppableStore, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C45"""

    async def gone(digests: object) -> list[bytes]:
        raise StoreUnavailable("the store does not answer")

    p, fence = counters.participant, rounds.fence("restore-x")
    install = Install(checkpoint.digest, (InstallTarget(Episode("a"), 1),), 60.0)
    monkeypatch.setattr(store, "read", gone)
    with pytest.raises(StoreUnavailable):
        await rounds.ask(p, fence, install)
    assert nothing_held(counters)
    monkeypatch.undo()
    assert (await rounds.ask(p, fence, install)).sessions == 1


async def test_a_kind_that_fails_at_one_activation_still_has_them_all_live(
    rounds: Rounds, counters: Counters, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X28"""
    p = counters.participant
    told: list[str] = []

    def activated(session: object) -> None:
        told.append(session.key)  # type: ignore[attr-defined]
        raise RuntimeError("the kind fails")

    monkeypatch.setattr(p, "activated", activated)
    fence, _ = await rounds.install(p, checkpoint.digest, *ABC)
    held = asyncio.create_task(p.enter(counters.call("c-a1")))
    await settled()
    with pytest.raises(RuntimeError, match="the kind fails"):
        await rounds.ask(p, fence, Activate())
    assert told == ["cookie-a", "cookie-b", "cookie-c"]
    assert (await held) is not None
    assert (await rounds.ask(p, fence, Activate())).sessions == 3


async def test_a_second_checkpoint_before_anybody_continues_equals_the_first_and_restores_again(
    rounds: Rounds, counters: Counters, checkpoint: Checkpoint
) -> None:
    """X14, X15, P13, E09"""
    await rounds.restore(counters.participant, checkpoint.digest, *ABC)
    second = await rounds.checkpoint(counters.participant)
    assert second.states == checkpoint.states
    third = Counters(rounds)
    await rounds.restore(third.participant, second.digest, ("a-a1", 2), ("b-a1", 2), ("c-a1", 2))
    assert third.values == counters.values


async def test_an_unclaimed_restored_session_outside_the_scope_is_not_exported_and_not_deleted(
    rounds: Rounds, counters: Counters, checkpoint: Checkpoint
) -> None:
    """C30, R14"""
    await rounds.restore(counters.participant, checkpoint.digest, *ABC)
    second = await rounds.checkpoint(counters.participant, scope=[Episode("a", 1)])
    assert sorted(second.records) == ["a-a1"]
    assert len(counters.keys) == 3


async def test_a_checkpoint_that_does_not_know_this_participant_only_raises_floors(
    rounds: Rounds, counters: Counters
) -> None:
    """C52"""
    stranger = ResourcesParticipant("another", capture=Capture.STATELESS)
    [manifest] = await rounds.store.write(
        [encode_participant_manifest(ParticipantManifest("c", stranger.id, stranger.boot_id, ()))]
    )
    data = encode_checkpoint_manifest(
        CheckpointManifest("c", 1, 1, 0, participants=(ParticipantEntry(stranger.info, manifest),))
    )
    [digest] = await rounds.store.write([data])
    fence, installed = await rounds.install(counters.participant, digest, ("a", 1))
    assert installed.sessions == 0
    with pytest.raises(Conflict):
        await rounds.ask(counters.participant, rounds.fence(), Prepare(1.0, 60.0))
    assert (await rounds.ask(counters.participant, fence, Activate())).sessions == 0
