"""The command `gymckpt`, and the one place where errors become exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from gymckpt.cli.checkpoint import checkpoint
from gymckpt.cli.exits import Exit, exit_code
from gymckpt.cli.explain import explain
from gymckpt.cli.participants import participants
from gymckpt.cli.results import results
from gymckpt.cli.retire import retire
from gymckpt.cli.serve import serve
from gymckpt.cli.session import COORDINATOR, Session, shared_options
from gymckpt.cli.store import store
from gymckpt.cli.supervise import supervise
from gymckpt.errors import GymckptError, InvalidField
from gymckpt.rpc.channel import check_address


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="gymckpt", message="%(prog)s %(version)s")
@shared_options
def gymckpt() -> None:
    """Coordinated checkpoints of in-flight RL rollouts over several server processes."""


for command in (serve, checkpoint, participants, explain, supervise, results, retire, store):
    gymckpt.add_command(command)


def run(arguments: Sequence[str]) -> int:
    """Runs one command and returns its exit code."""
    session = Session()
    try:
        session.coordinator = _from_environment()
        code = gymckpt.main(list(arguments), prog_name="gymckpt", standalone_mode=False, obj=session)
    except GymckptError as error:
        session.out.fail(error)
        return exit_code(error)
    except click.ClickException as wrong:
        _fail_usage(session, wrong)
        return Exit.USAGE
    except (click.Abort, KeyboardInterrupt):
        print(
            "interrupted: only the waiting ended; a round goes on, `gymckpt checkpoint list` shows it", file=sys.stderr
        )
        return Exit.INTERRUPTED
    return code if isinstance(code, int) else Exit.OK


def _from_environment() -> str | None:
    address = os.environ.get(COORDINATOR, "")
    return check_address(address, COORDINATOR) if address else None


def _fail_usage(session: Session, wrong: click.ClickException) -> None:
    if session.out.as_json:
        session.out.fail(InvalidField(wrong.format_message()))
    else:
        wrong.show()
