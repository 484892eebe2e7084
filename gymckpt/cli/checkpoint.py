"""`gymckpt checkpoint`: take checkpoints, look at them, end them, restore from them."""

from __future__ import annotations

import datetime
import secrets
from collections.abc import Sequence
from typing import Any, BinaryIO

import click
from click.core import ParameterSource

from gymckpt.cli import follow, options
from gymckpt.cli.exits import DAMAGED, Exit
from gymckpt.cli.output import table
from gymckpt.cli.session import Session, pass_session, shared_options
from gymckpt.cli.shapes import checkpoint_shape, page_shape, progress_shape, restore_shape
from gymckpt.cli.summary import checkpoint_lines, created_lines, lost_in_words, page_lines, restore_lines
from gymckpt.cli.taking import take
from gymckpt.coordinator import (
    Checkpoint,
    CheckpointArguments,
    CheckpointPage,
    CoordinatorClient,
    OnNotReady,
    OnUnloadable,
    RestoreArguments,
    RestoreProgress,
    RestoreStage,
    ResumePolicy,
    Stage,
)
from gymckpt.core.arguments import LATEST
from gymckpt.core.ids import Episode
from gymckpt.errors import InvalidField, MemberMissing

# Named as the fields of CheckpointArguments, and giving their values.
CREATE_OPTIONS = options.together(
    click.option(
        "--episodes",
        multiple=True,
        callback=options.episodes,
        metavar="E,E,...|@FILE",
        help="Episodes to keep (default: all that can be captured); one that cannot be continued is named as lost. "
        "@FILE holds one per line.",
    ),
    options.duration("--prepare-timeout", "30s", "How long to wait for boundaries."),
    options.duration("--gate-lease", "60s", "After this silence gates open by themselves."),
    options.duration("--export-lease", "10m", "After this silence frozen state is dropped."),
    options.choice(
        "--on-not-ready",
        OnNotReady,
        OnNotReady.ABORT,
        "At the deadline: abort, or hold the gates closed; the same command again goes on waiting.",
    ),
    options.choice("--resume", ResumePolicy, ResumePolicy.AFTER_SNAPSHOT, "When gates open again."),
    click.option(
        "--then-stop",
        is_flag=True,
        help="Nothing runs after the cut: gates stay closed while this command waits, and for one more gate lease, in which you stop every server.",
    ),
    click.option(
        "--keep",
        type=click.IntRange(1),
        metavar="K",
        help="Once it is published, delete all published checkpoints but the newest K; pinned ones stay.",
    ),
    click.option("--full", is_flag=True, help="Export every session, whether it changed or not."),
    click.option(
        "--label",
        "labels",
        multiple=True,
        callback=options.labels,
        metavar="KEY=VALUE",
        help="A label; may be repeated.",
    ),
    click.option(
        "--controller-state",
        type=click.File("rb"),
        callback=options.content,
        help="Opaque state to keep beside it, at most 1 MiB.",
    ),
)
RESTORE_OPTIONS = options.together(
    click.option("--restore-id", help="Names this restore, so that a retry joins it. Default: a new one."),
    click.option(
        "--episodes",
        multiple=True,
        callback=options.episodes,
        metavar="E,E,...|@FILE",
        help="Episodes as the checkpoint names them. Default: all of them.",
    ),
    click.option(
        "--lost-state",
        is_flag=True,
        help="Only the episodes that a process which died has held; all others go on. Nothing to restore is a success.",
    ),
    options.choice(
        "--on-unloadable",
        OnUnloadable,
        OnUnloadable.FAIL,
        "When a participant cannot load an episode: fail, or let it restart from its input.",
    ),
)


@click.group()
@shared_options
def checkpoint() -> None:
    """Take checkpoints, look at them, end them, restore from them."""


@checkpoint.command()
@click.argument("checkpoint_id", metavar="[ID]", required=False)
@CREATE_OPTIONS
@shared_options
@pass_session
def create(session: Session, /, checkpoint_id: str | None, then_stop: bool, keep: int | None, **given: Any) -> int:
    """Take one checkpoint and wait until it is published.

    Without ID a new one is made up. Interrupting ends only the waiting: the same command with the same ID joins again. With --then-stop, 0 means that it is
    published and that every gate is still closed.

    Example: gymckpt checkpoint create step-120 --label step=120
    """
    if then_stop:
        given["resume"] = _by_caller(click.get_current_context(), given["resume"])
    arguments = CheckpointArguments(checkpoint_id or _fresh_id(session, "taking checkpoint"), **given)
    with session.out.progress(f"checkpoint {arguments.checkpoint_id}") as step:
        taken = session.call(lambda client: take(client, arguments, step, then_stop=then_stop, keep=keep))
    lines = created_lines(arguments, taken.end, then_stop=then_stop)
    lines += [f"  deleted {', '.join(taken.deleted)}"] if taken.deleted else []
    session.out.answer(progress_shape(taken.end, taken.lost, taken.deleted), *lines)
    if taken.lost:
        session.out.warn(lost_in_words(taken.lost))
    if taken.kept:
        session.out.warn(taken.kept_in_words())
    return Exit.HELD if taken.end.checkpoint.stage is Stage.HELD else Exit.OK


@checkpoint.command("list")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="The newest so many.")
@shared_options
@pass_session
def list_(session: Session, limit: int) -> None:
    """List checkpoints, newest first.

    Example: gymckpt checkpoint list --limit 5
    """
    found = session.call(lambda client: _newest(client, limit))
    columns = ("CHECKPOINT", "STAGE", "EPOCH.SEQ", "TAKEN (UTC)", "EPISODES", "RESTARTS", "LOST", "LABELS")
    shape = {"checkpoints": [checkpoint_shape(c) for c in found]}
    session.out.answer(shape, table(columns, [_row(c) for c in found], "no checkpoints"))
    unreadable = [c.checkpoint_id for c in found if c.why_unreadable]
    if unreadable:
        session.out.warn(f"nothing can be restored from {', '.join(unreadable)}; {DAMAGED}")


@checkpoint.command()
@click.argument("checkpoint_id", metavar="[ID]", default="latest")
@click.option("--controller-state", type=click.File("wb"), help="Write the controller's opaque state to this file.")
@shared_options
@pass_session
def show(session: Session, checkpoint_id: str, controller_state: BinaryIO | None) -> None:
    """Show one checkpoint with its episodes. Default: `latest`, the newest published one.

    Example: gymckpt checkpoint show latest --json
    """
    pages = session.call(lambda client: _pages(client, checkpoint_id))
    if controller_state is not None:
        controller_state.write(pages[0].controller_state)
    session.out.answer(page_shape(pages), *page_lines(pages))


@checkpoint.command()
@click.argument("checkpoint_id", metavar="[ID]", default="latest")
@RESTORE_OPTIONS
@shared_options
@pass_session
def restore(session: Session, /, checkpoint_id: str, restore_id: str | None, lost_state: bool, **given: Any) -> None:
    """Restore episodes as new attempts, all or nothing; start their replacements only after this succeeded.

    Without ID it is `latest`, the newest published checkpoint. When one server died and was started again, --lost-state restores what it held.

    Example: gymckpt checkpoint restore latest --on-unloadable restart
    """
    if lost_state:
        checkpoint_id, given["episodes"] = _lost_state(session, checkpoint_id, given["episodes"])
        if not given["episodes"]:
            end = RestoreProgress(RestoreStage.RESTORED, checkpoint_id, 0, 0)
            session.out.answer(restore_shape(end, ""), "no episode has lost state that a checkpoint holds")
            return
    arguments = RestoreArguments(restore_id or _fresh_id(session, "restoring as restore id"), checkpoint_id, **given)
    with session.out.progress(f"restore {arguments.restore_id}") as step:
        end = session.call(lambda client: follow.restore(client.restore_checkpoint(arguments), step))
    session.out.answer(restore_shape(end, arguments.restore_id), *restore_lines(end, arguments.restore_id))


@checkpoint.command()
@click.argument("checkpoint_id", metavar="ID")
@click.option("--why", default="", help="For people who read the log.")
@shared_options
@pass_session
def abort(session: Session, checkpoint_id: str, why: str) -> int:
    """End a checkpoint at once and refuse its id for good; exits with 1 when it was published first.

    Example: gymckpt checkpoint abort step-120 --why "wrong weights"
    """
    ended = session.call(lambda client: client.abort_checkpoint(checkpoint_id, why))
    aborted = ended.stage is Stage.ABORTED
    why_not = () if aborted else ("  not aborted: it was published first and stands; every gate is open",)
    session.out.answer(checkpoint_shape(ended), *checkpoint_lines(ended), *why_not)
    return Exit.OK if aborted else Exit.REFUSED


@checkpoint.command()
@click.argument("checkpoint_id", metavar="ID")
@shared_options
@pass_session
def delete(session: Session, checkpoint_id: str) -> None:
    """Delete a published checkpoint: it is never restored again, and its ID stays used.

    One that is pinned, or that is being restored, is refused. Only the name goes: blobs stay in the store, where other checkpoints may share them, and this
    release does not give their space back.

    Example: gymckpt checkpoint delete step-110
    """
    session.call(lambda client: client.delete_checkpoint(checkpoint_id))
    session.out.answer({"deleted": checkpoint_id}, f"checkpoint {checkpoint_id}: deleted")


@checkpoint.command()
@click.argument("checkpoint_id", metavar="ID")
@shared_options
@pass_session
def resume(session: Session, checkpoint_id: str) -> None:
    """Open every gate that a checkpoint holds; its uploads go on.

    Example: gymckpt checkpoint resume step-120
    """
    resumed = session.call(lambda client: client.resume_checkpoint(checkpoint_id))
    session.out.answer(checkpoint_shape(resumed), *checkpoint_lines(resumed))


def _lost_state(session: Session, checkpoint_id: str, asked: Sequence[Episode]) -> tuple[str, tuple[Episode, ...]]:
    """The latest checkpoint, and what it holds of episodes that have lost state. Raises InvalidField for another checkpoint, or for episodes named as well."""
    if asked:
        raise InvalidField("--lost-state finds the episodes itself; leave --episodes out", field="episodes")
    recovery = session.call(lambda client: client.explain_recovery())
    if checkpoint_id not in (LATEST, recovery.checkpoint_id):
        raise InvalidField(
            f"--lost-state goes back to the latest checkpoint, {recovery.checkpoint_id!r}, not to {checkpoint_id!r}; "
            "name the episodes for another one",
            field="checkpoint_id",
        )
    missing = sorted({*recovery.silent, *session.call(lambda client: client.participants()).missing})
    if missing:
        names = ", ".join(map(str, missing))
        raise MemberMissing(f"{names} did not say what they hold; start them, then retry", details={"members": names})
    return recovery.checkpoint_id or LATEST, tuple(each.restore for each in recovery.troubles if each.restore)


def _by_caller(ctx: click.Context, resume: ResumePolicy) -> ResumePolicy:
    """The only policy under which gates stay closed. Raises UsageError when another one was asked for."""
    if ctx.get_parameter_source("resume") is ParameterSource.COMMANDLINE and resume is not ResumePolicy.BY_CALLER:
        raise click.UsageError("--then-stop keeps the gates closed; leave --resume out")
    return ResumePolicy.BY_CALLER


async def _newest(client: CoordinatorClient, limit: int) -> list[Checkpoint]:
    found: list[Checkpoint] = []
    token = ""
    while len(found) < limit:
        page, token = await client.list_checkpoints(page_size=min(limit - len(found), 1000), page_token=token)
        found += page
        if not token:
            break
    return found


def _row(c: Checkpoint) -> tuple[object, ...]:
    counts = ("?", "?", "?") if c.why_unreadable else (c.episodes, c.restarts, c.lost)
    labels = " ".join(f"{key}={value}" for key, value in sorted(c.labels.items()))
    about = labels or c.why_aborted or (f"its manifest cannot be read: {c.why_unreadable}" if c.why_unreadable else "")
    return (c.checkpoint_id, c.stage.name, f"{c.epoch}.{c.sequence}", _when(c.unix_millis), *counts, about)


async def _pages(client: CoordinatorClient, checkpoint_id: str) -> list[CheckpointPage]:
    pages = [await client.get_checkpoint(checkpoint_id)]
    while token := pages[-1].next_page_token:
        pages.append(await client.get_checkpoint(pages[0].checkpoint.checkpoint_id, page_token=token))
    return pages


def _fresh_id(session: Session, what: str) -> str:
    """Told at once, so that the round can be joined again whatever happens to the waiting."""
    made = f"{datetime.datetime.now(datetime.UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"
    session.out.note(f"{what} {made}")
    return made


def _when(unix_millis: int) -> str:
    if not unix_millis:
        return "-"
    return f"{datetime.datetime.fromtimestamp(unix_millis / 1000, datetime.UTC):%Y-%m-%d %H:%M:%S}"
