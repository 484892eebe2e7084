"""How a rollout's calls follow it to its next attempt."""

from __future__ import annotations

from pathlib import Path

import pytest

from gymckpt.core.ids import Episode
from gymckpt.core.manifest import EpisodeRecord, Floor
from gymckpt.errors import InvalidPhase, StaleAttempt, UnloadableState
from gymckpt.participant.ledger import SqliteLedger
from gymckpt.participant.model import ModelParticipant
from tests.unit.participant.model.conftest import Asked, Fleet, ask
from tests.unit.participant.rounds import Rounds, settled


def lineage(model: ModelParticipant) -> list[tuple[str, str | None, str]]:
    """Id, parent and origin of the calls of rollout `r`."""
    return [(row["call_id"], row["parent"], row["made"]) for row in model.ledger.rows("r")]


async def test_the_first_call_after_a_restore_follows_the_last_one_kept(
    model: ModelParticipant, fleet: Fleet, rounds: Rounds
) -> None:
    """M07, V04, P04: rows keep where they were made, through two restores."""
    await ask(model, "r", calls=2)
    first = await rounds.checkpoint(model)
    second_process = fleet.model()
    await rounds.restore(second_process, first.digest, ("r", 1))
    await ask(second_process, "r-a1")
    second = await rounds.checkpoint(second_process)
    third_process = fleet.model()
    await rounds.restore(third_process, second.digest, ("r-a1", 2))
    await ask(third_process, "r-a2")
    assert lineage(third_process) == [
        ("0.0", None, "r"),
        ("0.1", "0.0", "r"),
        ("1.0", "0.1", "r-a1"),
        ("2.0", "1.0", "r-a2"),
    ]


async def test_repeated_tries_of_the_first_call_link_to_the_kept_one_once(
    model: ModelParticipant, fleet: Fleet, rounds: Rounds
) -> None:
    """V04: a try that nobody received is not in the lineage, also when it was parked."""
    await ask(model, "r")
    checkpoint = await rounds.checkpoint(model)
    successor = fleet.model()
    await rounds.restore(successor, checkpoint.digest, ("r", 1))
    for _ in range(2):
        fence, _ = await rounds.prepare(successor)
        parked = Asked(successor, "r-a1")
        await settled()
        await rounds.resume(successor, fence)
        await parked.admitted.wait()
        assert parked.parent == "0.0"
        parked.task.cancel()
        await settled()
    await ask(successor, "r-a1", calls=2)
    assert [parent for _, parent, _ in lineage(successor)] == [None, "0.0", "1.2"]


async def test_a_checkpoint_before_anything_ran_holds_the_same_blobs(
    model: ModelParticipant, fleet: Fleet, rounds: Rounds
) -> None:
    """P13, X15, E09."""
    await ask(model, "r", calls=3)
    first = await rounds.checkpoint(model)
    successor = fleet.model()
    await rounds.restore(successor, first.digest, ("r", 1))
    second = await rounds.checkpoint(successor)
    assert second.states == first.states
    assert list(second.records) == ["r-a1"]
    assert _unbound(second.records["r-a1"]) == _unbound(first.records["r"])


def _unbound(record: EpisodeRecord) -> tuple[object, ...]:
    return (record.session, record.state, record.revision, record.boundary)


async def test_calls_that_died_with_an_attempt_are_not_in_the_lineage_of_the_next(
    model: ModelParticipant, fleet: Fleet, rounds: Rounds
) -> None:
    """M08: the same checkpoint again, after its replacement made calls and crashed."""
    await ask(model, "r")
    checkpoint = await rounds.checkpoint(model)
    await ask(model, "r")
    second_process = fleet.model()
    await rounds.restore(second_process, checkpoint.digest, ("r", 1))
    await ask(second_process, "r-a1", calls=2)
    await rounds.retire(second_process, "r-a1")
    await rounds.restore(second_process, checkpoint.digest, ("r", 2))
    await ask(second_process, "r-a2")
    assert lineage(second_process) == [("0.0", None, "r"), ("1.2", "0.0", "r-a2")]


async def test_a_restore_needs_the_rollout_to_be_unused_here(model: ModelParticipant, rounds: Rounds) -> None:
    """M06, per rollout: survivors with other rollouts take part."""
    await ask(model, "r")
    checkpoint = await rounds.checkpoint(model)
    await ask(model, "other")
    with pytest.raises(InvalidPhase, match="retire it"):
        await rounds.restore(model, checkpoint.digest, ("r", 1))
    await rounds.retire(model, "r")
    await rounds.restore(model, checkpoint.digest, ("r", 1))
    await ask(model, "r-a1")
    assert [made for _, _, made in lineage(model)] == ["r", "r-a1"]


async def test_calls_of_the_attempt_before_are_refused_after_a_restore(
    model: ModelParticipant, fleet: Fleet, rounds: Rounds
) -> None:
    """M09: and change nothing."""
    await ask(model, "r")
    checkpoint = await rounds.checkpoint(model)
    successor = fleet.model()
    await rounds.restore(successor, checkpoint.digest, ("r", 1))
    with pytest.raises(StaleAttempt):
        await Asked(successor, "r").result()
    assert lineage(successor) == [("0.0", None, "r")]


async def test_a_process_born_after_a_restore_holds_the_calls_of_what_it_does_not_know(
    model: ModelParticipant, fleet: Fleet, rounds: Rounds
) -> None:
    """X27, X38: its agent lives on; a refusal would end the rollout that the next restore brings back."""
    await ask(model, "r")
    checkpoint = await rounds.checkpoint(model)
    born_later = fleet.model()
    born_later.floors.learn([Floor("r", refused=0, target=1)])
    held = Asked(born_later, "r-a1")
    await settled()
    assert not held.task.done()
    assert list(born_later.lost) == [Episode("r", 1)]
    fence, _ = await rounds.prepare(born_later)
    await rounds.resume(born_later, fence)
    await rounds.retire(born_later, "r-a1")
    with pytest.raises(StaleAttempt):
        await held.result()
    assert born_later.lost == {}
    await rounds.restore(born_later, checkpoint.digest, ("r", 2))
    assert await ask(born_later, "r-a2")


async def test_a_call_waits_while_its_rollout_is_pending(model: ModelParticipant, fleet: Fleet, rounds: Rounds) -> None:
    """X28: nothing runs on state that may still be dropped."""
    await ask(model, "r")
    checkpoint = await rounds.checkpoint(model)
    successor = fleet.model()
    fence, _ = await rounds.install(successor, checkpoint.digest, ("r", 1))
    asked = Asked(successor, "r-a1")
    await settled()
    assert not asked.admitted.is_set()
    await rounds.discard(successor, fence)
    await asked.result()
    assert asked.parent is None


async def test_only_new_calls_are_new_bytes(model: ModelParticipant, rounds: Rounds) -> None:
    """X11, X12."""
    await ask(model, "r", calls=3)
    first = await rounds.checkpoint(model)
    unchanged = await rounds.checkpoint(model, base=first.manifest.checkpoint_id)
    await ask(model, "r")
    changed = await rounds.checkpoint(model, base=unchanged.manifest.checkpoint_id)
    assert (unchanged.taken.changed, changed.taken.changed) == (0, 1)
    before, after = await rounds.parts(first.records["r"]), await rounds.parts(changed.records["r"])
    assert {name: after[name] for name in before} == before
    assert sorted(set(after) - set(before)) == ["calls/00000003"]


async def test_a_cut_does_not_change_after_it_was_taken(model: ModelParticipant, rounds: Rounds) -> None:
    """X02, V07: calls delivered, and even a retire, before the upload."""
    await ask(model, "r", calls=2)
    fence, prepared = await rounds.prepare(model)
    taken = await rounds.snapshot(model, fence, prepared)
    await rounds.resume(model, fence)
    await ask(model, "r")
    await rounds.retire(model, "r")
    checkpoint = await rounds.publish(model, fence, taken)
    assert len(await rounds.parts(checkpoint.records["r"])) == 2


class TestFile:
    """The ledger outlives its process."""

    async def test_delivered_calls_of_the_same_attempt_come_back(self, fleet: Fleet, tmp_path: Path) -> None:
        path = str(tmp_path / "ledger")
        model = fleet.model(path)
        await ask(model, "r", calls=2)
        unfinished = Asked(model, "r")
        await unfinished.admitted.wait()
        await fleet.close()
        unfinished.task.cancel()
        again = fleet.model(path)
        await ask(again, "r")
        assert lineage(again) == [("0.0", None, "r"), ("0.1", "0.0", "r"), ("1.0", "0.1", "r")]

    async def test_calls_of_an_older_attempt_do_not(self, fleet: Fleet, tmp_path: Path) -> None:
        """M08, M09."""
        path = str(tmp_path / "ledger")
        await ask(fleet.model(path), "r", calls=2)
        await fleet.close()
        again = fleet.model(path)
        await ask(again, "r-a1")
        assert lineage(again) == [("1.0", None, "r-a1")]
        await fleet.close()
        ledger = SqliteLedger(path)
        assert await ledger._file.read("SELECT call FROM calls", ()) == [("1.0",)]
        await ledger.close()

    async def test_calls_of_a_later_attempt_do_not(self, fleet: Fleet, tmp_path: Path) -> None:
        path = str(tmp_path / "ledger")
        await ask(fleet.model(path), "r-a1")
        await fleet.close()
        again = fleet.model(path)
        await ask(again, "r")
        assert lineage(again) == [("1.0", None, "r")]

    async def test_restored_calls_replace_what_the_file_held(
        self, fleet: Fleet, rounds: Rounds, tmp_path: Path
    ) -> None:
        """M08, X14: also when the process dies between the restore and the first call."""
        path = str(tmp_path / "ledger")
        model = fleet.model(path)
        await ask(model, "r")
        checkpoint = await rounds.checkpoint(model)
        await ask(model, "r", calls=3)
        await fleet.close()
        again = fleet.model(path)
        await rounds.restore(again, checkpoint.digest, ("r", 1))
        await fleet.close()
        third = fleet.model(path)
        await ask(third, "r-a1")
        assert lineage(third) == [("0.0", None, "r"), ("2.0", "0.0", "r-a1")]

    async def test_a_retire_reaches_rollouts_that_this_process_never_saw(
        self, fleet: Fleet, rounds: Rounds, tmp_path: Path
    ) -> None:
        """M17."""
        path = str(tmp_path / "ledger")
        await ask(fleet.model(path), "r", calls=2)
        await fleet.close()
        again = fleet.model(path)
        await rounds.retire(again, "r")
        await fleet.close()
        ledger = SqliteLedger(path)
        assert await ledger._file.read("SELECT count(*) FROM calls", ()) == [(0,)]
        await ledger.close()


@pytest.mark.parametrize(
    "parts",
    [
        {"calls/00000001": b'{"call_id":"x"}'},
        {"calls/00000000": b"[]"},
        {"calls/00000000": b'{"call_id":1}'},
        {"rows": b"{}"},
    ],
)
async def test_parts_that_are_not_a_ledger_are_refused(parts: dict[str, bytes]) -> None:
    """C46."""
    ledger = SqliteLedger(":memory:")
    with pytest.raises(UnloadableState):
        ledger.load(parts)
    await ledger.close()
