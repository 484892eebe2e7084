"""What the demo saw, as numbers, and which of them must not be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from statistics import median
from typing import Any


@dataclass(frozen=True)
class Spread:
    """Measured times in milliseconds."""

    n: int
    p50: float
    max: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Spread:
        """Of measurements in seconds; all zero without any."""
        if not seconds:
            return cls(0, 0.0, 0.0)
        return cls(len(seconds), round(median(seconds) * 1e3, 2), round(max(seconds) * 1e3, 2))


@dataclass(frozen=True)
class Outcome:
    """Counts of rollouts, calls, items and sessions.

    `turns_waited_for` are agents' turns that were under way when a checkpoint was asked for and had ended at its cut; `continued_from_input` are continued
    rollouts whose conversation was still empty at the cut.
    """

    rollouts: int
    finished_before: int
    continued: int
    continued_from_input: int
    continued_with_changed_state: int
    restarted: int
    lost: int
    tool_calls_repeated: int
    tool_results_after_restore: int
    reads_of_changed_state_after_restore: int
    prefix_different: int
    tool_outputs_different: int
    tables_different: int
    rewards_different: int
    second_checkpoint_different: int
    stale_attempts_tried: int
    stale_attempts_accepted: int
    sessions_left: int
    turns_waited_for: int
    checkpoints: int
    mean_reward: float
    mean_reward_uninterrupted: float
    prepare_ms: Spread
    pause_ms: Spread

    def as_json(self) -> dict[str, Any]:
        """The keys are the names of the fields."""
        return asdict(self)

    def wanted(self, name: str) -> tuple[str, bool]:
        """What a number must be, in words ("" when it may be anything), and whether it is. A small run need not see as many reads as a large one."""
        value = getattr(self, name)
        if name in ZERO:
            return "0", value == 0
        least = {
            "continued": 1,
            "continued_with_changed_state": 1,
            "stale_attempts_tried": max(1, 4 * self.continued),
            "reads_of_changed_state_after_restore": min(10, self.rollouts // 4),
        }
        if name in least:
            return f"at least {least[name]}", value >= least[name]
        if name == "continued_from_input":
            return f"at most {self.continued // 5}", value * 5 <= self.continued
        if name == "rollouts":
            accounted = self.finished_before + self.continued + self.restarted + self.lost
            return f"{accounted} in all", value == accounted
        if name == "mean_reward":
            return f"{self.mean_reward_uninterrupted:.3f}", value == self.mean_reward_uninterrupted
        return "", True

    def failures(self) -> list[str]:
        """What is not as it must be, one sentence each."""
        found = [(field.name, *self.wanted(field.name)) for field in fields(self)]
        return [f"{name} is {getattr(self, name)}, must be {wanted}" for name, wanted, good in found if not good]


ZERO = (
    "restarted",
    "lost",
    "tool_calls_repeated",
    "prefix_different",
    "tool_outputs_different",
    "tables_different",
    "rewards_different",
    "second_checkpoint_different",
    "stale_attempts_accepted",
    "sessions_left",
)
