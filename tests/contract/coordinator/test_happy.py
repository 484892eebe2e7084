"""A checkpoint that is published, and a restore of it."""

from __future__ import annotations

from gymckpt.coordinator import RestoreArguments, Stage
from gymckpt.core.ids import Episode
from gymckpt.core.kinds import ExportState, Fate, GateState, Kind
from gymckpt.core.manifest import RestoreTarget, StoredSession
from gymckpt.core.transitions import Prepare, Resume
from gymckpt.rpc import codec
from tests.contract.coordinator.fleet import Fleet


async def test_a_checkpoint_is_published_and_every_gate_is_open_again(fleet: Fleet) -> None:
    """O01, O04: prepare goes environment, model, agent, resources; resume goes backwards."""
    for participant in fleet.all:
        participant.host(Episode("r1"), Episode("r2", 1))
    checkpoint = await fleet.checkpoint("c1")
    assert checkpoint.stage is Stage.PUBLISHED
    assert checkpoint.episodes == 2
    assert checkpoint.pause_seconds >= checkpoint.prepare_seconds > 0
    assert fleet.kinds_told(Prepare) == ["environment", "model", "agent", "resources"]
    assert fleet.kinds_told(Resume) == ["resources", "agent", "model", "environment"]
    assert {(p.gate, p.export) for p in fleet.all} == {(GateState.OPEN, ExportState.NONE)}
    page = await fleet.client.get_checkpoint("latest")
    assert page.checkpoint.checkpoint_id == "c1"
    assert page.episodes == (Episode("r1"), Episode("r2", 1))


async def test_a_restore_gives_every_episode_its_next_attempt(fleet: Fleet) -> None:
    """C09, X13."""
    (state,) = await fleet.store.write([codec.encode_session(StoredSession("fake/1", ()))])
    for participant in fleet.all:
        participant.host(Episode("r1"), Episode("r2", 3), state=state)
    await fleet.checkpoint("c1")
    for participant in fleet.all:
        participant.stored = {Episode("r1"), Episode("r2", 3)}
    outcome = await fleet.client.restore(RestoreArguments("one", "latest"))
    assert outcome == (
        RestoreTarget(Episode("r1"), 1, Fate.RESTORED),
        RestoreTarget(Episode("r2", 3), 4, Fate.RESTORED),
    )
    for participant in fleet.all:
        assert participant.live == {Episode("r1", 1), Episode("r2", 4)}
        assert participant.pending == set()
    assert fleet[Kind.MODEL].retired == {"r1": 0, "r2": 3}
    assert await fleet.names("pins") == []
