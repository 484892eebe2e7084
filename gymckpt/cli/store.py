"""`gymckpt store`: the artifact store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import click

from gymckpt.cli.exits import DAMAGED, Exit
from gymckpt.cli.output import Step, counted
from gymckpt.cli.session import Session, pass_session, shared_options
from gymckpt.cli.shapes import scrub_shape
from gymckpt.store import Damage, LocalStore, ScrubProgress, StoreClient
from gymckpt.store.local_layout import Layout

ADVICE = (
    f"while the servers live, `gymckpt checkpoint create --full` first; restore nothing that is named here; {DAMAGED}"
)


def _existing(_ctx: click.Context, param: click.Parameter, directory: Path | None) -> Path | None:
    """Callback: opening another directory would make an empty store of it."""
    if directory is not None and not Layout(directory).blobs.is_dir():
        raise click.BadParameter(f"{str(directory)!r} holds no artifact store", param=param)
    return directory


@click.group()
@shared_options
def store() -> None:
    """Look after the artifact store."""


@store.command()
@click.option(
    "--store",
    "directory",
    type=click.Path(path_type=Path),
    callback=_existing,
    help="A store's directory that no process serves now; default: the store of the coordinator.",
)
@shared_options
@pass_session
def verify(session: Session, directory: Path | None) -> int:
    """Read every blob again; exits with 4 when one is damaged or missing.

    Damaged blobs are quarantined: they are never served again. Names each blob, the checkpoints and the rollouts that need it.

    Example: gymckpt store verify --store /data/checkpoints
    """
    with session.out.progress("verifying") as step:
        end, damage = asyncio.run(_scrub(session, directory, step))
    lines = [line for found in damage for line in _lines_of(found)]
    verdict = f"{len(damage)} damaged or missing: {ADVICE}" if damage else "no damage"
    summary = f"{counted(end.blobs_checked, 'blob')}, {counted(end.bytes_checked, 'byte')} checked: {verdict}"
    session.out.answer(scrub_shape(end, damage), *lines, summary)
    return Exit.DAMAGED if damage else Exit.OK


async def _scrub(session: Session, directory: Path | None, step: Step) -> tuple[ScrubProgress, Sequence[Damage]]:
    damage: list[Damage] = []
    end = ScrubProgress(0, 0)
    async with StoreClient(session.address()) if directory is None else await LocalStore.open(directory) as opened:
        async for end in opened.scrub():
            damage += end.damage
            step.show(f"{end.blobs_checked} blobs, {end.bytes_checked} bytes, {len(damage)} damaged")
    return end, damage


def _lines_of(found: Damage) -> list[str]:
    return [
        f"{found.digest}: {found.why}",
        f"  checkpoints: {', '.join(found.checkpoint_ids) or 'none'}",
        f"  rollouts: {', '.join(found.rollout_ids) or 'none'}",
    ]
