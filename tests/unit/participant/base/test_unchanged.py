"""What did not change since this process's own last published checkpoint is neither frozen nor encoded nor sent again."""

from __future__ import annotations

import pytest

from gymckpt.core.manifest import CheckpointManifest, Decision, ParticipantEntry
from gymckpt.core.transitions import Abort, Decided, Upload
from gymckpt.errors import CutVoid
from gymckpt.rpc.codec import encode_checkpoint_manifest, encode_decision
from tests.unit.participant.base.bed import Counters, StoppableStore
from tests.unit.participant.rounds import Rounds


async def test_only_changed_sessions_are_frozen_encoded_and_sent_and_the_others_keep_their_digest(
    rounds: Rounds, counters: Counters, store: StoppableStore
) -> None:
    """X12, X03"""
    p = counters.participant
    for number in range(20):
        counters.seed(f"r{number}", value=number)
    first = await rounds.checkpoint(p)
    counters.state.frozen.clear()
    counters.state.encoded.clear()
    counters.add("r3", 1000)
    second = await rounds.checkpoint(p, base=first.manifest.checkpoint_id)
    assert (counters.state.frozen, counters.state.encoded) == (["r3"], [b"1003"])
    assert (second.taken.sessions, second.taken.changed) == (20, 1)
    assert second.uploaded.blobs_sent == 3  # the part, the session and the participant manifest
    changed = {key for key, digest in second.states.items() if digest != first.states[key]}
    assert changed == {("r3", "r3")}
    counters.state.frozen.clear()
    third = await rounds.checkpoint(p, base=second.manifest.checkpoint_id)
    assert (third.taken.changed, counters.state.frozen, third.states) == (0, [], second.states)


async def test_without_a_base_everything_is_frozen_again(rounds: Rounds, counters: Counters) -> None:
    """X12"""
    counters.seed("r")
    await rounds.checkpoint(counters.participant)
    again = await rounds.checkpoint(counters.participant)
    assert (again.taken.changed, counters.state.frozen) == (1, ["r", "r"])


async def test_a_base_that_is_not_our_own_last_published_export_reuses_nothing(
    rounds: Rounds, counters: Counters
) -> None:
    """X36"""
    p = counters.participant
    counters.seed("r")
    fence, prepared = await rounds.prepare(p)
    await rounds.snapshot(p, fence, prepared)
    await rounds.ask(p, fence, Upload())
    await rounds.ask(p, fence, Abort())
    assert (await rounds.checkpoint(p, base=fence.checkpoint_id)).taken.changed == 1
    assert (await rounds.checkpoint(p, base="somebody-elses")).taken.changed == 1


async def test_a_checkpoint_that_was_decided_against_is_never_a_base(rounds: Rounds, counters: Counters) -> None:
    """X36"""
    p = counters.participant
    counters.seed("r")
    fence, prepared = await rounds.prepare(p)
    await rounds.snapshot(p, fence, prepared)
    await rounds.ask(p, fence, Upload())
    await rounds.ask(p, fence, Decided(published=False))
    await rounds.resume(p, fence)
    assert (await rounds.checkpoint(p, base=fence.checkpoint_id)).taken.changed == 1


async def test_a_session_that_took_the_key_of_a_published_one_is_another_although_its_revision_is_equal(
    rounds: Rounds, counters: Counters
) -> None:
    """X36"""
    p = counters.participant
    counters.seed("r", value=1)
    fence, prepared = await rounds.prepare(p)
    taken = await rounds.snapshot(p, fence, prepared)
    await rounds.resume(p, fence)
    counters.leave(counters.enter("r", "/close_session"))
    counters.seed("r", value=2)
    first = await rounds.publish(p, fence, taken)
    second = await rounds.checkpoint(p, base=first.manifest.checkpoint_id)
    assert (first.records["r"].revision, second.records["r"].revision) == (1, 1)
    assert (await rounds.parts(second.records["r"]))["value"] == b"2"


async def test_two_processes_with_equal_keys_and_revisions_share_no_unchanged(rounds: Rounds) -> None:
    """X36"""
    one, other = Counters(rounds), Counters(rounds)
    one.seed("r", value=1)
    other.seed("r", value=2)
    first = await rounds.checkpoint(one.participant)
    second = await rounds.checkpoint(other.participant, base=first.manifest.checkpoint_id)
    assert (await rounds.parts(second.records["r"]))["value"] == b"2"


@pytest.mark.parametrize("loss", ["decision", "participant"])
async def test_the_cut_is_void_when_the_base_no_longer_holds_what_was_to_be_reused(
    rounds: Rounds, counters: Counters, store: StoppableStore, loss: str
) -> None:
    """X40"""
    p = counters.participant
    counters.seed("r")
    first = await rounds.checkpoint(p)
    base = first.manifest.checkpoint_id
    del store._names[f"decisions/{base}"]
    if loss == "participant":
        info = Counters(rounds).participant.info  # another process of the same participant
        other = CheckpointManifest(base, 1, 1, 0, participants=(ParticipantEntry(info, first.uploaded.manifest),))
        [digest] = await store.write([encode_checkpoint_manifest(other)])
        await store.put_name(f"decisions/{base}", encode_decision(Decision(digest)))
    fence, prepared = await rounds.prepare(p)
    taken = await rounds.snapshot(p, fence, prepared, base=base)
    assert taken.changed == 0
    with pytest.raises(CutVoid, match="base"):
        await rounds.ask(p, fence, Upload())
