"""From what a chaos run saw to the numbers that it reports. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from servers.demo.compare import Line, different_rewards, tool_calls
from servers.demo.rollouts import Result, Rollout

ZERO = ("lost", "tool_calls_repeated", "rewards_different", "sessions_left")


@dataclass(frozen=True)
class Continuation:
    """An attempt that continued a checkpoint, and the calls of tools whose answers the checkpoint held."""

    rollout_id: str
    attempt: int
    answered: frozenset[str]


@dataclass(frozen=True)
class Outcome:
    """Counts. `turns_run_twice` are tool calls that ran again because they came after the last checkpoint, or in a rollout that started over."""

    rollouts: int
    checkpoints: int
    kills: int
    kills_by_kind: Mapping[str, int]
    continued: int
    restarted: int
    lost: int
    tool_calls_repeated: int
    rewards_different: int
    turns_run_twice: int
    sessions_left: int

    def as_json(self) -> dict[str, Any]:
        """The keys are the names of the fields."""
        return asdict(self)

    def wanted(self, name: str) -> tuple[str, bool]:
        """What a number must be, in words ("" when it may be anything), and whether it is."""
        value = getattr(self, name)
        if name in ZERO:
            return "0", value == 0
        if name in ("continued", "kills", "checkpoints"):
            return "at least 1", value >= 1
        return "", True

    def failures(self) -> list[str]:
        """What is not as it must be."""
        found = [(field.name, *self.wanted(field.name)) for field in fields(self)]
        return [f"{name} is {getattr(self, name)}, must be {wanted}" for name, wanted, good in found if not good]


def repeated(log: Iterable[Line], continuations: Iterable[Continuation]) -> int:
    """Calls that an attempt executed although the checkpoint that it continued held their answers."""
    held: dict[str, list[Continuation]] = {}
    for continuation in continuations:
        held.setdefault(continuation.rollout_id, []).append(continuation)
    return sum(
        any(
            line["attempt"] == each.attempt and line["call_id"] in each.answered
            for each in held.get(line["rollout"], ())
        )
        for line in tool_calls(log)
    )


def run_twice(log: Iterable[Line]) -> int:
    """Executions of tools beyond the first of each call."""
    calls = [(line["rollout"], line["call_id"], line["what"]) for line in tool_calls(log)]
    return len(calls) - len(set(calls))


def differing(
    rollouts: Sequence[Rollout], results: Mapping[str, Result], reference: Mapping[str, Result]
) -> tuple[int, int]:
    """Rollouts without a result, and those whose reward is not that of the undisturbed run."""
    lost = sum(rollout.rollout_id not in results for rollout in rollouts)
    return lost, different_rewards(results, reference)
