"""`gymckpt results`: finished results that nobody has acknowledged yet."""

from __future__ import annotations

import click

from gymckpt.cli import options
from gymckpt.cli.output import counted, table
from gymckpt.cli.session import Session, pass_session, shared_options
from gymckpt.cli.shapes import acknowledged_shape, results_shape
from gymckpt.coordinator import Acknowledgement


@click.group()
@shared_options
def results() -> None:
    """Finished results: kept, and exported by every checkpoint, until they are acknowledged or retired."""


@results.command(name="list")
@shared_options
@pass_session
def list_(session: Session) -> None:
    """List the results that were not acknowledged, with their receipts.

    Example: gymckpt results list
    """
    found = session.call(lambda client: client.results())
    rows = [(r.episode, r.receipt.hex(), r.body.size, "yes" if r.durable else "no") for r in found]
    session.out.answer(
        results_shape(found), table(("EPISODE", "RECEIPT", "BYTES", "DURABLE"), rows, "no unacknowledged results")
    )


@results.command()
@click.argument("acknowledgements", metavar="EPISODE=RECEIPT...", nargs=-1, required=True, callback=options.receipts)
@options.duration("--timeout", "30s", "How long to wait for open gates.")
@shared_options
@pass_session
def acknowledge(session: Session, acknowledgements: tuple[Acknowledgement, ...], timeout: float) -> None:
    """Say that results have arrived, so that they are freed: all that are named, or none.

    At most 1,000 at a time; @FILE names one per line. A wrong receipt changes nothing. What was acknowledged before, retired or never finished
    is named as unknown.

    Example: gymckpt results acknowledge r1=6a5c...e1 r2-a1=0f31...9b
    """
    unknown = session.call(lambda client: client.acknowledge_results(acknowledgements, timeout))
    freed = sorted({each.episode for each in acknowledgements} - set(unknown))
    lines = [f"acknowledged {counted(len(freed), 'result')}"]
    lines += [f"unknown {episode}: acknowledged before, retired, or never finished" for episode in unknown]
    session.out.answer(acknowledged_shape(freed, unknown), *lines)
