"""What a caller asks of a checkpoint or a restore, checked, and its digest, so that a retry is told apart from another request. Durations are seconds."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from blake3 import blake3

from gymckpt.core.ids import Episode, check_id
from gymckpt.errors import ArgumentConflict, InvalidField

MAX_EPISODES = 100_000
MAX_LABELS = 64
MAX_LABEL_KEY = 63
MAX_LABEL_VALUE = 256
MAX_CONTROLLER_STATE = 2**20
HOUR = 3600.0
DAY = 24 * HOUR
LATEST = "latest"
ROUND_PREFIXES = ("restore-", "retire-", "forget-", "acknowledge-")


class OnNotReady(enum.IntEnum):
    """What happens when a participant is not ready by the deadline. Values are those of the wire."""

    ABORT = 1
    HOLD = 2


class ResumePolicy(enum.IntEnum):
    """When gates open again. Values are those of the wire."""

    AFTER_SNAPSHOT = 1
    AFTER_PUBLISH = 2
    BY_CALLER = 3


class OnUnloadable(enum.IntEnum):
    """What happens to an episode whose state a participant cannot load. Values are those of the wire."""

    FAIL = 1
    RESTART = 2


def check_checkpoint_id(value: str, field: str = "checkpoint_id") -> str:
    """Returns `value`; raises InvalidField unless it may name a checkpoint."""
    check_id(value, field)
    if value == LATEST:
        raise InvalidField(f"{field} must not be {LATEST!r}: that means the newest published one", field=field)
    for prefix in ROUND_PREFIXES:
        if value.startswith(prefix):
            raise InvalidField(f"{field} must not begin with {prefix!r}, got {value!r}", field=field)
    return value


def check_seconds(value: float, field: str, longest: float) -> float:
    """Returns `value`; raises InvalidField unless it is positive and at most `longest`."""
    if not 0 < value <= longest:
        raise InvalidField(f"{field} must be more than 0 and at most {longest:g} seconds, got {value:g}", field=field)
    return value


def check_episodes(
    episodes: tuple[Episode, ...], field: str = "episodes", *, required: bool = False
) -> tuple[Episode, ...]:
    """The episodes in order, each once. Raises InvalidField for too many, or for none when `required`."""
    if len(episodes) > MAX_EPISODES:
        raise InvalidField(f"{field} has {len(episodes)} entries, at most {MAX_EPISODES} are allowed", field=field)
    if required and not episodes:
        raise InvalidField(f"{field} is required", field=field)
    return tuple(sorted(set(episodes)))


@dataclass(frozen=True, slots=True)
class CheckpointArguments:
    """One request for a checkpoint; see CreateCheckpointRequest. No episodes means everything capturable."""

    checkpoint_id: str
    episodes: tuple[Episode, ...] = ()
    prepare_timeout: float = 30.0
    gate_lease: float = 60.0
    export_lease: float = 600.0
    on_not_ready: OnNotReady = OnNotReady.ABORT
    resume: ResumePolicy = ResumePolicy.AFTER_SNAPSHOT
    full: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    controller_state: bytes = b""

    def __post_init__(self) -> None:
        check_checkpoint_id(self.checkpoint_id)
        object.__setattr__(self, "episodes", check_episodes(self.episodes))
        check_seconds(self.prepare_timeout, "prepare_timeout", HOUR)
        check_seconds(self.gate_lease, "gate_lease", HOUR)
        check_seconds(self.export_lease, "export_lease", DAY)
        self._check_labels()
        if len(self.controller_state) > MAX_CONTROLLER_STATE:
            raise InvalidField(
                f"controller_state has {len(self.controller_state)} bytes, at most {MAX_CONTROLLER_STATE} are allowed",
                field="controller_state",
            )

    def _check_labels(self) -> None:
        if len(self.labels) > MAX_LABELS:
            raise InvalidField(
                f"labels has {len(self.labels)} entries, at most {MAX_LABELS} are allowed", field="labels"
            )
        for key, value in self.labels.items():
            check_id(key, f"labels[{key[:MAX_LABEL_KEY]!r}]", longest=MAX_LABEL_KEY)
            if len(value) > MAX_LABEL_VALUE:
                raise InvalidField(
                    f"labels[{key!r}] has {len(value)} characters, at most {MAX_LABEL_VALUE} are allowed",
                    field=f"labels[{key!r}]",
                )

    @property
    def digest(self) -> bytes:
        """Equal for equal requests, whatever the order of episodes and labels."""
        return _digest(
            {
                "id": self.checkpoint_id,
                "episodes": [str(episode) for episode in self.episodes],
                "seconds": [self.prepare_timeout, self.gate_lease, self.export_lease],
                "choices": [int(self.on_not_ready), int(self.resume), self.full],
                "labels": dict(self.labels),
                "controller_state": blake3(self.controller_state).hexdigest(),
            }
        )


@dataclass(frozen=True, slots=True)
class RestoreArguments:
    """One request for a restore; see RestoreCheckpointRequest. No episodes means all of the checkpoint."""

    restore_id: str
    checkpoint_id: str
    episodes: tuple[Episode, ...] = ()
    on_unloadable: OnUnloadable = OnUnloadable.FAIL

    def __post_init__(self) -> None:
        check_id(self.restore_id, "restore_id")
        if self.checkpoint_id != LATEST:
            check_checkpoint_id(self.checkpoint_id)
        episodes = check_episodes(self.episodes)
        for before, after in pairwise(episodes):
            if before.rollout_id == after.rollout_id:
                raise InvalidField(
                    f"episodes names two attempts of one rollout, {before} and {after}; one can continue",
                    field="episodes",
                )
        object.__setattr__(self, "episodes", episodes)

    @property
    def round_id(self) -> str:
        return f"restore-{self.restore_id}"

    @property
    def digest(self) -> bytes:
        """Equal for equal requests, whatever the order of the episodes."""
        return _digest(
            {
                "id": self.round_id,
                "checkpoint_id": self.checkpoint_id,
                "episodes": [str(episode) for episode in self.episodes],
                "on_unloadable": int(self.on_unloadable),
            }
        )


def check_same(round_id: str, stored: bytes, asked: bytes) -> None:
    """Raises ArgumentConflict when `round_id` was used with other arguments."""
    if stored != asked:
        raise ArgumentConflict(
            f"{round_id!r} was used with other arguments (digest {stored.hex()[:16]}, now {asked.hex()[:16]}); "
            "use a new id, or the arguments of the first request",
            details={"id": round_id, "arguments": asked.hex(), "first_arguments": stored.hex()},
        )


def _digest(fields: Mapping[str, object]) -> bytes:
    return blake3(json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()).digest()
