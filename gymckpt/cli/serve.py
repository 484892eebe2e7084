"""`gymckpt serve`: a coordinator and its artifact store in one process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator

import click

from gymckpt.cli import options
from gymckpt.cli.session import Session, pass_session, shared_options
from gymckpt.coordinator import CoordinatorServer
from gymckpt.coordinator import serve as serve_coordinator
from gymckpt.core.ids import ParticipantId
from gymckpt.store import Backend, LocalStore, MemoryStore

MEMORY = "memory:"


OPTIONS = options.together(
    click.option(
        "--store", required=True, metavar="DIR|memory:", help="Where checkpoints are kept; memory: for a try."
    ),
    click.option(
        "--listen",
        metavar="HOST:PORT",
        default="127.0.0.1:0",
        show_default=True,
        callback=options.address,
        help="Port 0 takes a free one.",
    ),
    click.option(
        "--expect",
        multiple=True,
        callback=options.participants,
        metavar="KIND/NAME,...",
        help="Who must be there for a checkpoint. Default: the members of the last one.",
    ),
    click.option(
        "--gone",
        multiple=True,
        callback=options.participants,
        metavar="KIND/NAME,...",
        help="Members of the coordinator before this one that are known to be dead: they are not waited for.",
    ),
    click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default="info",
        show_default=True,
        help="What is logged to standard error.",
    ),
)


@click.command()
@OPTIONS
@shared_options
@pass_session
def serve(
    session: Session,
    store: str,
    listen: str,
    expect: tuple[ParticipantId, ...],
    gone: tuple[ParticipantId, ...],
    log_level: str,
) -> None:
    """Run a coordinator and its artifact store.

    Ends on SIGTERM or SIGINT without deciding anything: the next one does. That one serves once every old member answered, or is known to be dead.

    Example: gymckpt serve --store /data/checkpoints --listen 127.0.0.1:7000 --expect environment/x,model/y
    """
    logging.basicConfig(
        level=log_level.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    asyncio.run(_serve(session, store, listen, expect, gone))


async def _serve(
    session: Session, store: str, listen: str, expect: tuple[ParticipantId, ...], gone: tuple[ParticipantId, ...]
) -> None:
    stopping = _stop_signal()
    async with _opened(store) as opened:
        starting = asyncio.create_task(
            serve_coordinator(opened, listen, expected=expect, gone=[str(participant) for participant in gone])
        )
        stopping.add_done_callback(lambda _: starting.cancel())
        with contextlib.suppress(asyncio.CancelledError):
            async with await starting as running:
                await _announce(session, running, store)
                await stopping


async def _announce(session: Session, running: CoordinatorServer, store: str) -> None:
    epoch = (await running.coordinator.membership()).epoch
    shape = {"address": running.address, "epoch": epoch, "store": store, "pid": os.getpid()}
    session.out.answer(shape, f"coordinator and artifact store at {running.address} (epoch {epoch})")


@contextlib.asynccontextmanager
async def _opened(place: str) -> AsyncIterator[Backend]:
    if place == MEMORY:
        yield MemoryStore()
    else:
        async with await LocalStore.open(place) as local:
            yield local


def _stop_signal() -> asyncio.Future[None]:
    """Done once the process was asked to end; a second signal while it ends changes nothing."""
    loop = asyncio.get_running_loop()
    asked: asyncio.Future[None] = loop.create_future()

    def ask() -> None:
        if not asked.done():
            asked.set_result(None)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ask)
    return asked
