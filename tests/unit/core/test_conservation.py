"""Whatever a checkpoint holds and whatever has happened since: every episode that was asked for has one fate."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from gymckpt.core.decisions import Attempts, outcome, restore_targets, unloadable_targets
from gymckpt.core.ids import Digest, Episode
from gymckpt.core.kinds import Fate
from gymckpt.core.manifest import CheckpointManifest, Decision, Floor, RestoreIntent, RestoreTarget
from gymckpt.core.report import LostEpisode, Restart

MANIFEST = Digest(b"m" * 32, 5)
EPISODES = st.builds(Episode, st.sampled_from(["a", "b", "c", "d", "e"]), st.integers(0, 3))
SOME = st.frozensets(EPISODES, max_size=12)


@dataclass(frozen=True)
class Asked:
    """A restore: the checkpoint, which of its episodes are asked for, and what has become of some of them."""

    manifest: CheckpointManifest
    asked: tuple[Episode, ...]
    gone: frozenset[Episode]
    unloadable: frozenset[Episode]
    floors: tuple[Floor, ...]

    @property
    def episodes(self) -> set[Episode]:
        manifest = self.manifest
        given_up = (*(entry.episode for entry in manifest.restarts), *(entry.episode for entry in manifest.lost))
        return set(self.asked) or {*manifest.episodes, *given_up}

    def attempts(self) -> Attempts:
        attempts = Attempts()
        attempts.learn_floors(self.floors, retired=False)
        return attempts


@st.composite
def restores(draw: st.DrawFn) -> Asked:
    kept, restarts, lost = draw(SOME), draw(SOME), draw(SOME)
    manifest = CheckpointManifest(
        "c1",
        1,
        1,
        0,
        episodes=tuple(sorted(kept)),
        restarts=tuple(Restart(e, "restart only") for e in sorted(restarts - kept)),
        lost=tuple(LostEpisode(e, "nobody exported it") for e in sorted(lost - kept - restarts)),
    )
    named = sorted(kept | restarts | lost)
    asked = draw(st.lists(st.sampled_from(named), unique=True).map(tuple)) if named else ()
    floors = draw(st.lists(st.builds(Floor, st.sampled_from(["a", "b", "c"]), st.integers(-1, 9)), max_size=3))
    return Asked(manifest, asked, draw(SOME), draw(SOME), tuple(floors))


def told(asked: Asked) -> tuple[RestoreTarget, ...]:
    """What a caller is told of the restore, which the same records must say again to a successor."""
    targets = restore_targets(asked.asked, asked.manifest, asked.attempts(), dict.fromkeys(asked.gone, "gone"))
    intent = RestoreIntent(1, 1, "c1", MANIFEST, targets, (), b"")
    restarted = unloadable_targets(intent, dict.fromkeys(asked.unloadable, "another schema"))
    return outcome(intent, Decision(MANIFEST, restarted=restarted))


@given(restores())
def test_asked_is_restored_and_restarted_and_lost_together(asked: Asked) -> None:
    """X13: each once, none invented; whatever is not restored says why."""
    outcome = told(asked)
    assert sorted(target.source for target in outcome) == sorted(asked.episodes)
    assert all(target.why for target in outcome if target.fate is not Fate.RESTORED)
    kept = set(asked.manifest.episodes)
    assert {target.source for target in outcome if target.fate is Fate.RESTORED} <= kept - asked.gone - asked.unloadable


@given(restores())
def test_one_attempt_of_a_rollout_goes_on_and_nobody_had_it_before(asked: Asked) -> None:
    """X13, X29: of two attempts of a rollout at most one is restored, under a number above all that were ever given or refused."""
    outcome = told(asked)
    going_on = [target for target in outcome if target.fate is Fate.RESTORED]
    assert len({target.source.rollout_id for target in going_on}) == len(going_on)
    for target in outcome:
        used = [e.attempt for e in asked.episodes if e.rollout_id == target.source.rollout_id]
        used += [floor.refused for floor in asked.floors if floor.rollout_id == target.source.rollout_id]
        assert target.attempt == max(used) + 1
