"""`gymckpt participants`: who is a member."""

from __future__ import annotations

import click

from gymckpt.cli.output import table
from gymckpt.cli.session import Session, pass_session, shared_options
from gymckpt.cli.shapes import membership_shape
from gymckpt.coordinator import Membership

NOBODY = "no members: start the servers of the run with this coordinator's address"


@click.command()
@shared_options
@pass_session
def participants(session: Session) -> None:
    """List who is a member, and who is missing.

    Example: gymckpt participants
    """
    show_members(session, session.call(lambda client: client.participants()))


def show_members(session: Session, membership: Membership) -> None:
    rows = [
        (m.participant.id, m.participant.worker, m.participant.address, m.participant.capture.name, m.holds.gate.name,
         m.holds.export.name, m.holds.episodes, f"{m.silent:.1f} s ago")
        for m in membership.members
    ]  # fmt: skip
    columns = ("PARTICIPANT", "WORKER", "ADDRESS", "CAPTURE", "GATE", "EXPORT", "EPISODES", "HEARD")
    missing = [f"missing: {participant}; start it" for participant in membership.missing]
    lost = [
        f"lost: {entry.episode} at {member.participant.id}: {entry.why}"
        for member in membership.members
        for entry in member.lost
    ]
    members = table(columns, rows, NOBODY)
    session.out.answer(membership_shape(membership), f"epoch {membership.epoch}", members, *missing, *lost)
