"""What follows from the records of rounds: which is latest, what a checkpoint holds, which attempt a restored rollout gets, what a successor has to decide."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from gymckpt.core.arguments import CheckpointArguments
from gymckpt.core.ids import MAX_ATTEMPT, Episode
from gymckpt.core.kinds import Capture, Fate
from gymckpt.core.manifest import (
    CheckpointManifest,
    Decision,
    Floor,
    Intent,
    ParticipantEntry,
    ParticipantInfo,
    ParticipantManifest,
    RestoreIntent,
    RestoreTarget,
    join,
)
from gymckpt.core.report import LostEpisode, Restart
from gymckpt.errors import CheckpointNotFound, InvalidField, MemberMissing

FLOORS_PER_PAGE = 10_000


@dataclass(frozen=True, slots=True)
class Cut:
    """All that a complete cut gave."""

    arguments: CheckpointArguments
    intent: Intent
    unix_millis: int
    entries: tuple[ParticipantEntry, ...]
    restarts: Mapping[Episode, str]
    failed: Mapping[Episode, str]
    gone: Mapping[Episode, LostEpisode] = field(default_factory=dict)
    """What processes that are gone held of an older checkpoint: nobody can continue it from this one, whatever the others still hold."""


def assemble(cut: Cut, manifests: Sequence[ParticipantManifest]) -> CheckpointManifest:
    """The checkpoint of a cut. Raises MemberMissing when a boundary names a server that is not a member."""
    residents = {entry.participant.id for entry in resident_entries(cut.entries)}
    gone = {episode: entry.why for episode, entry in cut.gone.items()}
    continuable, lost, unknown = join(manifests, {**cut.failed, **gone}, residents)
    if unknown:
        names = [str(participant) for participant in unknown]
        raise MemberMissing(
            f"boundaries name servers that are not members: {', '.join(names)}; start them with checkpointing on, then take a new checkpoint",
            details={"members": ",".join(names)},
        )
    scope = set(cut.arguments.episodes)
    named = {entry.episode: entry.why for entry in lost}
    if scope:
        named = {episode: why for episode, why in named.items() if episode in scope}
        found = {*continuable, *named, *cut.restarts}
        named.update({episode: "no participant exported it" for episode in scope if episode not in found})
    # An episode that some participant cannot capture starts over, whatever the others exported of it.
    kept = tuple(e for e in continuable if e not in cut.restarts and (not scope or e in scope))
    return CheckpointManifest(
        checkpoint_id=cut.arguments.checkpoint_id,
        epoch=cut.intent.epoch,
        sequence=cut.intent.sequence,
        unix_millis=cut.unix_millis,
        base_checkpoint_id=cut.intent.base_checkpoint_id,
        labels=dict(cut.arguments.labels),
        controller_state=cut.arguments.controller_state,
        participants=cut.entries,
        episodes=kept,
        restarts=tuple(Restart(episode, cut.restarts[episode]) for episode in sorted(cut.restarts)),
        lost=tuple(cut.gone.get(e) or LostEpisode(e, named[e]) for e in sorted(named) if e not in cut.restarts),
    )


def latest(intents: Mapping[str, Intent], decisions: Mapping[str, Decision], deleted: Collection[str] = ()) -> str:
    """Id of the published checkpoint with the highest (epoch, sequence), whenever it was published. Raises CheckpointNotFound."""
    published = [
        (intent.epoch, intent.sequence, checkpoint_id)
        for checkpoint_id, intent in intents.items()
        if checkpoint_id in decisions and decisions[checkpoint_id].published and checkpoint_id not in deleted
    ]
    if not published:
        raise CheckpointNotFound("no checkpoint is published; create one", details={"checkpoint_id": "latest"})
    return max(published)[2]


class Attempts:
    """Highest attempt of each rollout that was ever given by a restore or refused by a retire: none is given twice.

    `refused` is the highest that is refused, `retired` the highest that was refused because somebody asked to retire it.
    """

    def __init__(self) -> None:
        self._highest: dict[str, int] = {}
        self.refused: dict[str, int] = {}
        self.retired: dict[str, int] = {}

    def learn_targets(self, targets: Iterable[RestoreTarget]) -> None:
        for target in targets:
            self._raise(target.source.rollout_id, target.attempt)

    def learn_floors(self, floors: Iterable[Floor], *, retired: bool) -> None:
        for floor in floors:
            self._raise(floor.rollout_id, max(floor.refused, floor.target))
            for highest in (self.refused, self.retired) if retired else (self.refused,):
                highest[floor.rollout_id] = max(floor.refused, highest.get(floor.rollout_id, -1))

    def after(self, episode: Episode) -> int:
        """The attempt that may follow `episode`. Raises InvalidField when the rollout has used all of them."""
        attempt = max(episode.attempt, self._highest.get(episode.rollout_id, -1)) + 1
        if attempt > MAX_ATTEMPT:
            raise InvalidField(f"rollout {episode.rollout_id!r} has used all {MAX_ATTEMPT} attempts", field="episodes")
        return attempt

    def _raise(self, rollout_id: str, attempt: int) -> None:
        self._highest[rollout_id] = max(attempt, self._highest.get(rollout_id, -1))


def resident_entries(entries: Iterable[ParticipantEntry]) -> list[ParticipantEntry]:
    """Processes that keep their episodes to themselves."""
    return [entry for entry in entries if entry.participant.capture is Capture.RESIDENT]


def gone_with(residents: Iterable[ParticipantManifest], members: Iterable[ParticipantInfo]) -> dict[Episode, str]:
    """Episodes that one of the `residents` held and whose process is not among the members any more, and why they start over."""
    here = {info.boot_id for info in members}
    return {
        record.episode: f"{manifest.participant} held it in a process that is gone (boot {manifest.boot_id})"
        for manifest in residents
        if manifest.boot_id not in here
        for record in manifest.records
    }


def restore_targets(
    asked: tuple[Episode, ...], manifest: CheckpointManifest, attempts: Attempts, gone: Mapping[Episode, str]
) -> tuple[RestoreTarget, ...]:
    """What becomes of every asked episode (all of the checkpoint when none is asked); `gone` names those that went with the process that held them.

    Raises InvalidField for one that the checkpoint does not name.
    """
    fates = {entry.episode: (Fate.LOST, entry.why) for entry in manifest.lost}
    fates.update({entry.episode: (Fate.RESTARTED, entry.why) for entry in manifest.restarts})
    fates.update(
        {e: (Fate.RESTARTED, gone[e]) if e in gone else (Fate.RESTORED, "") for e in manifest.episodes},
    )
    unknown = [episode for episode in asked if episode not in fates]
    if unknown:
        shown = ", ".join(str(episode) for episode in unknown[:20])
        raise InvalidField(
            f"checkpoint {manifest.checkpoint_id!r} names none of these {len(unknown)} episodes: {shown}; ask for them as it names them",
            field="episodes",
        )
    chosen = sorted(asked or fates)
    older = {before: after for before, after in pairwise(chosen) if before.rollout_id == after.rollout_id}
    fates.update(
        {before: (Fate.LOST, f"attempt {after.attempt} continues the rollout") for before, after in older.items()}
    )
    following = {episode.rollout_id: attempts.after(episode) for episode in chosen}
    return tuple(RestoreTarget(e, following[e.rollout_id], fates[e][0], fates[e][1][:256]) for e in chosen)


def unloadable_targets(intent: RestoreIntent, unloadable: Mapping[Episode, str]) -> tuple[RestoreTarget, ...]:
    """Targets that were to be restored and cannot be loaded: they start over, with the attempt of the intent. They may be named as source or as target."""
    found = []
    for target in intent.targets:
        why = unloadable.get(target.source, unloadable.get(target.target))
        if target.fate is Fate.RESTORED and why is not None:
            found.append(RestoreTarget(target.source, target.attempt, Fate.RESTARTED, why[:256]))
    return tuple(found)


def outcome(intent: RestoreIntent, decision: Decision) -> tuple[RestoreTarget, ...]:
    """What became of every target once `installed` was decided."""
    changed = {target.source: target for target in decision.restarted}
    return tuple(changed.get(target.source, target) for target in intent.targets)


def restore_floors(targets: Iterable[RestoreTarget]) -> list[Floor]:
    """Floors written before the first install. Only state that was given out binds later processes; a start from input is open to all."""
    return [
        Floor(target.source.rollout_id, target.attempt - 1, target.attempt if target.fate is Fate.RESTORED else 0)
        for target in targets
    ]


def retired_floors(episodes: Iterable[Episode]) -> list[Floor]:
    """Floors written before a retire is answered."""
    return [Floor(episode.rollout_id, episode.attempt) for episode in episodes]


def floor_pages(floors: Sequence[Floor]) -> Iterator[tuple[Floor, ...]]:
    for start in range(0, len(floors), FLOORS_PER_PAGE):
        yield tuple(floors[start : start + FLOORS_PER_PAGE])


def undecided(intents: Iterable[str], decisions: Collection[str]) -> list[str]:
    """Rounds that a successor has to decide."""
    return sorted(round_id for round_id in intents if round_id not in decisions)
