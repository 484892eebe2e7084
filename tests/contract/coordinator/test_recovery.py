"""What the coordinator says that a crash would cost, and what a death has cost."""

from __future__ import annotations

import asyncio

import pytest

from gymckpt.coordinator import Recovery, RestoreArguments
from gymckpt.core.ids import Episode
from gymckpt.core.kinds import Kind
from gymckpt.core.manifest import StoredSession
from gymckpt.core.report import LostEpisode, Report, Restart
from gymckpt.core.transitions import Activate, Confirm
from gymckpt.errors import RestoreAborted
from gymckpt.rpc import codec
from tests.contract.coordinator.fleet import Fleet, KillAt

R1, R2, R3 = (Episode(f"r{number}") for number in range(1, 4))


async def published(fleet: Fleet, *episodes: Episode) -> None:
    """A checkpoint of these episodes, which go on living."""
    (state,) = await fleet.store.write([codec.encode_session(StoredSession("fake/1", ()))])
    for participant in fleet.all:
        participant.host(*episodes, state=state)
        participant.stored = set(episodes)
    await fleet.checkpoint("c1")


def told(recovery: Recovery) -> list[tuple[Episode, str, Episode | None]]:
    return [(trouble.episode, str(trouble.participant or ""), trouble.restore) for trouble in recovery.troubles]


async def test_without_a_checkpoint_nothing_is_recoverable(fleet: Fleet) -> None:
    fleet[Kind.AGENT].host(R1)
    recovery = await fleet.client.explain_recovery()
    assert (recovery.checkpoint_id, recovery.rollouts, recovery.recoverable) == ("", 1, 0)
    assert told(recovery) == [(R1, "", None)]


async def test_the_weakest_server_of_each_rollout_is_named(fleet: Fleet) -> None:
    """X13: every live rollout is either recoverable or named."""
    await published(fleet, R1, R2)
    for participant in fleet.all:
        participant.host(R3)
    fleet[Kind.RESOURCES].report = Report(restarts=(Restart(R1, "restart only"),))
    fleet[Kind.AGENT].lost = (LostEpisode(R2, "calls arrive"),)
    recovery = await fleet.client.explain_recovery()
    assert told(recovery) == [(R1, "resources/x", None), (R2, "agent/x", None), (R3, "", None)]
    assert (recovery.rollouts, recovery.recoverable) == (3, 0)


async def test_what_a_dead_process_held_is_restored_twice_and_the_answer_names_it_as_the_checkpoint_does(
    fleet: Fleet,
) -> None:
    """X14: the process dies again after the restore, without a newer checkpoint."""
    await published(fleet, R1, R2)
    for attempt in (1, 2):
        await fleet[Kind.RESOURCES].die()
        fresh = await fleet.add(Kind.RESOURCES)
        fresh.stored = {R1, R2}
        await fleet.register()
        recovery = await fleet.client.explain_recovery()
        lost = [Episode("r1", attempt - 1), Episode("r2", attempt - 1)]
        assert told(recovery) == [(lost[0], "resources/x", R1), (lost[1], "resources/x", R2)]
        assert (recovery.rollouts, recovery.recoverable) == (2, 2)
        for participant in fleet.all:
            participant.sessions.clear()
        arguments = RestoreArguments(f"again-{attempt}", "c1", (R1, R2))
        [end] = [progress async for progress in fleet.client.restore_checkpoint(arguments) if progress.outcome]
        assert {target.attempt for target in end.outcome} == {attempt}
        assert told(await fleet.client.explain_recovery()) == []


@pytest.mark.parametrize("refusing", [Confirm, Activate])
async def test_what_a_restore_that_failed_has_stopped_is_named_until_it_is_restored_or_retired(
    fleet: Fleet, refusing: type
) -> None:
    """X14, X28: before its decision or after it, also by a successor; or what one server lost is lost to the second that dies meanwhile."""
    await published(fleet, R1, R2)
    for participant in fleet.all:
        participant.sessions.clear()
    fleet[Kind.AGENT].script[refusing] = RestoreAborted("is not held any more")
    with pytest.raises(RestoreAborted, match="not held"):
        await fleet.client.restore(RestoreArguments("fails", "c1", (R1, R2)))
    fleet[Kind.AGENT].script.clear()
    first, second = Episode("r1", 1), Episode("r2", 1)
    for _ in range(2):
        assert told(await fleet.client.explain_recovery()) == [(first, "", R1), (second, "", R2)]
        await fleet.server.stop()
        await fleet.coordinate()
        await fleet.register()
    await fleet.client.retire_episodes([second])
    assert told(await fleet.client.explain_recovery()) == [(first, "", R1)]
    (target,) = await fleet.client.restore(RestoreArguments("again", "c1", (R1,)))
    assert target.attempt == 2
    assert told(await fleet.client.explain_recovery()) == []


@pytest.mark.parametrize("point", ["restore.retired", "restore.activated"])
async def test_what_is_just_being_restored_is_not_named(fleet: Fleet, point: str) -> None:
    """X13: it is stopped on purpose, and nobody should restore it once more."""
    await published(fleet, R1)
    await fleet.server.stop()
    faults = KillAt(point)
    await fleet.coordinate(faults=faults)
    await fleet.register()
    for participant in fleet.all:
        participant.sessions.clear()
    restoring = asyncio.create_task(fleet.client.restore(RestoreArguments("one", "c1", (R1,))))
    await faults.reached.wait()
    assert told(await fleet.client.explain_recovery()) == []
    restoring.cancel()


async def test_what_was_restored_from_an_older_checkpoint_is_not_named_in_the_latest(fleet: Fleet) -> None:
    """X29: whoever asked for the older one wants that one."""
    await published(fleet, R1)
    await fleet.checkpoint("c2")
    for participant in fleet.all:
        participant.sessions.clear()
    await fleet.client.restore(RestoreArguments("older", "c1", (R1,)))
    recovery = await fleet.client.explain_recovery()
    assert (recovery.checkpoint_id, told(recovery)) == ("c2", [(Episode("r1", 1), "", None)])


async def test_a_member_that_does_not_answer_is_named_and_delays_nobody_for_long(fleet: Fleet) -> None:
    """X24."""
    await published(fleet, R1)
    fleet[Kind.RESOURCES].answering.clear()
    recovery = await fleet.client.explain_recovery()
    assert (recovery.silent, told(recovery)) == ((fleet[Kind.RESOURCES].id,), [])


async def test_pages_of_members_and_of_the_answer_are_put_together(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gymckpt.coordinator.client.EXPLAINED_PAGE", 2)
    episodes = [Episode(f"r{number}") for number in range(5)]
    fleet[Kind.AGENT].host(*episodes)
    fleet[Kind.AGENT].episodes_page = 2
    assert [trouble.episode for trouble in (await fleet.client.explain_recovery()).troubles] == episodes


async def test_a_checkpoint_names_what_a_dead_process_held_until_it_is_restored_or_retired_or_the_older_one_is_deleted(
    fleet: Fleet,
) -> None:
    """X13: what the others still hold of it is not enough to continue it, and the checkpoint that does hold it is not forgotten."""
    await published(fleet, R1, R2, R3)
    await fleet[Kind.ENVIRONMENT].die()
    environment = await fleet.add(Kind.ENVIRONMENT)
    await fleet.register()
    for checkpoint_id in ("c2", "c3"):
        assert (await fleet.checkpoint(checkpoint_id)).episodes == 0
        page = await fleet.client.get_checkpoint(checkpoint_id)
        assert [(lost.episode, lost.checkpoint_id) for lost in page.lost] == [(each, "c1") for each in (R1, R2, R3)]
        assert "environment/x held it in a process that is gone" in page.lost[0].why
        recovery = await fleet.client.explain_recovery()
        assert (recovery.rollouts, recovery.recoverable) == (3, 0)
        assert [trouble.episode for trouble in recovery.troubles] == [R1, R2, R3]
        assert "checkpoint 'c1' holds r1; restore it from there" in recovery.troubles[0].why
    await fleet.client.retire_episodes([R2])
    for participant in fleet.all:
        participant.sessions.clear()
    environment.stored = {R1}
    await fleet.client.restore(RestoreArguments("older", "c1", (R1,)))
    await fleet.checkpoint("c4")
    assert [lost.episode for lost in (await fleet.client.get_checkpoint("c4")).lost] == [R3]
    await fleet.client.delete_checkpoint("c1")
    assert (await fleet.checkpoint("c5")).lost == 0
    assert told(await fleet.client.explain_recovery()) == [(Episode("r1", 1), "", None)]


async def test_a_checkpoint_names_nothing_that_goes_on_by_itself_after_a_death(fleet: Fleet) -> None:
    """X13: a model server lets in the next call of an attempt that no restore gave out."""
    await published(fleet, R1)
    await fleet[Kind.MODEL].die()
    await fleet.add(Kind.MODEL)
    await fleet.register()
    assert (await fleet.checkpoint("c2")).lost == 0
    assert (await fleet.client.get_checkpoint("c2")).episodes == (R1,)
