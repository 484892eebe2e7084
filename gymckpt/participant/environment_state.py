"""What an environment keeps of an episode: which task it is, and the boundary that it continues from, or its result."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from blake3 import blake3

from gymckpt.core.manifest import Touch
from gymckpt.core.steps import EpisodeSteps
from gymckpt.errors import InvalidField, UnloadableState
from gymckpt.participant.state import decode_json, encode_json

_PAYLOAD = "payload/"
_RESULT = "result"


@dataclass(frozen=True, slots=True)
class Boundary:
    """A stage that comes next and what it needs, already in bytes: nothing that the environment does later changes it."""

    stage: str
    payload: Mapping[str, bytes]
    touches: tuple[Touch, ...] = ()

    @classmethod
    def of(cls, stage: str, payload: Mapping[str, Any], touches: Sequence[Touch]) -> Boundary:
        """Raises InvalidField for an empty stage, and for a payload that is not plain data or has a key `stage`."""
        if not stage:
            raise InvalidField("a boundary needs the name of its stage", field="stage")
        if "stage" in payload:
            raise InvalidField(f"the payload of boundary {stage!r} must not have a key 'stage'", field="payload")
        try:
            return cls(stage, encode_json(payload), tuple(touches))
        except ValueError as error:
            raise InvalidField(f"the payload of boundary {stage!r} is {error}", field="payload") from error

    @property
    def continuation(self) -> dict[str, Any]:
        """The payload as it was given, and `stage`; a new copy each time."""
        return {"stage": self.stage, **decode_json(self.payload)}


@dataclass(frozen=True, slots=True)
class Kept:
    """An episode in a cut: the body of its result once it has finished. `boundary` None: none was declared yet, it starts over from its input."""

    task: str
    boundary: Boundary | None = None
    result: bytes | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """The body of a result. `continues`: its attempt continued restored state, and so does a call that repeats it."""

    body: bytes
    continues: bool


def task_digest(task: Any) -> str:
    """Equal for equal JSON values, whatever the order of their keys. Raises InvalidField for what is not JSON."""
    try:
        text = json.dumps(task, sort_keys=True, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidField(f"task is not a JSON value: {error}", field="task") from error
    return blake3(text.encode()).hexdigest()


class EnvironmentState:
    """The five methods over the live steps, over what was restored and not yet continued, and over what has finished."""

    schema = "gymckpt.environment/1"

    def __init__(self, steps: EpisodeSteps[Boundary]) -> None:
        self._steps = steps
        self.tasks: dict[str, str] = {}
        self.restored: dict[str, Boundary | None] = {}
        self.finished: dict[str, Finished] = {}

    def boundary(self, session: str) -> Boundary | None:
        """Where the episode would continue from."""
        return self._steps[session].boundary if session in self._steps else self.restored[session]

    def freeze(self, session: str) -> Kept:
        if session in self.finished:
            return Kept(self.tasks[session], result=self.finished[session].body)
        return Kept(self.tasks[session], self.boundary(session))

    def encode(self, frozen: Kept) -> Mapping[str, bytes]:
        task = {"task": frozen.task.encode()}
        if frozen.result is not None:
            return task | {_RESULT: frozen.result}
        if frozen.boundary is None:
            return task
        payload = {f"{_PAYLOAD}{name}": data for name, data in frozen.boundary.payload.items()}
        return task | {"stage": frozen.boundary.stage.encode()} | payload

    def load(self, parts: Mapping[str, bytes]) -> Kept:
        if parts.keys() == {"task", _RESULT}:
            return _finished(parts["task"], parts[_RESULT])
        payload = {name.removeprefix(_PAYLOAD): data for name, data in parts.items() if name.startswith(_PAYLOAD)}
        unknown = parts.keys() - {"task", "stage"} - {f"{_PAYLOAD}{name}" for name in payload}
        if "task" not in parts or unknown or bool(payload) != ("stage" in parts):
            raise UnloadableState(f"the parts {sorted(parts)[:8]} are not those of an episode")
        if "stage" not in parts:
            return Kept(parts["task"].decode(), None)
        boundary = Boundary(parts["stage"].decode(), payload)
        boundary.continuation  # noqa: B018 - decodes it, so that what cannot be read is refused before anything is installed
        return Kept(parts["task"].decode(), boundary)

    def install(self, session: str, loaded: Kept) -> None:
        self.tasks[session] = loaded.task
        if loaded.result is not None:
            self.finished[session] = Finished(loaded.result, continues=True)
        else:
            self.restored[session] = loaded.boundary

    def discard(self, session: str) -> None:
        self.tasks.pop(session, None)
        self.restored.pop(session, None)
        self.finished.pop(session, None)


def _finished(task: bytes, body: bytes) -> Kept:
    """What cannot be answered is refused before anything is installed. Raises UnloadableState."""
    try:
        json.loads(body)
    except ValueError as error:
        raise UnloadableState(f"the result of an episode is not JSON: {error}") from error
    return Kept(task.decode(), result=body)
