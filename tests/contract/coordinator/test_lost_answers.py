"""A store that carried out what it was asked for and died before it could say so."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from gymckpt.coordinator import CheckpointArguments, RestoreArguments, Stage
from gymckpt.core.ids import Episode
from gymckpt.core.kinds import Kind
from gymckpt.core.manifest import StoredSession
from gymckpt.errors import ArgumentConflict, StoreUnavailable
from gymckpt.rpc import codec
from gymckpt.store import MemoryStore
from tests.contract.coordinator.fleet import Fleet

R1 = Episode("r1")


class Forgetful(MemoryStore):
    """Loses the answer to the first creation of `name`."""

    def __init__(self) -> None:
        super().__init__()
        self.name = ""

    async def create_name(self, name: str, value: bytes, *, epoch: int = 0) -> tuple[bool, bytes]:
        created = await super().create_name(name, value, epoch=epoch)
        if name == self.name:
            self.name = ""
            raise StoreUnavailable("the store died before it answered; retry")
        return created


async def test_the_same_request_begins_the_round_whose_intent_is_there_already() -> None:
    """X07, C60: the id is not lost, and no intent stays undecided."""
    async with AsyncExitStack() as stack:
        store = Forgetful()
        fleet = Fleet(stack, store)
        (state,) = await store.write([codec.encode_session(StoredSession("fake/1", ()))])
        for kind in Kind:
            participant = await fleet.add(kind)
            participant.host(R1, state=state)
            participant.stored = {R1}
        await fleet.coordinate()
        await fleet.register()

        store.name = "intents/c1"
        with pytest.raises(StoreUnavailable):
            await fleet.checkpoint("c1")
        with pytest.raises(ArgumentConflict):
            await fleet.checkpoint(CheckpointArguments("c1", full=True))
        assert (await fleet.checkpoint("c1")).stage is Stage.PUBLISHED

        store.name = "intents/restore-one"
        with pytest.raises(StoreUnavailable):
            await fleet.client.restore(RestoreArguments("one", "c1"))
        assert [target.attempt for target in await fleet.client.restore(RestoreArguments("one", "c1"))] == [1]
        assert await fleet.names("pins") == []
        decided = await fleet.names("decisions")
        assert decided == [name.replace("intents", "decisions") for name in await fleet.names("intents")]
