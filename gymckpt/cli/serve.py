"""`gymckpt serve`: a coordinator and its artifact store in one process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator

import click

from gymckpt.cli import options
from gymckpt.cli.exits import Exit
from gymckpt.cli.session import Session, pass_session, shared_options
from gymckpt.coordinator import CoordinatorServer
from gymckpt.coordinator import serve as serve_coordinator
from gymckpt.core.ids import ParticipantId
from gymckpt.store import Backend, LocalStore, MemoryStore

MEMORY = "memory:"
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
LONGEST_ENDING = 3.0  # seconds after the grace in which calls end and the store closes

log = logging.getLogger(__name__)


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
    options.duration(
        "--grace",
        "25s",
        "How long SIGTERM lets a checkpoint be published, or a restore end; 0 decides nothing and leaves gates to their leases.",
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
    grace: float,
    log_level: str,
) -> None:
    """Run a coordinator and its artifact store.

    On SIGTERM or SIGINT a checkpoint that has its cut is published if --grace allows, any other one is aborted at once, every gate opens, and nothing more
    begins. A second signal ends the process at once. What is undecided then is decided by the next one, which serves once every old member answered or is known
    to be dead.

    Example: gymckpt serve --store /data/checkpoints --listen 127.0.0.1:7000 --expect environment/x,model/y
    """
    logging.basicConfig(
        level=log_level.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    import uvloop

    uvloop.run(_serve(session, store, listen, expect, gone, grace))


async def _serve(
    session: Session,
    store: str,
    listen: str,
    expect: tuple[ParticipantId, ...],
    gone: tuple[ParticipantId, ...],
    grace: float,
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
                log.info("asked to stop: rounds under way get %g s", grace)
                _exit_after(grace + LONGEST_ENDING)
                await running.stop(grace)


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
    """Done once the process was asked to end; a second signal ends it as if nobody handled it."""
    loop = asyncio.get_running_loop()
    asked: asyncio.Future[None] = loop.create_future()

    def ask(number: int) -> None:
        if asked.done():  # both came before the first was heard
            signal.raise_signal(number)
        for handled in STOP_SIGNALS:
            loop.remove_signal_handler(handled)
            signal.signal(handled, signal.SIG_DFL)
        asked.set_result(None)

    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, ask, number)
    return asked


def _exit_after(seconds: float) -> None:
    """Ends a process that cannot end by itself, for example because a disk does not answer. Whatever is in the store is whole at any moment."""

    def end() -> None:
        log.error("did not end within %g s of the signal: exiting at once", seconds)
        os._exit(Exit.UNREACHABLE)

    watch = threading.Timer(seconds, end)
    watch.daemon = True
    watch.start()
