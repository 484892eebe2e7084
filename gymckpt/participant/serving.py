"""Bringing a participant up beside its data plane, in the one order in which an old coordinator cannot be obeyed by a new process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from gymckpt.core.gate import Gate
from gymckpt.core.manifest import Floor, MemberAddress
from gymckpt.core.names import epoch_of
from gymckpt.errors import InvalidField, StoreFull, StoreUnavailable, TransportFailed
from gymckpt.participant.client import announce
from gymckpt.participant.servicer import ParticipantServicer
from gymckpt.rpc.channel import check_address
from gymckpt.rpc.codec import decode_floors, encode_member
from gymckpt.rpc.server import RpcServer, start_server
from gymckpt.store.client import StoreClient

if TYPE_CHECKING:
    from gymckpt.participant.base import Participant
    from gymckpt.store.interface import ArtifactStore

log = logging.getLogger("gymckpt.participant")

T = TypeVar("T")

RETRY = 0.2  # seconds between tries to reach the store
ANY_ADDRESS = ("0.0.0.0", "[::]")
TICK = 0.1  # seconds between looks at the leases


@contextlib.asynccontextmanager
async def serve(
    p: Participant,
    *,
    listen: str | None,
    advertise: str | None,
    coordinator: str | None,
    store: str | None,
    grace: float,
) -> AsyncIterator[None]:
    """See `Participant.serving`. Raises InvalidField for a malformed address, TransportFailed when the port is taken."""
    coordinator = coordinator or os.environ.get("GYMCKPT_COORDINATOR", "")
    if not coordinator:
        yield
        return
    check_address(coordinator, "coordinator")
    listen = listen or os.environ.get("GYMCKPT_LISTEN", "127.0.0.1:0")
    advertise = advertise or os.environ.get("GYMCKPT_ADVERTISE", "")
    _check_reachable(listen, advertise)
    p.gate, p.started, p.enabled, p.leaving = Gate(), False, True, False
    server = await start_server([ParticipantServicer(p)], listen)
    await server.set_serving(ParticipantServicer.service_name, False)
    p.address, p.relayed = advertise or server.address, bool(advertise)
    client = StoreClient(store or os.environ.get("GYMCKPT_STORE", "") or coordinator)
    p.store = client
    tasks = [
        asyncio.create_task(_run(p, client, coordinator, server), name=f"membership of {p.id}"),
        asyncio.create_task(_tick(p), name=f"leases of {p.id}"),
    ]
    for task in tasks:
        task.add_done_callback(_died)
    try:
        yield
    finally:
        p.leaving = True
        await _hand_over(p, grace)
        await _stop(p, client, server, tasks)


def _check_reachable(listen: str, advertise: str) -> None:
    if advertise:
        check_address(advertise, "advertise")
    elif listen.rpartition(":")[0] in ANY_ADDRESS:
        raise InvalidField(
            f"listen is {listen!r}, which nobody else can reach: listen on one address, or name one with advertise (GYMCKPT_ADVERTISE)",
            field="listen",
        )


async def _run(p: Participant, store: ArtifactStore, coordinator: str, server: RpcServer) -> None:
    async def admitted() -> None:
        # Rounds that ended between the first look and the admission did not reach this process, and every later one does.
        p.floors.learn(await _floors(p, store))
        p.gate.start()
        try:
            p.gate_opened()
        finally:
            p.moved()
        await server.set_serving(ParticipantServicer.service_name, True)
        log.info("%s is a member: its gate is open", p.id)

    await _learn(p, store)
    await announce(p, coordinator, admitted)
    # Sessions of this process would be in no checkpoint: its calls are held, so that nobody takes it for a member.
    p.gate = Gate()
    await server.set_serving(ParticipantServicer.service_name, False)


async def _learn(p: Participant, store: ArtifactStore) -> None:
    """The name first, then the epoch, then the floors: a coordinator that lists the members after it took its epoch finds whoever might still obey the one
    before it."""
    await _asked(p, lambda: store.put_name(_member_name(p), encode_member(MemberAddress(p.address, p.relayed))))
    epochs = await _asked(p, lambda: store.list_names("epochs"))
    if epochs:
        p.authority.observe(max(p.authority.epoch, epoch_of(epochs[-1].name)))
    p.floors.learn(await _floors(p, store))
    p.started = True
    log.info(
        "%s (boot %s) at %s knows epoch %d and %d floors", p.id, p.boot_id, p.address, p.authority.epoch, len(p.floors)
    )


async def _floors(p: Participant, store: ArtifactStore) -> list[Floor]:
    entries = await _asked(p, lambda: store.list_names("floors"))
    return [floor for entry in entries for floor in decode_floors(entry.value)]


async def _asked(p: Participant, ask: Callable[[], Awaitable[T]]) -> T:
    """Asks the store until it answers; says so at once, then ever more rarely."""
    failures = 0
    while True:
        try:
            return await ask()
        except (StoreUnavailable, StoreFull, TransportFailed) as error:
            failures += 1
            if failures & (failures - 1) == 0:
                log.warning("%s waits for the artifact store (%d tries): %s", p.id, failures, error.message)
            await asyncio.sleep(RETRY)


async def _tick(p: Participant) -> None:
    while True:
        await asyncio.sleep(TICK)
        try:
            p.tick()
        except Exception:  # a kind that fails when its gate opens must not keep the other leases from ending
            log.exception("the end of a lease failed at %s", p.id)


def _died(task: asyncio.Task[None]) -> None:
    """A background task that ends by itself is a fault; say so at once, not when the server stops."""
    if not task.cancelled() and task.exception() is not None:
        log.error("%s failed", task.get_name(), exc_info=task.exception())


async def _hand_over(p: Participant, grace: float) -> None:
    """What is frozen here is lost with the process unless it is stored: the coordinator, which is still answered, gets a while to have it stored and decide."""
    if p.export.fence is None:
        return
    checkpoint_id = p.export.fence.checkpoint_id
    try:
        async with asyncio.timeout(grace):
            while p.export.fence is not None:
                await p.readiness_changed()
    except TimeoutError:
        log.warning("%s stops with an export of %s that was not decided within %g s", p.id, checkpoint_id, grace)


async def _stop(p: Participant, store: StoreClient, server: RpcServer, tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    await p.close()
    # A name that is left behind is found dead by the next coordinator.
    with contextlib.suppress(StoreUnavailable, TransportFailed, TimeoutError):
        async with asyncio.timeout(1.0):
            await store.delete_name(_member_name(p))
    await server.stop(0)
    await store.close()


def _member_name(p: Participant) -> str:
    return f"members/{p.id.kind}/{p.id.name}/{p.worker}/{p.boot_id}"
