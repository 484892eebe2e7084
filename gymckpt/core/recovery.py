"""What a crash would cost, and what the death of some processes, or a restore that failed, has cost already."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gymckpt.core.ids import Episode, ParticipantId
from gymckpt.core.kinds import Capture, Fate, Kind
from gymckpt.core.manifest import ParticipantInfo, ParticipantManifest, RestoreTarget
from gymckpt.core.report import LostEpisode

CALLERS_FIRST = (Kind.ENVIRONMENT, Kind.AGENT, Kind.RESOURCES)


@dataclass(frozen=True, slots=True)
class Holding:
    """An episode of a checkpoint as it lives since: `episode` is its present attempt, `boots` are the processes that were given it, by participant."""

    episode: Episode
    boots: Mapping[ParticipantId, frozenset[str]]


@dataclass(frozen=True, slots=True)
class Present:
    """A member now: the episodes that it lists, those that it cannot capture and those whose state it misses; `episodes` is None when it did not answer."""

    info: ParticipantInfo
    episodes: frozenset[Episode] | None
    restarts: Mapping[Episode, str]
    lost: Mapping[Episode, str]


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a rollout does not go on, or would not after a crash. `restore` names it in the checkpoint that can continue it."""

    episode: Episode
    participant: ParticipantId | None
    why: str
    restore: Episode | None = None


@dataclass(frozen=True, slots=True)
class Recovery:
    """`recoverable` of all `rollouts` would go on from `checkpoint_id` if every process died now; `silent` members did not say what they have."""

    checkpoint_id: str
    rollouts: int
    recoverable: int
    troubles: tuple[Trouble, ...]
    silent: tuple[ParticipantId, ...] = ()


def holdings(
    episodes: Iterable[Episode],
    exports: Iterable[tuple[ParticipantInfo, ParticipantManifest]],
    restores: Iterable[tuple[Sequence[ParticipantInfo], Sequence[RestoreTarget]]],
) -> dict[Episode, Holding]:
    """Who was given each of the checkpoint's `episodes`: the exporting process, or every process of that participant that took part in a later restore.

    `restores` are the installed restores of this checkpoint, oldest first, as their members and what became of the targets. An episode that a restore made
    start over is no longer held. Servers without state lose none, and what a resident process held no restore gives to another.
    """
    exports = list(exports)
    residents = {manifest.participant for info, manifest in exports if info.capture is Capture.RESIDENT}
    found: dict[Episode, dict[ParticipantId, frozenset[str]]] = {episode: {} for episode in episodes}
    for info, manifest in exports:
        for record in manifest.records if info.capture is not Capture.STATELESS else ():
            if record.episode in found:
                boots = found[record.episode]
                boots[manifest.participant] = boots.get(manifest.participant, frozenset()) | {manifest.boot_id}
    held = {episode: Holding(episode, boots) for episode, boots in found.items()}
    for members, targets in restores:
        boots_now: dict[ParticipantId, frozenset[str]] = {}
        for info in members:
            boots_now[info.id] = boots_now.get(info.id, frozenset()) | {info.boot_id}
        for target in targets:
            if target.source not in held:
                continue
            if target.fate is Fate.RESTORED:
                boots = {
                    participant: before if participant in residents else boots_now.get(participant, frozenset())
                    for participant, before in held[target.source].boots.items()
                }
                held[target.source] = Holding(target.target, boots)
            else:
                del held[target.source]
    return held


def explain(
    checkpoint_id: str,
    held: Mapping[Episode, Holding],
    members: Sequence[Present],
    refused: Mapping[str, int],
    over: Mapping[str, int],
    missed: Iterable[LostEpisode] = (),
) -> Recovery:
    """`held` is what the latest checkpoint holds, `missed` what it names as lost although an older one holds it.

    `refused` is the highest attempt of each rollout that is refused, `over` the highest that is so for good: it was retired, or another restore continues it.
    What is refused and not over was stopped by a restore that came to nothing.
    """
    newest = _live(members)
    older = still_missed(missed, members, refused)
    living = {source: holding for source, holding in held.items() if not _reaches(over, holding.episode)}
    stopped = {source: holding for source, holding in living.items() if _reaches(refused, holding.episode)}
    running = {source: holding for source, holding in living.items() if source not in stopped}
    troubles = _stopped(stopped, newest, refused) + _lost_state(running, members)
    covered = {holding.episode for holding in running.values()}
    named = {trouble.episode for trouble in troubles}
    rollouts = newest | {episode.rollout_id: episode for episode in (*older, *named)}
    recoverable = len(named)
    for episode in rollouts.values():
        if episode in older:
            trouble: Trouble | None = Trouble(
                episode, None, f"{older[episode].why}; restore it from there, or retire it"
            )
        else:
            trouble = None if episode in named else _unrecoverable(checkpoint_id, episode, covered, members)
        if trouble is not None:
            troubles.append(trouble)
        elif episode not in named:
            recoverable += 1
    silent = sorted({member.info.id for member in members if member.episodes is None})
    ordered = tuple(sorted(troubles, key=lambda trouble: trouble.episode))
    return Recovery(checkpoint_id, len(rollouts), recoverable, ordered, tuple(silent))


def gone_since(
    checkpoint_id: str,
    held: Mapping[Episode, Holding],
    members: Sequence[Present],
    refused: Mapping[str, int],
) -> dict[Episode, LostEpisode]:
    """What processes that are gone held of the latest checkpoint, and nobody has restored or retired since, by its present attempt."""
    running = {source: each for source, each in held.items() if not _reaches(refused, each.episode)}
    return {
        episode: LostEpisode(
            episode,
            f"{gone[0]} held it in a process that is gone; checkpoint {checkpoint_id!r} holds {source}",
            checkpoint_id,
        )
        for source, episode, gone in _gone(running, members)
        if not _goes_on(episode, gone)
    }


def still_missed(
    missed: Iterable[LostEpisode], members: Sequence[Present], refused: Mapping[str, int]
) -> dict[Episode, LostEpisode]:
    """Those of `missed` whose rollout was neither restored nor retired nor started over since."""
    newest = _live(members)
    return {
        entry.episode: entry
        for entry in missed
        if entry.checkpoint_id
        and not _reaches(refused, entry.episode)
        and newest.get(entry.episode.rollout_id, entry.episode) == entry.episode
    }


def _stopped(
    stopped: Mapping[Episode, Holding], newest: Mapping[str, Episode], refused: Mapping[str, int]
) -> list[Trouble]:
    """Named as the attempt that the restore gave out in vain; not those that have started over since."""
    found = []
    for source in stopped:
        given = Episode(source.rollout_id, refused[source.rollout_id])
        if source.rollout_id not in newest or newest[source.rollout_id].attempt <= given.attempt:
            why = f"a restore that failed has stopped it; restore {source} from the checkpoint"
            found.append(Trouble(given, None, why, source))
    return found


def _lost_state(living: Mapping[Episode, Holding], members: Sequence[Present]) -> list[Trouble]:
    return [
        Trouble(
            episode,
            gone[0],
            f"{gone[0]} held {episode} in a process that is gone; {_remedy(source, episode, gone)}",
            source,
        )
        for source, episode, gone in _gone(living, members)
    ]


def _gone(
    living: Mapping[Episode, Holding], members: Sequence[Present]
) -> Iterator[tuple[Episode, Episode, Sequence[ParticipantId]]]:
    """Episodes that participants were given and have no more, because their processes died, as the checkpoint names them and as they are now; not those that
    have ended."""
    here = {member.info.boot_id for member in members}
    listed: dict[ParticipantId, set[Episode]] = {}
    for member in members:
        listed.setdefault(member.info.id, set()).update(member.episodes or ())
    for source, (episode, boots) in ((source, (each.episode, each.boots)) for source, each in living.items()):
        gone = [p for p in sorted(boots) if episode not in listed.get(p, ()) and not boots[p] & here]
        if gone and not _has_ended(episode, boots, set(gone), listed):
            yield source, episode, gone


def _goes_on(episode: Episode, gone: Sequence[ParticipantId]) -> bool:
    """Whether a new process lets in the next call of an attempt that no restore gave out: model servers do."""
    return episode.attempt == 0 and all(participant.kind is Kind.MODEL for participant in gone)


def _remedy(source: Episode, episode: Episode, gone: Sequence[ParticipantId]) -> str:
    """The next call of an attempt that no restore gave out is let in by a new model server. Until it comes nobody can say whether the calls before it are in a
    ledger file, and a checkpoint has none of them: so the episode is named nevertheless."""
    restore = f"restore {source} from the checkpoint"
    if not _goes_on(episode, gone):
        return restore
    return f"its next call goes on where the ledger file of that server ends; if it keeps none, {restore}"


def _has_ended(
    episode: Episode,
    boots: Mapping[ParticipantId, frozenset[str]],
    gone: set[ParticipantId],
    listed: Mapping[ParticipantId, set[Episode]],
) -> bool:
    """Whoever called all others lives and has no more of it. When that one died too, nobody knows, and losing a result is worse than playing its end again."""
    for kind in CALLERS_FIRST:
        callers = [participant for participant in boots if participant.kind is kind]
        if callers:
            return not any(participant in gone or episode in listed.get(participant, ()) for participant in callers)
    return True


def _live(members: Sequence[Present]) -> dict[str, Episode]:
    """The newest attempt of each rollout that anybody but a policy model lists: models keep what has finished."""
    newest: dict[str, Episode] = {}
    for member in members:
        for episode in () if member.info.id.kind is Kind.MODEL else member.episodes or ():
            known = newest.get(episode.rollout_id)
            if known is None or known.attempt < episode.attempt:
                newest[episode.rollout_id] = episode
    return newest


def _unrecoverable(
    checkpoint_id: str, episode: Episode, covered: set[Episode], members: Sequence[Present]
) -> Trouble | None:
    for member in members:
        if episode in member.restarts:
            return Trouble(episode, member.info.id, member.restarts[episode])
        if episode in member.lost:
            return Trouble(episode, member.info.id, f"{member.lost[episode]}; retire it, and start it over")
        if member.info.capture is Capture.RESIDENT and episode in (member.episodes or ()):
            return Trouble(episode, member.info.id, "it lives in this process alone, and starts over when that dies")
    if episode in covered:
        return None
    if not checkpoint_id:
        return Trouble(episode, None, "no checkpoint is published; create one")
    return Trouble(episode, None, f"checkpoint {checkpoint_id!r} does not hold it; the next one will")


def _reaches(highest: Mapping[str, int], episode: Episode) -> bool:
    return episode.attempt <= highest.get(episode.rollout_id, -1)
