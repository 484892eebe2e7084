"""Checkpoints and restores in words, for people."""

from __future__ import annotations

from collections.abc import Sequence

from gymckpt.cli.output import counted
from gymckpt.coordinator import (
    Checkpoint,
    CheckpointArguments,
    CheckpointPage,
    CheckpointProgress,
    MemberReport,
    RestoreProgress,
    ResumePolicy,
    Stage,
)
from gymckpt.core.kinds import Fate, GateState
from gymckpt.core.report import LostEpisode
from gymckpt.core.transitions import Holdings

SHOWN = 20  # episodes named one by one; --json names all
WARNED = 10  # lost episodes named in a warning


def checkpoint_lines(checkpoint: Checkpoint) -> list[str]:
    """What it is, what it holds and what it took."""
    lines = [
        f"checkpoint {checkpoint.checkpoint_id}: {checkpoint.stage.name} (epoch {checkpoint.epoch}, sequence {checkpoint.sequence})"
    ]
    if checkpoint.why_aborted:
        lines.append(f"  why: {checkpoint.why_aborted}")
    if checkpoint.why_unreadable:
        lines.append(f"  nothing can be restored from it, its manifest cannot be read: {checkpoint.why_unreadable}")
    elif checkpoint.stage in (Stage.UPLOADING, Stage.PUBLISHED):
        lines.append(
            f"  {counted(checkpoint.episodes, 'episode')} can continue, {checkpoint.restarts} would restart, "
            f"{checkpoint.lost} {'is' if checkpoint.lost == 1 else 'are'} lost"
        )
        if _measured(checkpoint):
            lines.append(_cost(checkpoint))
    return lines


def created_lines(arguments: CheckpointArguments, end: CheckpointProgress, *, then_stop: bool = False) -> list[str]:
    """How a round ended, what it waits for, and which gates it left closed for how long."""
    checkpoint, name = end.checkpoint, arguments.checkpoint_id
    lines = checkpoint_lines(checkpoint)
    if checkpoint.restarts or checkpoint.lost:
        lines.append(f"  `gymckpt checkpoint show {name}` names them")
    lines += [f"  {line}" for answer in end.waiting_for for line in member_lines(answer)]
    longest = f"at most {arguments.gate_lease:g} s"
    if checkpoint.stage is Stage.HELD:
        lines.append(
            f"  gates stay closed until `gymckpt checkpoint abort {name}`, {longest}; the same command again goes on waiting"
        )
    elif then_stop:
        lines += [
            f"  every gate is closed, {longest} from now: stop every server now, by SIGKILL if you like, and `gymckpt serve` last",
            f"  then start all again and `gymckpt checkpoint restore {name}`; to go on instead: `gymckpt checkpoint resume {name}`",
        ]
    elif arguments.resume is ResumePolicy.BY_CALLER and _measured(checkpoint) and not checkpoint.pause_seconds:
        lines.append(f"  gates stay closed until `gymckpt checkpoint resume {name}`, {longest}")
    return lines


def lost_in_words(lost: Sequence[LostEpisode]) -> str:
    """One line with the first of them, each with its reason."""
    named = "; ".join(f"{entry.episode}: {entry.why}" for entry in lost[:WARNED])
    more = f"; and {len(lost) - WARNED} more" if len(lost) > WARNED else ""
    return f"{counted(len(lost), 'episode')} lost, not in the checkpoint: {named}{more}"


def page_lines(pages: Sequence[CheckpointPage]) -> list[str]:
    """One checkpoint with its labels, members and episodes."""
    first = pages[0]
    about = first.checkpoint
    lines = checkpoint_lines(about)
    lines += _closed_gates(about)
    lines += [f"  label {key}={value}" for key, value in sorted(about.labels.items())]
    if about.base_checkpoint_id:
        lines.append(f"  base {about.base_checkpoint_id}")
    if about.manifest is not None:
        lines.append(f"  manifest {about.manifest}")
    if about.participants:
        lines.append(f"  participants {', '.join(str(participant) for participant in about.participants)}")
    if first.controller_state:
        lines.append(f"  controller state {len(first.controller_state)} bytes; --controller-state FILE writes it")
    episodes = [str(episode) for page in pages for episode in page.episodes]
    lines += _listed("continues", episodes)
    lines += _listed("restarts", [f"{entry.episode}: {entry.why}" for entry in first.restarts])
    lines += _listed("lost", [f"{entry.episode}: {entry.why}" for entry in first.lost])
    return lines


def restore_lines(progress: RestoreProgress, restore_id: str) -> list[str]:
    """What became of every asked episode."""
    by_fate = {fate: [target for target in progress.outcome if target.fate is fate] for fate in Fate}
    counts = ", ".join(f"{len(targets)} {fate.name.lower()}" for fate, targets in by_fate.items())
    lines = [f"restore {restore_id} of {progress.checkpoint_id}: {progress.stage.name}, {counts}"]
    lines += _listed("continues as", [f"{t.source} -> {t.target}" for t in by_fate[Fate.RESTORED]])
    for fate in (Fate.RESTARTED, Fate.LOST):
        lines += _listed("starts over as", [f"{t.source} -> {t.target}: {t.why}" for t in by_fate[fate]])
    return lines


def member_lines(answer: MemberReport) -> list[str]:
    """One member for people: its readiness, a gate that is not open, each blocker, each restart, and what it holds calls for in vain."""
    name = str(answer.participant.id)
    if answer.report is None:
        return [f"{name}: no answer: {answer.error}"]
    report = answer.report
    counts = ", ".join(f"{count} {thing}" for thing, count in sorted(report.counts.items()))
    state = "ready" if report.ready else f"not ready, {counted(report.blocker_count, 'blocker')}"
    lines = [f"{name}: {state}" + (f" ({counts})" if counts else "")]
    lines += _gate(answer.holds)
    lines += [f"  {b.type} {b.episode or '-'} {b.subject} for {b.age:.1f} s" for b in report.blockers]
    lines += [f"  restart {restart.episode}: {restart.why}" for restart in report.restarts]
    return lines + _listed("lost", [f"{entry.episode}: {entry.why}" for entry in answer.lost])


def _gate(holds: Holdings | None) -> list[str]:
    if holds is None or holds.gate is GateState.OPEN:
        return []
    holder = "nobody has opened it yet" if holds.gate_fence is None else f"{holds.gate_fence.checkpoint_id!r} holds it"
    return [f"  gate {holds.gate.name}: {holder}"]


def _closed_gates(checkpoint: Checkpoint) -> list[str]:
    """What opens the gates that a checkpoint keeps closed."""
    cut = checkpoint.stage in (Stage.UPLOADING, Stage.PUBLISHED) and _measured(checkpoint)
    if checkpoint.stage is not Stage.HELD and not (cut and not checkpoint.pause_seconds):
        return []
    how = "resume" if cut else "abort"
    return [f"  gates are closed: `gymckpt checkpoint {how} {checkpoint.checkpoint_id}` opens them"]


def _measured(checkpoint: Checkpoint) -> bool:
    """Only the coordinator that took it knows what it took."""
    return bool(checkpoint.prepare_seconds or checkpoint.upload_seconds)


def _cost(checkpoint: Checkpoint) -> str:
    # A gate is never closed for no time at all: without a pause, gates have not opened again.
    pause = f"pause {checkpoint.pause_seconds:.3f} s" if checkpoint.pause_seconds else "pause not over"
    waited = f"waited for {counted(checkpoint.waited_for, 'call')}" if checkpoint.waited_for else "waited for nothing"
    return (
        f"  prepare {checkpoint.prepare_seconds:.3f} s ({waited}), {pause}, upload {checkpoint.upload_seconds:.3f} s, "
        f"{counted(checkpoint.blobs_sent, 'blob')} and {counted(checkpoint.bytes_sent, 'byte')} sent"
    )


def _listed(word: str, entries: Sequence[str]) -> list[str]:
    shown = [f"  {word} {entry}" for entry in entries[:SHOWN]]
    return shown + ([f"  ... and {len(entries) - SHOWN} more; --json names all"] if len(entries) > SHOWN else [])
