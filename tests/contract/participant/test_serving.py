"""How a process becomes a member: its name, then the epoch and the floors, then its first word, then its gate."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from gymckpt.core.gate import Gate
from gymckpt.core.ids import Episode, Fence
from gymckpt.core.kinds import GateState
from gymckpt.core.manifest import Floor, MemberAddress
from gymckpt.core.transitions import Prepare, Request
from gymckpt.errors import InvalidField, StaleAttempt, StaleBoot, StaleEpoch, StoreUnavailable
from gymckpt.rpc.channel import open_channel
from gymckpt.rpc.codec import decode_member, encode_floors
from gymckpt.rpc.server import RpcServer, start_server
from gymckpt.store import MemoryStore, NameEntry, StoreServicer
from gymckpt.v1 import coordinator_pb2 as pb
from gymckpt.v1 import coordinator_pb2_grpc as pb_grpc
from tests.unit.participant.base.bed import Counters
from tests.unit.participant.rounds import Rounds, until

SERVICE = "gymckpt.v1.ParticipantService"


class WatchedStore(MemoryStore):
    """Says in which order it was used, and refuses while it is starting."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[str] = []
        self.refusing = False
        self.during_epochs: Any = None

    def _use(self, what: str) -> None:
        if self.refusing:
            raise StoreUnavailable("the store is starting")
        self.log.append(what)

    async def create_name(self, name: str, value: bytes, *, epoch: int = 0) -> tuple[bool, bytes]:
        self._use(f"put {name.partition('/')[0]}")
        return await super().create_name(name, value, epoch=epoch)

    async def list_names(self, prefix: str, *, after: str = "", limit: int = 0) -> list[NameEntry]:
        self._use(f"list {prefix}")
        if prefix == "epochs" and self.during_epochs is not None:
            await self.during_epochs()
        return await super().list_names(prefix, after=after, limit=limit)


class Registrar(pb_grpc.CoordinatorServiceServicer):
    """Answers Register alone; admits when told to."""

    service_name = "gymckpt.v1.CoordinatorService"

    def __init__(self, store: WatchedStore) -> None:
        self._store = store
        self.admitting = False
        self.replaced = False
        self.requests: list[pb.RegisterRequest] = []

    def add_to(self, server: grpc.aio.Server) -> None:
        pb_grpc.add_CoordinatorServiceServicer_to_server(self, server)

    async def Register(self, request: pb.RegisterRequest, context: Any) -> pb.RegisterResponse:
        self._store.log.append("register")
        self.requests.append(request)
        if self.replaced:
            raise StaleBoot("a newer process of this worker registered")
        return pb.RegisterResponse(epoch=1, admitted=self.admitting)


@pytest.fixture
def store() -> WatchedStore:
    return WatchedStore()


@pytest.fixture
def registrar(store: WatchedStore) -> Registrar:
    return Registrar(store)  # type: ignore[abstract]  # the other methods answer UNIMPLEMENTED


@pytest.fixture
async def coordinator(store: WatchedStore, registrar: Registrar) -> AsyncIterator[RpcServer]:
    async with await start_server([StoreServicer(store), registrar]) as server:
        yield server


@pytest.fixture
def counters() -> Counters:
    return Counters(Rounds())


async def health(address: str) -> str:
    async with open_channel(address) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        answer = await stub.Check(health_pb2.HealthCheckRequest(service=SERVICE))
        return health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)


async def test_the_name_comes_first_then_epoch_and_floors_then_the_first_word_and_the_gate_opens_last(
    coordinator: RpcServer, store: WatchedStore, registrar: Registrar, counters: Counters
) -> None:
    """X27, X35"""
    p = counters.participant
    async with p.serving(coordinator=coordinator.address):
        await until(lambda: len(registrar.requests) >= 2)
        assert store.log[:4] == ["put members", "list epochs", "list floors", "register"]
        assert counters.gate() is GateState.CLOSED
        assert p.enter_now(counters.call("r", "/seed_session")) is None
        assert await health(p.address) == "NOT_SERVING"
        [member] = await MemoryStore.list_names(store, "members")
        assert member.name == f"members/resources/tools/0/{p.boot_id}"
        assert decode_member(member.value) == MemberAddress(p.address)
        held = asyncio.create_task(p.enter(counters.call("r", "/seed_session")))
        registrar.admitting = True
        assert (await held) is not None
        assert counters.gate() is GateState.OPEN
        await until(lambda: p.address)
        assert await health(p.address) == "SERVING"
    assert await MemoryStore.list_names(store, "members") == []


async def test_an_epoch_that_was_taken_while_it_started_is_known_before_anybody_is_obeyed(
    coordinator: RpcServer, store: WatchedStore, registrar: Registrar, counters: Counters
) -> None:
    """X35, X27"""
    p = counters.participant
    obeyed: list[str] = []

    async def a_successor_comes() -> None:
        store.during_epochs = None
        assert len(await MemoryStore.list_names(store, "members")) == 1  # it would find this process
        await MemoryStore.put_name(store, "epochs/00000000000000000007", b"")
        try:
            await p.apply(Request(Fence(6, 1, "old"), 1, p.boot_id, Prepare(1.0, 60.0)))
        except StoreUnavailable:
            obeyed.append("refused while starting")

    store.during_epochs = a_successor_comes
    registrar.admitting = True
    async with p.serving(coordinator=coordinator.address):
        await until(lambda: counters.gate() is GateState.OPEN)
        assert obeyed == ["refused while starting"]
        with pytest.raises(StaleEpoch):
            await p.apply(Request(Fence(6, 1, "old"), 1, p.boot_id, Prepare(1.0, 60.0)))
        assert p.authority.epoch == 7


async def test_floors_of_restores_before_its_birth_are_refused(
    coordinator: RpcServer, store: WatchedStore, registrar: Registrar, counters: Counters
) -> None:
    """X27"""
    await store.put_name("floors/restore-x/0", encode_floors([Floor("r", refused=1, target=2)]))
    await store.put_name("floors/retire-y/0", encode_floors([Floor("s", refused=4)]))
    registrar.admitting = True
    async with counters.participant.serving(coordinator=coordinator.address):
        await until(lambda: counters.gate() is GateState.OPEN)
        for text in ("r-a2", "s-a4"):
            with pytest.raises(StaleAttempt):
                counters.enter(text, "/seed_session")
        for text in ("r-a3", "s-a5"):
            counters.enter(text, "/seed_session")


async def test_floors_that_were_raised_before_its_admission_are_refused_too(
    coordinator: RpcServer, store: WatchedStore, registrar: Registrar, counters: Counters
) -> None:
    """X27: a restore that ended between its first look and its admission has told it nothing."""
    async with counters.participant.serving(coordinator=coordinator.address):
        await until(lambda: registrar.requests)
        await store.put_name("floors/restore-x/0", encode_floors([Floor("r", refused=0, target=1)]))
        registrar.admitting = True
        await until(lambda: counters.gate() is GateState.OPEN)
        for text in ("r", "r-a1"):
            with pytest.raises(StaleAttempt):
                counters.enter(text, "/seed_session")
        counters.enter("r-a2", "/seed_session")


async def test_a_store_that_is_not_there_yet_is_waited_for(
    coordinator: RpcServer, store: WatchedStore, registrar: Registrar, counters: Counters
) -> None:
    """X27"""
    store.refusing = True
    registrar.admitting = True
    async with counters.participant.serving(coordinator=coordinator.address):
        await until(lambda: counters.participant.address)
        async with open_channel(counters.participant.address) as channel:
            await channel.channel_ready()
        assert (counters.gate(), registrar.requests) == (GateState.CLOSED, [])
        store.refusing = False
        await until(lambda: counters.gate() is GateState.OPEN)


async def test_what_is_lost_is_told_with_every_word(
    coordinator: RpcServer, registrar: Registrar, counters: Counters
) -> None:
    """X38"""
    registrar.admitting = True
    p = counters.participant
    p.lost[Episode("r", 1)] = "its process was replaced"
    async with p.serving(coordinator=coordinator.address):
        await until(lambda: registrar.requests)
        [lost] = registrar.requests[0].lost
        assert (lost.episode.rollout_id, lost.episode.attempt, lost.why) == ("r", 1, "its process was replaced")
        assert registrar.requests[0].participant.boot_id == p.boot_id


async def test_without_a_coordinator_there_is_no_port_no_task_and_an_open_gate(
    counters: Counters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X23"""
    for name in ("GYMCKPT_COORDINATOR", "GYMCKPT_STORE", "GYMCKPT_LISTEN", "GYMCKPT_ADVERTISE"):
        monkeypatch.delenv(name, raising=False)
    p = counters.participant
    p.enabled = False
    before = asyncio.all_tasks()
    async with p.serving():
        assert (p.enabled, p.started, p.address, counters.gate()) == (False, True, "", GateState.OPEN)
        assert asyncio.all_tasks() == before


async def test_addresses_are_taken_from_the_environment(
    coordinator: RpcServer, registrar: Registrar, counters: Counters, monkeypatch: pytest.MonkeyPatch
) -> None:
    registrar.admitting = True
    monkeypatch.setenv("GYMCKPT_COORDINATOR", coordinator.address)
    monkeypatch.setenv("GYMCKPT_LISTEN", "127.0.0.1:0")
    async with counters.participant.serving():
        await until(lambda: counters.gate() is GateState.OPEN)


async def test_an_address_that_others_reach_it_at_is_announced_and_said_to_be_no_own_one(
    coordinator: RpcServer,
    store: WatchedStore,
    registrar: Registrar,
    counters: Counters,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """X39: whoever stands there may refuse while the process lives."""
    monkeypatch.setenv("GYMCKPT_ADVERTISE", "relay.example:7000")
    p, registrar.admitting = counters.participant, True
    async with p.serving(listen="0.0.0.0:0", coordinator=coordinator.address):
        await until(lambda: registrar.requests)
        said = registrar.requests[0].participant
        assert (said.address, said.relayed) == ("relay.example:7000", True)
        [member] = await MemoryStore.list_names(store, "members")
        assert decode_member(member.value) == MemberAddress("relay.example:7000", relayed=True)


@pytest.mark.parametrize(
    ("addresses", "field"),
    [({"listen": "0.0.0.0:0"}, "listen"), ({"listen": "[::]:7000"}, "listen"), ({"advertise": "nowhere"}, "advertise")],
)
async def test_an_address_that_nobody_reaches_is_refused_before_anything_is_served(
    coordinator: RpcServer, counters: Counters, addresses: dict[str, Any], field: str
) -> None:
    """X20"""
    with pytest.raises(InvalidField) as refused:
        async with counters.participant.serving(coordinator=coordinator.address, **addresses):
            raise AssertionError("it served")
    assert refused.value.details["field"] == field
    assert counters.participant.address == ""


async def test_work_under_way_ends_with_the_process(
    coordinator: RpcServer, registrar: Registrar, counters: Counters
) -> None:
    """R15"""
    registrar.admitting = True
    p = counters.participant
    async with p.serving(coordinator=coordinator.address):
        await until(lambda: counters.gate() is GateState.OPEN)
        endless = p.spawn(asyncio.Event().wait(), "upload of c")
    assert endless.cancelled()
    assert isinstance(p.gate, Gate)


async def test_a_process_whose_place_another_took_takes_no_more_calls(
    coordinator: RpcServer, registrar: Registrar, counters: Counters
) -> None:
    """X38, X31: its sessions would be in no checkpoint."""
    p, registrar.admitting = counters.participant, True
    async with p.serving(coordinator=coordinator.address):
        await until(lambda: p.gate.state is GateState.OPEN)
        registrar.replaced = True
        await until(lambda: p.gate.state is GateState.CLOSED)
        asked = len(registrar.requests)
        held = asyncio.create_task(p.enter(counters.call("r", route="/seed_session")))
        assert await health(p.address) == "NOT_SERVING"
        assert not held.done()
        assert len(registrar.requests) == asked
        held.cancel()
