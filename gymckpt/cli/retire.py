"""`gymckpt retire`: stop attempts everywhere, and free what they hold."""

from __future__ import annotations

import click

from gymckpt.cli import options
from gymckpt.cli.output import counted
from gymckpt.cli.session import Session, pass_session, shared_options
from gymckpt.core.ids import Episode


@click.command()
@click.argument("episodes", metavar="EPISODE...", nargs=-1, required=True, callback=options.episodes)
@options.duration("--timeout", "30s", "How long to wait for their work to stop.")
@shared_options
@pass_session
def retire(session: Session, episodes: tuple[Episode, ...], timeout: float) -> None:
    """Stop attempts everywhere, refuse them from then on, and free what they hold.

    Each EPISODE retires that attempt and all before it; @FILE names one per line. Needs open gates. Whether it ends well or not, the attempts are refused: the
    rollouts can go on as later attempts only.

    Example: gymckpt retire r1 r2-a1
    """
    session.call(lambda client: client.retire_episodes(episodes, timeout))
    session.out.answer(
        {"retired": [str(episode) for episode in episodes]}, f"retired {counted(len(episodes), 'episode')}"
    )
