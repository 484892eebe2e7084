"""From what happened in the lives of a demo to the numbers that it reports. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gymckpt.coordinator import Checkpoint, Fate, RestoreTarget
from gymckpt.participant import Episode
from servers.demo import compare
from servers.demo.cut import Cut, different_records
from servers.demo.outcome import Outcome, Spread
from servers.demo.rollouts import Result, Rollout, outputs
from servers.demo.zombies import Attack
from servers.resources.workplace_assistant.tables import Tables
from servers.responses_api import JsonObject


@dataclass(frozen=True)
class Before:
    """What is known after the crash. The last of `checkpoints` is the one to go on from."""

    results: Mapping[str, Result]
    checkpoints: Sequence[Checkpoint]
    cut: Cut
    turns_waited_for: int
    ports: Mapping[str, int]


@dataclass(frozen=True)
class After:
    """What became of the unfinished rollouts; `log` is that of both lives, `cut` the checkpoint before anything ran again."""

    results: Mapping[str, Result]
    log: Sequence[compare.Line]
    targets: Sequence[RestoreTarget]
    cut: Cut
    attack: Attack
    sessions_left: int


@dataclass(frozen=True)
class Reference:
    """The same rollouts without a crash."""

    results: Mapping[str, Result]
    log: Sequence[compare.Line]


def restored(targets: Iterable[RestoreTarget]) -> dict[Episode, Episode]:
    """Episodes that continue from their restored state, by what they were at the cut."""
    return {target.source: target.target for target in targets if target.fate is Fate.RESTORED}


def judge(
    rollouts: Sequence[Rollout], pristine: Tables, before: Before, after: After, reference: Reference, checkpoints: int
) -> Outcome:
    """Compares the rollouts that were cut and continued with the reference; `checkpoints` were taken in all."""
    wanted = reference.results
    results = {**after.results, **before.results}
    continued = restored(after.targets)
    at_cut = {source.rollout_id: before.cut.standings[source].items for source in continued}
    depends = _dependence(pristine, at_cut, results)
    return Outcome(
        rollouts=len(rollouts),
        finished_before=len(before.results),
        continued=len(continued),
        continued_from_input=sum(not items for items in at_cut.values()),
        continued_with_changed_state=sum(each.changed for each in depends),
        restarted=sum(target.fate is Fate.RESTARTED for target in after.targets),
        lost=len(rollouts) - len(before.results) - sum(target.fate is not Fate.LOST for target in after.targets),
        tool_calls_repeated=compare.repeated_calls(after.log, reference.log),
        tool_results_after_restore=sum(each.results_after for each in depends),
        reads_of_changed_state_after_restore=sum(each.reads_of_changed_state for each in depends),
        prefix_different=compare.different_prefixes(at_cut, results),
        tool_outputs_different=compare.different_outputs(results, wanted),
        tables_different=compare.different_tables(after.log, reference.log, wanted),
        rewards_different=compare.different_rewards(results, wanted),
        second_checkpoint_different=different_records(before.cut.records, after.cut.records, continued),
        stale_attempts_tried=after.attack.tried,
        stale_attempts_accepted=len(after.attack.accepted),
        sessions_left=after.sessions_left,
        turns_waited_for=before.turns_waited_for,
        checkpoints=checkpoints,
        mean_reward=compare.mean_reward(results),
        mean_reward_uninterrupted=compare.mean_reward(wanted),
        prepare_ms=Spread.of([taken.prepare_seconds for taken in before.checkpoints]),
        pause_ms=Spread.of([taken.pause_seconds for taken in before.checkpoints[:-1]]),
    )


def _dependence(
    pristine: Tables,
    at_cut: Mapping[str, Sequence[JsonObject]],
    results: Mapping[str, Result],
) -> list[compare.Continuation]:
    """Of each continued rollout that has finished."""
    return [
        compare.Continuation(pristine, results[rollout].output, len(outputs(items)))
        for rollout, items in at_cut.items()
        if rollout in results
    ]
