"""Checkpoints and restores in words, for people."""

from __future__ import annotations

from collections.abc import Sequence

from gymckpt.cli.participants import lines_of
from gymckpt.coordinator import Checkpoint, CheckpointPage, MemberReport, RestoreProgress, Stage
from gymckpt.core.kinds import Fate

SHOWN = 20  # episodes named one by one; --json names all


def checkpoint_lines(checkpoint: Checkpoint, waiting_for: Sequence[MemberReport] = ()) -> list[str]:
    """What it is, what it holds and what it took."""
    lines = [
        f"checkpoint {checkpoint.checkpoint_id}: {checkpoint.stage.name} (epoch {checkpoint.epoch}, sequence {checkpoint.sequence})"
    ]
    if checkpoint.why_aborted:
        lines.append(f"  why: {checkpoint.why_aborted}")
    if checkpoint.stage in (Stage.UPLOADING, Stage.PUBLISHED):
        lines.append(
            f"  {checkpoint.episodes} episodes can continue, {checkpoint.restarts} would restart, {checkpoint.lost} are lost"
        )
        lines.append(
            f"  prepare {checkpoint.prepare_seconds:.3f} s, pause {checkpoint.pause_seconds:.3f} s, upload {checkpoint.upload_seconds:.3f} s, "
            f"{checkpoint.blobs_sent} blobs and {checkpoint.bytes_sent} bytes sent"
        )
        if checkpoint.restarts or checkpoint.lost:
            lines.append(f"  `gymckpt checkpoint show {checkpoint.checkpoint_id}` names them")
    lines += [f"  {line}" for answer in waiting_for for line in lines_of(answer)]
    if checkpoint.stage is Stage.HELD:
        lines.append(
            "  gates stay closed: run the same command again to go on waiting, or `gymckpt checkpoint abort` to open them"
        )
    return lines


def page_lines(pages: Sequence[CheckpointPage]) -> list[str]:
    """One checkpoint with its labels, members and episodes."""
    first = pages[0]
    about = first.checkpoint
    lines = checkpoint_lines(about)
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


def _listed(word: str, entries: Sequence[str]) -> list[str]:
    shown = [f"  {word} {entry}" for entry in entries[:SHOWN]]
    return shown + ([f"  ... and {len(entries) - SHOWN} more; --json names all"] if len(entries) > SHOWN else [])
