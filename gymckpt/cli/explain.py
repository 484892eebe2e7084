"""`gymckpt explain`: why a checkpoint is not ready, and what a crash would cost."""

from __future__ import annotations

from collections.abc import Sequence

import click

from gymckpt.cli.output import counted
from gymckpt.cli.participants import NOBODY
from gymckpt.cli.session import Session, pass_session, shared_options
from gymckpt.cli.shapes import member_report_shape, recovery_shape
from gymckpt.cli.summary import member_lines
from gymckpt.coordinator import CoordinatorClient, MemberReport, Recovery, Trouble
from gymckpt.errors import BlobNotFound, DamagedBlob

SHOWN = 20


@click.command()
@shared_options
@pass_session
def explain(session: Session) -> None:
    """Say what would block a cut now, and which rollouts would not survive a crash.

    Rollouts that lost state with a process that died are named too: `gymckpt checkpoint restore --lost-state` brings them back.

    Example: gymckpt explain
    """
    members, recovery, unreadable = session.call(_asked)
    shape = {
        "members": [member_report_shape(member) for member in members],
        "recovery": None if recovery is None else recovery_shape(recovery),
    }
    lines = [line for member in members for line in member_lines(member)] or [NOBODY]
    session.out.answer(shape, *lines, *([] if recovery is None else recovery_lines(recovery)))
    if unreadable is not None:
        raise unreadable


async def _asked(
    client: CoordinatorClient,
) -> tuple[Sequence[MemberReport], Recovery | None, BlobNotFound | DamagedBlob | None]:
    """A latest checkpoint that cannot be read hides what a crash would cost, not what blocks."""
    members = await client.explain_blockers()
    try:
        return members, await client.explain_recovery(), None
    except (BlobNotFound, DamagedBlob) as error:
        return members, None, error


def recovery_lines(recovery: Recovery) -> list[str]:
    """The share that would go on, then every trouble."""
    if not recovery.rollouts:
        return ["no rollouts are live", *_silent(recovery)]
    source = f"checkpoint {recovery.checkpoint_id}" if recovery.checkpoint_id else "no checkpoint"
    share = recovery.recoverable / recovery.rollouts
    counts = (
        f"{recovery.recoverable} of {counted(recovery.rollouts, 'rollout')} recoverable ({share:.0%}) from {source}"
    )
    lines = [counts, *_silent(recovery), *map(_line, recovery.troubles[:SHOWN])]
    more = len(recovery.troubles) - SHOWN
    return [*lines, *([f"  ... and {more} more; --json names all"] if more > 0 else [])]


def _silent(recovery: Recovery) -> list[str]:
    return [f"  {participant} does not answer: its rollouts are not counted" for participant in recovery.silent]


def _line(trouble: Trouble) -> str:
    kind = "lost state" if trouble.restore is not None else "not recoverable"
    because = f"{trouble.participant}: " if trouble.participant is not None else ""
    return f"  {kind} {trouble.episode}: {because}{trouble.why}"
