"""Which attempts are refused, per rollout. Not the coordinator's fence: that one is against an old coordinator, this one against an old try."""

from __future__ import annotations

from collections.abc import Iterable

from gymckpt.core.ids import Episode
from gymckpt.core.manifest import Floor
from gymckpt.errors import StaleAttempt


class Floors:
    """`refused`: attempts up to it are refused. `born_below`: starts up to it are refused too, because this process was born after a restore gave it out."""

    def __init__(self) -> None:
        self._refused: dict[str, int] = {}
        self._born_below: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._refused.keys() | self._born_below.keys())

    def learn(self, floors: Iterable[Floor]) -> None:
        """Takes the floors that the store held when this process was born."""
        for floor in floors:
            if floor.refused >= 0:
                self.refuse(Episode(floor.rollout_id, floor.refused))
            if floor.target > self._born_below.get(floor.rollout_id, -1):
                self._born_below[floor.rollout_id] = floor.target

    def refuse(self, episode: Episode) -> None:
        """Refuses this attempt and all before it; never lowers."""
        if episode.attempt > self._refused.get(episode.rollout_id, -1):
            self._refused[episode.rollout_id] = episode.attempt

    def refuses(self, episode: Episode) -> bool:
        """Whether the attempt is retired or replaced."""
        return episode.attempt <= self._refused.get(episode.rollout_id, -1)

    def check(self, episode: Episode) -> None:
        """Raises StaleAttempt for a refused attempt."""
        refused = self._refused.get(episode.rollout_id, -1)
        if episode.attempt <= refused:
            raise StaleAttempt(
                f"attempt {episode.attempt} of {episode.rollout_id!r} is refused: attempts up to {refused} were retired or replaced; stop it. "
                "If it is no older try but a new rollout, another run over the same store has used its id: give the rollouts of each run ids of their own",
                details={"rollout_id": episode.rollout_id, "attempt": str(episode.attempt), "refused": str(refused)},
            )

    def check_start(self, episode: Episode) -> None:
        """Raises StaleAttempt for a refused attempt, and for the start of one that a restore gave out before this process was born."""
        self.check(episode)
        if self.born_after(episode):
            born_below = self._born_below[episode.rollout_id]
            raise StaleAttempt(
                f"attempt {episode.attempt} of {episode.rollout_id!r} cannot start here: this process was born after a restore gave out attempt {born_below}, "
                "whose state it does not hold; restore the rollout again",
                details={
                    "rollout_id": episode.rollout_id,
                    "attempt": str(episode.attempt),
                    "born_below": str(born_below),
                },
            )

    def born_after(self, episode: Episode) -> bool:
        """Whether a restore gave this attempt out, with state, before this process was born."""
        return episode.attempt <= self._born_below.get(episode.rollout_id, -1)

    def forget(self, rollout_ids: Iterable[str]) -> None:
        """Drops both floors of rollouts of which nothing can run any more."""
        for rollout_id in rollout_ids:
            self._refused.pop(rollout_id, None)
            self._born_below.pop(rollout_id, None)
