"""`gymckpt supervise`: keep the servers of a run alive, and restore what a dead one held."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import click

from gymckpt.cli.output import counted
from gymckpt.cli.session import Session, pass_session, shared_options
from gymckpt.cli.shapes import Shape, checkpoint_shape, error_shape, restore_shape
from gymckpt.cli.summary import checkpoint_lines, restore_lines
from gymckpt.supervisor import Config, Event, Supervisor, read_config


@click.command()
@click.argument("config", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@shared_options
@pass_session
def supervise(session: Session, config: Path) -> None:
    """Start the servers that CONFIG names, start again what dies, and restore what it held while everybody else goes on.

    Prints one line per event; with --json one document per line, in which `restored` names the attempts that a controller may start now. SIGTERM and SIGINT
    take a last checkpoint, after which no gate opens, and end the servers.

    Example: gymckpt supervise run.toml
    """
    asyncio.run(_supervised(session, read_config(config)))


async def _supervised(session: Session, config: Config) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await Supervisor(config, lambda event: session.out.answer(event_shape(event), *event_lines(event))).run(stop)


def event_shape(event: Event) -> Shape:
    """Only the keys that the kind of event has."""
    shape: Shape = {"event": event.kind}
    if event.program:
        shape["server"] = event.program
        shape.update({"status": event.status} if event.kind == "died" else {"pid": event.pid})
    if event.checkpoint is not None:
        shape["checkpoint"] = checkpoint_shape(event.checkpoint)
    if event.restore is not None:
        shape["restore"] = restore_shape(event.restore, event.restore_id)
    if event.kind == "retired":
        shape["episodes"] = [str(episode) for episode in event.episodes]
    if event.error is not None:
        shape.update(error_shape(event.error, ""))
    return shape


def event_lines(event: Event) -> list[str]:
    if event.checkpoint is not None:
        return checkpoint_lines(event.checkpoint)
    if event.restore is not None:
        return restore_lines(event.restore, event.restore_id)
    if event.error is not None:
        return [f"trouble: {event.error.message} [{event.error.reason}]; trying again"]
    if event.kind == "started":
        return [f"{event.program} started, pid {event.pid}"]
    if event.kind == "died":
        return [f"{event.program} died with status {event.status}; starting it again"]
    if event.kind == "retired":
        names = ", ".join(str(episode) for episode in event.episodes[:10])
        return [
            f"retired {counted(len(event.episodes), 'episode')} whose state no checkpoint holds, they start over: {names}"
        ]
    return ["all servers are there, and nothing that can be restored is missing"]
