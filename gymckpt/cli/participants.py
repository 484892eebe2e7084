"""`gymckpt participants`: who is a member, and what would block a cut now."""

from __future__ import annotations

from collections.abc import Sequence

import click

from gymckpt.cli.output import counted, table
from gymckpt.cli.session import Session, pass_session, shared_options
from gymckpt.cli.shapes import member_report_shape, membership_shape
from gymckpt.coordinator import MemberReport, Membership

NOBODY = "no members: start the servers of the run with this coordinator's address"


@click.command()
@click.option(
    "--blockers", is_flag=True, help="Ask every member what would block a cut now, and which episodes would restart."
)
@shared_options
@pass_session
def participants(session: Session, blockers: bool) -> None:
    """List who is a member, and who is missing.

    Example: gymckpt participants --blockers
    """
    if blockers:
        show_blockers(session, session.call(lambda client: client.explain_blockers()))
    else:
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


def show_blockers(session: Session, answers: Sequence[MemberReport]) -> None:
    shape = {"members": [member_report_shape(answer) for answer in answers]}
    session.out.answer(shape, *([line for answer in answers for line in lines_of(answer)] or [NOBODY]))


def lines_of(answer: MemberReport) -> list[str]:
    """One member for people: its readiness, each blocker, each restart."""
    name = str(answer.participant.id)
    if answer.report is None:
        return [f"{name}: no answer: {answer.error}"]
    report = answer.report
    counts = ", ".join(f"{count} {thing}" for thing, count in sorted(report.counts.items()))
    state = "ready" if report.ready else f"not ready, {counted(report.blocker_count, 'blocker')}"
    lines = [f"{name}: {state}" + (f" ({counts})" if counts else "")]
    lines += [f"  {b.type} {b.episode or '-'} {b.subject} for {b.age:.1f} s" for b in report.blockers]
    lines += [f"  restart {restart.episode}: {restart.why}" for restart in report.restarts]
    return lines
